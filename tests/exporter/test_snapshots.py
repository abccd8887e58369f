"""One look for all who scrape, never more than the set rate, and no scrape that waits for Slurm longer than it said."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from slinky.exporter.exporter import SnapshotCollector
from slinky.exporter.settings import Settings, SnapshotSettings
from slinky.exporter.snapshot import Snapshot
from slinky.exporter.snapshots import Snapshots
from slinky.slurm import UnavailableError

SEEN = Snapshot(taken_at=0.0, jobs=[])


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Slurm:
    """Counts looks; each waits until it is let go."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.looks = 0
        self.takes = 0.0
        self.error: Exception | None = None
        self.go = asyncio.Event()
        self.go.set()

    async def look(self) -> Snapshot:
        self.looks += 1
        await self.go.wait()
        self.clock.now += self.takes
        if self.error:
            raise self.error
        return SEEN


def made(**settings: float) -> tuple[Clock, Slurm, Snapshots]:
    clock = Clock()
    slurm = Slurm(clock)
    return clock, slurm, Snapshots(slurm.look, SnapshotSettings(**settings), clock)


async def test_scrapers_who_come_at_once_share_one_look() -> None:
    _, slurm, snapshots = made()
    slurm.go.clear()
    scrapes = [asyncio.create_task(snapshots.freshen()) for _ in range(20)]
    await asyncio.sleep(0)
    slurm.go.set()
    await asyncio.gather(*scrapes)
    assert (slurm.looks, snapshots.latest, snapshots.is_up) == (1, SEEN, True)


async def test_slurm_is_not_asked_more_often_than_allowed() -> None:
    clock, slurm, snapshots = made(seconds=10)
    for _ in range(100):  # a scrape each second
        await snapshots.freshen()
        clock.now += 1
    assert slurm.looks == 10


async def test_a_slow_slurm_is_asked_less_often() -> None:
    clock, slurm, snapshots = made(seconds=1, share=0.1)
    slurm.takes = 2
    for _ in range(30):
        await snapshots.freshen()
        clock.now += 1
    assert slurm.looks == 2


async def test_a_failed_look_counts_too() -> None:
    clock, slurm, snapshots = made(seconds=10)
    slurm.error = UnavailableError("down", request="nodes")
    for _ in range(30):
        await snapshots.freshen()
        clock.now += 1
    assert (slurm.looks, snapshots.is_up, snapshots.outcomes["failed"]) == (3, False, 3)


async def test_a_scrape_does_not_wait_longer_than_it_says() -> None:
    _, slurm, snapshots = made(wait_seconds=60)
    slurm.go.clear()
    async with asyncio.timeout(10):
        await snapshots.freshen(0.01)
        await snapshots.freshen(-1)
    assert (slurm.looks, snapshots.latest) == (1, None)
    slurm.go.set()
    await snapshots.freshen()
    assert snapshots.latest is SEEN, "the look went on"


async def test_a_look_without_an_end_is_given_up() -> None:
    _, slurm, snapshots = made(look_seconds=0.01)
    slurm.go.clear()
    await snapshots.freshen()
    assert (snapshots.is_up, snapshots.problem) == (False, "no end within 0.01 s")


@pytest.mark.parametrize("error", [UnavailableError("down", request="nodes"), ValueError("a defect of ours")])
async def test_while_slurm_is_down_the_last_is_told_with_its_age_and_then_nothing(error: Exception) -> None:
    clock, slurm, snapshots = made(seconds=1, stale_seconds=60)
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(snapshots, Settings()))

    def told() -> str:
        return generate_latest(registry).decode()

    before = told()
    assert "slurm_up 0.0" in before
    assert "slurm_queue_jobs{" not in before
    await snapshots.freshen()
    assert "slurm_up 1.0" in told()
    slurm.error = error
    clock.now += 30
    await snapshots.freshen()
    down = told()
    assert "slurm_up 0.0" in down
    assert "slurm_exporter_snapshot_age_seconds 30.0" in down
    assert "slurm_queue_jobs{" in down
    clock.now += 31
    assert "slurm_queue_jobs{" not in told()
    slurm.error = None
    await snapshots.freshen()
    assert "slurm_queue_jobs{" in told()


async def test_stopping_ends_a_look() -> None:
    _, slurm, snapshots = made()
    slurm.go.clear()
    await snapshots.freshen(0)
    await snapshots.stop()
    await snapshots.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
