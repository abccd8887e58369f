"""When a job that runs will end, and when its pods have to go."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from slinky.bridge.annotations import read_settings
from slinky.bridge.checkpoint import AGAIN_SECONDS, Checkpoints, signals_counter
from slinky.bridge.endings import FIRST_LOOK, LOOKS_PER_SECOND, ROUND_PER_SECOND, WORKERS, Endings, _routine_wait, _sweep_pause
from slinky.bridge.ends import DEFAULT_GRACE, MARGIN_SECONDS, Ending, end_of, is_credible, longest_grace
from slinky.bridge.keys import SETTINGS
from slinky.bridge.memory import Known, Refusal
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Pod
from slinky.kube.objects import PodSpec, PodStatus
from slinky.slurm import Job, JobStatus, NotFoundError
from tests.bridge.both_sides import Silent, World
from tests.kube.virtual_time import run_in_virtual_time

NOW = 1_800_000_000
KEY = WorkloadKey("Pod", "ns", "a")


def job(*states: str, limit: int | None = 60, **times: int) -> Job:
    """`limit` in minutes; None for no limit."""
    numbers = {name: {"set": True, "infinite": False, "number": value} for name, value in times.items()}
    limited = {"set": True, "infinite": limit is None, "number": limit or 0}
    return msgspec.convert({"job_id": 7, "job_state": states or ["RUNNING"], "time_limit": limited, **numbers}, Job)


def test_pods_go_before_the_time_limit_by_their_grace_period_and_a_little_more() -> None:
    end = end_of([job(start_time=NOW - 60, end_time=NOW + 3540)], 60, NOW)
    assert end is not None
    assert (end.kind, end.at, end.reason) == ("timelimit", NOW + 3540, "SlurmTimeout")
    assert end.evict_at == end.last_call == NOW + 3540 - 60 - MARGIN_SECONDS


def test_no_job_loses_more_than_half_of_its_time_to_a_grace_period() -> None:
    end = end_of([job(start_time=NOW, end_time=NOW + 60, limit=1)], 600, NOW)
    assert end is not None
    assert end.evict_at == NOW + 30


def test_a_job_without_a_limit_has_no_end() -> None:
    assert end_of([job(limit=None, start_time=NOW, end_time=NOW + 31_536_000)], 30, NOW) is None
    assert end_of([job("PENDING", start_time=NOW, end_time=NOW + 60)], 30, NOW) is None


def test_at_a_preemption_pods_go_at_once_unless_they_asked_for_a_signal_before() -> None:
    preempted = job(limit=None, start_time=NOW - 60, preempt_time=NOW, end_time=NOW + 300)
    at_once = end_of([preempted], 30, NOW + 1)
    assert at_once is not None
    assert (at_once.kind, at_once.evict_at, at_once.reason) == ("preemption", NOW + 1, "SlurmPreempted")
    assert at_once.last_call == NOW + 300 - 30 - MARGIN_SECONDS, "budgets can be honoured until then"
    warned = end_of([preempted], 30, NOW + 1, warned=True)
    assert warned is not None
    assert warned.evict_at == warned.last_call
    short = end_of([preempted], 600, NOW + 1, warned=True)
    assert short is not None
    assert short.evict_at == NOW + 1, "there is no time for more"


def test_of_a_hetjob_the_first_end_counts() -> None:
    parts = [job(start_time=NOW, end_time=NOW + 3600), job(start_time=NOW, end_time=NOW + 1800)]
    end = end_of(parts, 30, NOW)
    assert end is not None
    assert end.at == NOW + 1800
    preempted = end_of([parts[0], job(start_time=NOW, preempt_time=NOW, end_time=NOW + 20)], 30, NOW)
    assert preempted is not None
    assert preempted.kind == "preemption"


def test_the_longest_grace_period_counts_of_those_that_may_run() -> None:
    def pod(grace: int | None, node: str = "n", phase: str = "Running") -> Pod:
        return Pod(spec=PodSpec(node_name=node, termination_grace_period_seconds=grace), status=PodStatus(phase=phase))

    assert longest_grace([]) == 0
    assert longest_grace([pod(None), pod(5)]) == DEFAULT_GRACE
    assert longest_grace([pod(0), pod(60), pod(600, node=""), pod(600, phase="Succeeded")]) == 60


@settings(max_examples=8, deadline=None)
@given(length=st.integers(1, 40), grace=st.integers(0, 900), others=st.sampled_from([0, 400, 3000]))
def test_pods_are_told_in_time_however_many_other_jobs_there_are(length: int, grace: int, others: int) -> None:
    """`length` in minutes. All became followed at once, as after a takeover; half of the job's time was over."""
    at = NOW + length * 30
    expected = end_of([job(start_time=at - length * 60, end_time=at)], grace, NOW)
    assert expected is not None
    slurm = ManyJobs(j7=job(start_time=at - length * 60, end_time=at))
    any_slurm: Any = slurm

    async def story() -> float:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[float] = loop.create_future()
        pods = [Pod(spec=PodSpec(node_name="n", termination_grace_period_seconds=grace))]

        def tell(_: WorkloadKey, job_id: int, ending: Ending | None) -> None:
            if job_id == 7 and ending and not told.done():
                told.set_result(NOW + loop.time())

        endings = Endings(any_slurm, lambda _: pods, lambda *_: True, lambda _: False, tell, clock=lambda: NOW + loop.time())
        for number in range(100, 100 + others):
            endings.look(a_key(number), None, number)
        endings.look(a_key(7), None, 7)
        task = asyncio.create_task(endings.run())
        moment = await told
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return moment

    first_look = FIRST_LOOK * 1.2 + others / LOOKS_PER_SECOND + 1
    assert expected.evict_at - 0.1 <= run_in_virtual_time(story()) <= max(expected.evict_at + 1.5, NOW + first_look)


