"""What others write counts for nothing: labels that were changed, ids that were given out again. In memory; on real servers in tests/bridge_sandbox/test_trust.py."""

import asyncio
from typing import Any

from slinky.bridge.keys import JOB_ID
from slinky.bridge.memory import SETTLE_SECONDS
from slinky.bridge.plan import Outcome
from slinky.bridge.poller import START_SECONDS
from slinky.bridge.workload import WorkloadKey
from slinky.kube import ConflictError, Pod
from slinky.kube import OutcomeUnknownError as LostAnswerError
from slinky.kube.errors import Status
from slinky.slurm import Job
from tests.bridge.both_sides import World, runs, told


def test_a_label_that_was_changed_or_taken_off_is_restored_whether_the_pod_waits_or_runs() -> None:
    async def story(world: World) -> None:
        world.make("a")
        world.make("b")
        await world.until(lambda: len(world.held) == 2 and all(world.pod(name).metadata.labels for name in "ab"))
        first, second = (int(world.pod(name).metadata.labels[JOB_ID]) for name in "ab")
        await runs(world, first, "a")
        labels = [{JOB_ID: str(first)}, {JOB_ID: str(second)}]
        for name, right in (("a", first), ("b", second)):
            for wrong in ({}, {JOB_ID: "4711"}, {JOB_ID: str(first + second - right)}, {JOB_ID: "nonsense"}):
                world.change(name, labels=wrong)
                await world.until(lambda: [world.pod(each).metadata.labels for each in "ab"] == labels)
        assert [act for act in world.acts if not act.startswith(("submit", "bind a"))] == []
        assert len(world.held) == 2

    told(story)


def test_a_pod_whose_label_names_another_workloads_job_neither_gets_nor_ends_it() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        world.make("b", labels={JOB_ID: "1"})  # the webhook was down
        await world.until(lambda: world.pod("b").metadata.labels == {JOB_ID: "2"})
        await runs(world, 2, "b")
        assert world.acts == ["submit 1 x1", "bind a", "submit 2 x1", "bind b"]
        world.make("c", labels={JOB_ID: "1"})
        world.delete("c")
        await asyncio.sleep(2 * SETTLE_SECONDS)
        assert world.held[1].is_running
        world.set_job(1, "CANCELLED")
        await world.until(lambda: "evict a" in world.acts)

    told(story)


def test_a_running_pod_whose_label_was_taken_off_goes_with_its_job_all_the_same() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        world.set_job(1, "CANCELLED")
        world.change("a", labels={})
        await world.until(lambda: "evict a" in world.acts)

    told(story)


def test_a_slurm_that_begins_again_gives_old_ids_to_others_and_nobody_is_mistaken_for_them() -> None:
    """Running pods run on without a job; the waiting one gets another, with the number that a running one has as its label, and is bound and ended by it; a stranger with the other number is left alone."""

    async def story(world: World) -> None:
        for number, name in enumerate("ab", 1):
            world.make(name)
            await runs(world, number, name)
        world.make("w")
        await world.until(lambda: world.pod("w").metadata.labels == {JOB_ID: "3"})
        world.down = True
        await asyncio.sleep(3)
        world.held.clear()
        world.down = False
        await world.until(lambda: world.pod("w").metadata.labels == {JOB_ID: "1"})
        world.held[2] = Job(job_id=2, job_states=["CANCELLED"], flags=["EXTERNAL_JOB"], admin_comment="somebody's")
        await runs(world, 1, "w")
        await asyncio.sleep(3 * SETTLE_SECONDS)
        assert {world.pod(name).metadata.deletion_timestamp for name in ("a", "b", "w")} == {None}
        lost = {key.name: known.lost for key, known in world.loop.known.items()}
        assert lost == {"a-uid": True, "b-uid": True, "w-uid": False}
        world.ends("a", "Succeeded")
        await world.until(lambda: not world.pod("a").metadata.finalizers)
        assert world.held[1].is_running, "that job is another pod's"
        world.ends("w", "Succeeded")
        await world.until(lambda: world.acts[-1] == "end 1 0")
        assert world.held[2].admin_comment == "somebody's"

    told(story)


