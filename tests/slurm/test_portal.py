"""The thread behind the sync face: what waits when it is closed, and what comes after."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from slinky.slurm import ConfigurationError, FixedToken, OutcomeUnknownError, sync
from slinky.slurm.portal import Portal


async def nothing() -> None:
    return None


def test_who_waits_when_it_is_closed_is_told() -> None:
    portal = Portal()
    waiting = threading.Event()
    ended: list[BaseException] = []

    async def for_ever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            portal.run(for_ever())
        except OutcomeUnknownError as error:
            ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert waiting.wait(5)
    portal.close(nothing)
    thread.join(5)
    assert not thread.is_alive()
    assert "closed" in str(ended[0])
    assert "slinky.slurm" not in {running.name for running in threading.enumerate()}


def test_after_the_end_there_are_no_calls_and_the_end_comes_once() -> None:
    client = sync.SlurmClient("http://127.0.0.1:9", FixedToken("a.b.c"))
    with pytest.raises(Exception, match="openapi"):
        client.within(0.2).ping()
    client.close()
    client.close()
    with pytest.raises(ConfigurationError, match="has been closed"):
        client.ping()


def test_an_iterator_that_outlives_the_client_ends_quietly() -> None:
    portal = Portal()
    closed = []

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
        finally:
            closed.append(True)

    left = portal.iterate(numbers())
    assert next(left) == 0
    portal.close(nothing)
    assert closed
    with pytest.raises(ConfigurationError, match="has been closed"):
        next(left)
