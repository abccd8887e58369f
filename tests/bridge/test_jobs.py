"""Whose job is it, and what became of it: believed only by its own record, and lost only after a while."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from slinky.bridge.jobs import Jobs
from slinky.bridge.marker import comment_for
from slinky.bridge.memory import SETTLE_SECONDS, Known
from slinky.bridge.poller import JobPoller
from slinky.bridge.submission import Submission
from slinky.bridge.workload import WorkloadKey
from slinky.slurm import Job, JobStatus, NotFoundError, SlurmError, UnavailableError
from slinky.slurm.models.accounting import AccountedComments, AccountedJob, AccountedState
from tests.kube.virtual_time import run_in_virtual_time

KEY = WorkloadKey("Job", "ns", "train")


def a_job(state: str, workload: WorkloadKey = KEY, cluster: str = "c1", job_id: int = 7, **more: Any) -> Job:
    comment = comment_for(cluster, str(workload), [("ns", "a")], ["a"])
    return Job(job_id=job_id, job_states=[state], flags=["EXTERNAL_JOB"], admin_comment=comment, **more)


def past(state: str, comment: str) -> AccountedJob:
    return AccountedJob(job_id=7, job_state=AccountedState(current=[state]), comment=AccountedComments(administrator=comment))


class Slurm:
    """In place of `client`: its jobs, and accounting."""

    def __init__(self, job: Job | None = None) -> None:
        self.record = job
        self.past: AccountedJob | SlurmError = NotFoundError("accounting does not know it")
        self.questions = 0
        self.all_parts: list[Job] = []
        self.jobs = self.accounting = self

    async def get(self, job_id: int) -> Job:
        self.questions += 1
        if self.record is None:
            raise NotFoundError(f"there is no job {job_id}")
        return self.record

    async def distrust_markers(self) -> None:
        pass

    async def parts(self, job_id: int) -> list[Job]:
        if self.all_parts:
            self.questions += 1
        return self.all_parts or [await self.get(job_id)]

    async def diag(self) -> Any:
        return SimpleNamespace(req_time_start=1, req_time=None)

    async def states(self, _: object) -> list[JobStatus]:
        return []

    async def job(self, _: int) -> AccountedJob:
        if isinstance(self.past, SlurmError):
            raise self.past
        return self.past


class World:
    def __init__(self, job: Job | None = None, **known: Any) -> None:
        self.slurm = Slurm(job)
        self.poller = JobPoller(self.slurm, lambda _: None)  # type: ignore[arg-type]
        self.jobs = Jobs(self.slurm, self.poller, "c1")  # type: ignore[arg-type]
        self.known = Known(**{"job_id": 7} | known)

    async def state(self, key: WorkloadKey = KEY, *pods: str) -> str:
        view = await self.jobs.view(key, self.known, pods)
        return view.state if view else ""


async def test_a_job_that_is_new_to_us_is_asked_about_once_and_then_taken_from_the_poller() -> None:
    world = World(a_job("PENDING", name="n"))
    world.poller.states[7] = JobStatus("7", ["PENDING"])
    for _ in range(5):
        assert await world.state() == "pending"
    assert world.slurm.questions == 1
    assert world.known.submission == Submission(job_id=7, name="n")
    world.poller.epoch += 1
    assert await world.state() == "pending"
    assert world.slurm.questions == 2, "after an outage a number may mean another job"


async def test_no_job_costs_no_question() -> None:
    world = World(job_id=0)
    assert await world.state() == ""
    assert world.slurm.questions == 0


@pytest.mark.parametrize(
    "job",
    [
        a_job("RUNNING", WorkloadKey("Job", "ns", "other")),
        a_job("RUNNING", cluster="c2"),
        Job(job_id=7, job_states=["RUNNING"], flags=["EXTERNAL_JOB"], admin_comment="somebody's"),
        Job(job_id=7, job_states=["RUNNING"], admin_comment=a_job("RUNNING").admin_comment),
    ],
    ids=["another workload's", "another cluster's", "without a marker", "no external job"],
)
async def test_another_job_of_that_number_is_never_taken_for_ours(job: Job) -> None:
    world = World(job)
    world.poller.follow(7, KEY)
    assert await world.state() == "lost"
    assert world.poller.following == 0
    assert await world.state() == "lost"
    assert world.slurm.questions == 1


async def test_it_is_over_only_by_its_own_record_and_then_no_longer_looked_for() -> None:
    world = World(a_job("RUNNING"), submission=Submission(job_id=7, tasks=3), verified=0)
    world.poller.follow(7, KEY)
    world.poller.states[7] = JobStatus("7", ["CANCELLED"])
    assert await world.state() == "running"
    world.slurm.record = a_job("CANCELLED")
    assert await world.state() == "over"
    assert world.poller.following == 0
    assert "CANCELLED" in world.known.why


async def test_pods_that_are_known_by_their_label_alone_have_that_job_if_it_names_them_whatever_they_were_part_of() -> None:
    by_label = WorkloadKey("Job", "ns", "train#7")
    assert by_label.job_id == 7
    assert await World(a_job("RUNNING")).state(by_label, "a") == "running"
    assert await World(a_job("RUNNING")).state(by_label, "b") == "running", "a pod in another's stead, of the same Job"
    assert await World(a_job("RUNNING", WorkloadKey("Pod", "ns", "uid"))).state(by_label, "a") == "running"
    assert await World(a_job("RUNNING", WorkloadKey("Pod", "ns", "uid"))).state(by_label, "b") == "lost", "an id that was given out again"
    assert await World(a_job("RUNNING", WorkloadKey("Job", "elsewhere", "train"))).state(by_label, "a") == "lost"
    assert await World(a_job("RUNNING", job_id=8), job_id=8).state(by_label, "a") == "lost"


def test_a_job_that_slurm_does_not_know_is_lost_only_after_a_while() -> None:
    async def story() -> None:
        world = World(submission=Submission(job_id=7, tasks=3))
        assert await world.state() == "absent"
        await asyncio.sleep(SETTLE_SECONDS / 2)
        assert await world.state() == "absent"
        world.slurm.record = a_job("RUNNING")
        assert await world.state() == "running", "slurmctld was coming up"
        world.slurm.record = None
        assert await world.state() == "absent"
        await asyncio.sleep(SETTLE_SECONDS + 1)
        assert await world.state() == "lost"

    run_in_virtual_time(story())


def test_a_job_that_the_poller_knows_after_all_is_not_missing_any_more() -> None:
    async def story() -> None:
        world = World(submission=Submission(job_id=7), verified=0)
        await asyncio.sleep(1)
        assert await world.state() == "absent"
        world.poller.states[7] = JobStatus("7", ["RUNNING"])
        assert await world.state() == "running"
        await asyncio.sleep(SETTLE_SECONDS + 1)
        del world.poller.states[7]
        assert await world.state() == "absent", "what was missing before has nothing to do with it"

    run_in_virtual_time(story())


async def test_slots_that_were_given_back_stay_so_whoever_tells_of_the_job() -> None:
    world = World(a_job("RUNNING"), submission=Submission(job_id=7, tasks=4), given_back=2)
    asked = await world.jobs.view(KEY, world.known)
    world.poller.states[7] = JobStatus("7", ["RUNNING"])
    polled = await world.jobs.view(KEY, world.known)
    assert asked is not None
    assert polled is not None
    assert asked.tasks == polled.tasks == 2


def test_a_lost_job_that_is_back_after_an_outage_is_the_workloads_again() -> None:
    async def story() -> None:
        world = World(submission=Submission(job_id=7))
        await asyncio.sleep(1)
        await world.state()
        await asyncio.sleep(SETTLE_SECONDS + 1)
        assert await world.state() == "lost"
        world.slurm.record = a_job("RUNNING")
        assert await world.state() == "lost", "nobody asks without need"
        world.poller.epoch += 1
        assert await world.state() == "running"

    run_in_virtual_time(story())


def test_while_many_are_absent_nothing_is_settled_about_those_with_pods_on_nodes() -> None:
    async def story() -> None:
        world, waiting = World(holds=True), World()
        world.slurm.past = past("CANCELLED", comment_for("c1", str(KEY), [("ns", "a")], ["a"]))
        world.jobs.holds_back = waiting.jobs.holds_back = lambda: True
        for _ in range(2):
            assert await world.state() == "absent"
            await waiting.state()
            await asyncio.sleep(SETTLE_SECONDS + 1)
        assert await waiting.state() == "lost", "who waits is submitted again"
        world.known.given_up = True
        assert await world.state() == "over", "an administrator has confirmed it, and accounting tells the rest"

    run_in_virtual_time(story())


def test_another_job_of_that_number_leaves_pods_that_run_for_a_while_in_doubt() -> None:
    async def story() -> None:
        world = World(a_job("CANCELLED", cluster="c2"), holds=True)
        await asyncio.sleep(1)
        assert await world.state() == "absent"
        assert world.jobs.foreign == {KEY}
        await asyncio.sleep(SETTLE_SECONDS + 1)
        assert await world.state() == "lost"
        assert world.jobs.foreign == set()

    run_in_virtual_time(story())


def test_accounting_tells_how_a_job_ended_that_slurm_forgot() -> None:
    async def story() -> None:
        comment = comment_for("c1", str(KEY), [("ns", "a")], ["a"])
        world, stranger, failed = World(holds=True), World(), World(holds=True)
        world.slurm.past = past("COMPLETED", comment)
        stranger.slurm.past = past("COMPLETED", comment_for("c1", "Job ns/other", [], ["x"]))
        failed.slurm.past = past("NODE_FAIL", comment)
        await asyncio.sleep(1)
        assert [await each.state() for each in (world, stranger, failed)] == ["absent"] * 3
        await asyncio.sleep(SETTLE_SECONDS + 1)
        assert await world.state() == "over"
        assert not world.known.missing_since, "it is not missing: it is over"
        assert await stranger.state() == "lost"
        assert await failed.state() == "lost", "so slurmdbd writes when slurmctld begins without its state"

    run_in_virtual_time(story())


def test_while_accounting_cannot_be_asked_nothing_is_lost() -> None:
    async def story() -> None:
        world = World()
        world.slurm.past = UnavailableError("slurmdbd is not there")
        assert await world.state() == "absent"
        await asyncio.sleep(10 * SETTLE_SECONDS)
        assert await world.state() == "absent"

    run_in_virtual_time(story())


async def test_a_job_that_we_submitted_is_not_asked_about_before_the_poller_has_looked_and_then_it_is() -> None:
    world = World(submission=Submission(job_id=7), verified=0, submitted_at=1.0)
    world.poller.follow(7, KEY)
    assert await world.state() == "pending"
    assert world.slurm.questions == 0
    world.slurm.record = a_job("CANCELLED")
    await world.poller._look()
    assert await world.state() == "over", "it was gone before the first look"
    assert world.slurm.questions == 1


def a_hetjob(*states: str) -> list[Job]:
    numbered = [a_job(state, job_id=7 + number) for number, state in enumerate(states)]
    return [
        msgspec.structs.replace(job, admin_comment=comment_for("c1", str(KEY), [], ["a"], 0, (rank,))) for rank, job in enumerate(numbered)
    ]


@pytest.mark.parametrize(
    ("states", "whole", "rest"),
    [
        (("RUNNING", "RUNNING"), "running", ()),
        (("PENDING", "PENDING"), "pending", ()),
        (("RUNNING", "PENDING"), "pending", ()),
        (("RUNNING", "CANCELLED"), "over", (7,)),
        (("NODE_FAIL", "RUNNING"), "over", (8,)),
        (("TIMEOUT", "TIMEOUT"), "over", ()),
    ],
)
async def test_a_hetjob_runs_when_all_of_it_does_and_is_over_as_soon_as_a_part_is(
    states: tuple[str, ...], whole: str, rest: tuple[int, ...]
) -> None:
    world = World()
    world.slurm.all_parts = a_hetjob(*states)
    for _ in range(2):
        assert await world.state() == whole
    assert world.known.rest == rest
    assert world.known.submission
    assert world.known.submission.job_ids == (7, 8)


async def test_the_poller_is_believed_on_a_hetjob_only_where_it_knows_all_of_it() -> None:
    world = World()
    world.slurm.all_parts = a_hetjob("PENDING", "PENDING")
    assert await world.state() == "pending"
    world.poller.states[7] = JobStatus("7", ["RUNNING"])
    assert await world.state() == "pending"
    assert world.slurm.questions == 2, "of the second part nothing is known"
    world.poller.states[8] = JobStatus("8", ["RUNNING"])
    assert await world.state() == "running"
    assert world.slurm.questions == 2
    world.slurm.all_parts = a_hetjob("RUNNING", "CANCELLED")
    world.poller.states[8] = JobStatus("8", ["CANCELLED"])
    assert await world.state() == "over"


async def test_parts_that_we_end_one_by_one_are_no_reason_to_give_up_the_rest() -> None:
    world = World(ending_since=1.0)
    world.slurm.all_parts = a_hetjob("RUNNING", "COMPLETED")
    assert await world.state() == "running"
    world.slurm.all_parts = a_hetjob("COMPLETED", "COMPLETED")
    assert await world.state() == "over"


async def test_a_hetjob_of_which_a_part_is_another_now_is_lost() -> None:
    world = World()
    world.slurm.all_parts = [a_hetjob("RUNNING")[0], a_job("RUNNING", WorkloadKey("Job", "ns", "other"), job_id=8)]
    assert await world.state() == "lost"
