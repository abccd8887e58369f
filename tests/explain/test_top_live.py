"""`slinky top` on a terminal, where neither side answers: it says so at once, asks again, and q or Ctrl-C leave the terminal as it was."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SHOWN, LEFT = "\x1b[?1049h", "\x1b[?1049l"  # the alternate screen


def read_until(terminal: int, words: str, said: str = "", seconds: float = 60) -> str:
    deadline = time.monotonic() + seconds
    while words not in said:
        assert time.monotonic() < deadline, said
        try:
            said += os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            break
    return said


def _as_on_a_terminal() -> None:
    """Where a shell has the tests in its background, Ctrl-C is ignored by all of them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def press_q(terminal: int, _: subprocess.Popen[bytes]) -> None:
    os.write(terminal, b"q")


def interrupt(_: int, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("leave", [interrupt, press_q])
def test_it_draws_asks_again_and_leaves(tmp_path: Path, leave: Callable[[int, subprocess.Popen[bytes]], None]) -> None:
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "none"), "SLINKY_SLURM_URL": "http://127.0.0.1:9", "TERM": "xterm"}
    environment.pop("SLINKY_BRIDGE_CONFIG", None)
    command = [sys.executable, "-m", "slinky", "top", "--every", "1"]
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment, preexec_fn=_as_on_a_terminal)
    os.close(inside)
    try:
        first = read_until(terminal, "queue (0 jobs)")
        assert "asking Slurm and Kubernetes" in first
        assert SHOWN in first
        assert "q quit" in read_until(terminal, "q quit", first)
        assert "slurm-token-unreadable" in first or "slurm-unreachable" in first
        read_until(terminal, "queue (0 jobs)")  # the next look
        leave(terminal, process)
        last = read_until(terminal, LEFT)
        assert process.wait(60) == 0
        assert "Traceback" not in last
        assert LEFT in last
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
