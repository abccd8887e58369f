"""An HTTP proxy that lets streams through, for runs in which everything goes on while single requests go wrong.

Comes in: HTTP/1.1 requests, also those whose answer never ends (a watch). Goes out: the same to the server behind, by TLS where a context is given, and its answers as they come, except where `plan` says otherwise; `answered` is told
of each request that the server has answered, whether or not the client hears of it.

What must stay true: what is not forwarded never reaches the server, what is forwarded reaches it once, and no connection outlives the proxy.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

import msgspec

from tests.faults.proxy import HEAD_LIMIT, HeardRequest, headers_of, read_request, reset

__all__ = ["PASS", "Tamper", "TamperingProxy"]

LONGEST_SILENCE = 60.0  # of a server that was asked something other than a watch
CONNECT_SECONDS = 10.0

Kind = Literal["pass", "delay", "reset", "done-reset", "answer", "done-answer", "half", "late"]


class Tamper(msgspec.Struct, frozen=True):
    """What becomes of one request. `answer` is the proxy's own, the server hears nothing; `done-` marks those that the server carried out. `late`: the answer is held back for so long, and then the connection is reset."""

    kind: Kind = "pass"
    seconds: float = 0.0
    answer: bytes = b""


PASS = Tamper()


class TamperingProxy:
    """`async with TamperingProxy(url) as proxy:` and point the client at `proxy.url`."""

    def __init__(self, upstream: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(upstream)
        self._host, self._upstream_port, self._context = str(parts.hostname), parts.port or 80, context
        self.plan: Callable[[HeardRequest], Tamper] = lambda _: PASS
        self.answered: Callable[[HeardRequest, int], None] = lambda *_: None
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: dict[asyncio.StreamWriter, None] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.refuse()

    async def listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=HEAD_LIMIT)
            self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """New connections are refused, and those that are open break, until `listen`."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut_watch(self, number: int = 0) -> bool:
        """One of those that are open breaks in the middle; False where there is none."""
        there = list(self._watches)
        if there:
            reset(there[number % len(there)])
        return bool(there)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        connection = _Connection(self, reader, writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError, TimeoutError):
                await connection.serve()
        finally:
            connection.close()
            self._tasks.discard(task)
            self._watches.pop(writer, None)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncio.open_connection(self._host, self._upstream_port, ssl=self._context, limit=HEAD_LIMIT)

    def watching(self, writer: asyncio.StreamWriter) -> None:
        self._watches[writer] = None


class _Connection:
    """One client's, and the one to the server that goes with it."""

    def __init__(self, proxy: TamperingProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._reader, self._writer = proxy, reader, writer
        self._upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        self._writer.transport.abort()
        self._leave()

    def _leave(self) -> None:
        if self._upstream:
            self._upstream[1].transport.abort()
            self._upstream = None

    async def serve(self) -> None:
        while request := await read_request(self._reader):
            tamper = self._proxy.plan(request)
            if not await self._carry_out(request, tamper):
                await self._flush()
                return

    async def _flush(self) -> None:
        with suppress(OSError):
            await self._writer.drain()
            self._writer.close()
            async with asyncio.timeout(1):
                await self._writer.wait_closed()

    async def _carry_out(self, request: HeardRequest, tamper: Tamper) -> bool:
        """Whether the connection goes on."""
        if tamper.kind == "reset":
            reset(self._writer)
            return False
        if tamper.kind == "answer":
            self._writer.write(tamper.answer)
            return False
        if tamper.kind == "delay":
            await asyncio.sleep(tamper.seconds)
        head = await self._forward(request)
        answer = _Answer(head, request)
        self._proxy.answered(request, answer.status)
        if tamper.kind in ("pass", "delay"):
            return await self._relay(answer)
        if tamper.kind == "late":
            await asyncio.sleep(tamper.seconds)
        if tamper.kind == "done-answer":
            self._writer.write(tamper.answer)
        elif tamper.kind == "half":
            await self._relay_half(answer)
            reset(self._writer)
        else:
            reset(self._writer)
        return False

    async def _forward(self, request: HeardRequest) -> bytes:
        """Its answer's head. A connection that the server has closed meanwhile is replaced; what was sent on a new one is not sent again."""
        if self._upstream and (self._upstream[0].at_eof() or self._upstream[1].is_closing()):
            self._leave()
        reader, writer = self._upstream = self._upstream or await self._proxy.connect()
        writer.write(request.raw + request.body)
        await writer.drain()
        async with asyncio.timeout(LONGEST_SILENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            while head.startswith(b"HTTP/1.1 100"):
                head = await reader.readuntil(b"\r\n\r\n")
        return head

    async def _relay(self, answer: "_Answer") -> bool:
        assert self._upstream
        reader = self._upstream[0]
        self._writer.write(answer.head)
        await self._writer.drain()
        if answer.endless:
            self._proxy.watching(self._writer)
        if answer.chunked:
            await self._relay_chunks(reader)
        elif answer.length is None:
            while data := await reader.read(65536):
                self._writer.write(data)
                await self._writer.drain()
            return False
        elif answer.length:
            self._writer.write(await reader.readexactly(answer.length))
        await self._writer.drain()
        if answer.closes:
            self._leave()
            return False
        return True

    async def _relay_chunks(self, reader: asyncio.StreamReader) -> None:
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            self._writer.write(line + await reader.readexactly(size + 2))
            await self._writer.drain()
            if self._writer.transport.is_closing():
                raise ConnectionResetError
            if not size:
                return

    async def _relay_half(self, answer: "_Answer") -> None:
        assert self._upstream
        reader = self._upstream[0]
        self._writer.write(answer.head)
        if answer.length:
            self._writer.write((await reader.readexactly(answer.length))[: answer.length // 2])
        elif answer.chunked:
            line = await reader.readuntil(b"\r\n")
            self._writer.write(line + (await reader.readexactly(int(line.split(b";")[0], 16)))[:-1])
        await self._writer.drain()


class _Answer:
    """What the head of an answer tells of the rest."""

    def __init__(self, head: bytes, request: HeardRequest) -> None:
        said = headers_of(head)
        self.head = head
        self.status = int(head.split(b" ", 2)[1])
        self.chunked = "chunked" in said.get("transfer-encoding", "").lower()
        self.closes = "close" in said.get("connection", "").lower()
        bare = request.method == "HEAD" or self.status in (204, 304)
        length = said.get("content-length")
        self.length = 0 if bare else int(length) if length is not None else None
        self.endless = "watch=" in request.path and self.status == 200
