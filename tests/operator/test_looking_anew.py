"""A cluster's nodes as the operator knows them, where Slurm does not tell of what was deleted."""

import asyncio
import time

import pytest

from slinky.kube import Key
from slinky.operator.clusters import Cluster
from slinky.operator.settings import SlurmSettings
from slinky.slurm import Node, UnavailableError
from tests.operator.nodesets.scene import in_slurm


class Nodes:
    """Slurm's: what was deleted since is no change to it, so nothing is told but to who asks for all."""

    def __init__(self, *names: str) -> None:
        self.there = list(names)
        self.asked: list[int] = []
        self.is_down = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def since(self, update_time: int) -> tuple[list[Node] | None, int]:
        self.asked.append(update_time)
        found = [in_slurm(name, "IDLE") for name in self.there]
        await self.may_answer.wait()
        if self.is_down:
            raise UnavailableError("nobody is there")
        return (None, update_time) if update_time else (found, 7)


class Client:
    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes


def cluster_of(nodes: Nodes) -> Cluster:
    found = Cluster(Key("hpc", "c"), "http://localhost:1", b"k" * 32, SlurmSettings())
    found.slurm = Client(nodes)  # type: ignore[assignment]
    return found


async def test_nodes_that_were_deleted_are_gone_with_the_next_look_that_asks_for_all() -> None:
    nodes = Nodes("a", "b")
    cluster = cluster_of(nodes)
    await cluster.look()
    nodes.there.clear()
    await cluster.look()
    assert set(cluster.nodes) == {"a", "b"}
    cluster.look_anew()
    await cluster.look()
    assert not cluster.nodes
    await cluster.look()
    assert nodes.asked == [0, 7, 0, 7]


async def test_a_look_that_had_begun_before_does_not_count_nor_one_that_failed() -> None:
    nodes = Nodes("a")
    nodes.may_answer.clear()
    cluster = cluster_of(nodes)
    early = asyncio.create_task(cluster.look())
    while not nodes.asked:
        await asyncio.sleep(0)
    nodes.there.clear()
    cluster.look_anew()
    nodes.may_answer.set()
    await early
    assert set(cluster.nodes) == {"a"}
    nodes.is_down = True
    await asyncio.gather(cluster.look(), return_exceptions=True)
    nodes.is_down = False
    await cluster.look()
    assert not cluster.nodes


async def test_all_are_asked_for_every_so_often_as_an_administrator_may_delete_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes("a")
    cluster = cluster_of(nodes)
    await cluster.look()
    nodes.there.clear()
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    await cluster.look()
    assert not cluster.nodes
    await cluster.look()
    assert nodes.asked == [0, 0, 7]


async def test_a_crowd_that_asks_while_one_looks_shares_the_next_look_and_its_failure() -> None:
    nodes = Nodes("a")
    cluster = cluster_of(nodes)
    nodes.may_answer.clear()
    first = asyncio.create_task(cluster.look())
    await asyncio.sleep(0)
    crowd = [asyncio.create_task(cluster.look()) for _ in range(10)]
    await asyncio.sleep(0)
    nodes.may_answer.set()
    await asyncio.gather(first, *crowd)
    assert len(nodes.asked) == 2, "the first one's look began before the others asked"
    nodes.is_down = True
    nodes.may_answer.clear()
    crowd = [asyncio.create_task(cluster.look()) for _ in range(11)]
    await asyncio.sleep(0)
    nodes.may_answer.set()
    outcomes = await asyncio.gather(*crowd, return_exceptions=True)
    assert [type(one) for one in outcomes] == [UnavailableError] * 11
    assert len(nodes.asked) == 4


async def test_a_look_that_was_cut_off_is_no_answer_to_those_who_wait() -> None:
    nodes = Nodes("a")
    cluster = cluster_of(nodes)
    nodes.may_answer.clear()
    cut = asyncio.create_task(cluster.look())
    await asyncio.sleep(0)
    waits = asyncio.create_task(cluster.look())
    await asyncio.sleep(0)
    cut.cancel()
    nodes.may_answer.set()
    await waits
    assert len(nodes.asked) == 2
    assert set(cluster.nodes) == {"a"}
