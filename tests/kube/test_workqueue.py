"""The work queue: its decisions against a model through generated histories, its waiting in virtual time."""

import asyncio
import itertools
import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slinky.kube import Backoff, Key, KubeError
from slinky.kube.agenda import LOWEST_TURN, Agenda
from slinky.kube.workqueue import QueueClosedError, WorkQueue
from tests.kube.virtual_time import run_in_virtual_time

KEYS = st.builds(Key, st.sampled_from(["n", "m"]), st.sampled_from("abc"))
PRIORITIES = st.integers(0, 2)
DELAYS = st.floats(0.5, 20)


class Histories(RuleBasedStateMachine):
    """Any adds, takes and ends: no key is lost, none is given out twice at a time, none is forgotten for ever."""

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.agenda: Agenda[Key] = Agenda(backoff=Backoff(first=1, most=10), dice=lambda: 1.0)
        self.due: dict[Key, float] = {}  # the model: when each wanted key may be taken
        self.working: set[Key] = set()
        self.known: set[Key] = set()

    def want(self, key: Key, moment: float) -> None:
        self.due[key] = min(moment, self.due.get(key, float("inf")))
        self.known.add(key)

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: Key, priority: int) -> None:
        self.agenda.add(key, priority=priority)
        self.want(key, self.now)

    @rule(key=KEYS, seconds=DELAYS, priority=PRIORITIES)
    def add_after(self, key: Key, seconds: float, priority: int) -> None:
        self.agenda.add_after(key, self.now, seconds, priority=priority)
        self.want(key, self.now + seconds)

    @rule(key=KEYS)
    def fail(self, key: Key) -> None:
        before = self.agenda.failures(key)
        seconds = self.agenda.add_after_failure(key, self.now)
        assert seconds == min(10, 2**before)
        self.want(key, self.now + seconds)

    @rule(key=KEYS)
    def forget(self, key: Key) -> None:
        self.agenda.forget(key)
        assert self.agenda.failures(key) == 0

    @rule(seconds=DELAYS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        possible = {key for key, moment in self.due.items() if moment <= self.now and key not in self.working}
        key = self.agenda.take(self.now)
        assert (key in possible) if possible else key is None
        if key is not None:
            del self.due[key]
            self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.working.discard(key)
        self.agenda.done(key)

    @invariant()
    def counts_agree_and_memory_is_bounded(self) -> None:
        assert self.agenda.working == len(self.working)
        assert self.agenda.entries <= 5 * len(self.known) + 64

    def teardown(self) -> None:
        """All that was wanted comes, once each, and then nothing."""
        if not hasattr(self, "agenda"):
            return
        for busy in list(self.working):
            self.agenda.done(busy)
        taken = []
        while (key := self.agenda.take(self.now + 1000)) is not None:
            taken.append(key)
            self.agenda.done(key)
        assert sorted(taken) == sorted(self.due)
        assert self.agenda.next_due() is None
        assert self.agenda.ready == self.agenda.later == 0


TestHistories = Histories.TestCase


def drained(agenda: Agenda[Key], most: int) -> list[Key]:
    return [key for _ in range(most) if (key := agenda.take(0.0)) is not None]


def test_one_namespace_with_100_000_keys_starves_no_other() -> None:
    agenda: Agenda[Key] = Agenda()
    for number in range(100_000):
        agenda.add(Key("huge", str(number)))
    for number in range(5):
        agenda.add(Key("small", str(number)))
        agenda.add(Key("tiny", str(number)))
    first = drained(agenda, 15)
    assert Counter(key.namespace for key in first) == {"huge": 5, "small": 5, "tiny": 5}


def test_a_priority_goes_first_but_the_lowest_has_its_turn() -> None:
    agenda: Agenda[Key] = Agenda()
    for number in range(200):
        agenda.add(Key("urgent", str(number)), priority=10)
        agenda.add(Key("idle", str(number)))
    first = drained(agenda, 4 * LOWEST_TURN)
    assert Counter(key.namespace for key in first) == {"urgent": 4 * (LOWEST_TURN - 1), "idle": 4}


def test_a_higher_priority_lifts_a_key_that_waits_and_a_lower_one_does_not_sink_it() -> None:
    agenda: Agenda[Key] = Agenda()
    for name in "abc":
        agenda.add(Key("n", name))
    agenda.add(Key("n", "c"), priority=5)
    agenda.add(Key("n", "c"), priority=0)
    assert [key.name for key in drained(agenda, 9)] == ["c", "a", "b"]


def test_overtaken_moments_do_not_fill_memory() -> None:
    agenda: Agenda[Key] = Agenda()
    for number in range(10_000):
        agenda.add_after(Key("n", "a"), 0.0, 20_000.0 - number)
    assert agenda.entries < 200


@given(st.integers(1, 40), st.integers(1, 6))
def test_workers_never_share_a_key_and_everything_is_done(keys: int, workers: int) -> None:
    async def story() -> None:
        queue: WorkQueue[Key] = WorkQueue()
        busy: set[Key] = set()
        turns: Counter[Key] = Counter()

        async def handle(key: Key) -> None:
            assert key not in busy
            busy.add(key)
            turns[key] += 1
            if turns[key] == 1:
                queue.add(key)
            await asyncio.sleep(1)
            busy.discard(key)

        serving = asyncio.create_task(queue.serve(handle, workers=workers))
        for number in range(keys):
            queue.add(Key(str(number % 3), str(number)))
        await asyncio.sleep(3 * keys)
        assert await queue.shut_down()
        await serving
        assert set(turns.values()) == {2}
        assert len(turns) == keys

    run_in_virtual_time(story())


def test_a_delayed_key_comes_when_it_is_due_and_an_earlier_wish_counts() -> None:
    async def story() -> None:
        queue: WorkQueue[Key] = WorkQueue()
        loop = asyncio.get_running_loop()
        queue.add_after(Key("n", "late"), 3600)
        queue.add_after(Key("n", "early"), 60)
        queue.add_after(Key("n", "late"), 600)
        moments = []
        for _ in range(2):
            async with queue.work() as key:
                moments.append((key.name, round(loop.time())))
        assert moments == [("early", 60), ("late", 600)]
        assert len(queue) == 0

    run_in_virtual_time(story())


def test_failures_are_retried_later_and_later_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> list[float]:
        queue: WorkQueue[Key] = WorkQueue(backoff=Backoff(first=1, most=60))
        moments: list[float] = []

        async def handle(_: Key) -> None:
            moments.append(asyncio.get_running_loop().time())
            if len(moments) < 9:
                raise KubeError("not now")

        serving = asyncio.create_task(queue.serve(handle))
        queue.add(Key("n", "a"))
        await asyncio.sleep(1000)
        assert queue.agenda.failures(Key("n", "a")) == 0
        await queue.shut_down()
        await serving
        return moments

    with caplog.at_level(logging.WARNING):
        moments = run_in_virtual_time(story())
    waits = [after - before for before, after in itertools.pairwise(moments)]
    assert len(waits) == 8
    assert all(min(60, 2**number) / 2 <= wait <= min(60, 2**number) for number, wait in enumerate(waits))
    assert caplog.text.count("not now") == 8


def test_shutting_down_finishes_what_is_ready_and_drops_what_is_for_later() -> None:
    async def story() -> None:
        queue: WorkQueue[Key] = WorkQueue()
        seen: list[str] = []

        async def handle(key: Key) -> None:
            await asyncio.sleep(5)
            seen.append(key.name)

        serving = asyncio.create_task(queue.serve(handle, workers=2))
        for name in "abc":
            queue.add(Key("n", name))
        queue.add_after(Key("n", "later"), 7)
        await asyncio.sleep(1)
        assert await queue.shut_down(20)
        queue.add(Key("n", "too-late"))
        await serving
        assert sorted(seen) == ["a", "b", "c"]
        with pytest.raises(QueueClosedError):
            await queue.take()

    run_in_virtual_time(story())


def test_a_drain_that_takes_too_long_says_so() -> None:
    async def story() -> None:
        queue: WorkQueue[Key] = WorkQueue()
        queue.add(Key("n", "a"))
        key = await queue.take()
        assert not await queue.shut_down(3)
        queue.done(key)
        assert await queue.shut_down(3)

    run_in_virtual_time(story())


def test_a_worker_that_is_cancelled_passes_its_wake_up_on() -> None:
    async def story() -> None:
        queue: WorkQueue[Key] = WorkQueue()
        first, second = asyncio.create_task(queue.take()), asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.add(Key("n", "a"))
        first.cancel()
        assert await asyncio.wait_for(second, 5) == Key("n", "a")
        await asyncio.gather(first, return_exceptions=True)

    run_in_virtual_time(story())


async def test_keys_that_are_decided_from_memory_do_not_hold_the_event_loop() -> None:
    """A handler that waits for nothing never gives way by itself: thousands of such keys would be one block."""
    queue: WorkQueue[int] = WorkQueue()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def handle(_: int) -> None:
        sum(range(500))

    for key in range(20_000):
        queue.add(key)
    beside = asyncio.create_task(others())
    serving = asyncio.create_task(queue.serve(handle, workers=4))
    await queue.shut_down()
    await serving
    beside.cancel()
    assert turns > 10
