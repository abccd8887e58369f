"""The poller: each change is told once, what Slurm no longer names is told too, and an outage leaves another epoch behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.poller import JobPoller, PollTimes, next_pause
from slinky.bridge.workload import WorkloadKey
from slinky.slurm import JobStatus, UnavailableError
from tests.bridge.both_sides import diagnostics
from tests.kube.virtual_time import run_in_virtual_time

TIMES = PollTimes()


class Slurm:
    """In place of `client`: what the jobs' states are, and whether it answers."""

    def __init__(self, **states: str) -> None:
        self.held = {int(name[1:]): state for name, state in states.items()}
        self.down = False
        self.started, self.midnights, self.distrusted = 1, 0, 0
        self.silence = 0.001
        self.asked: list[frozenset[int]] = []
        self.jobs = self

    async def distrust_markers(self) -> None:
        self.distrusted += 1

    async def diag(self) -> Any:
        return diagnostics(self.started, self.midnights)

    async def states(self, job_ids: Iterable[int]) -> list[JobStatus]:
        wanted = frozenset(job_ids)
        self.asked.append(wanted)
        await asyncio.sleep(self.silence)
        if self.down:
            raise UnavailableError("slurmctld is not there")
        return [JobStatus(str(job_id), [state]) for job_id, state in self.held.items() if job_id in wanted]