class Slurm:
    """With one job."""

    def __init__(self, found: Job | None) -> None:
        self.jobs, self.found, self.asked = self, found, 0

    async def parts(self, _: int, **__: bool) -> list[Job]:
        self.asked += 1
        if self.found is None:
            raise NotFoundError("no such job")
        return [self.found]


def followed(
    slurm: Slurm,
    seconds: float,
    *,
    own: bool = True,
    signalled: bool = False,
    pods: Callable[[float], list[Pod]] = lambda _: [],
    clock: Callable[[float], float | None] = lambda seconds: NOW + seconds,
) -> list[Ending | None]:
    """What was told in so many seconds, changes only. `pods` are those that there are after so many seconds; so is `clock`, Slurm's."""
    told: list[Ending | None] = []
    any_slurm: Any = slurm

    async def story() -> None:
        def tell(_: WorkloadKey, job_id: int, ending: Ending | None) -> None:
            assert job_id == 7
            if not told or (told[-1] is None) != (ending is None):
                told.append(ending)

        loop = asyncio.get_running_loop()
        began = loop.time()
        endings = Endings(
            any_slurm,
            lambda _: pods(loop.time() - began),
            lambda *_: own,
            lambda _: signalled,
            tell,
            clock=lambda: clock(loop.time() - began),
        )
        endings.look(KEY, None, 7)
        task = asyncio.create_task(endings.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())
    return told


def test_a_job_that_ends_within_seconds_costs_no_question() -> None:
    slurm = Slurm(job(start_time=NOW, end_time=NOW + 3600))
    followed(slurm, 8)
    assert not slurm.asked


def test_it_is_told_when_it_is_time_and_not_before() -> None:
    slurm = Slurm(job(start_time=NOW, end_time=NOW + 120))
    assert followed(slurm, 110) == [None]
    told = followed(slurm, 118)
    assert told[0] is None
    assert told[1] is not None
    assert (told[1].reason, told[1].why) == ("SlurmTimeout", "Slurm job 7 has reached its time limit")


def test_pods_that_were_told_to_go_are_not_called_back_when_those_with_the_longest_grace_period_are_gone() -> None:
    def pods(seconds: float) -> list[Pod]:
        graces = (60, 5) if seconds < 70 else (5,)
        return [Pod(spec=PodSpec(node_name="n", termination_grace_period_seconds=grace)) for grace in graces]

    slurm = Slurm(job(start_time=NOW, end_time=NOW + 120))
    assert [ending and ending.reason for ending in followed(slurm, 105, pods=pods)] == [None, "SlurmTimeout"]


