"""How few requests many nodes need: those that want the same at the same moment go together."""

import asyncio
from collections.abc import Iterable

from slinky.bridge.marker import comment_for
from slinky.bridge.node_registry import AT_ONCE, MANY, NAMELESS_SECONDS, NAMES_SECONDS, NodeRegistry
from slinky.slurm import Job, JobStatus, Node, NodeChange, NotFoundError
from tests.kube.virtual_time import run_in_virtual_time


class Slurm:
    """Nodes that remember what was asked for; each request takes a turn of the loop."""

    def __init__(self, *names: str) -> None:
        self.nodes = self
        self.calls: list[tuple[str, list[str]]] = []
        self.known = {name: Node(name=name) for name in names}
        self.refuses = ""

    async def _asked(self, what: str, names: list[str]) -> None:
        self.calls.append((what, sorted(names)))
        await asyncio.sleep(0)
        if self.refuses in names:
            raise NotFoundError(f"no node {self.refuses}")

    async def drain(self, names: list[str], reason: str) -> None:
        await self._asked(f"drain {reason}", names)

    async def undrain(self, names: list[str]) -> None:
        await self._asked("undrain", names)

    async def update(self, names: list[str], change: NodeChange) -> None:
        await self._asked(f"mark {change.extra}", names)

    async def all(self) -> list[Node]:
        await self._asked("all", [])
        return list(self.known.values())

    async def get(self, name: str) -> Node:
        await self._asked("get", [name])
        try:
            return self.known[name]
        except KeyError:
            raise NotFoundError(name) from None


def registry_of(slurm: Slurm) -> NodeRegistry:
    return NodeRegistry(slurm, "c1")  # type: ignore[arg-type]


async def test_many_are_drained_in_two_requests_each_for_its_own_reason() -> None:
    names = [f"n{index}" for index in range(100)]
    slurm = Slurm(*names)
    registry = registry_of(slurm)
    await asyncio.gather(*(registry.drain(name, "a" if index % 2 else "b") for index, name in enumerate(names)))
    assert len(slurm.calls) <= 4
    for reason, start in (("drain b", 0), ("drain a", 1)):
        told = [name for what, some in slurm.calls if what == reason for name in some]
        assert sorted(told) == sorted(names[start::2]), "each of them once"
    await asyncio.gather(*(registry.undrain(name) for name in names))
    assert sum(what == "undrain" for what, _ in slurm.calls) <= 2


async def test_one_that_slurm_refuses_holds_up_nobody_for_good() -> None:
    names = [f"n{index}" for index in range(5)]
    slurm = Slurm(*names)
    registry, slurm.refuses = registry_of(slurm), "n3"
    first = await asyncio.gather(*(registry.drain(name, "a") for name in names), return_exceptions=True)
    assert isinstance(first[3], NotFoundError)
    failed = [name for name, outcome in zip(names, first, strict=True) if outcome is not None and name != "n3"]
    await asyncio.gather(*(registry.drain(name, "a") for name in failed))


async def test_few_are_looked_at_one_by_one_and_many_in_one_list() -> None:
    names = [f"n{index}" for index in range(5 * MANY)]
    slurm = Slurm(*names[1:])
    registry = registry_of(slurm)
    registry.held = {"n0": Node(name="n0")}
    await asyncio.gather(*map(registry.refresh, names))
    assert set(registry.held) == set(names[1:]), "and who is gone is forgotten"
    asked = [what for what, _ in slurm.calls]
    assert asked.count("all") <= 2
    assert asked.count("get") < MANY
    slurm.calls.clear()
    await registry.refresh("n7")
    assert slurm.calls == [("get", ["n7"])]


class Queue:
    """Jobs, and what was asked about them."""

    def __init__(self, foreign: int) -> None:
        self.nodes, self.jobs = Slurm(), self
        self.held = {job_id: Job(job_id=job_id, job_states=["PENDING"]) for job_id in range(1, foreign + 1)}
        self.lists = self.read = 0

    def waits(self, job_id: int, *, excluded: str = "", required: str = "", comment: str = "") -> None:
        self.held[job_id] = Job(
            job_id=job_id, job_states=["PENDING"], excluded_nodes=excluded, required_nodes=required, admin_comment=comment
        )

    async def live_ids(self) -> set[int]:
        self.lists += 1
        return {job_id for job_id, job in self.held.items() if not job.is_finished}

    async def states(self, job_ids: Iterable[int]) -> list[JobStatus]:
        return [JobStatus(str(job_id), self.held[job_id].job_states) for job_id in job_ids if job_id in self.held]

    async def records(self, job_ids: Iterable[int]) -> list[Job]:
        found = [self.held[job_id] for job_id in job_ids if job_id in self.held]
        self.read += len(found)
        await asyncio.sleep(0.001 * len(found))
        return found


