"""The judgement by Slurm's nodes: a no counts only if it rests on a list that was read after the question."""

import asyncio
from typing import Any

import pytest

from slinky.bridge.slurm_nodes import FRESH_SECONDS, LOOK_SECONDS, MOST_OUTDATED, SlurmNodes
from slinky.slurm import JobDescription, Node, UnavailableError
from tests.kube.virtual_time import run_in_virtual_time

WIDE = JobDescription(partition="bridge", tasks=1, cpus_per_task=16)
HUGE = JobDescription(partition="bridge", tasks=1, cpus_per_task=64)


class Nodes:
    """In place of `client.nodes`. `reads` counts lists of all nodes, `asked` the questions whether one has changed."""

    def __init__(self, *cpus: int) -> None:
        self.cpus = list(cpus)
        self.reads = self.asked = 0
        self.busy = False  # jobs start and end all the time, each of which changes a node
        self.seconds = 0.1  # that a list takes
        self.version = 1
        self.told: list[Node] = []
        self.failures = 0
        self.states: dict[str, list[str]] = {}
        self.nodes = self

    async def since(self, update_time: int) -> tuple[list[Node] | None, int]:
        self.asked += 1
        now = self.now()
        if self.busy or any(node not in self.told for node in now):  # not that one was deleted
            self.version += 1
        self.told = now
        if update_time >= self.version and not self.failures:
            await asyncio.sleep(0.001)
            return None, update_time
        self.reads += 1
        await asyncio.sleep(self.seconds)
        if self.failures:
            self.failures -= 1
            raise UnavailableError("slurmctld is not there")
        return now, self.version

    def now(self) -> list[Node]:
        names = [f"n{index}" for index in range(len(self.cpus))]
        return [
            Node(name=name, cpus=cpus, partitions=["bridge"], node_states=self.states.get(name, ["IDLE"]))
            for name, cpus in zip(names, self.cpus, strict=True)
        ]


def made(*cpus: int) -> tuple[Nodes, Any]:
    nodes = Nodes(*cpus)
    return nodes, SlurmNodes(nodes)  # type: ignore[arg-type]


def test_what_fits_is_not_asked_about_twice() -> None:
    async def story() -> None:
        slurm, nodes = made(16)
        for _ in range(5):
            assert (await nodes.shortfall(WIDE)).missing == ""
        assert slurm.reads == 1

    run_in_virtual_time(story())


def test_many_who_ask_at_once_share_one_reading_and_those_who_come_later_ask_only_what_has_changed() -> None:
    async def story() -> None:
        slurm, nodes = made(8)
        answers = await asyncio.gather(*(nodes.shortfall(WIDE) for _ in range(50)))
        assert (slurm.reads, slurm.asked) == (1, 1)
        assert all(answer.missing and answer.sure for answer in answers)
        await asyncio.sleep(FRESH_SECONDS)
        answers = await asyncio.gather(*(nodes.shortfall(WIDE) for _ in range(50)))
        assert all(answer.missing and answer.sure for answer in answers)
        assert (slurm.reads, slurm.asked) == (1, 2)

    run_in_virtual_time(story())


@pytest.mark.parametrize("busy", [False, True])
def test_however_many_pods_are_too_large_all_nodes_are_read_a_tenth_of_the_time_at_most(busy: bool) -> None:
    """By sixteen submitters, one pod after the other; and as many jobs leave out a name that Slurm lacks."""

    async def story() -> None:
        slurm, nodes = made(8)
        slurm.busy = busy

        async def submitter() -> None:
            while loop.time() < 120:
                assert (await nodes.shortfall(WIDE)).sure
                assert await nodes.unknown(["other"]) == {"other"}
                await asyncio.sleep(0.05)

        loop = asyncio.get_running_loop()
        await asyncio.gather(*(submitter() for _ in range(16)))
        assert slurm.reads * slurm.seconds <= (12.0 if busy else 2.0)
        slurm.cpus.append(16)
        await asyncio.sleep(FRESH_SECONDS)
        assert not (await nodes.shortfall(WIDE)).missing

    run_in_virtual_time(story())


