"""A command of ours that goes on running, as a user sees it in a terminal that is none: what it said so far, and how it ends."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import CHECKOUT

__all__ = ["Started", "children", "started"]

PATIENCE = 300  # a loaded machine is no failure


class Started:
    """Both streams are `said`."""

    def __init__(self, *arguments: str) -> None:
        command = [str(CHECKOUT / ".venv/bin/slinky"), *arguments]
        environment = os.environ | {"COLUMNS": "160", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return "".join(self._lines)

    def until_said(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.said:
            assert self._process.poll() is None, f"it ended before it said {text!r}:\n{self.said}"
            assert time.monotonic() < deadline, f"it has not said {text!r}:\n{self.said}"
            time.sleep(0.05)

    def send(self, number: signal.Signals, pid: int = 0) -> None:
        os.kill(pid or self.pid, number)

    def wait(self) -> int:
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def end(self, number: signal.Signals) -> int:
        if self._process.poll() is None:
            self.send(number)
        return self.wait()

    def close(self) -> None:
        self.end(signal.SIGTERM)
        assert self._process.stdout
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.append(line)


@contextmanager
def started(*arguments: str) -> Iterator[Started]:
    process = Started(*arguments)
    try:
        yield process
    finally:
        process.close()


def children(pid: int) -> dict[int, str]:
    """PID → command line."""
    found = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return {child: Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ") for child in found}
