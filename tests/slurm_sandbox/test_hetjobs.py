"""Hetjobs of external jobs on the real server: one submit, several shapes, one start and one end."""

import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from slinky.sandbox.bridge import python_on_the_head
from slinky.sandbox.handle import Sandbox
from slinky.slurm import INFINITE, AlreadyDoneError, JobCompletion, JobDescription, JobState, NotFoundError, RefusedError, SlurmClient
from tests.faults import Fault, FaultProxy
from tests.slurm_sandbox.conftest import until
from tests.slurm_sandbox.test_faults import Once

pytestmark = pytest.mark.sandbox

LEADER = JobDescription(name="roles", partition="bridge", tasks=1, cpus_per_task=1, memory_per_cpu=64)
WORKERS = JobDescription(name="roles", partition="bridge", tasks=3, cpus_per_task=2, memory_per_cpu=128, tres_per_task="gres/gpu:2")
HELD = JobDescription(name="roles", partition="bridge", tasks=1, memory_per_cpu=64, hold=True)


@pytest.fixture(scope="module")
def inside(sandbox: Sandbox) -> list[str]:
    return python_on_the_head(sandbox)


@pytest.fixture
async def completion(inside: list[str]) -> AsyncIterator[JobCompletion]:
    async with JobCompletion(interpreter=inside) as ready:
        yield ready


async def started(slurm: SlurmClient, *parts: JobDescription) -> list[int]:
    leader = (await slurm.jobs.submit_hetjob(parts, external=True)).job_id
    ids = [part.job_id for part in await slurm.jobs.parts(leader)]

    async def run() -> bool:
        return all(status.is_running for status in await slurm.jobs.states(ids))

    await until(run, "the hetjob running", 60)
    return ids


async def test_the_parts_are_told_by_any_of_them_the_leader_first(slurm: SlurmClient) -> None:
    leader = (await slurm.jobs.submit_hetjob([HELD, HELD, HELD], external=True)).job_id
    parts = await slurm.jobs.parts(leader)
    assert [(part.hetjob_id, part.het_job_offset) for part in parts] == [(leader, 0), (leader, 1), (leader, 2)]
    ids = [part.job_id for part in parts]
    assert ids[0] == leader
    assert parts[1].hetjob_ids == ids
    assert [part.job_id for part in await slurm.jobs.parts(ids[2])] == ids
    assert {status.job_id for status in await slurm.jobs.states(ids)} == set(ids)
    assert [(await slurm.jobs.get(job_id)).job_id for job_id in ids] == ids
    alone = (await slurm.jobs.submit_external(HELD)).job_id
    assert [part.job_id for part in await slurm.jobs.parts(alone)] == [alone]
    with pytest.raises(NotFoundError):
        await slurm.jobs.parts(99_999_999)


async def test_all_start_together_each_with_what_it_asked_for(slurm: SlurmClient) -> None:
    leader, workers = await started(slurm, LEADER, WORKERS)
    first, second = await slurm.jobs.allocation(leader), await slurm.jobs.allocation(workers)
    assert sum(node.memory for node in first.nodes) == 64
    assert sum(node.memory for node in second.nodes) == 3 * 2 * 128
    assert sum(gres.count for node in second.nodes for gres in node.gres) == 6
    assert not [gres for node in first.nodes for gres in node.gres]
    assert {first.job_id, second.job_id} == {leader, workers}


async def test_a_hetjob_goes_with_its_leader(slurm: SlurmClient) -> None:
    for ids in (
        await started(slurm, LEADER, WORKERS),
        [part.job_id for part in await slurm.jobs.parts((await slurm.jobs.submit_hetjob([HELD, HELD], external=True)).job_id)],
    ):
        await slurm.jobs.cancel(ids[0])
        assert {(await slurm.jobs.get(job_id)).state for job_id in ids} == {JobState.CANCELLED}


