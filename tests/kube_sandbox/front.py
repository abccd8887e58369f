"""An HTTP server in front of the real one that answers some requests itself: as an older API server would, as an overloaded one, or with an expired version.

Everything else goes to the real API server and back, watches too. Also a CONNECT proxy, as sites have them between people and clusters.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
from aiohttp import web

from slinky.kube import Access

__all__ = ["connect_proxy", "front"]

Answer = Callable[[web.Request], web.StreamResponse | None]
HOP = {"transfer-encoding", "content-length", "connection", "host"}


@asynccontextmanager
async def front(access: Access, answer: Answer) -> AsyncIterator[Access]:
    """`answer` may give a response of its own; None lets the request through."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.tls() or True), auto_decompress=False) as session:

        async def serve(request: web.Request) -> web.StreamResponse:
            own = answer(request)
            if own is not None:
                return own
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
            url = access.server + request.path_qs
            async with session.request(request.method, url, data=await request.read() or None, headers=headers) as upstream:
                kept = {name: value for name, value in upstream.headers.items() if name.lower() not in HOP}
                response = web.StreamResponse(status=upstream.status, headers=kept)
                await response.prepare(request)
                async for chunk in upstream.content.iter_any():
                    await response.write(chunk)
                return response

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", serve)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield Access(f"http://127.0.0.1:{runner.addresses[0][1]}", proxy="")
        finally:
            await runner.cleanup()


@asynccontextmanager
async def connect_proxy(seen: list[str]) -> AsyncIterator[str]:
    """Its URL; `seen` is told where people want to go."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        seen.append(target)
        host, _, port = target.rpartition(":")
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, upstream_writer), pump(upstream_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*tasks)
