"""The parent's side of completing jobs: what it makes of a child that is not there, dies, or stays silent."""

import asyncio
import sys

import pytest

from slinky.slurm import JobCompletion, OutcomeUnknownError, UnsupportedError
from slinky.slurm.completion import return_code

GREETS = "print('{\"version\": 45}', flush=True); "


def pretending(code: str) -> list[str]:
    """An interpreter that runs `code` whatever it is asked to run."""
    return [sys.executable, "-c", code]


async def test_where_there_is_no_library_it_is_said() -> None:
    async with JobCompletion(library="/no/such/libslurm.so") as completion:
        assert not await completion.is_available()
        with pytest.raises(UnsupportedError, match=r"not available.*no/such"):
            await completion.complete(1)


async def test_a_library_that_is_none_is_not_called() -> None:
    async with JobCompletion(library=sys.executable) as completion:
        with pytest.raises(UnsupportedError, match="not available"):
            await completion.complete(1)


async def test_a_child_that_ends_at_once_is_not_available() -> None:
    async with JobCompletion(interpreter=pretending("raise SystemExit(1)")) as completion:
        assert not await completion.is_available()


@pytest.mark.parametrize("ending", ["input(); raise SystemExit(1)", "import time; time.sleep(60)"], ids=["dies", "stays silent"])
async def test_a_child_that_does_not_answer_leaves_the_outcome_unknown(ending: str) -> None:
    async with JobCompletion(interpreter=pretending(GREETS + ending), seconds=1) as completion:
        with pytest.raises(OutcomeUnknownError) as caught:
            await completion.complete(7)
        assert "job 7" in caught.value.request


@pytest.mark.parametrize(("code", "signal", "packed"), [(0, 0, 0), (1, 0, 256), (255, 0, 65280), (0, 9, 9)])
def test_codes_are_packed_as_wait_does(code: int, signal: int, packed: int) -> None:
    assert return_code(code, signal) == packed


@pytest.mark.parametrize(("code", "signal"), [(256, 0), (-1, 0), (0, 128)])
def test_a_code_that_no_process_has_is_refused(code: int, signal: int) -> None:
    with pytest.raises(ValueError, match="none that a process can have"):
        return_code(code, signal)


async def test_the_answer_to_a_call_that_was_cancelled_is_nobody_elses() -> None:
    """The child answers the first request late: who asks next must not read that."""
    slow = "import json, sys, time\nfor line in sys.stdin:\n job = json.loads(line)['job_id']\n time.sleep(0.3 if job == 1 else 0)\n print(json.dumps({'job_id': job, 'number': 2017 if job == 1 else 0}), flush=True)"
    async with JobCompletion(interpreter=pretending(GREETS.removesuffix("; ") + "\n" + slow), seconds=5) as completion:
        assert await completion.is_available()
        first = completion._child
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await completion.complete(1)
        await completion.complete(2)
        assert completion._child is not first


async def test_an_answer_about_another_job_is_no_answer() -> None:
    other = 'input(); print(\'{"job_id": 8, "number": 0}\', flush=True); input()'
    async with JobCompletion(interpreter=pretending(GREETS + other), seconds=5) as completion:
        with pytest.raises(OutcomeUnknownError, match="for job 8"):
            await completion.complete(7)
        assert completion._child is None


async def test_a_call_cancelled_while_the_child_starts_leaves_none_behind() -> None:
    async with JobCompletion(interpreter=pretending("import time; time.sleep(60)"), seconds=30) as completion:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await completion.complete(1)
        assert completion._child is None
