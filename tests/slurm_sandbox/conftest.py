"""Clients of the shared sandbox's Slurm: as root, and through a proxy that breaks things."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.slurm import Limits, SlurmClient, TokenFile
from tests.faults import FaultProxy


@pytest.fixture(scope="module", autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nor the jobs that came late through a fault, after the test that sent them: tests of other folders want these nodes."""
    used = any("sandbox" in item.fixturenames for item in request.session.items if getattr(item, "module", None) is request.module)  # type: ignore[attr-defined]
    if not used:
        yield
        return
    sandbox: Sandbox = request.getfixturevalue("sandbox")
    yield

    async def clear() -> None:
        async def is_empty() -> bool:
            return not (await sandbox.link.run("head", "squeue", "--noheader", "--partition=bridge")).strip()

        await sandbox.link.run("head", "scancel", "--partition=bridge")
        await sandbox.until("slurmctld", "partition bridge was empty", is_empty)

    asyncio.run(clear())


@pytest.fixture
async def slurm(sandbox: Sandbox) -> AsyncIterator[SlurmClient]:
    """A client as root; the jobs that a test leaves are cancelled."""
    async with SlurmClient(sandbox.slurm_server, TokenFile(sandbox.token_file)) as client:
        before = {status.job_id for status in await client.jobs.states()}
        yield client
        left = [status.job_id for status in await client.jobs.states() if not status.is_finished and status.job_id not in before]
        await client.jobs.cancel_many(left)


@pytest.fixture
async def proxy(sandbox: Sandbox) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(sandbox.slurm_server) as running:
        yield running


QUICK = Limits(deadline=8, attempt=2, connect=1, first_pause=0.02, longest_pause=0.1)


@pytest.fixture
async def through(sandbox: Sandbox, proxy: FaultProxy) -> AsyncIterator[SlurmClient]:
    """A client of the same Slurm, through the proxy; impatient, so that faults cost little."""
    async with SlurmClient(proxy.url, TokenFile(sandbox.token_file), limits=QUICK) as client:
        await client.server()
        yield client


async def until(condition: Callable[[], Awaitable[object]], what: str, seconds: float = 30) -> None:
    """Wait for something to come true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true within {seconds:g} s"
        await asyncio.sleep(0.05)