def test_while_a_long_list_rests_a_no_is_given_by_it_unless_it_is_known_to_be_old() -> None:
    async def story() -> None:
        slurm, nodes = made(8)
        slurm.busy, slurm.seconds = True, 2.0
        watch = asyncio.create_task(nodes.run())
        assert (await nodes.shortfall(WIDE)).missing
        slurm.cpus.append(16)
        resting = await nodes.shortfall(WIDE)
        assert (bool(resting.missing), resting.sure, slurm.reads) == (True, True, 1)
        nodes.outdate()
        assert not (await nodes.shortfall(WIDE)).sure
        await asyncio.sleep(MOST_OUTDATED)
        assert not (await nodes.shortfall(WIDE)).missing
        slurm.cpus.append(64)
        assert (await nodes.shortfall(HUGE)).missing
        told: list[str] = []
        nodes.on_room = lambda: told.append("changed")
        await asyncio.sleep(2 * LOOK_SECONDS + slurm.seconds)
        assert told, "who was told no is judged again"
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    run_in_virtual_time(story())


def test_a_node_that_was_added_is_seen_before_anything_is_kept_back_and_told_of_once() -> None:
    async def story() -> None:
        slurm, nodes = made(8)
        told: list[str] = []
        nodes.on_room = lambda: told.append("changed")
        assert (await nodes.shortfall(WIDE)).missing
        slurm.cpus = [8, 16, 32]
        await asyncio.sleep(FRESH_SECONDS + 0.1)
        assert (await nodes.shortfall(WIDE)).missing == ""
        await asyncio.sleep(0.1)
        assert told == ["changed", "changed"]

    run_in_virtual_time(story())


def test_a_reading_that_failed_is_no_answer_for_those_who_waited_for_it() -> None:
    async def story() -> None:
        slurm, nodes = made(16)
        slurm.failures = 1
        first = asyncio.create_task(nodes.shortfall(WIDE))
        second = asyncio.create_task(nodes.shortfall(WIDE))
        with pytest.raises(UnavailableError):
            await first
        assert (await second).missing == ""

    run_in_virtual_time(story())


def test_nodes_are_looked_for_while_somebody_was_told_no_and_only_then_whatever_fails() -> None:
    async def story() -> None:
        slurm, nodes = made(16)
        told: list[str] = []
        nodes.on_room = lambda: told.append("changed")
        watch = asyncio.create_task(nodes.run())
        await nodes.shortfall(WIDE)
        await asyncio.sleep(120)
        assert slurm.reads == 1
        assert (await nodes.shortfall(HUGE)).missing
        slurm.failures = 3
        await asyncio.sleep(60)
        before, told[:] = slurm.reads, []
        slurm.cpus.append(64)
        await asyncio.sleep(15)
        assert slurm.reads > before
        assert told == ["changed"]
        assert not (await nodes.shortfall(HUGE)).missing
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    run_in_virtual_time(story())


def test_a_node_that_is_resumed_is_seen_while_slurm_has_refused_somebody_for_want_of_one() -> None:
    async def story() -> None:
        slurm, nodes = made(16, 16)
        told: list[str] = []
        nodes.on_resumed = lambda: told.append("resumed")
        watch = asyncio.create_task(nodes.run())
        slurm.states["n1"] = ["IDLE", "DRAIN"]
        assert (await nodes.shortfall(WIDE)).missing == "", "a drained node counts: it may be resumed"
        nodes.refused()
        await asyncio.sleep(30)
        told.clear()
        slurm.states["n1"] = ["ALLOCATED"]
        await asyncio.sleep(15)
        slurm.states["n1"] = ["IDLE"]
        await asyncio.sleep(15)
        assert told == ["resumed"]
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    run_in_virtual_time(story())


def test_a_name_that_no_node_has_is_looked_for_anew_and_what_is_known_is_read_now_and_then() -> None:
    async def story() -> None:
        slurm, nodes = made(8)
        assert await nodes.unknown(["n0", "n1"]) == {"n1"}
        assert await nodes.unknown(["n0"]) == frozenset()
        assert slurm.reads == 1
        slurm.cpus.append(8)
        await asyncio.sleep(FRESH_SECONDS * 2)
        assert await nodes.unknown(["n1"]) == frozenset()
        assert slurm.reads == 2
        slurm.cpus.clear()
        await asyncio.sleep(LOOK_SECONDS * 2)
        assert await nodes.unknown(["n0"]) == {"n0"}

    run_in_virtual_time(story())


def test_whether_nodes_have_come_is_asked_also_where_the_list_is_young() -> None:
    """A node that a job leaves out may have come a moment ago: no event would tell that later."""

    async def story() -> None:
        slurm, nodes = made(8)
        assert not await nodes.unknown(["n0"])
        await asyncio.sleep(FRESH_SECONDS)
        slurm.cpus.append(8)
        before = nodes.names_version
        while not await nodes.is_current():  # the first list rests
            await asyncio.sleep(FRESH_SECONDS)
        assert nodes.names_version != before
        assert not await nodes.unknown(["n1"])

    run_in_virtual_time(story())