class Watcher:
    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self.told: list[int] = []
        self.poller = JobPoller(slurm, self.told.append)  # type: ignore[arg-type]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Watcher"]:
        task = asyncio.create_task(self.poller.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, what: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not what():
                await asyncio.sleep(0.01)

    async def looks(self, count: int = 3) -> None:
        seen = len(self.slurm.asked)
        await self.until(lambda: len(self.slurm.asked) >= seen + count)


@given(st.floats(0.001, 10), st.floats(0, 30), st.booleans(), st.booleans())
def test_a_pause_is_within_its_bounds_and_polling_takes_a_share_of_slurms_time_at_most(
    last: float, took: float, changed: bool, waiting: bool
) -> None:
    pause = next_pause(TIMES, last, took, changed=changed, waiting=waiting)
    assert pause >= TIMES.fastest
    assert took / (took + pause) <= TIMES.share + 1e-9
    limit = TIMES.fastest if changed else TIMES.waiting if waiting else TIMES.slowest
    assert pause <= max(limit, took * (1 / TIMES.share - 1), TIMES.fastest)


def test_while_nothing_happens_the_pauses_grow_to_the_longest() -> None:
    pauses = [TIMES.fastest]
    for _ in range(20):
        pauses.append(next_pause(TIMES, pauses[-1], 0.0, changed=False, waiting=False))
    assert pauses == sorted(pauses)
    assert pauses[-1] == TIMES.slowest


def test_each_change_is_told_once() -> None:
    async def story() -> None:
        async with Watcher(Slurm(j1="PENDING", j2="RUNNING")).running() as watch:
            for job_id in (1, 2):
                watch.poller.follow(job_id)
            await watch.until(lambda: sorted(watch.told) == [1, 2])
            await watch.looks()
            assert sorted(watch.told) == [1, 2]
            watch.slurm.held[1] = "RUNNING"
            await watch.until(lambda: watch.told[2:] == [1])
            await watch.looks()
            assert watch.told[2:] == [1]
            assert watch.poller.states[1].is_running

    run_in_virtual_time(story())


def test_a_job_that_slurm_no_longer_names_is_told_once() -> None:
    async def story() -> None:
        async with Watcher(Slurm(j1="RUNNING")).running() as watch:
            watch.poller.follow(1)
            await watch.until(lambda: watch.told == [1])
            del watch.slurm.held[1]
            await watch.until(lambda: watch.told == [1, 1])
            await watch.looks()
            assert watch.told == [1, 1]
            assert watch.poller.states == {}

    run_in_virtual_time(story())


def test_a_job_that_was_gone_before_it_was_ever_seen_is_told_once() -> None:
    async def story() -> None:
        async with Watcher(Slurm()).running() as watch:
            watch.poller.follow(1)
            await watch.until(lambda: watch.told == [1])
            await watch.looks()
            assert watch.told == [1]

    run_in_virtual_time(story())


def test_what_is_forgotten_is_neither_asked_for_nor_told() -> None:
    async def story() -> None:
        async with Watcher(Slurm(j1="RUNNING", j2="RUNNING")).running() as watch:
            watch.poller.follow(1)
            watch.poller.follow(2)
            await watch.until(lambda: len(watch.told) == 2)
            watch.poller.forget([1, 99])
            watch.slurm.held[1] = "COMPLETED"
            await watch.looks()
            assert len(watch.told) == 2
            assert watch.slurm.asked[-1] == {2}
            watch.poller.forget([2])
            assert (watch.poller.following, watch.poller.states) == (0, {})

    run_in_virtual_time(story())


def test_a_job_that_is_forgotten_while_slurm_is_asked_stays_forgotten() -> None:
    async def story() -> None:
        slurm = Slurm(j1="RUNNING")
        watch = Watcher(slurm)
        watch.poller.follow(1)
        looking = asyncio.create_task(watch.poller._look())
        await asyncio.sleep(0)
        watch.poller.forget([1])
        await looking
        assert (watch.told, watch.poller.states) == ([], {})

    run_in_virtual_time(story())


def test_an_outage_is_waited_out_with_growing_pauses_and_leaves_another_epoch() -> None:
    async def story() -> None:
        async with Watcher(Slurm(j1="PENDING")).running() as watch:
            watch.poller.follow(1)
            await watch.until(lambda: watch.told == [1])
            assert watch.poller.epoch == 0
            watch.slurm.down = True
            await watch.until(lambda: watch.poller.outage)
            before = len(watch.slurm.asked)
            await asyncio.sleep(60)
            assert len(watch.slurm.asked) - before < 30, "no storm"
            assert watch.poller.epoch == 0
            assert watch.poller.states[1].is_pending, "what was known stays"
            watch.slurm.down = False
            watch.slurm.held[1] = "RUNNING"
            await watch.until(lambda: watch.told == [1, 1])
            assert (watch.poller.epoch, watch.poller.outage) == (1, "")

    run_in_virtual_time(story())


def test_what_is_new_is_looked_for_soon_however_long_the_pause_was() -> None:
    async def story() -> None:
        async with Watcher(Slurm(j1="RUNNING")).running() as watch:
            watch.poller.follow(1)
            await watch.until(lambda: watch.told)
            await asyncio.sleep(30)
            loop = asyncio.get_running_loop()
            watch.slurm.held[2] = "PENDING"
            watch.poller.follow(2)
            asked = loop.time()
            await watch.until(lambda: 2 in watch.told)
            assert loop.time() - asked < TIMES.slowest / 2

    run_in_virtual_time(story())


KEYS = [WorkloadKey("Pod", "ns", name) for name in "ab"]


def test_of_two_that_have_had_one_id_the_last_is_followed_and_the_first_cannot_forget_it() -> None:
    async def story() -> None:
        async with Watcher(Slurm(j1="RUNNING")).running() as watcher:
            watcher.poller.follow(1, KEYS[0])
            await watcher.until(lambda: watcher.told == [1])
            watcher.poller.follow(1, KEYS[1])
            assert watcher.poller.has_yet_to_see(1)
            await watcher.until(lambda: watcher.told == [1, 1])
            watcher.poller.forget([1], KEYS[0])
            assert watcher.poller.following == 1
            watcher.slurm.held.clear()
            await watcher.until(lambda: watcher.poller.owners_gone() == {KEYS[1]})
            watcher.poller.forget([1], KEYS[1])
            assert (watcher.poller.following, watcher.poller.gone) == (0, set())

    run_in_virtual_time(story())


def test_what_no_job_can_do_and_a_restart_of_slurm_leave_another_epoch() -> None:
    async def story() -> None:
        async with Watcher(Slurm(j1="RUNNING", j2="COMPLETED", j3="PENDING")).running() as watcher:
            for job_id in (1, 2, 3):
                watcher.poller.follow(job_id)
            await watcher.until(lambda: len(watcher.poller.states) == 3)
            watcher.slurm.held |= {3: "RUNNING"}
            del watcher.slurm.held[2]
            await watcher.looks(5)
            await watcher.poller.confirm()
            assert watcher.poller.epoch == 0
            watcher.slurm.held[1] = "PENDING"
            await watcher.until(lambda: watcher.poller.epoch == 1)
            del watcher.slurm.held[3]
            await watcher.until(lambda: watcher.poller.epoch == 2)
            watcher.slurm.started = 2
            await watcher.until(lambda: watcher.poller.epoch == 3)

    asyncio.run(story())


def test_at_midnight_slurms_statistics_begin_anew_and_nothing_is_read_again_but_after_a_restart_all_is() -> None:
    async def story() -> None:
        async with Watcher(Slurm(j1="RUNNING")).running() as watcher:
            watcher.poller.follow(1)
            await watcher.until(lambda: watcher.poller.states)
            for night in (1, 2):
                watcher.slurm.midnights = night
                await asyncio.sleep(30)
            assert (watcher.poller.epoch, watcher.slurm.distrusted) == (0, 0)
            watcher.slurm.started, watcher.slurm.midnights = 9_000_000, 0
            await watcher.until(lambda: watcher.poller.epoch == 1)
            assert watcher.slurm.distrusted == 1

    run_in_virtual_time(story())


def test_states_are_news_while_slurm_answers_and_not_when_it_is_down_or_silent() -> None:
    async def story() -> None:
        slurm = Slurm(j1="RUNNING")
        async with Watcher(slurm).running() as watch:
            assert not watch.poller.is_current, "nobody has looked yet"
            watch.poller.follow(1)
            await watch.until(lambda: watch.told)
            for _ in range(50):
                await asyncio.sleep(0.1)
                assert watch.poller.is_current
            slurm.down = True
            await watch.until(lambda: not watch.poller.is_current)
            slurm.down = False
            await watch.until(lambda: watch.poller.is_current)
            slurm.silence = 30.0
            await asyncio.sleep(5)
            assert not watch.poller.is_current, "the next look is overdue"

    run_in_virtual_time(story())


def test_slurms_clock_is_read_with_the_question_whether_it_was_restarted() -> None:
    async def story() -> None:
        slurm, loop = Slurm(), asyncio.get_running_loop()

        async def diag() -> Any:
            await asyncio.sleep(0.01)
            return diagnostics(1, now=int(1_800_003_600 + loop.time()))

        slurm.diag = diag  # type: ignore[method-assign]
        poller = JobPoller(slurm, lambda _: None)  # type: ignore[arg-type]
        assert poller.clock.time(loop.time()) is None
        for _ in range(20):
            await poller.confirm()
            await asyncio.sleep(1.37)
        told = poller.clock.time(loop.time())
        assert told is not None
        assert abs(told - 1_800_003_600 - loop.time()) < 0.6

    run_in_virtual_time(story())


def test_one_slow_answer_serves_all_that_waited_for_it() -> None:
    async def story() -> None:
        slurm, asked = Slurm(), list[float]()

        async def diag() -> Any:
            asked.append(asyncio.get_running_loop().time())
            await asyncio.sleep(5)
            return diagnostics(1)

        slurm.diag = diag  # type: ignore[method-assign]
        poller = JobPoller(slurm, lambda _: None)  # type: ignore[arg-type]
        await asyncio.gather(*(poller.confirm() for _ in range(32)))
        assert len(asked) == 1

    run_in_virtual_time(story())