def test_a_limit_that_is_made_longer_calls_pods_back() -> None:
    slurm = Slurm(job(start_time=NOW, end_time=NOW + 60))

    def pods(seconds: float) -> list[Pod]:
        if seconds > 40:
            slurm.found = job(start_time=NOW, end_time=NOW + 3600)
        return [Pod(spec=PodSpec(node_name="n", termination_grace_period_seconds=60))]

    assert [ending and ending.reason for ending in followed(slurm, 100, pods=pods)] == [None, "SlurmTimeout", None]


def test_what_is_signalled_is_looked_at_at_once() -> None:
    slurm = Slurm(job(limit=None, start_time=NOW - 60, preempt_time=NOW, end_time=NOW + 30))
    assert [ending and ending.reason for ending in followed(slurm, 1, signalled=True)] == ["SlurmPreempted"]
    not_preempted = Slurm(job(limit=None, start_time=NOW - 60))
    assert followed(not_preempted, 60, signalled=True) == [None], "somebody sent it a signal, no more"


@pytest.mark.parametrize(("found", "own"), [(None, True), (job(preempt_time=NOW, end_time=NOW + 30), False)])
def test_nothing_is_said_of_a_job_that_is_unknown_or_anothers(found: Job | None, own: bool) -> None:
    assert followed(Slurm(found), 60, own=own) == []


# Slurm's clock


@pytest.mark.parametrize("skew", [3600, -3600])
def test_a_job_ends_by_slurms_clock_however_far_it_is_from_ours(skew: int) -> None:
    """Ours shows NOW. An hour's job is not told to go in its first seconds, nor an hour late."""
    hour = Slurm(job(start_time=NOW + skew, end_time=NOW + skew + 3600))
    assert followed(hour, 3500, clock=lambda seconds: NOW + skew + seconds) == [None]
    assert [ending and ending.reason for ending in followed(hour, 3598, clock=lambda seconds: NOW + skew + seconds)] == [
        None,
        "SlurmTimeout",
    ]


def test_while_slurms_clock_is_not_known_nobody_is_told_to_go_for_a_time_limit() -> None:
    minute = Slurm(job(start_time=NOW, end_time=NOW + 60))
    assert followed(minute, 600, clock=lambda _: None) == []
    found = followed(minute, 100, clock=lambda seconds: None if seconds < 90 else NOW + seconds)
    assert [ending and ending.reason for ending in found] == ["SlurmTimeout"], "as soon as it is known again"


def test_a_preemption_needs_no_clock() -> None:
    preempted = Slurm(job(start_time=NOW, preempt_time=NOW + 5, end_time=NOW + 60))
    assert [ending and ending.reason for ending in followed(preempted, 1, signalled=True, clock=lambda _: None)] == ["SlurmPreempted"]
    assert end_of([job(preempt_time=NOW, end_time=NOW + 60)], 30, None, warned=True) is None, "what is left of its grace time is not known"


def test_a_record_from_the_future_of_slurms_clock_is_not_acted_on() -> None:
    """slurmctld's clock was set back after the job began: an hour is not over when its end is past by the old reckoning."""
    record = job(start_time=NOW + 3600, end_time=NOW + 3660)
    assert not is_credible([record], NOW)
    assert followed(Slurm(record), 60) == []


def test_the_clock_is_read_once_more_before_pods_go() -> None:
    """It was set back an hour since the last reading."""
    told: list[Ending | None] = []
    any_slurm: Any = Slurm(job(start_time=NOW - 60, end_time=NOW + 3600))

    async def story() -> None:
        times = [float(NOW + 7200)]

        async def confirm() -> None:
            times[0] = float(NOW)

        endings = Endings(
            any_slurm, lambda _: [], lambda *_: True, lambda _: True, lambda *said: told.append(said[2]), lambda: times[0], confirm
        )
        endings.look(KEY, None, 7)
        task = asyncio.create_task(endings.run())
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())
    assert told == [None]


# An end that changes


Step = tuple[str, int]
STEPS = st.one_of(
    st.tuples(st.just("limit"), st.sampled_from([1, 20, 300, 4000])),
    st.tuples(st.just("preempt"), st.sampled_from([1, 30, 600])),
    st.tuples(st.just("withdraw"), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([3, 40, 500])),
    st.tuples(st.just("clock lost"), st.just(0)),
)


