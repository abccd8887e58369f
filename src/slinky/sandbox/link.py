"""The host's side of a running sandbox: its keeper's socket, and proof that a PID is still the keeper that was started.

What must stay true: no PID is ever signalled that does not carry the start time and boot that were written down for it.
"""

import asyncio
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from slinky.sandbox.errors import SandboxError
from slinky.sandbox.keeper import Part, PartState, Reply, Request, socket_name
from slinky.sandbox.machine import Machine

__all__ = ["Identity", "KeeperLink", "end_process", "host_pid", "identify", "is_running"]

ANSWER_SECONDS = 60


class Identity(msgspec.Struct, frozen=True):
    """A process that cannot be taken for another one."""

    pid: int
    start_time: int
    boot: str


def identify(pid: int) -> Identity:
    return Identity(pid, _start_time(pid), _boot())


def is_running(identity: Identity) -> bool:
    try:
        return _boot() == identity.boot and _start_time(identity.pid) == identity.start_time and _state(identity.pid) != "Z"
    except OSError:
        return False


def end_process(identity: Identity, seconds: float = 10) -> None:
    """SIGKILL, and wait until it is gone. For a keeper: the kernel ends its whole PID namespace first."""
    if not is_running(identity):
        return
    handle = os.pidfd_open(identity.pid)
    try:
        if is_running(identity):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    deadline = time.monotonic() + seconds
    while is_running(identity):
        if time.monotonic() > deadline:
            raise SandboxError(f"process {identity.pid} did not end within {seconds:g} s of SIGKILL")
        time.sleep(0.02)


def host_pid(keeper: Identity, inner: int) -> int:
    """The PID by which the host knows a child of the keeper."""
    for child in Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split():
        with suppress(OSError):
            for line in Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[-1] == str(inner):
                    return int(child)
    raise SandboxError(f"the keeper {keeper.pid} has no child {inner}")


class KeeperLink:
    """Requests to a keeper; each has a deadline, and an error that names what was asked."""

    def __init__(self, identity: str) -> None:
        self._address = socket_name(identity)

    async def machine(self, machine: Machine) -> None:
        await self._ask(Request("machine", machine=machine))

    async def start(self, part: Part) -> None:
        await self._ask(Request("start", part=part))

    async def signal(self, name: str, number: int) -> None:
        await self._ask(Request("signal", name=name, signal=number))

    async def run(self, machine: str, *command: str) -> str:
        return (await self._ask(Request("run", name=machine, command=list(command)))).output

    async def script(self, machine: str, text: str) -> str:
        return await self.run(machine, "sh", "-euc", text)

    async def parts(self) -> dict[str, PartState]:
        return (await self._ask(Request("status"))).parts

    async def holders(self) -> dict[str, int]:
        return (await self._ask(Request("status"))).holders

    async def _ask(self, request: Request) -> Reply:
        what = f"{request.operation} {request.name or (request.part or request.machine or request).__class__.__name__}"
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await self._connect()
                try:
                    writer.write(msgspec.json.encode(request) + b"\n")
                    line = await reader.readline()
                finally:
                    writer.close()
        except TimeoutError:
            raise SandboxError(f"the keeper did not answer {what} within {ANSWER_SECONDS} s") from None
        except OSError as error:
            raise SandboxError(f"the sandbox's keeper is gone ({error})") from error
        if not line:
            raise SandboxError("the sandbox's keeper closed the connection: it ended, or you are not root")
        reply = msgspec.json.decode(line, type=Reply)
        if reply.error:
            raise SandboxError(reply.error)
        return reply

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, self._address)
            return await asyncio.open_unix_connection(sock=connection, limit=16 * 1024 * 1024)
        except BaseException:
            connection.close()
            raise


def _start_time(pid: int) -> int:
    return int(_stat(pid)[19])


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
