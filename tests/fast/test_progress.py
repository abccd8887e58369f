"""What a person sees of a long step."""

import io
import time

import pytest
from rich.console import Console

from slinky.sandbox import progress as module
from slinky.sandbox.progress import Progress


def test_a_slow_step_speaks_while_it_runs_and_says_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET", 0.0)
    monkeypatch.setattr(module, "HEARTBEAT", 0.0)
    out = io.StringIO()
    deadline = time.monotonic() + 20
    with Progress(Console(file=out)) as progress, progress.step("building a cathedral") as step:
        step.say("12 of 300 stones")
        while "12 of 300 stones" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "… building a cathedral: 12 of 300 stones (" in out.getvalue()
    assert "✓ building a cathedral (" in out.getvalue()


def test_a_quick_step_is_silent_and_a_failed_one_is_not() -> None:
    out = io.StringIO()
    with Progress(Console(file=out)) as progress:
        with progress.step("quick"):
            pass
        with pytest.raises(ValueError, match="no"), progress.step("doomed"):
            raise ValueError("no")
    assert "quick" not in out.getvalue()
    assert "✗ doomed" in out.getvalue()