@example([("limit", 1), ("preempt", 600)])
@example([("preempt", 30), ("withdraw", 0), ("limit", 4000)])
@example([("limit", 20), ("limit", 1), ("limit", 4000)])
@given(st.lists(STEPS, max_size=12))
def test_whatever_becomes_of_a_jobs_end_its_pods_have_the_last_deadline(steps: list[Step]) -> None:
    """The reconciler's own memory of it, after each change of the job's record and a look at it."""

    async def story() -> None:
        world, slurm, loop = World(), Slurm(None), asyncio.get_running_loop()
        known = world.loop.known[KEY] = Known(job_id=7)
        any_slurm: Any = slurm
        ends, preempted, is_known = NOW + 4000, 0, [True]

        def now() -> float:
            return NOW + loop.time()

        endings = Endings(
            any_slurm, lambda _: [], lambda *_: True, lambda _: False, world.loop.job_ends, lambda: now() if is_known[0] else None
        )
        slurm.found = job(start_time=NOW - 3600, end_time=ends)
        endings.look(KEY, None, 7)
        task = asyncio.create_task(endings.run())
        limit = ends
        for what, seconds in steps:
            before = known.end
            known.refusals = {"uid": Refusal(1.0, 3, 1e9, "not now")} if before else {}
            is_known[0] = what != "clock lost"
            if what == "wait":
                await asyncio.sleep(seconds)
            elif what == "limit":
                limit = ends = int(now()) + seconds
                preempted = 0
            elif what == "preempt":
                preempted, ends = int(now()), int(now()) + seconds
            elif what == "withdraw":
                preempted, ends = 0, limit
            times = {"preempt_time": preempted} if preempted else {}
            slurm.found = job(start_time=NOW - 3600, end_time=ends, **times)
            endings.hasten(KEY)
            await asyncio.sleep(1.5)
            expected = end_of([slurm.found], 0.0, now())
            assert expected is not None
            if not is_known[0]:
                assert (known.end is before) or (known.end and known.end.reason == "SlurmPreempted"), (
                    "no deadline, new or gone, without a clock"
                )
            elif known.end is None:
                assert expected.evict_at > now() - 2
            else:
                assert (known.end.reason, known.end.at) == (expected.reason, expected.at)
                assert abs(known.end.until - loop.time() - (expected.last_call - now())) < 0.1
                if before is not None and not before.is_same_end(known.end):
                    assert known.refusals["uid"].again == 0, "its budget is asked again at once"
                    assert known.refusals["uid"].since == 1.0, "and has been honoured for as long"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())


# Whose turn it is


class ManyJobs:
    """Of which each has the record of its number, or an ordinary one. `asked` in order."""

    def __init__(self, **records: Job) -> None:
        self.jobs, self.asked = self, list[int]()
        self.records = {int(name[1:]): record for name, record in records.items()}

    async def parts(self, job_id: int, **_: bool) -> list[Job]:
        self.asked.append(job_id)
        found = self.records.get(job_id) or job(limit=None, start_time=NOW - 60)
        return [msgspec.structs.replace(found, job_id=job_id)]


def a_key(number: int) -> WorkloadKey:
    return WorkloadKey("Pod", f"ns{number % 7}", f"p{number}")


MANY = 3000


def test_a_job_that_slurm_signals_is_read_before_thousands_that_wait_for_their_turn() -> None:
    """As after a takeover: all are due for their first look, when one is preempted."""
    told: dict[int, Ending | None] = {}
    preempted = job(limit=None, start_time=NOW - 60, preempt_time=NOW + 30, end_time=NOW + 60)
    slurm = ManyJobs(j1500=preempted)
    any_slurm: Any = slurm

    async def story() -> None:
        signalled: set[int] = set()
        loop = asyncio.get_running_loop()
        endings = Endings(
            any_slurm,
            lambda _: [],
            lambda *_: True,
            lambda job_id: job_id in signalled,
            lambda _, job_id, ending: told.update({job_id: ending}),
            clock=lambda: NOW + loop.time(),
        )
        for number in range(MANY):
            endings.look(a_key(number), None, number)
        task = asyncio.create_task(endings.run())
        await asyncio.sleep(16)  # all are due
        before = len(slurm.asked)
        assert before < MANY / 10
        if 1500 in slurm.asked:
            slurm.asked.remove(1500)
        signalled.add(1500)
        endings.look(a_key(1500), None, 1500)
        while 1500 not in slurm.asked:
            await asyncio.sleep(0.01)
        assert len(slurm.asked) - before <= WORKERS + 1, "no more than were under way"
        await asyncio.sleep(0.1)
        ending = told[1500]
        assert ending is not None
        assert ending.reason == "SlurmPreempted"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())


