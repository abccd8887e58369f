"""A run of chaos that is told to end in the middle takes down what it started, also where a shell has put it into the background."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slinky.sandbox.handle import Sandbox
from tests.chaos.__main__ import TOLD_TO_END
from tests.sandbox.leftovers import HeldNamespace, leftovers
from tests.sandbox.processes import children

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

SEED = 990_000
LIMIT_SECONDS = 300


def test_a_run_that_is_told_to_end_leaves_no_sandbox_and_no_bridge(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.chaos", "--seed", str(SEED), "--seconds", "120", "--folder", str(tmp_path)]
    foreground = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does with what it runs in the background
    try:
        run = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, foreground)
    assert run.stdout is not None
    assert any("the bridge runs" in line for line in run.stdout)
    sandbox = Sandbox.running(f"chaos-{SEED}")
    inside = HeldNamespace(sandbox.record.keeper.pid)
    processes = children(run.pid)
    assert sum(" -m slinky bridge " in command for command in processes.values()) == 3
    run.terminate()
    told, _ = run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode == TOLD_TO_END, told
    assert "its sandbox is down" in told
    assert leftovers(sandbox.record.identity, sandbox.folder, inside) == []
    inside.close()
    assert not [command for pid, command in processes.items() if Path(f"/proc/{pid}").exists()]
