"""A relay between the bridge and slurmrestd, which notes when the bridge first names a pod.

A submit names its pods in the job's comment. So the note is the moment at which the bridge sent it,
however long slurmctld then takes to take it in.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

__all__ = ["Tap", "tapped"]

CHUNK = 1 << 16
LONGEST_NAME = 80


class Tap:
    """Made by `tapped`. `sent` has the moment for each pod, by its name."""

    def __init__(self, namespace: str, server: str) -> None:
        self._named = re.compile(rf"{namespace}/([a-z0-9-]+)[^a-z0-9-]".encode())
        address = urlsplit(server)
        self._host, self._port = str(address.hostname), int(address.port or 80)
        self.sent: dict[str, float] = {}
        self.address = ""

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the bridge, until either side closes it."""
        answers, requests = await asyncio.open_connection(self._host, self._port)
        back = asyncio.create_task(_copy(answers, writer))
        with contextlib.suppress(OSError):
            rest = b""
            while chunk := await reader.read(CHUNK):
                self._note(rest + chunk)
                rest = chunk[-LONGEST_NAME:]
                requests.write(chunk)
                await requests.drain()
        requests.close()
        await back

    def _note(self, text: bytes) -> None:
        now = time.time()
        for found in self._named.findall(text):
            self.sent.setdefault(found.decode(), now)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def tapped(namespace: str, server: str) -> AsyncIterator[Tap]:
    """`tap.address` is to be used in place of `server`."""
    tap = Tap(namespace, server)
    listener = await asyncio.start_server(tap.relay, "127.0.0.1", 0)
    tap.address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield tap
    finally:
        listener.close()
