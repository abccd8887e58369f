"""Thousands of waiting jobs that all ask for something else: what a change costs, and for how long others wait."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.bridge import pacing
from slinky.bridge.adoption import Found
from slinky.bridge.bit_places import BitPlaces, Named
from slinky.bridge.directions import AVOIDED_SECONDS, Directions
from slinky.bridge.judgement import KubernetesJudgement
from slinky.bridge.keeping import SWEEP_SECONDS
from slinky.bridge.memory import Known, Workloads
from slinky.bridge.node_names import NodeNames
from slinky.bridge.slurm_nodes import FRESH_SECONDS
from slinky.bridge.submission import submission_of
from slinky.bridge.takeover import Takeover
from slinky.bridge.translate import components, members
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod
from slinky.slurm import JobDescription
from tests.bridge.counting import calls
from tests.bridge.eligibility.things import World, a_node, spread
from tests.bridge.eligibility.things import a_pod as waiting
from tests.bridge.mixed_cluster import SITE, Cluster, a_pod, kept
from tests.kube.virtual_time import run_in_virtual_time

JOBS = 300


def a_shape(number: int) -> Pod:
    """Of another size and for other nodes than all others."""
    pod = a_pod(f"p{number}", nodeSelector={"rack": f"r{number}"})
    [container] = pod.spec.containers
    needs = msgspec.structs.replace(container.resources, requests={"cpu": f"{500 + number}m", "memory": f"{900 + number}Mi"})
    return with_container(pod, msgspec.structs.replace(container, resources=needs))


def with_container(pod: Pod, container: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=(container,)))


def many_shapes(size: int) -> Cluster:
    """All jobs wait, and have been told where they may go."""
    cluster = Cluster(size)
    for number, name in enumerate(cluster.names):
        cluster.relabel(name, rack=f"r{number % JOBS}")

    async def start() -> None:
        for number in range(JOBS):
            await wait(cluster, a_shape(number))

    asyncio.run(start())
    return cluster


async def wait(cluster: Cluster, pod: Pod) -> None:
    """Its job waits, without all that it takes to write it."""
    workload = cluster.workload(pod)
    jobs = components(workload, SITE)
    known = cluster.known[workload.key] = Known()
    known.take(submission_of(len(cluster.known), jobs[0]), 0)
    known.was_directed(await cluster.directions.directed(jobs, members(workload, SITE), {}))
    cluster.pods[workload.key] = pod


def sweep(cluster: Cluster) -> None:
    asyncio.run(cluster.keeper()._look_at_all(nodes=True))


CHANGES: dict[str, Callable[[Cluster], None]] = {
    "of which no job asks": lambda cluster: cluster.relabel(cluster.names[3], color="red"),
    "of which all ask": lambda cluster: cluster.relabel(cluster.names[3], rack="none"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_label_costs_jobs_that_wait_the_same_however_many_nodes_there_are(change: str) -> None:
    costs = []
    for size in (250, 2500):  # with 2,500, what is remembered of 300 shapes must not be too much
        cluster = many_shapes(size)
        sweep(cluster)
        CHANGES[change](cluster)
        costs.append(calls(lambda cluster=cluster: sweep(cluster)))  # type: ignore[misc]
    assert costs[1] < 2 * costs[0], costs


@pytest.mark.parametrize("size", [50, 500])
async def test_jobs_that_differ_in_amounts_only_are_judged_once_where_the_same_nodes_hold_them(size: int) -> None:
    cluster = Cluster(size)
    pod = a_pod("p", nodeSelector={"zone": "z1"})
    workload = cluster.workload(pod)
    [job] = components(workload, SITE)
    for number in range(100):
        own = msgspec.structs.replace(job, memory_per_node=1000 + number, memory_per_cpu=None)
        await cluster.directions.directed([own], [[pod]], {})
    assert cluster.directions.judged == 1
    [found] = await cluster.directions.of([msgspec.structs.replace(job, memory_per_node=1 << 30, memory_per_cpu=None)], [[pod]], {})
    assert cluster.directions.judged == 2
    assert found.excluded == (), "no node is large enough for this one, so Slurm needs none named"


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_answers_that_are_shared_are_those_that_a_job_would_get_alone(chance: random.Random) -> None:
    cluster = Cluster(10)
    for name in cluster.names:
        cluster.in_slurm[name] = msgspec.structs.replace(cluster.in_slurm[name], real_memory=chance.choice([1000, 2000, 4000]))

    async def story() -> None:
        for _ in range(60):
            name = chance.choice(cluster.names)
            match chance.randrange(5):
                case 0:
                    cluster.relabel(name, zone=f"z{chance.randrange(3)}")
                case 1:
                    cluster.foreign.put(a_pod(f"f{name}", nodeName=name))
            pod = a_pod(f"p{chance.randrange(9)}", gpus=chance.choice([0, 1]), nodeSelector={"zone": f"z{chance.randrange(4)}"})
            workload = cluster.workload(pod)
            [job] = components(workload, SITE)
            job = msgspec.structs.replace(job, memory_per_node=chance.choice([500, 1500, 3000]), memory_per_cpu=None)
            alone = Directions(
                KubernetesJudgement(cluster.surroundings, cluster.ledger),
                cluster.slurm_nodes,
                {},
                NodeNames(cluster.kube_nodes),
                cluster="c1",
            )
            pods = members(workload, SITE)
            assert await cluster.directions.of([job], pods, {}) == await alone.of([job], pods, {})

    asyncio.run(story())


async def turns_during(work: Coroutine[Any, Any, object]) -> int:
    """How often another task has its turn meanwhile."""
    task, turns = asyncio.create_task(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def test_the_keeper_lets_others_have_their_turn_between_any_two_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0.0)  # as if each job took long
    cluster = Cluster(20)
    for number in range(100):
        await cluster.submit(a_shape(number) if number % 2 else a_pod(f"p{number}"))
    cluster.relabel(cluster.names[0], rack="r3")
    assert await turns_during(cluster.keeper()._look_at_all(nodes=True)) >= 100


async def test_others_have_their_turn_while_it_is_said_why_no_node_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0.0)
    cluster = Cluster(2000)
    assert await turns_during(cluster.where(a_pod("p", nodeSelector={"zone": "none"}))) >= 7
    found = await cluster.where(a_pod("p", nodeSelector={"zone": "none"}))
    assert "none of the 2000 nodes" in found.nowhere


async def test_a_new_leader_lets_others_have_their_turn_between_any_two_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0.0)
    inherited: list[WorkloadKey] = []
    keys = [WorkloadKey("Pod", "ns", f"p{number}") for number in range(100)]

    class World:
        def keys(self) -> list[WorkloadKey]:
            return keys

        def pods(self, _: WorkloadKey) -> list[Pod]:
            return []

        def add(self, _: WorkloadKey) -> None: ...

    def inherit(key: WorkloadKey, _: list[Found]) -> None:
        inherited.append(key)

    world: Any = World()
    world.queue = world
    takeover = Takeover(world, "c1", world, world, lambda *_: False, inherit, lambda _: None, None)  # type: ignore[arg-type]
    takeover.begin()
    assert await turns_during(takeover._release(keys)) >= 100
    assert inherited == keys
    assert all(map(takeover.may_begin, keys))


# Jobs that leave nodes out, and jobs that avoid some


def test_jobs_that_leave_nodes_out_are_looked_at_in_full_only_when_slurm_has_other_nodes() -> None:
    cluster = Cluster(20)
    absent, named = "later", cluster.names[4]
    cluster.exclude = f"{named},{absent}"

    async def start() -> None:
        await cluster.slurm_nodes.refresh()
        for number in range(30):
            await cluster.submit(a_pod(f"p{number}"))

    def no_matter() -> None:
        assert cluster.looks == 0
        cluster.relabel(cluster.names[0], color="red")

    def appear() -> None:
        assert cluster.looks == 0
        assert cluster.updated == []
        cluster.in_slurm[absent] = cluster.slurm_node(absent, 0)
        cluster.relabel(cluster.names[0], color="blue")

    kept(cluster, no_matter, appear, start=start)
    assert cluster.looks == 30
    assert sorted(cluster.updated) == [*range(1, 31)]
    assert all({named, absent} <= cluster.excluded(job_id) for job_id in cluster.jobs)


def test_jobs_that_avoid_a_node_are_looked_at_in_full_only_when_that_is_over() -> None:
    cluster = Cluster(20)
    name = cluster.names[4]

    async def start() -> None:
        for number in range(10):
            pod = a_pod(f"p{number}")
            await cluster.submit(pod)
            known = cluster.known[cluster.workload(pod).key]
            known.avoided = {name: cluster.directions.avoid(name, "a port is taken")}
            workload = cluster.workload(pod)
            known.was_directed(await cluster.directions.directed(components(workload, SITE), members(workload, SITE), known.avoided))

    def no_matter() -> None:
        assert cluster.looks == 0
        assert all(known.where and known.where[0].excluded == (name,) for known in cluster.known.values())
        cluster.relabel(cluster.names[0], color="red")

    def freed() -> None:
        assert cluster.looks == 0
        cluster.directions.node_changed(name)

    kept(cluster, no_matter, freed, start=start)
    assert cluster.looks == 10
    assert all(known.avoided == {} for known in cluster.known.values())


@pytest.mark.parametrize("what", ["a pod goes", "its time is over"])
def test_a_job_that_is_parked_for_a_node_it_avoids_is_looked_at_when_that_is_over(what: str) -> None:
    """Also one that depends on no pods by what it asks: Slurm counts its CPUs, and a dying pod had them."""
    cluster = Cluster(1)
    [name] = cluster.names

    async def story() -> None:
        pod = a_pod("p")
        await cluster.submit(pod)
        [(key, known)] = cluster.known.items()
        known.drop_job()
        known.avoided = {name: cluster.directions.avoid(name, "it has no CPU free: pod ns/other has it")}
        workload = cluster.workload(pod)
        known.was_directed(await cluster.directions.directed(components(workload, SITE), members(workload, SITE), known.avoided))
        known.parked, known.too_large, known.parked_until = "pod ns/other has it", True, float("inf")
        keeper = cluster.keeper()
        task = asyncio.create_task(keeper.run())
        try:
            await asyncio.sleep(2 * SWEEP_SECONDS)
            keeper.pods_changed()  # on another node
            await asyncio.sleep(2 * SWEEP_SECONDS)
            assert cluster.asked_for == []
            if what == "a pod goes":
                cluster.directions.node_changed(name)
            else:
                await asyncio.sleep(AVOIDED_SECONDS)
            keeper.pods_changed()
            await asyncio.sleep(2 * SWEEP_SECONDS)
            assert cluster.asked_for == [key]
            assert known.parked_until == 0
        finally:
            task.cancel()

    run_in_virtual_time(story())


# What is remembered


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "touch"]), st.sampled_from("abcdef"))), st.sets(st.sampled_from("abcdef")))
def test_a_mask_has_the_nodes_that_a_set_would_have(steps: list[tuple[str, str]], chosen: set[str]) -> None:
    slots, there, seen, touched = BitPlaces(), set[str](), 0, set[int]()
    for number, (what, name) in enumerate(steps):
        if number % 4 == 0:
            assert {*slots.since(seen)} == touched
            seen, touched = slots.serial, set()
        before = slots.epoch
        place: int | None
        if what == "enter":
            place = None if name in there else slots.enter(name)
            there.add(name)
        elif what == "leave":
            place = slots.leave(name)
            there.discard(name)
        else:
            place = slots.places.get(name)
            if place is not None:
                slots.touch(place)
        touched |= {place} - {None}  # type: ignore[arg-type]
        assert (slots.epoch != before) == (place is not None and what != "touch")
    assert slots.everyone == slots.mask(there)
    named = Named(slots, slots.mask(chosen))
    assert set(named) == there & chosen
    assert len(named) == len(there & chosen)
    assert all((name in named) == (name in there & chosen) for name in "abcdef")
    assert slots.mask(chosen) == sum(map(slots.bit, chosen))


def test_how_pods_were_spread_before_a_node_changed_is_forgotten() -> None:
    """A count by hostname has an entry for each node, and follows each pod that comes or goes."""
    world = World(*(a_node(f"n{number}") for number in range(4)))
    pod = waiting("p", labels={"app": "a"}, topologySpreadConstraints=[spread("kubernetes.io/hostname", {"app": "a"})])
    for number in range(10):
        world.judge.answer(pod)
        world.nodes.put(a_node("n0", taints=[f"round={number}:NoSchedule"]))
    tallies = world.judge._residents._tallies.values()
    assert sum(len(tally._spreads) for tally in tallies) == 0
    world.judge.answer(pod)
    assert [len(tally._spreads) for tally in tallies] == [1]


def test_the_parts_of_a_set_are_found_without_a_look_at_other_workloads() -> None:
    own = [WorkloadKey("JobSet", "ns", f"train/{part}") for part in ("leader", "workers")]
    costs = []
    for others in (100, 10_000):
        known = Workloads()
        for number in range(others):
            known.setdefault(WorkloadKey("Pod", "ns", f"p{number}"), Known())
            known.setdefault(WorkloadKey("JobSet", "ns", f"other{number}/workers"), Known())
        for key in own:
            assert known.setdefault(key, first := Known()) is first
            assert known.setdefault(key, Known()) is first
        costs.append(calls(lambda known=known: known.parts(WorkloadKey("JobSet", "ns", "train"))))  # type: ignore[misc]
        assert known.parts(WorkloadKey("JobSet", "ns", "train")) == own
        known.forget(own[0])
        assert known.parts(WorkloadKey("JobSet", "ns", "train")) == own[1:]
        known.forget(own[1])
        known.forget(own[1])
        assert known.parts(WorkloadKey("JobSet", "ns", "train")) == []
        assert own[1] not in known
    assert costs[0] == costs[1]


def at_once(work: Coroutine[Any, Any, object]) -> None:
    """It waits for nothing."""
    with pytest.raises(StopIteration):
        work.send(None)


def test_whether_a_hetjob_finds_enough_nodes_is_judged_once_for_equal_ones_until_nodes_change() -> None:
    cluster = Cluster(1000)
    [job] = components(cluster.workload(a_pod("p")), SITE)
    jobs = [msgspec.structs.replace(job, tasks=number) for number in range(1, 9)]

    async def judge(jobs: list[JobDescription]) -> str:
        return await cluster.slurm_nodes.too_few(jobs)

    async def story() -> None:
        await cluster.slurm_nodes.refresh()
        assert await judge(jobs) == ""
        assert calls(lambda: at_once(judge(jobs))) < 200
        for name in cluster.names[5:]:
            del cluster.in_slurm[name]
        await asyncio.sleep(2 * FRESH_SECONDS)
        cluster.slurm_nodes.outdate()
        await cluster.slurm_nodes.rooms_of("bridge")
        assert "there are 5" in await judge(jobs)

    run_in_virtual_time(story())
