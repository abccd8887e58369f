"""Who takes whose place, with both sides in memory: pods that are replaced, gangs that are made anew, and those who come when all places are taken."""

import asyncio
from typing import Any

import msgspec
import pytest

from slinky.bridge.keys import APART, GANG, JOB_ID
from slinky.bridge.memory import Known
from slinky.bridge.succession import fits
from slinky.bridge.task import PerTask
from slinky.bridge.workload import COSCHEDULING_LABEL, Coming, PodGroup, WorkloadKey
from slinky.kube import Job, Key, Meta, Pod
from slinky.kube.objects import Condition, JobSpec, JobStatus
from tests.bridge.both_sides import OWNER, World, runs, told

RING = WorkloadKey("CoschedulingPodGroup", "ns", "ring")
IN_RING = {COSCHEDULING_LABEL: "ring"}


def _job(uid: str = "train-uid", parallelism: int = 2, completions: int | None = None, **more: object) -> Job:
    meta = Meta(name="train", namespace="ns", uid=uid, annotations={GANG: "true"})
    return Job(metadata=meta, spec=JobSpec(parallelism=parallelism, completions=completions, **more))  # type: ignore[arg-type]


def _over(job: Job, kind: str) -> Job:
    return msgspec.structs.replace(job, status=JobStatus(conditions=(Condition(type=kind, status="True"),)))


def _rank(world: World, name: str) -> str:
    return world.pod(name).metadata.annotations["task.slinky.slurm.net/procid"]


async def _begin(world: World, *names: str, **more: int) -> None:
    world.kube_jobs.put(_job(parallelism=len(names)))
    for name in names:
        world.make(name, gang=True, **more)  # type: ignore[arg-type]
    await runs(world, 1, *names)


def test_a_gangs_second_wave_takes_the_places_of_the_first() -> None:
    """A Job whose pods all failed makes new ones; the job ends with how the last ones ended."""

    async def story(world: World) -> None:
        await _begin(world, "a", "b")
        world.ends("a")
        world.ends("b")
        await world.until(lambda: not world.pod("a").metadata.finalizers and not world.pod("b").metadata.finalizers)
        for name in ("c", "d"):
            world.make(name, gang=True)
        await runs(world, 1, "c", "d")
        for name in ("c", "d"):
            world.ends(name, "Succeeded")
        await world.until(lambda: "end 1 0" in world.acts)
        assert [act for act in world.acts if act.startswith(("submit", "end"))] == ["submit 1 x2", "end 1 0"]
        for name in "abcd":
            world.pods.remove(Key("ns", name))
        await world.until(world.is_empty)

    told(story)


def test_a_job_whose_pods_are_gone_is_kept_for_a_limited_time() -> None:
    async def story(world: World) -> None:
        await _begin(world, "a")
        world.ends("a")
        await asyncio.sleep(55)
        assert "end 1 1" not in world.acts
        await world.until(lambda: "end 1 1" in world.acts, seconds=10)
        world.make("b", gang=True)
        await runs(world, 2, "b")

    told(story)


@pytest.mark.parametrize("kind", ["Failed", "FailureTarget", "Complete"])
def test_a_job_that_is_over_gives_its_job_back_at_once(kind: str) -> None:
    async def story(world: World) -> None:
        await _begin(world, "a")
        world.ends("a", "Failed")
        await world.until(lambda: not world.pod("a").metadata.finalizers)
        world.kube_jobs.put(_over(_job(parallelism=1), kind))
        await world.until(lambda: "end 1 1" in world.acts, seconds=5)

    told(story)


def test_a_suspended_job_gives_its_job_back_and_gets_another_when_it_goes_on() -> None:
    """As Kueue does: its pods are deleted, and made again when it is admitted."""

    async def story(world: World) -> None:
        await _begin(world, "a", "b")
        world.kube_jobs.put(_job(suspend=True))
        for name in ("a", "b"):
            world.delete(name)
            world.ends(name)
        await world.until(lambda: "end 1 None" in world.acts, seconds=5)
        await world.until(world.is_empty)
        world.kube_jobs.put(_job())
        for name in ("c", "d"):
            world.make(name, gang=True)
        await runs(world, 2, "c", "d")

    told(story)


def test_later_indexes_take_the_places_of_those_that_are_complete() -> None:
    async def story(world: World) -> None:
        index = "batch.kubernetes.io/job-completion-index"
        world.kube_jobs.put(_job(parallelism=2, completions=4))
        for number in range(2):
            world.make(f"p{number}", gang=True, annotations={index: str(number)})
        await runs(world, 1, "p0", "p1")
        for number in (2, 3):
            world.ends(f"p{number - 2}", "Succeeded")
            world.make(f"p{number}", gang=True, annotations={index: str(number)})
            await runs(world, 1, f"p{number}")
        assert [_rank(world, f"p{number}") for number in range(4)] == ["0", "1", "0", "1"]
        for number in (2, 3):
            world.ends(f"p{number}", "Succeeded")
        await world.until(lambda: "end 1 0" in world.acts, seconds=5)
        assert len(world.held) == 1

    told(story)


