"""Whose turn it is."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.slurm import Lane
from slinky.slurm.lanes import Lanes


async def test_urgent_goes_before_bulk() -> None:
    lanes = Lanes(1, reserved=0)
    order: list[str] = []
    release = asyncio.Event()

    async def hold() -> None:
        async with lanes.turn(Lane.BULK):
            await release.wait()

    async def take(lane: Lane, name: str) -> None:
        async with lanes.turn(lane):
            order.append(name)

    holder = asyncio.create_task(hold())
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(take(lane, lane.name)) for lane in (Lane.BULK, Lane.NORMAL, Lane.URGENT)]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(holder, *waiting)
    assert order == ["URGENT", "NORMAL", "BULK"]


async def test_bulk_cannot_take_every_place() -> None:
    lanes = Lanes(8)
    release = asyncio.Event()

    async def hold() -> None:
        async with lanes.turn(Lane.BULK):
            await release.wait()

    holders = [asyncio.create_task(hold()) for _ in range(20)]
    await asyncio.sleep(0)
    assert lanes.in_flight < 8
    async with asyncio.timeout(1), lanes.turn(Lane.URGENT):
        pass
    release.set()
    await asyncio.gather(*holders)
    assert (lanes.in_flight, lanes.bulk_in_flight) == (0, 0)


async def test_bulk_is_not_starved_by_an_endless_row_of_urgent_ones() -> None:
    lanes = Lanes(1, reserved=0)
    done = asyncio.Event()

    async def urgent() -> None:
        while not done.is_set():
            async with lanes.turn(Lane.URGENT):
                await asyncio.sleep(0)

    async def bulk() -> None:
        async with lanes.turn(Lane.BULK):
            done.set()

    async with asyncio.timeout(5):
        await asyncio.gather(urgent(), urgent(), bulk())


@settings(deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from(Lane), st.integers(0, 3), st.booleans()), max_size=30))
def test_whoever_gives_up_leaves_no_trace(limit: int, comers: list[tuple[Lane, int, bool]]) -> None:
    async def run() -> None:
        lanes = Lanes(limit)
        most = 0

        async def come(lane: Lane, steps: int) -> None:
            nonlocal most
            async with lanes.turn(lane):
                most = max(most, lanes.in_flight)
                for _ in range(steps):
                    await asyncio.sleep(0)

        tasks = []
        for lane, steps, gives_up in comers:
            task = asyncio.create_task(come(lane, steps))
            tasks.append(task)
            await asyncio.sleep(0)
            if gives_up:
                task.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert lanes.in_flight == 0
        assert lanes.bulk_in_flight == 0
        assert most <= limit

    asyncio.run(run())


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        Lanes(0)
