"""What a Slurm did before it was set back is not forgotten by those who judge."""

from typing import Any

from tests.chaos.history import FORGOTTEN, LiveJob
from tests.chaos.invariants import check
from tests.chaos.old_state import with_forgotten
from tests.chaos.slurm_side import completed
from tests.chaos.test_invariants import history, job, life, pod, violations

SET_BACK = 110.0
ZOMBIE: dict[str, Any] = {"state": "RUNNING", "end": 0.0, "cluster": "", "workload": "", "pods": ()}


def test_a_forgotten_job_ends_when_slurm_was_set_back_and_its_pods_run_on() -> None:
    running = [*life(1)[:3], pod(20, node="n0", job_id=7, begun=True, phase="Running")]
    jobs = with_forgotten([job(state="RUNNING", end=0.0)], [job(**ZOMBIE)], SET_BACK)
    assert [(found.state, found.end) for found in jobs] == [(FORGOTTEN, SET_BACK)]
    told = history(running, jobs)
    assert not any("has no job" in text for found in violations(told).values() for text in found)
    assert any("has no job" in text for found in violations(history(running, [job()])).values() for text in found)


def test_a_job_that_runs_again_has_two_lives_and_each_accounts_for_its_own() -> None:
    before, after = job(state="RUNNING", end=0.0), job(start=112.0, end=120.0)
    jobs = with_forgotten([before], [after], SET_BACK)
    assert [(found.start, found.end) for found in jobs] == [(112.0, 120.0), (102.0, SET_BACK)]
    assert violations(history(life(1), jobs)) == {}
    assert violations(history(life(1), [after])), "by its second life alone the pod would have been bound too early"


def test_what_ended_before_and_ends_again_is_two_and_what_just_runs_on_is_one() -> None:
    ended, again = job(state="PREEMPTED", end=104.0), job(state="PREEMPTED", end=130.0)
    assert with_forgotten([ended], [again], SET_BACK) == [again, ended]
    assert with_forgotten([job(state="RUNNING", end=0.0)], [again], SET_BACK) == [again]


def test_an_id_that_was_given_out_again_is_another_job() -> None:
    other = job(name="pod-0002", submit=115.0, start=116.0, end=120.0)
    jobs = with_forgotten([job(state="RUNNING", end=0.0)], [job(**ZOMBIE), other], SET_BACK)
    assert {(found.name, found.state) for found in jobs} == {("a/pod-0001", FORGOTTEN), ("a/pod-0002", "COMPLETED")}
    assert check(history([*life(1), *life(16, "pod-0002")], jobs))[0].violations == ()


def test_what_slurmctld_says_of_a_running_job_is_said_of_the_last_that_had_its_id() -> None:
    unheard = job(name="pod-0002", submit=115.0, start=116.0, **ZOMBIE)
    live = LiveJob(job_id=7, state="RUNNING", cluster="chaos", workload="Pod a/other", pods=("a/pod-0002",))
    assert [found.workload for found in completed([job(**ZOMBIE), unheard], [live])] == ["", "Pod a/other"]
