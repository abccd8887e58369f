"""The sink, between a client and a server that echoes: what comes through, when, and how many at once."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from slinky.bridge.node_description import Wanted, wish_of
from slinky.bridge.node_plan import has_same_shape
from slinky.bridge.settings import NodeSettings, Settings
from slinky.bridge.sink import MOST_LATE, Sink, address_of
from slinky.kube import Node as KubeNode
from slinky.kube.objects import Meta, NodeStatus
from slinky.sandbox.bridge import free_port
from slinky.slurm import Node


@asynccontextmanager
async def slurmd() -> AsyncIterator[tuple[str, int]]:
    """Answers what it was sent, when all of it is there."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"rc 0 for " + await reader.read())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()


@asynccontextmanager
async def running(sink: Sink) -> AsyncIterator[int]:
    port = free_port()
    task = asyncio.create_task(sink.run(("127.0.0.1", port)))
    try:
        async with asyncio.timeout(10):
            while not sink.served:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.01)
                else:
                    writer.close()
                    await asyncio.sleep(0.01)
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def send(port: int, words: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(words)
        writer.write_eof()
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


async def test_what_is_sent_is_answered_after_the_delay() -> None:
    async with slurmd() as address:
        sink = Sink(address, delay=0.3)
        async with running(sink) as port:
            began = asyncio.get_running_loop().time()
            many = [f"signal {number} ".encode() * 20_000 for number in range(MOST_LATE)]
            assert await asyncio.gather(*(send(port, words) for words in many)) == [b"rc 0 for " + words for words in many]
            assert asyncio.get_running_loop().time() - began >= 0.3


async def test_of_many_at_once_only_the_first_are_late() -> None:
    async with slurmd() as address:
        sink = Sink(address, delay=3600)
        async with running(sink) as port:
            tasks = {asyncio.create_task(send(port, b"%d" % number)) for number in range(3 * MOST_LATE)}
            async with asyncio.timeout(60):
                while sink.served <= len(tasks) or sink.open_now > MOST_LATE:  # the first was a probe, which is late too
                    await asyncio.sleep(0.01)
            left = {task for task in tasks if not task.done()}
            assert len(left) == MOST_LATE - 1
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


async def test_no_more_are_open_at_once_than_may_be() -> None:
    most = 0
    async with slurmd() as address:
        sink = Sink(address, delay=0.02, most=3)
        async with running(sink) as port:

            async def one(number: int) -> bytes:
                nonlocal most
                found = await send(port, b"%d" % number)
                most = max(most, sink.open_now)
                return found

            assert len(await asyncio.gather(*map(one, range(20)))) == 20
            assert most <= 3


async def test_where_no_slurmd_is_the_connection_is_closed_and_the_next_one_is_taken() -> None:
    sink = Sink(("127.0.0.1", free_port()), delay=0)
    async with running(sink) as port:
        for _ in range(2):
            with pytest.raises(OSError):
                if not await send(port, b"x"):
                    raise ConnectionResetError
        assert sink.failed >= 2


@pytest.mark.parametrize(
    ("text", "found"), [("10.0.0.1:6818", ("10.0.0.1", 6818)), ("[::1]:7", ("::1", 7)), ("head:65535", ("head", 65535))]
)
def test_an_address_is_a_host_and_a_port(text: str, found: tuple[str, int]) -> None:
    assert address_of(text) == found


@pytest.mark.parametrize("text", ["", "head", "head:", ":6818", "head:0", "head:65536", "head:x", "head:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        address_of(text)


def test_nodes_are_registered_with_the_sinks_address_and_made_anew_where_they_have_another_port() -> None:
    labels = {"scheduler.slinky.slurm.net/external-node": "true"}
    node = KubeNode(metadata=Meta(name="n", labels=labels), status=NodeStatus(allocatable={"cpu": "4", "memory": "4Gi"}))
    wish = wish_of(node, Settings(nodes=NodeSettings(sink="10.0.0.1:7000")))
    assert isinstance(wish, Wanted), "it needs no address of its own"
    assert (wish.description.address, wish.description.port) == ("10.0.0.1", 7000)
    registered = Node(name="n", cpus=4, real_memory=4096, port=6818)
    assert not has_same_shape(registered, wish.description)
    registered.port = 7000
    assert has_same_shape(registered, wish.description)


async def test_the_command_serves_until_it_is_told_to_end() -> None:
    async with slurmd() as (host, behind):
        port = free_port()
        words = ["sink", "--listen", f"127.0.0.1:{port}", "--slurmd", f"{host}:{behind}", "--delay", "0"]
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "slinky", *words, stderr=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(30):
                assert process.stderr
                assert b"leads to the slurmd" in await process.stderr.readline()
                while True:
                    try:
                        assert await send(port, b"signal") == b"rc 0 for signal"
                        break
                    except ConnectionRefusedError:
                        await asyncio.sleep(0.05)
                process.terminate()
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
