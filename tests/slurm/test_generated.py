"""What is made from the code is what the code would make."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["generate_sync_face.py", "generate_slurm_reference.py"])
def test_generated_files_are_up_to_date(script: str) -> None:
    result = subprocess.run([sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