def test_a_pod_that_needs_more_than_its_predecessor_had_gets_another_job() -> None:
    """A template that was changed: the slots of the job do not hold its pods."""

    async def story(world: World) -> None:
        await _begin(world, "a", "b", cpus=2)
        for name in ("a", "b"):
            world.delete(name)
            world.ends(name)
        for name in ("c", "d"):
            world.make(name, gang=True, cpus=3)
        await world.until(lambda: 2 in world.held, seconds=10)
        assert world.acts[-2:] == ["end 1 None", "submit 2 x2"]
        await runs(world, 2, "c", "d")

    told(story)


def test_another_job_of_the_same_name_is_another_gang() -> None:
    async def story(world: World) -> None:
        await _begin(world, "a", "b")
        world.delete("a")
        world.delete("b")
        world.kube_jobs.remove(Key("ns", "train"))
        world.kube_jobs.put(_job(uid="other-uid"))
        for name in ("c", "d"):
            world.make(name, gang=True, owner=msgspec.structs.replace(OWNER, uid="other-uid"))
        await asyncio.sleep(5)
        assert len(world.held) == 1, "the old ones are not gone yet"
        assert JOB_ID not in world.pod("c").metadata.labels
        world.ends("a")
        world.ends("b")
        await runs(world, 2, "c", "d")
        assert "end 1 None" in world.acts

    told(story)


def test_a_pod_of_a_job_that_comes_while_all_places_are_taken_waits_for_one() -> None:
    async def story(world: World) -> None:
        await _begin(world, "a", "b")
        world.delete("b")  # its containers take a while to stop
        world.make("c", gang=True)
        await asyncio.sleep(20)
        assert JOB_ID not in world.pod("c").metadata.labels
        world.ends("b")
        await runs(world, 1, "c")
        assert _rank(world, "c") == "1"
        assert not [act for act in world.acts if act.startswith("evict")]

    told(story)


def test_who_is_left_of_a_gang_that_slurm_has_forgotten_does_not_wait_for_those_that_have_ended() -> None:
    """Nobody makes others in their stead."""

    async def story(world: World) -> None:
        world.groups[RING] = PodGroup(metadata=Meta(name="ring", namespace="ns"), min_count=2, builtin=False)
        for name in ("a", "b"):
            world.make(name, labels=IN_RING)
        await world.until(lambda: 1 in world.held)
        world.out_of_reach = {"b"}
        world.set_job(1, "RUNNING")
        await world.until(lambda: world.pod("a").spec.node_name)
        world.ends("a", "Succeeded")
        world.held.clear()
        await asyncio.sleep(60)
        world.out_of_reach = set()
        await runs(world, 1, "b")
        assert world.acts == ["submit 1 x2", "bind a", "submit 1 x1", "bind b"]

    told(story)


def test_a_pod_that_comes_too_late_for_its_groups_job_is_scheduled_by_itself() -> None:
    async def story(world: World) -> None:
        world.groups[RING] = PodGroup(metadata=Meta(name="ring", namespace="ns"), min_count=2, builtin=False)
        for name in ("a", "b"):
            world.make(name, labels=IN_RING)
        await world.until(lambda: 1 in world.held)
        world.make("late", labels=IN_RING)
        await world.until(lambda: APART in world.pod("late").metadata.annotations, seconds=5)
        await runs(world, 1, "a", "b")
        await runs(world, 2, "late")
        assert world.acts.count("apart late") == 1
        for name in ("a", "b"):
            world.ends(name, "Succeeded")
        await world.until(lambda: "end 1 0" in world.acts)
        assert not world.pod("late").metadata.deletion_timestamp
        world.make("stead", labels=IN_RING)
        assert APART not in world.pod("stead").metadata.annotations

    told(story)


def test_pods_made_in_the_stead_of_a_groups_are_not_too_late() -> None:
    async def story(world: World) -> None:
        world.groups[RING] = PodGroup(metadata=Meta(name="ring", namespace="ns"), min_count=2, builtin=False)
        for name in ("a", "b"):
            world.make(name, labels=IN_RING)
        await runs(world, 1, "a", "b")
        world.delete("b")
        world.make("c", labels=IN_RING)
        await asyncio.sleep(20)
        world.ends("b")
        await runs(world, 1, "c")
        assert APART not in world.pod("c").metadata.annotations

    told(story)