def test_a_job_whose_moment_has_come_goes_before_those_that_are_looked_at_in_turn() -> None:
    slurm = ManyJobs(j7=job(start_time=NOW - 3600, end_time=NOW + 60))
    any_slurm: Any = slurm

    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: list[float] = []
        endings = Endings(
            any_slurm,
            lambda _: [],
            lambda *_: True,
            lambda _: False,
            lambda _, job_id, ending: told.append(loop.time()) if job_id == 7 and ending else None,
            clock=lambda: NOW + loop.time(),
        )
        endings.look(a_key(7), None, 7)
        endings.hasten(a_key(7))  # its end is known
        task = asyncio.create_task(endings.run())
        await asyncio.sleep(30)
        for number in range(100, 100 + MANY):
            endings.look(a_key(number), None, number)
        while not told:
            await asyncio.sleep(0.1)
        assert told[0] < 60 - MARGIN_SECONDS + 2, "before Slurm ends it"
        assert len(slurm.asked) < MANY / 2, "though the others had not all had their turn"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())


def test_the_reconciler_looks_at_a_signalled_job_before_thousands_that_have_changed() -> None:
    async def story() -> None:
        world = World()
        for number in range(1, MANY):
            world.loop.own_job(number, a_key(number))
            world.poller.states[number] = JobStatus(str(number), ["RUNNING"])
            world.loop.job_changed(number)
        world.poller.states[1500] = JobStatus("1500", ["RUNNING", "SIGNALING"])
        world.loop.job_changed(1500)
        assert await world.loop.queue.take() == a_key(1500)

    run_in_virtual_time(story())


def test_a_job_that_was_being_preempted_when_this_process_took_over_is_read_as_soon_as_it_is_followed() -> None:
    slurm = ManyJobs(j9=job(limit=None, start_time=NOW - 60, preempt_time=NOW, end_time=NOW + 60))
    any_slurm: Any = slurm

    async def story() -> None:
        endings = Endings(any_slurm, lambda _: [], lambda *_: True, lambda _: False, lambda *_: None, clock=lambda: float(NOW))
        endings.expect(a_key(9))
        for number in range(MANY):
            endings.look(a_key(number), None, number)
        task = asyncio.create_task(endings.run())
        await asyncio.sleep(0.5)
        assert slurm.asked == [9]
        endings.expect(a_key(10))
        endings.look(a_key(10), None, 0)
        assert not endings._first, "one that does not run is not remembered"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())


async def _all_read(endings: Endings, slurm: ManyJobs) -> None:
    """All jobs are followed, and each record was read once."""
    for number in range(1, MANY + 1):
        endings.look(a_key(number), None, number)
        endings.hasten(a_key(number))
    while len(slurm.asked) < MANY:
        await asyncio.sleep(0.1)
    slurm.asked.clear()


def test_jobs_that_are_preempted_beside_one_that_shows_it_do_not_wait_for_their_turn() -> None:
    """Forty at once, of which one has a signal that lasts long enough to be seen."""
    slurm = ManyJobs()
    any_slurm: Any = slurm
    victims = range(1000, 1040)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: set[int] = set()
        endings = Endings(
            any_slurm,
            lambda _: [],
            lambda *_: True,
            lambda _: False,
            lambda _, job_id, ending: told.add(job_id) if ending else None,
            clock=lambda: NOW + loop.time(),
        )
        task = asyncio.create_task(endings.run())
        await _all_read(endings, slurm)
        began, at = loop.time(), int(NOW + loop.time())
        slurm.records = {number: job(limit=None, start_time=NOW - 60, preempt_time=at, end_time=at + 600) for number in victims}
        endings.signalled(a_key(victims[7]))
        while len(told) < len(victims):
            await asyncio.sleep(0.1)
        assert loop.time() - began < _routine_wait(MANY) / 3
        while len(set(slurm.asked)) < MANY:
            await asyncio.sleep(0.1)
        assert len(slurm.asked) < 1.5 * MANY, "one round"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())


