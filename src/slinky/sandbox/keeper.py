"""The keeper: the first process of the sandbox's PID namespace, under which everything in it runs.

Comes in: requests on an abstract socket, one JSON line each (see `Request`), from root only. Goes out: machines, parts (servers) with a
log file each, and their state. What must stay true: the keeper starts nothing by itself and restarts nothing, so a part that died stays visible as
dead; no log grows beyond `LOG_BYTES`; and when the keeper ends, by whatever signal, the kernel ends all it started.
"""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from slinky.sandbox import kernel
from slinky.sandbox.identity import KeeperFile, identify, write_keeper_file
from slinky.sandbox.machine import Machine

__all__ = ["Part", "PartState", "Reply", "Request", "main", "socket_name"]

# Of all that runs in the sandbox. Nothing of the shell that brought it up: its PATH may begin with another sandbox's commands.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
LOG_BYTES = 64 * 1024 * 1024
LOG_SECONDS = 5.0
HOLD_SECONDS = 20
RUN_SECONDS = 300  # for a short command of the set-up; an image import on a slow disk is the longest


class Part(msgspec.Struct, frozen=True):
    """A server: what runs, where, and as whom."""

    name: str
    machine: str
    command: list[str]
    environment: dict[str, str] = {}
    user: str = ""


class PartState(msgspec.Struct):
    """What became of a part: running while `exit_code` is None (negative: ended by that signal)."""

    part: Part
    pid: int
    started: float
    exit_code: int | None = None


class Request(msgspec.Struct, omit_defaults=True):
    """One thing asked of the keeper."""

    operation: Literal["machine", "start", "signal", "forget", "run", "status"]
    machine: Machine | None = None
    part: Part | None = None
    name: str = ""
    signal: int = 0
    command: list[str] = []


class Reply(msgspec.Struct, omit_defaults=True):
    error: str = ""
    output: str = ""
    holders: dict[str, int] = {}
    parts: dict[str, PartState] = {}


def socket_name(identity: str) -> str:
    """The abstract address of a sandbox's keeper: no file, gone with the process."""
    return f"\0slinky-sandbox-{identity}"