def test_a_node_that_a_held_job_names_for_hours_costs_one_search() -> None:
    """And then that job's record, however often it is asked, and however many jobs there are."""

    async def story() -> None:
        slurm = Queue(foreign=500)
        slurm.waits(501, excluded="n[1-3]")
        registry = NodeRegistry(slurm, "c1")  # type: ignore[arg-type]
        for _ in range(100):
            assert await registry.is_named("n2")
            await asyncio.sleep(2 * NAMES_SECONDS)
        assert slurm.lists == 1
        assert slurm.read <= 501 + 100
        slurm.waits(502, required="n2")
        slurm.held[501] = Job(job_id=501, job_states=["CANCELLED"], excluded_nodes="n[1-3]")
        read = slurm.read
        assert await registry.is_named("n2"), "another names it"
        assert slurm.read - read <= 10, "jobs that name nothing are not read again"
        assert not await registry.is_named("n3"), "it may be deleted: all are read again first, as their owners may have changed them"
        del slurm.held[502]
        assert not await registry.is_named("n2")
        assert slurm.read - read <= 2 * 501 + 10

    run_in_virtual_time(story())


def test_jobs_of_ours_are_read_at_each_search_and_those_of_others_again_after_a_while() -> None:
    """We change what ours leave out; others' owners may."""

    async def story() -> None:
        slurm = Queue(foreign=100)
        slurm.waits(101, comment=comment_for("c1", "Pod ns/u", [("ns", "p")], ["u"]))
        registry = NodeRegistry(slurm, "c1")  # type: ignore[arg-type]
        assert not await registry.is_named("n")
        slurm.waits(101, excluded="n", comment=slurm.held[101].admin_comment)
        await asyncio.sleep(NAMES_SECONDS + 1)
        assert await registry.is_named("n")
        slurm.waits(101, comment=slurm.held[101].admin_comment)
        assert not await registry.is_named("n")
        slurm.waits(50, excluded="n")
        await asyncio.sleep(NAMELESS_SECONDS + 1)
        assert await registry.is_named("n")

    run_in_virtual_time(story())


def test_a_node_that_an_owner_adds_to_a_job_that_was_read_before_is_not_deleted() -> None:
    """With `scontrol update ExcNodeList`, seconds before the node is to go. The jobs are read again before the delete."""

    async def story() -> None:
        slurm = Queue(foreign=100)
        registry = NodeRegistry(slurm, "c1")  # type: ignore[arg-type]
        assert not await registry.is_named("another")
        slurm.waits(50, excluded="n")
        assert await registry.is_named("n"), "also where the last search was only just"
        slurm.waits(50)
        assert not await registry.is_named("n")
        await asyncio.sleep(NAMES_SECONDS + 1)
        slurm.waits(51, required="n")
        assert await registry.is_named("n")

    run_in_virtual_time(story())


def test_nodes_that_go_together_share_a_search() -> None:
    async def story() -> None:
        slurm = Queue(foreign=5 * AT_ONCE)
        registry = NodeRegistry(slurm, "c1")  # type: ignore[arg-type]
        names = {f"n{index}" for index in range(50)}
        asks = 0
        while names and asks < 1000:
            for name in sorted(names):
                asks += 1
                if not await registry.is_named(name):
                    names.discard(name)
            await asyncio.sleep(7)
        assert not names
        assert slurm.read <= 3 * 5 * AT_ONCE

    run_in_virtual_time(story())


def test_a_node_goes_although_each_search_takes_long_and_it_is_asked_about_once_a_minute() -> None:
    """Jobs of ours are read at each search, and thousands may wait; the controller asks less and less often."""

    async def story() -> None:
        slurm = Queue(foreign=10)
        for job_id in range(100, 100 + 3 * AT_ONCE):
            slurm.waits(job_id, comment=comment_for("c1", f"Pod ns/{job_id}", [("ns", "p")], [str(job_id)]))
        registry = NodeRegistry(slurm, "c1")  # type: ignore[arg-type]
        answers = []
        for _ in range(5):
            answers.append(await registry.is_named("n"))
            await asyncio.sleep(60)
        assert False in answers

    run_in_virtual_time(story())


def test_a_search_through_very_many_jobs_holds_up_nobody_and_takes_a_share_of_slurms_time() -> None:
    async def story() -> None:
        slurm = Queue(foreign=5 * AT_ONCE)
        slurm.waits(10_000, excluded="n")
        registry = NodeRegistry(slurm, "c1")  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await registry.is_named("other"), "as far as is known"
        assert loop.time() - began < 0.01 * AT_ONCE
        while await registry.is_named("other"):
            await asyncio.sleep(1)
        assert loop.time() - began > 2 * 0.001 * slurm.read
        assert slurm.lists == 1
        assert await registry.is_named("n")

    run_in_virtual_time(story())
