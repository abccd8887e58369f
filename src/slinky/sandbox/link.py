"""The host's side of a running sandbox: requests to its keeper, over the keeper's socket."""

import asyncio
import socket

import msgspec

from slinky.sandbox.errors import SandboxError
from slinky.sandbox.keeper import Part, PartState, Reply, Request, socket_name
from slinky.sandbox.machine import Machine

__all__ = ["KeeperLink"]

ANSWER_SECONDS = 330  # more than the keeper gives a command


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

    async def forget(self, name: str) -> None:
        """One that has ended for good: it is no longer told of."""
        await self._ask(Request("forget", name=name))

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
