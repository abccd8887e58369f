"""Completing external jobs with their exit code, through the sandbox's own libslurm, in a child inside the sandbox's head."""

import shutil
from collections.abc import AsyncIterator

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.slurm import (
    AuthenticationError,
    FixedToken,
    JobCompletion,
    JobDescription,
    JobState,
    MintedToken,
    RefusedError,
    SlurmClient,
    UnsupportedError,
)
from slinky.slurm.completion import CHILD
from tests.slurm_sandbox.conftest import until

pytestmark = pytest.mark.sandbox

JOB = JobDescription(tasks=1, partition="bridge", memory_per_node=16)


@pytest.fixture(scope="module")
def inside(sandbox: Sandbox) -> list[str]:
    """The command that is a Python inside the head. The child is copied there: the head need not see this checkout."""
    place = sandbox.head / "var/lib/libslurm_child.py"
    shutil.copyfile(CHILD, place)
    return sandbox.enter(["sh", "-c", 'shift 2; exec python3 -I /var/lib/libslurm_child.py "$@"', "sh"])


@pytest.fixture
async def completion(inside: list[str]) -> AsyncIterator[JobCompletion]:
    async with JobCompletion(interpreter=inside) as ready:
        yield ready


async def started(slurm: SlurmClient, job: JobDescription) -> int:
    job_id = (await slurm.jobs.submit_external(job)).job_id

    async def runs() -> bool:
        return (await slurm.jobs.states([job_id]))[0].is_running

    await until(runs, "the job running")
    return job_id


@pytest.mark.parametrize(("code", "signal", "state"), [(0, 0, JobState.COMPLETED), (3, 0, JobState.FAILED), (0, 9, JobState.FAILED)])
async def test_a_job_ends_with_its_exit_code(
    slurm: SlurmClient, completion: JobCompletion, code: int, signal: int, state: JobState
) -> None:
    job_id = await started(slurm, JOB)
    await completion.complete(job_id, code, signal)
    job = await slurm.jobs.get(job_id)
    assert job.state is state
    assert job.exit_code
    if signal:
        assert job.exit_code.signal
        assert job.exit_code.signal.number == signal
    else:
        assert job.exit_code.code == code


async def test_afterok_means_what_it_says(slurm: SlurmClient, completion: JobCompletion) -> None:
    first = await started(slurm, JOB)
    after = (
        await slurm.jobs.submit_external(JobDescription(tasks=1, partition="bridge", memory_per_node=16, dependency=f"afterok:{first}"))
    ).job_id
    assert (await slurm.jobs.states([after]))[0].is_pending
    await completion.complete(first, 0)

    async def runs() -> bool:
        return (await slurm.jobs.states([after]))[0].is_running

    await until(runs, "the job after it running")


async def test_a_refusal_carries_slurms_number(completion: JobCompletion) -> None:
    with pytest.raises(RefusedError) as caught:
        await completion.complete(99_999_999)
    assert caught.value.number == 2017


async def test_one_child_serves_many_and_a_dead_one_is_replaced(slurm: SlurmClient, completion: JobCompletion) -> None:
    first, second, third = [await started(slurm, JOB) for _ in range(3)]
    await completion.complete(first)
    child = completion._child
    assert child
    await completion.complete(second, 1)
    assert completion._child is child
    child.kill()

    async def is_dead() -> bool:
        return child.returncode is not None

    await until(is_dead, "the child's end")
    await completion.complete(third, 2)
    assert [(await slurm.jobs.get(job_id)).state for job_id in (first, second, third)] == [
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.FAILED,
    ]


async def test_a_library_of_unknown_layout_is_not_called(inside: list[str]) -> None:
    async with JobCompletion(library="/usr/lib/x86_64-linux-gnu/libc.so.6", interpreter=inside) as completion:
        with pytest.raises(UnsupportedError, match="not available"):
            await completion.complete(1)


async def test_with_a_token_it_is_the_tokens_user_who_asks(slurm: SlurmClient, sandbox: Sandbox, inside: list[str]) -> None:
    key = sandbox.head / "etc/slurm/jwt_hs256.key"
    job_id = await started(slurm, JOB)
    for token, error in ((FixedToken("not.a.token"), AuthenticationError), (MintedToken(key, "bob"), RefusedError)):
        async with JobCompletion(token, interpreter=inside) as completion:
            with pytest.raises(error):
                await completion.complete(job_id)
    assert (await slurm.jobs.get(job_id)).is_running
    async with JobCompletion(MintedToken(key, "root"), interpreter=inside) as completion:
        await completion.complete(job_id, 4)
    assert (await slurm.jobs.get(job_id)).state is JobState.FAILED
