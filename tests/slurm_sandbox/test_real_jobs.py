"""Jobs that really run: on a node with a slurmd they are requeued while they run, signalled, and end with their own exit codes. And a Slurm without accounting, where a
cancel that is not allowed must never be sent (it would leave slurmctld hanging)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import FixedToken, ForbiddenError, JobDescription, JobState, SlurmClient, TokenFile
from tests.conftest import Starter
from tests.slurm_sandbox.conftest import until

pytestmark = [pytest.mark.sandbox, pytest.mark.long]


@pytest.fixture(scope="module")
def with_slurmd(start_sandbox: Starter) -> Sandbox:
    return start_sandbox("slurmd", Shape(nodes=1, real_nodes=1, slurmd=True))


@pytest.fixture
async def real(with_slurmd: Sandbox) -> AsyncIterator[SlurmClient]:
    async with SlurmClient(with_slurmd.slurm_server, TokenFile(with_slurmd.token_file)) as client:
        yield client


async def state_is(client: SlurmClient, job_id: int, state: JobState) -> bool:
    return (await client.jobs.get(job_id)).state is state


def batch(script: str) -> JobDescription:
    text = f"#!/bin/sh\n{script}\n"
    return JobDescription(
        name="real", partition="compute", tasks=1, script=text, current_working_directory="/tmp", standard_output="/dev/null"
    )


async def test_a_job_ends_with_its_own_exit_code(real: SlurmClient) -> None:
    job_id = (await real.jobs.submit(batch("exit 3"))).job_id
    await until(lambda: state_is(real, job_id, JobState.FAILED), "the job's failure")
    ended = await real.jobs.get(job_id)
    assert ended.exit_code is not None
    assert ended.exit_code.code == 3


async def test_a_running_job_is_requeued(real: SlurmClient) -> None:
    job_id = (await real.jobs.submit(batch("exec sleep 600"))).job_id
    await until(lambda: state_is(real, job_id, JobState.RUNNING), "the job's start")
    await real.jobs.requeue(job_id, hold=True)
    await until(lambda: state_is(real, job_id, JobState.PENDING), "its way back into the queue")
    again = await real.jobs.get(job_id)
    assert again.restart_cnt == 1
    assert again.is_held
    await real.jobs.cancel(job_id)


async def test_a_signal_reaches_the_job(real: SlurmClient) -> None:
    """TERM to the batch script, which says by its exit code that it got it."""
    job_id = (await real.jobs.submit(batch("trap 'exit 7' USR1; while :; do sleep 0.1; done"))).job_id
    await until(lambda: state_is(real, job_id, JobState.RUNNING), "the job's start")

    async def over() -> bool:
        if (await real.jobs.get(job_id)).is_finished:
            return True
        await real.call("DELETE", f"/slurm/{{version}}/job/{job_id}?signal=USR1&flags=BATCH_JOB")
        return False

    await until(over, "its end by the signal")
    ended = await real.jobs.get(job_id)
    assert ended.exit_code is not None
    assert ended.exit_code.code == 7


async def test_a_cancel_that_slurm_would_refuse_is_not_sent_where_it_would_hang(start_sandbox: Starter) -> None:
    bare = await asyncio.to_thread(start_sandbox, "bare", Shape(nodes=2))
    conf = bare.head / "etc/slurm/slurm.conf"
    kept = [line for line in conf.read_text().splitlines() if not line.startswith(("Accounting", "Priority", "Preempt"))]
    conf.write_text("\n".join(kept) + "\n")
    await bare.restart("slurmctld")
    await bare.restart("slurmrestd")
    async with SlurmClient(bare.slurm_server, TokenFile(bare.token_file)) as root:
        await until(root.is_up, "slurmctld without accounting")
        job_id = (await root.jobs.submit_external(JobDescription(tasks=1, partition="bridge"))).job_id
        token = (await bare.link.run("head", "scontrol", "token", "username=alice")).strip().removeprefix("SLURM_JWT=")
        for user in ("alice", ""):  # the token says it too
            async with SlurmClient(bare.slurm_server, FixedToken(token, user=user)) as alice:
                with pytest.raises(ForbiddenError):
                    await alice.jobs.cancel(job_id)
        assert await root.is_up(), "slurmctld still answers"
        await root.jobs.cancel(job_id)
        await until(lambda: state_is(root, job_id, JobState.CANCELLED), "root's own cancel")