def test_while_a_job_is_absent_nothing_is_ended_in_its_name() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        job = world.held.pop(1)
        await asyncio.sleep(2)
        world.delete("a")
        world.ends("a")
        await asyncio.sleep(2)
        assert world.acts == ["submit 1 x1", "bind a"]
        world.held[1] = job
        await world.until(lambda: world.acts[-1].startswith("end 1"))

    told(story)


def test_a_rank_that_somebody_wrote_does_not_count() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        known = world.loop.known[WorkloadKey("Pod", "ns", "a-uid")]
        assert known.written.ranks == {"a-uid": 0}
        world.change("a", annotations={"task.slinky.slurm.net/procid": "5"})
        world.ends("a")
        await world.until(lambda: world.acts[-1] == "end 1 1")
        assert Outcome("a-uid", 1) not in known.outcomes.values() or 5 not in known.outcomes

    told(story)


def test_a_restart_that_nobody_noticed_is_noticed_before_a_job_is_ended_or_bound_by() -> None:
    """The ids of a job that runs and of one that waits are others' by then, whose states fit."""

    async def story(world: World) -> None:
        world.make("runs")
        await runs(world, 1, "runs")
        world.make("waits")
        await world.until(lambda: world.pod("waits").metadata.labels == {JOB_ID: "2"})
        world.started = 2
        world.poller._start_at -= START_SECONDS  # a restart takes that long
        for job_id in (1, 2):
            world.held[job_id] = Job(job_id=job_id, job_states=["RUNNING"], flags=["EXTERNAL_JOB"], admin_comment="somebody's")
        world.ends("runs", "Succeeded")
        await asyncio.sleep(6)
        for key in world.loop.known:  # as after each outage
            world.loop.queue.add(key)
        await world.until(lambda: not world.pod("runs").metadata.finalizers)
        await world.until(lambda: world.pod("waits").metadata.labels == {JOB_ID: "3"})
        assert world.acts == ["submit 1 x1", "bind runs", "submit 2 x1", "submit 3 x1"]
        assert all(world.held[job_id].is_running for job_id in (1, 2))

    told(story)


def test_a_pod_whose_job_waits_again_in_a_restored_slurm_runs_on_and_ends_it_in_the_end() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        for state in ("PENDING", "RUNNING"):
            world.set_job(1, state)
            await asyncio.sleep(60)
            assert world.acts == ["submit 1 x1", "bind a"]
        world.ends("a", "Succeeded")
        await world.until(lambda: world.acts[-1] == "end 1 0")

    told(story)


def test_a_job_that_was_lost_and_is_back_takes_its_pods_along_when_it_ends() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        known, job = next(iter(world.loop.known.values())), world.held.pop(1)
        await world.until(lambda: known.lost)
        world.held[1], world.started = job, 2  # an administrator restored Slurm's state
        await asyncio.sleep(6)
        for key in world.loop.known:  # as after each restart
            world.loop.queue.add(key)
        await world.until(lambda: not known.lost and world.poller.states)
        world.set_job(1, "CANCELLED")
        await world.until(lambda: "evict a" in world.acts)

    told(story)


def test_a_pod_that_was_bound_though_nobody_said_so_goes_with_the_job_that_it_was_bound_by() -> None:
    """The API server did it and broke; before it is back, Slurm has given the node to another."""

    async def story(world: World) -> None:
        bind, label, lost = world.bind, world.label, []

        async def bind_without_answer(pod: Pod, *rest: Any) -> bool:
            lost.append((pod, *rest))
            raise LostAnswerError("POST", "/binding", "the connection broke")

        async def label_if_it_is_as_seen(pod: Pod, job_id: int) -> None:
            if lost:
                await bind(*lost.pop())  # now the watch shows it
                raise ConflictError("PATCH", pod.metadata.name, Status(code=409))
            await label(pod, job_id)

        world.bind, world.label = bind_without_answer, label_if_it_is_as_seen  # type: ignore[method-assign, assignment]
        world.make("a")
        await world.until(lambda: world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: lost)
        world.set_job(1, "PREEMPTED")
        await world.until(lambda: "evict a" in world.acts)
        world.ends("a")
        await world.until(world.is_empty)
        assert world.acts == ["submit 1 x1", "bind a", "evict a"]

    told(story)
