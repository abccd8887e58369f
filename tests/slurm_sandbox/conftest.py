"""A real Slurm for these tests: the sandbox named by SLINKY_TEST_SANDBOX if it is up, or one that is made and ended here.

`slurm_sandbox` is the one thing to change when a shared fixture takes its place.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from slinky.sandbox.errors import UsageError
from slinky.sandbox.handle import Sandbox
from slinky.slurm import Limits, SlurmClient, TokenFile
from tests.faults import FaultProxy

NAME = "slurm-client-tests"


def _cli(*arguments: str) -> None:
    subprocess.run([sys.executable, "-c", "from slinky.cli import main; main()", "sandbox", *arguments], check=True, timeout=600)


@pytest.fixture(scope="session")
def slurm_sandbox() -> Iterator[Sandbox]:
    if name := os.environ.get("SLINKY_TEST_SANDBOX"):
        yield Sandbox.running(name)
        return
    try:
        Sandbox.running(NAME)
    except UsageError:
        _cli("up", "--name", NAME, "--nodes", "20")
    yield Sandbox.running(NAME)
    _cli("down", "--name", NAME)


@pytest.fixture
async def slurm(slurm_sandbox: Sandbox) -> AsyncIterator[SlurmClient]:
    """A client as root; the jobs that a test leaves are cancelled."""
    async with SlurmClient(slurm_sandbox.slurm_server, TokenFile(slurm_sandbox.token_file)) as client:
        before = {status.job_id for status in await client.jobs.states()}
        yield client
        left = [status.job_id for status in await client.jobs.states() if not status.is_finished and status.job_id not in before]
        await client.jobs.cancel_many(left)


@pytest.fixture
async def proxy(slurm_sandbox: Sandbox) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(slurm_sandbox.slurm_server) as running:
        yield running


QUICK = Limits(deadline=8, attempt=2, connect=1, first_pause=0.02, longest_pause=0.1)


@pytest.fixture
async def through(slurm_sandbox: Sandbox, proxy: FaultProxy) -> AsyncIterator[SlurmClient]:
    """A client of the same Slurm, through the proxy; impatient, so that faults cost little."""
    async with SlurmClient(proxy.url, TokenFile(slurm_sandbox.token_file), limits=QUICK) as client:
        await client.server()
        yield client


async def until(condition: Callable[[], Awaitable[object]], what: str, seconds: float = 30) -> None:
    """Wait for something to come true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true within {seconds:g} s"
        await asyncio.sleep(0.05)
