"""A fault-injecting HTTP proxy, for tests that put a real server behind it.

Comes in: HTTP/1.1 requests, one after the other on each connection. Goes out: the same requests to the server behind, and its answers, except where `plan` says
otherwise. The plan is asked once per request, before anything is forwarded; `heard` keeps what was decided, in order.

What must stay true: what is not forwarded never reaches the server, and what is forwarded reaches it once.
"""

import asyncio
import enum
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

__all__ = ["Fault", "FaultProxy", "HeardRequest", "headers_of", "read_request", "reset"]

HEAD_LIMIT = 1 << 20


class Fault(enum.Enum):
    """What to do with one request. DONE_ marks those after which the server has carried it out."""

    NONE = "pass it on"
    RESET = "reset the connection; the server hears nothing"
    DONE_RESET = "let the server answer, then reset the connection"
    DONE_RESET_MIDDLE = "reset in the middle of the answer"
    DONE_LATE = "hold the answer until the client gives up"
    STALL = "say nothing until the client gives up; the server hears nothing"
    DONE_TWO_ANSWERS = "close after the answer, and write a second one behind it"
    DONE_CLOSE_EARLY = "close the connection without a word after the server answered"
    PLAIN_500 = "500 as plain text; the server hears nothing"
    DONE_PLAIN_500 = "500 as plain text, although the server did it"
    DONE_TRUNCATED = "half of the JSON, in an answer that is otherwise in order"
    UNAUTHORIZED = "401; the server hears nothing"


@dataclass
class HeardRequest:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    fault: Fault = Fault.NONE
    raw: bytes = field(default=b"", repr=False)


class FaultProxy:
    """`async with FaultProxy(url) as proxy:` and point the client at `proxy.url`."""

    def __init__(self, upstream: str, plan: Callable[[HeardRequest], Fault] = lambda _: Fault.NONE) -> None:
        parts = urlsplit(upstream)
        self._upstream = (str(parts.hostname), parts.port or 80)
        self.plan = plan
        self.heard: list[HeardRequest] = []
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._deafen()

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """Connections are refused, and those open are reset, as when the server is not running."""
        await self._deafen()
        try:
            yield
        finally:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=HEAD_LIMIT)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _deafen(self) -> None:
        assert self._server
        self._server.close()
        for writer in list(self._open):
            reset(writer)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self._open.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            self._open.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await read_request(reader):
            request.fault = self.plan(request)
            self.heard.append(request)
            if not await self._carry_out(request, reader, writer):
                return

    async def _carry_out(self, request: HeardRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        fault = request.fault
        if fault is Fault.RESET:
            reset(writer)
            return False
        if fault is Fault.STALL:
            await _until_gone(reader)
            return False
        if fault in (Fault.PLAIN_500, Fault.UNAUTHORIZED):
            writer.write(_PLAIN_500 if fault is Fault.PLAIN_500 else _PLAIN_401)
            await writer.drain()
            return False
        head, body = await self._forward(request)
        return await self._answer(fault, head, body, reader, writer)

    async def _answer(self, fault: Fault, head: bytes, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        whole = head + body
        if fault is Fault.NONE:
            writer.write(whole)
        elif fault is Fault.DONE_RESET:
            reset(writer)
        elif fault is Fault.DONE_RESET_MIDDLE:
            writer.write(whole[: len(head) + len(body) // 2])
            await writer.drain()
            reset(writer)
        elif fault is Fault.DONE_LATE:
            await _until_gone(reader)
        elif fault is Fault.DONE_TWO_ANSWERS:
            closing = head.replace(b"\r\n", b"\r\nConnection: Close\r\n", 1)
            writer.write(closing + body + b"HTTP/1.1 504 GATEWAY TIMEOUT\r\nContent-Length: 0\r\n\r\n")
        elif fault is Fault.DONE_PLAIN_500:
            writer.write(_PLAIN_500)
        elif fault is Fault.DONE_TRUNCATED:
            half = body[: len(body) // 2]
            writer.write(_with_length(head, len(half)) + half)
        await writer.drain()
        return fault in (Fault.NONE, Fault.DONE_TRUNCATED) and b"connection: close" not in head.lower()

    async def _forward(self, request: HeardRequest) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection(*self._upstream, limit=HEAD_LIMIT)
        try:
            writer.write(request.raw + request.body)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = headers_of(head).get("content-length")
            return head, await reader.readexactly(int(length)) if length else b""
        finally:
            writer.close()


_PLAIN_500 = b"HTTP/1.1 500 INTERNAL ERROR\r\nConnection: Close\r\nContent-Length: 17\r\nContent-Type: text/plain\r\n\r\nUnspecified error"
_PLAIN_401 = (
    b"HTTP/1.1 401 UNAUTHORIZED\r\nConnection: Close\r\nContent-Length: 22\r\nContent-Type: text/plain\r\n\r\nAuthentication failure"
)


async def read_request(reader: asyncio.StreamReader) -> HeardRequest | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    headers = headers_of(raw)
    method, path, _ = raw.split(b"\r\n", 1)[0].decode().split(" ", 2)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return HeardRequest(method, path, headers, body, raw=raw)


def headers_of(head: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:] if ":" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _with_length(head: bytes, length: int) -> bytes:
    lines = [f"Content-Length: {length}".encode() if line.lower().startswith(b"content-length:") else line for line in head.split(b"\r\n")]
    return b"\r\n".join(lines)


async def _until_gone(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read(1)


def reset(writer: asyncio.StreamWriter) -> None:
    """A TCP reset, not a polite end."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