@pytest.mark.parametrize(
    "large",
    [
        {"min_count": 1_000_000},
        {"min_count": 1, "coming": Coming(Pod(metadata=Meta(name="r-1", namespace="ns", labels=IN_RING)), range(1, 2_000_000_000), "r-")},
    ],
    ids=["waited for", "coming"],
)
def test_a_gang_of_more_pods_than_one_may_have_is_parked_and_says_why(large: dict[str, Any]) -> None:
    async def story(world: World) -> None:
        group = PodGroup(metadata=Meta(name="ring", namespace="ns"), builtin=False, awaited=True, elastic=False, **large)
        world.groups[RING] = group
        world.make("r-0", labels=IN_RING)
        await world.until(lambda: RING in world.loop.known and world.loop.known[RING].parked)
        assert "(gangs.maxPods)" in world.loop.known[RING].parked
        assert not world.held
        world.groups[RING] = msgspec.structs.replace(group, min_count=1, coming=None)
        world.loop.known[RING].parked_until = 0.0
        world.loop.queue.add(RING)
        await runs(world, 1, "r-0")

    told(story)


def test_the_key_of_a_set_without_a_part_means_its_known_parts() -> None:
    async def story(world: World) -> None:
        keys = [WorkloadKey("LeaderWorkerSet", "ns", f"serve/{group}") for group in (0, 7)]
        others = [WorkloadKey("LeaderWorkerSet", "ns", "server/0"), WorkloadKey("JobSet", "ns", "serve/0")]
        for key in (*keys, *others):
            world.loop.known[key] = Known()
        looked: list[WorkloadKey] = []
        world.loop.queue.add = lambda key, **_: looked.append(key)  # type: ignore[method-assign]
        world.loop.look(WorkloadKey("LeaderWorkerSet", "ns", "serve"))
        assert looked == keys
        for key in (*keys, *others):
            world.loop.known.forget(key)

    told(story)


def test_pods_that_can_only_come_later_have_their_places_reserved() -> None:
    async def story(world: World) -> None:
        coming = Coming(Pod(metadata=Meta(name="r-1", namespace="ns", labels=IN_RING)), range(1, 3), "r-")
        world.groups[RING] = PodGroup(
            metadata=Meta(name="ring", namespace="ns"), min_count=1, builtin=False, coming=coming, awaited=True, elastic=False
        )
        world.make("r-0", labels=IN_RING)
        await runs(world, 1, "r-0")
        assert world.acts[0] == "submit 1 x3"
        for number in (2, 1):
            world.make(f"r-{number}", labels=IN_RING)
        await runs(world, 1, "r-1", "r-2")
        assert sorted(_rank(world, f"r-{number}") for number in range(3)) == ["0", "1", "2"]
        assert len(world.held) == 1

    told(story)


@pytest.mark.parametrize(
    ("asked", "had", "holds"),
    [
        (PerTask(cpus=2, memory=100), PerTask(cpus=2, memory=100), True),
        (PerTask(cpus=3), PerTask(cpus=2), False),
        (PerTask(memory=101), PerTask(memory=100), False),
        (PerTask(gres={"gpu": 1}), PerTask(), False),
        (PerTask(gres={"gpu": 1}), PerTask(node_gres={"gpu": 8}), True),
        (PerTask(memory=100), PerTask(node_memory=200), True),
        (PerTask(memory=101), PerTask(node_memory=200, node_share=2), False),  # the other half is another pod's
        (PerTask(node_memory=300, node_share=3), PerTask(node_memory=200, node_share=2), True),
        (PerTask(gres={"gpu": 5}), PerTask(node_gres={"gpu": 8}, node_share=2), False),
        (PerTask(node_gres={"gpu": 8}, node_share=2), PerTask(gres={"gpu": 4}), True),
        (PerTask(typed_gres={"gpu:h100": 1}), PerTask(typed_gres={"gpu:a100": 1}), False),
    ],
)
def test_a_slot_holds_what_it_was_made_for(asked: PerTask, had: PerTask, holds: bool) -> None:
    assert fits(asked, had) is holds


def test_others_may_come_for_a_job_until_it_has_as_many_pods_as_it_still_wants() -> None:
    async def story(world: World) -> None:
        world.kube_jobs.put(_job(parallelism=2, completions=2))
        for name in ("a", "b"):
            world.make(name, gang=True)
        await runs(world, 1, "a", "b")
        [(key, known)] = world.loop.known.items()

        def may_come() -> bool:
            return world.loop.succession.may_come(key, world.membership.pods(key), known)

        assert not may_come()
        world.ends("a", "Failed")
        assert may_come(), "it is tried again"
        world.ends("a", "Succeeded")
        assert not may_come()
        world.ends("b", "Succeeded")
        assert not may_come()

    told(story)


def test_others_may_come_for_a_group_whose_pods_somebody_makes() -> None:
    async def story(world: World) -> None:
        world.groups[RING] = PodGroup(metadata=Meta(name="ring", namespace="ns"), min_count=2, builtin=False)
        for name in ("a", "b"):
            world.make(name, labels=IN_RING)
        await world.until(lambda: 1 in world.held)
        [(key, known)] = world.loop.known.items()
        succession, pods = world.loop.succession, world.membership.pods(key)
        assert not succession.may_come(key, pods, known)
        made = [msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=(OWNER,))) for pod in pods]
        assert succession.may_come(key, made, known)

    told(story)