def test_preemptions_that_never_stop_cost_a_bounded_number_of_reads() -> None:
    slurm = ManyJobs()
    any_slurm: Any = slurm
    seconds = 600

    async def story() -> None:
        loop = asyncio.get_running_loop()
        endings = Endings(any_slurm, lambda _: [], lambda *_: True, lambda _: False, lambda *_: None, clock=lambda: NOW + loop.time())
        task = asyncio.create_task(endings.run())
        await _all_read(endings, slurm)
        for number in range(1, seconds + 1):
            at = int(NOW + loop.time())
            slurm.records[number] = job(limit=None, start_time=NOW - 60, preempt_time=at, end_time=at + 6000)
            endings.signalled(a_key(number))
            await asyncio.sleep(1)
        rounds = seconds / _sweep_pause(MANY) + 1
        assert len(slurm.asked) <= seconds + rounds * MANY + seconds * ROUND_PER_SECOND
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())


def test_a_signal_that_is_over_before_the_reconciler_looks_is_not_missed() -> None:
    """Where a slurmd answers at once, Slurm shows it for a tenth of a second."""
    slurm = ManyJobs(j7=job(limit=None, start_time=NOW - 60, preempt_time=NOW, end_time=NOW + 60))
    any_slurm: Any = slurm

    async def story() -> None:
        world = World()
        endings = Endings(any_slurm, lambda _: [], lambda *_: True, world.loop.is_signalled, lambda *_: None, clock=lambda: float(NOW))
        world.loop.endings, world.loop.signalled = endings.look, endings.signalled
        world.loop.own_job(7, KEY)
        endings.look(KEY, None, 7)
        task = asyncio.create_task(endings.run())
        for states in (["RUNNING", "SIGNALING"], ["RUNNING"]):
            world.poller.states[7] = JobStatus("7", states)
            world.loop.job_changed(7)
        world.loop.endings(KEY, None, 7)
        await asyncio.sleep(0.5)
        assert slurm.asked == [7]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(story())


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_pods_that_cannot_have_their_signal_cost_few_reads_and_are_evicted_all_the_same(state: str) -> None:
    """No container of theirs runs, or no signal may be sent; and a preemption that leaves no time for more."""
    pods = [
        msgspec.convert(
            {
                "metadata": {"namespace": "ns", "name": f"p{number}", "uid": f"u{number}"},
                "spec": {"nodeName": "n"},
                "status": {"phase": "Pending", "containerStatuses": [{"name": "c", "state": {state: {}}}]},
            },
            Pod,
        )
        for number in range(3)
    ]
    told: list[Ending | None] = []
    slurm = Slurm(job(start_time=NOW - 60, preempt_time=NOW, end_time=NOW + 30))
    any_slurm: Any = slurm
    silent: Any = Silent()

    class Kube:
        async def patch(self, *_: object, **__: object) -> None: ...

    kube: Any = Kube()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        checkpoints = Checkpoints(kube, kube, silent, signals_counter(CollectorRegistry()), allowed=state == "waiting")
        checkpoints.pods = lambda _: pods
        endings = Endings(
            any_slurm,
            lambda _: pods,
            lambda *_: True,
            lambda _: False,
            lambda *said: told.append(said[2]),
            clock=lambda: NOW + loop.time(),
            checkpoints=checkpoints,
        )
        said = read_settings({f"{SETTINGS}signal": "USR1@60"})
        workload = Workload(key=KEY, name="a", pods=tuple(pods), settings=said, size=3)
        endings.look(KEY, workload, 7)
        tasks = [asyncio.create_task(work) for work in (endings.run(), checkpoints.run())]
        await asyncio.sleep(61)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_in_virtual_time(story())
    assert [ending and ending.reason for ending in told[-1:]] == ["SlurmPreempted"]
    assert slurm.asked <= 61 / AGAIN_SECONDS + 3