class Keeper:
    def __init__(self, folder: Path) -> None:
        self._logs = folder / "logs"
        self._logs.mkdir(exist_ok=True)
        self._holders: dict[str, int] = {}
        self._parts: dict[str, PartState] = {}
        self._own: set[int] = set()
        self._zombies: set[int] = set()

    async def answer(self, request: Request) -> Reply:
        match request.operation:
            case "machine":
                assert request.machine is not None
                await self._hold(request.machine)
            case "start":
                assert request.part is not None
                await self._start(request.part)
            case "signal":
                self._signal(request.name, request.signal)
            case "forget":
                self._forget(request.name)
            case "run":
                return Reply(output=await self._run(request.name, request.command))
            case "status":
                pass
        return Reply(holders=self._holders, parts=self._parts)

    async def _hold(self, wanted: Machine) -> None:
        if wanted.name in self._holders:
            return
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "slinky.sandbox.machine", msgspec.json.encode(wanted).decode(), stdin=asyncio.subprocess.DEVNULL
        )
        self._own.add(process.pid)
        up = Path(f"/proc/{process.pid}/root/run/up")
        deadline = time.monotonic() + HOLD_SECONDS
        while not up.exists():
            if process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"machine {wanted.name} did not come up (see logs/keeper.log)")
            await asyncio.sleep(0.01)
        self._holders[wanted.name] = process.pid

    def _entered(self, name: str, command: list[str], user: str = "") -> list[str]:
        holder = self._holders.get(name)
        if holder is None:
            raise RuntimeError(f"no machine {name!r}; there is {', '.join(self._holders) or 'none'}")
        become = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"] if user else []
        return ["nsenter", "--target", str(holder), "--mount", "--net", "--uts", "--wdns=/", "--", *become, *command]

    async def _start(self, part: Part) -> None:
        known = self._parts.get(part.name)
        if known and known.exit_code is None:
            return
        command = self._entered(part.machine, part.command, part.user)
        with (self._logs / f"{part.name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=ENVIRONMENT | part.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._own.add(process.pid)
        state = self._parts[part.name] = PartState(part, process.pid, time.time())
        task = asyncio.create_task(self._await_end(state, process))
        task.add_done_callback(lambda done: done.exception())

    async def _await_end(self, state: PartState, process: asyncio.subprocess.Process) -> None:
        state.exit_code = await process.wait()
        self._own.discard(process.pid)

    def _signal(self, name: str, number: int) -> None:
        state = self._parts.get(name)
        if state is None:
            raise RuntimeError(f"no part {name!r}; there is {', '.join(self._parts) or 'none'}")
        if state.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it ended a moment ago, as will be seen
                os.kill(state.pid, number)

    def _forget(self, name: str) -> None:
        state = self._parts.get(name)
        if state and state.exit_code is None:
            raise RuntimeError(f"part {name!r} runs: it can be forgotten when it has ended")
        self._parts.pop(name, None)

    async def _run(self, name: str, command: list[str]) -> str:
        """A short command of the sandbox's own set-up, on a machine."""
        process = await asyncio.create_subprocess_exec(
            *self._entered(name, command),
            env=ENVIRONMENT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._own.add(process.pid)
        try:
            async with asyncio.timeout(RUN_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise RuntimeError(f"{' '.join(command)} on {name} did not end within {RUN_SECONDS} s") from None
        finally:
            self._own.discard(process.pid)
        text = output.decode(errors="replace")
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} on {name} failed: {text.strip()}")
        return text

    async def bound_logs(self) -> None:
        """Cut a log that grew too long; its writers append, so they go on at its new end."""
        while True:
            await asyncio.sleep(LOG_SECONDS)
            for log in self._logs.glob("*.log"):
                with suppress(OSError):  # one that cannot be cut now is tried again
                    _cut(log)

    async def reap_orphans(self) -> None:
        """As the first process, the keeper inherits what others leave behind (shims, containers), and must take note of their ends.

        Only what was found dead twice: a process of our own may be found dead just before it is known as ours.
        """
        while True:
            await asyncio.sleep(1)
            dead = _zombies() - self._own
            for pid in dead & self._zombies:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            self._zombies = dead


def _cut(log: Path) -> None:
    """Keep a quarter of what a log may be. Its writers append, so they go on at the new end."""
    if log.stat().st_size <= LOG_BYTES:
        return
    with log.open("r+b") as file:
        file.seek(-LOG_BYTES // 4, os.SEEK_END)
        tail = file.read()
        file.seek(0)
        file.write(tail)
        file.truncate()


async def _serve(keeper: Keeper, identity: str) -> None:
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Request)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        with suppress(ConnectionError, asyncio.CancelledError):
            while uid == 0 and (line := await reader.readline()):
                try:
                    reply = await keeper.answer(decoder.decode(line))
                except Exception as error:
                    reply = Reply(error=str(error) or repr(error))
                writer.write(encoder.encode(reply) + b"\n")
                await writer.drain()
        writer.close()

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(socket_name(identity))
    await asyncio.start_unix_server(talk, sock=listener, limit=1024 * 1024)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    logs = asyncio.create_task(keeper.bound_logs())
    orphans = asyncio.create_task(keeper.reap_orphans())
    await ended.wait()
    logs.cancel()
    orphans.cancel()


def _zombies() -> set[int]:
    found = set()
    for pid in map(int, Path("/proc/1/task/1/children").read_text().split()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                found.add(pid)
    return found


def main(arguments: list[str]) -> None:
    """`keeper FOLDER IDENTITY`: fork into a new PID namespace and leave the keeper running there.

    Its PID is written to `keeper.json` before it may do anything, so there is no instant in which it runs unknown.
    """
    folder, identity = Path(arguments[0]), arguments[1]
    kernel.unshare(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS)
    kernel.mount("none", Path("/"), flags=kernel.MS_SLAVE | kernel.MS_REC)
    may_go, go = os.pipe()
    pid = os.fork()
    if pid:
        write_keeper_file(folder, KeeperFile(identity, identify(pid)))
        os.write(go, b"!")
        return
    os.close(go)
    if not os.read(may_go, 1):
        return
    kernel.mount("proc", Path("/proc"), "proc")
    with Path(os.devnull).open() as null:
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)
    os.chdir("/")
    asyncio.run(_serve(Keeper(folder), identity))


if __name__ == "__main__":
    main(sys.argv[1:])
