"""When a job that runs will end, and when its pods have to go."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.endings import LONGEST_LOOK, ROUND_PER_SECOND, Endings, seconds_to_next_look
from slinky.bridge.ends import DEFAULT_GRACE, MARGIN_SECONDS, Ending, end_of, longest_grace
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod
from slinky.kube.objects import PodSpec, PodStatus
from slinky.slurm import Job, NotFoundError
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


@given(end=st.integers(60, 100_000), grace=st.integers(0, 7200), followed=st.integers(1, 100_000), start=st.integers(0, 60))
def test_who_looks_when_told_to_is_never_late(end: int, grace: int, followed: int, start: int) -> None:
    now, found = float(NOW + start), None
    for _ in range(100_000):
        found = end_of([job(start_time=NOW, end_time=NOW + end)], grace, now)
        assert found is not None
        if found.evict_at <= now:
            break
        wait = seconds_to_next_look(found, now, followed)
        assert 0 < wait <= max(LONGEST_LOOK, followed / ROUND_PER_SECOND)
        now += wait
    assert found is not None
    assert now <= max(found.evict_at + 1, NOW + start)


class Slurm:
    """With one job."""

    def __init__(self, found: Job | None) -> None:
        self.jobs, self.found, self.asked = self, found, 0

    async def parts(self, _: int) -> list[Job]:
        self.asked += 1
        if self.found is None:
            raise NotFoundError("no such job")
        return [self.found]


def followed(
    slurm: Slurm, seconds: float, *, own: bool = True, signalled: bool = False, pods: Callable[[float], list[Pod]] = lambda _: []
) -> list[Ending | None]:
    """What was told in so many seconds, changes only. `pods` are those that there are after so many seconds."""
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
            clock=lambda: NOW + loop.time() - began,
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
