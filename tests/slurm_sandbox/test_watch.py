"""Watching a real Slurm: every transition is told once, also across an outage, and what cannot be known is said."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

import pytest

from slinky.slurm import (
    JobDescription,
    JobState,
    JobStatus,
    JobTransition,
    NodeDescription,
    NodeTransition,
    NotFoundError,
    Pace,
    SlurmClient,
)
from slinky.slurm.watch import watch_jobs
from tests.faults import Fault, FaultProxy
from tests.slurm_sandbox.conftest import until

pytestmark = pytest.mark.sandbox

JOB = JobDescription(tasks=1, partition="bridge", memory_per_node=16)
QUICK = Pace(fastest=0.05, slowest=0.5)
T = TypeVar("T")


async def next_of(source: AsyncIterator[T], wanted: Callable[[T], bool]) -> T:
    async with asyncio.timeout(30):
        while not wanted(item := await anext(source)):
            pass
    return item


def is_in(job_id: int, state: JobState) -> Callable[[JobTransition], bool]:
    return lambda transition: transition.job_id == job_id and transition.after is not None and transition.after.state is state


async def test_many_jobs_cost_one_request_per_tick(slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy) -> None:
    ids = [(await slurm.jobs.submit_external(JOB)).job_id for _ in range(30)]
    proxy.heard.clear()
    seen: dict[int, list[str]] = {job_id: [] for job_id in ids}
    async with asyncio.timeout(60):
        async for transition in through.jobs.watch(ids, QUICK):
            assert transition.after
            assert (transition.before.states if transition.before else None) == (seen[transition.job_id] or None)
            seen[transition.job_id] = list(transition.after.states)
            if all(states == ["RUNNING"] for states in seen.values()):
                await slurm.jobs.cancel_many(ids)
    assert all(states[0] == "CANCELLED" for states in seen.values())
    assert {heard.path.partition("?")[0] for heard in proxy.heard} == {"/slurm/v0.0.45/jobs/state/"}
    ticks = len(proxy.heard)
    assert ticks < 150, f"{ticks} requests for 30 jobs"


async def test_nothing_is_lost_across_an_outage(
    slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = (await slurm.jobs.submit_external(JOB)).job_id
    watch = through.jobs.watch([job_id], QUICK)
    await next_of(watch, is_in(job_id, JobState.RUNNING))
    async with proxy.refusing():
        pending = asyncio.create_task(next_of(watch, is_in(job_id, JobState.CANCELLED)))
        await slurm.jobs.cancel(job_id)

        async def noticed() -> bool:
            return "watching is interrupted" in caplog.text

        await until(noticed, "the watch noticing the outage")
    transition = await pending
    assert transition.gap
    assert transition.before
    assert transition.before.state is JobState.RUNNING


async def test_a_job_that_is_gone_is_told_from_accounting_or_as_unknown(slurm: SlurmClient) -> None:
    [transition] = [transition async for transition in slurm.jobs.watch([99_999_999], QUICK)]
    assert not transition.is_known
    assert transition.job_id == 99_999_999


async def test_a_job_that_slurmctld_forgot_is_told_from_accounting(slurm: SlurmClient) -> None:
    """slurmctld forgets a job a minute after its end; here the watch is given states without it, instead of waiting for that."""
    job_id = (await slurm.jobs.submit_external(JOB)).job_id
    await next_of(slurm.jobs.watch([job_id], QUICK), is_in(job_id, JobState.RUNNING))
    await slurm.jobs.cancel(job_id)

    async def accounted() -> bool:
        try:
            return (await slurm.accounting.job(job_id)).is_finished
        except NotFoundError:
            return False

    async def no_states(_: Iterable[int] | None) -> list[JobStatus]:
        return []

    await until(accounted, "accounting knowing the end")
    [told] = [transition async for transition in watch_jobs(slurm._connection, no_states, [job_id], QUICK)]
    assert told.from_accounting
    assert told.after
    assert told.after.state is JobState.CANCELLED


async def test_nodes(slurm: SlurmClient, through: SlurmClient, proxy: FaultProxy) -> None:
    watch = through.nodes.watch(QUICK)

    def of(name: str, drained: bool) -> Callable[[NodeTransition], bool]:
        return lambda transition: transition.name == name and transition.after is not None and transition.after.is_drained == drained

    await next_of(watch, of("kwok-05", drained=False))
    await slurm.nodes.drain("kwok-05", "watched")
    transition = await next_of(watch, of("kwok-05", drained=True))
    assert transition.before
    assert not transition.before.is_drained
    assert transition.after
    assert transition.after.reason == "watched"
    proxy.plan = lambda _: Fault.DONE_RESET if len(proxy.heard) % 2 else Fault.NONE
    await slurm.nodes.resume("kwok-05")
    await next_of(watch, of("kwok-05", drained=False))


async def test_a_node_that_was_deleted_while_nothing_else_changed_is_told_all_the_same(slurm: SlurmClient) -> None:
    """slurmctld does not count that as a change: whoever asks only for changes never hears of it."""
    await slurm.nodes.create(NodeDescription(name="gone-soon", address="127.0.0.1", cpus=1, real_memory=100))
    watch = slurm.nodes.watch(Pace(fastest=0.05, slowest=0.5, whole=1.0))
    await next_of(watch, lambda transition: transition.name == "gone-soon" and transition.after is not None)
    _, update_time = await slurm.nodes.since(0)

    async def quiet() -> bool:
        nonlocal update_time
        found, update_time = await slurm.nodes.since(update_time)
        return found is None

    await until(quiet, "slurmctld saying that nothing changed")
    await slurm.nodes.delete("gone-soon")
    transition = await next_of(watch, lambda transition: transition.name == "gone-soon")
    assert transition.after is None
