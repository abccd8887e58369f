"""Every example of the guide runs, in order, as it stands."""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slinky.sandbox.handle import Sandbox

pytestmark = pytest.mark.sandbox

GUIDE = Path(__file__).parents[2] / "docs/slurm-client.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[int, str, str]]:
    text = GUIDE.read_text()
    return [(text.count("\n", 0, match.start()) + 2, match[1], match[2]) for match in BLOCK.finditer(text)]


async def test_every_example_runs(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sandbox.exports().items():
        if name.startswith("SLINKY_SLURM"):
            monkeypatch.setenv(name, value)
    namespace: dict[str, Any] = {}
    for line, language, text in blocks():
        if language == "python":
            code = compile("\n" * (line - 1) + text, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, namespace)
            if inspect.iscoroutine(result):
                await result
        else:
            shell(text)


def shell(text: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True, env=os.environ | {"PATH": path}, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_the_guide_has_examples() -> None:
    languages = [language for _, language, _ in blocks()]
    assert set(languages) == {"python", "sh"}
    assert languages.count("python") >= 12
