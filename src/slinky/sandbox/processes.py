"""Long-running commands of slinky itself, run beside a sandbox as an admin would run them.

Comes in: a group of commands (`bridge`, `operator`), and for each part its words. Goes out: processes with a log each in one folder, ready when /readyz says so. What must stay true: they end with the one who started
them, also if that one is killed; every wait ends, with the end of the log of the part that was waited for.
"""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp

from slinky.sandbox.errors import SandboxError

__all__ = ["Processes", "end_with_parent", "free_port"]

READY_SECONDS = 60.0
END_SECONDS = 20.0
PR_SET_PDEATHSIG = 1


class Processes:
    """By part; `slinky GROUP PART …`. `before` are words that run the rest somewhere else."""

    def __init__(self, group: str, folder: Path, before: Sequence[str] = (), host: str = "localhost") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._group, self._before, self._host = group, tuple(before), host
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._health: dict[str, int] = {}

    def health(self, part: str = "run") -> str:
        return f"http://{self._host}:{self._port(part)}"

    def pid(self, part: str) -> int:
        return self._processes[part].pid

    def log(self, part: str) -> str:
        return (self.folder / f"{part}.log").read_text(errors="replace")

    async def start_part(self, part: str, *words: str) -> None:
        """And wait until it is ready."""
        command = [*self._before, sys.executable, "-m", "slinky", self._group, part, *words, "--health-port", str(self._port(part))]
        with (self.folder / f"{part}.log").open("ab") as log:
            self._processes[part] = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=end_with_parent, start_new_session=True
            )
        await self._ready(part)

    def _port(self, part: str) -> int:
        """The same each time, so that who watches it need not ask again."""
        return self._health.setdefault(part, free_port())

    async def stop(self, part: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Returns its exit code."""
        process = self._processes.pop(part)
        if process.returncode is None:
            _signal(process.pid, number)
        try:
            async with asyncio.timeout(END_SECONDS):
                return await process.wait()
        except TimeoutError:
            _signal(process.pid, signal.SIGKILL)
            await process.wait()
            raise SandboxError(
                f"slinky {self._group} {part} did not end within {END_SECONDS:g} s of {number.name}; its log is {self.folder / part}.log"
            ) from None

    async def stop_all(self) -> None:
        for part in list(self._processes):
            await self.stop(part)

    async def first_to_end(self) -> tuple[str, int]:
        """Waits until one of those that run has ended by itself: which, and its exit code."""
        waits = {asyncio.ensure_future(process.wait()): part for part, process in self._processes.items()}
        try:
            ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        first = ended.pop()
        return waits[first], first.result()

    async def _ready(self, part: str) -> None:
        process = self._processes[part]
        try:
            async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2)) as session:
                while not await _is_ready(session, f"{self.health(part)}/readyz"):
                    if process.returncode is not None:
                        raise SandboxError(f"slinky {self._group} {part} ended with {process.returncode}: {self.log(part)[-2000:]}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise SandboxError(f"slinky {self._group} {part} was not ready within {READY_SECONDS:g} s: {self.log(part)[-2000:]}") from None


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    """To a child of ours that asyncio waits for. Its own `send_signal` would look first whether the child has ended, and take its exit code from whoever waits."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
