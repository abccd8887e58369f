"""A TCP proxy between a test and the real API server that can fall silent, break connections, refuse them, or swallow answers.

TLS goes through untouched, so what the client sees is the real server's certificate and the network's faults.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

from slinky.kube import Access

__all__ = ["FaultyLine", "faulty_line"]


class FaultyLine:
    """`access` leads through it. Each fault lasts until `heal`."""

    def __init__(self, access: Access) -> None:
        parts = urlsplit(access.server)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._direct = access
        self._server: asyncio.Server | None = None
        self._answers = asyncio.Event()
        self._answers.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.accepted = 0

    @property
    def access(self) -> Access:
        return replace(self._direct, server=f"https://127.0.0.1:{self.port}", server_name=self._host, proxy="")

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """New connections are refused, and those that are open break."""
        if self._server:
            self._server.close()
            self._server = None
        self.reset()

    def silence(self) -> None:
        """Requests still arrive; no answer comes back, and nothing is closed."""
        self._answers.clear()

    def heal(self) -> None:
        self._answers.set()

    def reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        await self.refuse()
        self.heal()
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        if task:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        pair = {writer}
        try:
            with suppress(OSError):
                upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self._port)
                pair.add(upstream_writer)
                self._writers |= pair
                await asyncio.gather(self._pump(reader, upstream_writer), self._pump(upstream_reader, writer, answers=True))
        finally:
            for each in pair:
                each.transport.abort()
                with suppress(OSError):
                    await each.wait_closed()
            self._writers -= pair

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if answers:
                    await self._answers.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def faulty_line(access: Access) -> AsyncIterator[FaultyLine]:
    line = FaultyLine(access)
    await line.listen()
    try:
        yield line
    finally:
        await line.close()
