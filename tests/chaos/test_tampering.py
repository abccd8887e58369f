"""The proxy on the lines: what passes passes whole, streams too; what is tampered with is so in the way that was said, and reaches the server only where that is part of it."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.chaos.lines import answer
from tests.faults import Tamper, TamperingProxy


class Server:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.more = asyncio.Event()

    async def plain(self, request: web.Request) -> web.Response:
        self.heard.append(await request.text())
        return web.Response(text="x" * 1000)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await self.more.wait()
        await response.write(b"two\n")
        return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    application = web.Application()
    application.router.add_route("*", "/plain", found.plain)
    application.router.add_get("/stream", found.stream)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with TamperingProxy(f"http://127.0.0.1:{runner.addresses[0][1]}") as proxy, aiohttp.ClientSession(proxy.url) as session:
        found.proxy, found.session = proxy, session  # type: ignore[attr-defined]
        yield found
    await runner.cleanup()


async def ask(server: Server, tamper: Tamper) -> tuple[int, int]:
    """Status and length of what came back; 0 and 0 where the connection broke."""
    server.proxy.plan = lambda _: tamper  # type: ignore[attr-defined]
    try:
        async with server.session.post("/plain", data="hello") as response:  # type: ignore[attr-defined]
            return response.status, len(await response.read())
    except aiohttp.ClientError:
        return 0, 0


@pytest.mark.parametrize(
    ("tamper", "seen", "times"),
    [
        (Tamper(), (200, 1000), 1),
        (Tamper("delay", 0.01), (200, 1000), 1),
        (Tamper("reset"), (0, 0), 0),
        (Tamper("done-reset"), (0, 0), 1),
        (Tamper("half"), (0, 0), 1),
        (Tamper("late", 0.01), (0, 0), 1),
        (Tamper("answer", answer=answer(429, "kube")), (429, 113), 0),
        (Tamper("done-answer", answer=answer(504, "slurm")), (504, 7), 1),
    ],
)
async def test_a_request_is_tampered_with_as_was_said(server: Server, tamper: Tamper, seen: tuple[int, int], times: int) -> None:
    status, length = await ask(server, tamper)
    assert status == seen[0]
    assert length == seen[1] or tamper.kind == "answer"
    assert server.heard == ["hello"] * times
    assert await ask(server, Tamper()) == (200, 1000)


async def test_a_stream_comes_as_it_is_written_and_is_cut_in_the_middle(server: Server) -> None:
    async with server.session.get("/stream?watch=true") as response:  # type: ignore[attr-defined]
        assert await response.content.readline() == b"one\n"
        assert server.proxy.cut_watch(7)  # type: ignore[attr-defined]
        with pytest.raises(aiohttp.ClientError):
            await response.content.readline()
    server.more.set()


async def test_a_stream_that_nobody_cuts_comes_to_its_end(server: Server) -> None:
    server.more.set()
    async with server.session.get("/stream?watch=true") as response:  # type: ignore[attr-defined]
        assert await response.read() == b"one\ntwo\n"


async def test_who_refuses_is_reachable_again_at_the_same_place(server: Server) -> None:
    await server.proxy.refuse()  # type: ignore[attr-defined]
    assert await ask(server, Tamper()) == (0, 0)
    await server.proxy.listen()  # type: ignore[attr-defined]
    assert await ask(server, Tamper()) == (200, 1000)