@pytest.mark.parametrize(
    ("codes", "states"),
    [
        ((0, 0), (JobState.COMPLETED, JobState.COMPLETED)),
        ((5, 3), (JobState.FAILED, JobState.FAILED)),
        ((3, 0), (JobState.FAILED, JobState.COMPLETED)),
    ],
)
async def test_each_part_ends_with_its_own_exit_code(
    slurm: SlurmClient, completion: JobCompletion, codes: tuple[int, int], states: tuple[JobState, JobState]
) -> None:
    leader, workers = await started(slurm, LEADER, WORKERS)
    await completion.complete(workers, codes[1])
    assert (await slurm.jobs.get(leader)).is_running
    with pytest.raises(AlreadyDoneError):  # said of the parts that are over; the leader ends all the same
        await completion.complete(leader, codes[0])
    ended = [await slurm.jobs.get(job_id) for job_id in (leader, workers)]
    assert tuple(job.state for job in ended) == states
    assert ended[0].exit_code
    assert ended[0].exit_code.code == codes[0]
    assert ended[1].exit_code
    assert ended[1].exit_code.code == (codes[1] or codes[0]), "one that succeeded gets the leader's code, and keeps its state"


async def test_afterok_goes_by_the_leader_alone(slurm: SlurmClient, completion: JobCompletion) -> None:
    leader, workers = await started(slurm, LEADER, WORKERS)
    after = (await slurm.jobs.submit_external(msgspec.structs.replace(LEADER, dependency=f"afterok:{leader}"))).job_id
    await completion.complete(workers, 3)
    assert (await slurm.jobs.states([after]))[0].is_pending
    with pytest.raises(AlreadyDoneError):
        await completion.complete(leader, 0)

    async def runs() -> bool:
        return (await slurm.jobs.states([after]))[0].is_running

    await until(runs, "what waited for the hetjob running, though a part had failed")


async def test_an_impossible_part_is_refused_with_the_whole(slurm: SlurmClient) -> None:
    before = {status.job_id for status in await slurm.jobs.states()}
    wrong = JobDescription(partition="bridge", tasks=1, account="nobody-has-it")
    with pytest.raises(RefusedError) as caught:
        await slurm.jobs.submit_hetjob([LEADER, wrong], external=True)
    assert caught.value.number == 2045
    appeared = {status.job_id for status in await slurm.jobs.states()} - before
    assert all([not (await slurm.jobs.get(job_id)).hetjob_id or (await slurm.jobs.get(job_id)).is_finished for job_id in appeared])


async def test_a_marker_is_in_every_part_and_a_second_submit_finds_the_first(slurm: SlurmClient) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    first = await slurm.jobs.submit_hetjob([HELD, HELD], external=True, marker=marker, once=True)
    parts = await slurm.jobs.parts(first.job_id)
    assert [part.extra for part in parts] == [marker, marker]
    again = await slurm.jobs.submit_hetjob([HELD, HELD], external=True, marker=marker, once=True)
    assert (again.job_id, again.found) == (first.job_id, True)
    assert await slurm.jobs.find_all(marker) == [part.job_id for part in parts]
    found = await slurm.jobs.find(marker)
    assert found
    assert found.hetjob_id == first.job_id


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.DONE_RESET, Fault.DONE_TRUNCATED])
async def test_a_lost_answer_never_makes_a_second_hetjob(slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy, fault: Fault) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    proxy.plan = plan = Once(fault, "POST", "/job/submit")
    answer = await through.within(2).jobs.submit_hetjob([HELD, HELD], external=True, marker=marker, once=True, settle=0.3)
    assert plan.struck == 1
    assert await slurm.jobs.find_all(marker) == (await slurm.jobs.get(answer.job_id)).hetjob_ids
    assert (await slurm.jobs.get(answer.job_id)).hetjob_id == answer.job_id


async def test_a_time_limit_is_each_parts_own(slurm: SlurmClient) -> None:
    limited = JobDescription(name="roles", partition="bridge", tasks=1, memory_per_cpu=64, hold=True, time_limit=7)
    leader = (await slurm.jobs.submit_hetjob([limited, HELD], external=True)).job_id
    assert [part.time_limit for part in await slurm.jobs.parts(leader)] == [7, INFINITE]
