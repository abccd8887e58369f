"""Why a job waits, or how it ended: from Slurm's reason, its partition, the nodes there, and reservations."""

import pytest

from slinky.explain.facts import Facts
from slinky.explain.jobs import job_findings, job_lines
from slinky.explain.report import explain_job
from tests.explain.worlds import NOW, STAMP, facts, job, node, number, partition, reservation, with_job

DRAINED = (node("w1", "IDLE+EXTERNAL+DRAIN", reason="disk is broken"), node("w2", "DOWN+EXTERNAL", reason="gone"))

CASES: dict[str, tuple[Facts, str, str]] = {
    "job-not-found": (facts(slurm={"asked": 7}), "no job 7", "sacct -j 7"),
    "job-running": (with_job(job(7, "RUNNING", "None", nodes="w1", end_time=number(STAMP + 60))), "it runs on w1, until 2026-11-15 12:01 UTC", ""),
    "job-over": (with_job(job(7, "COMPLETED", "None")), "COMPLETED", ""),
    "job-failed": (with_job(job(7, "TIMEOUT", "TimeLimit")), "TIMEOUT", "longer time limit"),
    "job-suspended": (with_job(job(7, "SUSPENDED", "None")), "suspended", "scontrol resume 7"),
    "job-held-admin": (with_job(job(7, reason="JobHeldAdmin", priority=number(0))), "JobHeldAdmin", "scontrol release 7 (an administrator"),
    "job-held-user": (with_job(job(7, reason="JobHeldUser", hold=True)), "JobHeldUser", "scontrol release 7"),
    "job-dependency": (with_job(job(7, reason="Dependency", dependency="afterok:6")), "afterok:6", "scontrol update JobId=7 Dependency="),
    "job-dependency-never": (with_job(job(7, reason="DependencyNeverSatisfied")), "DependencyNeverSatisfied", "scancel 7"),
    "job-begin-time": (with_job(job(7, reason="BeginTime")), "begin time has not come", "StartTime=now"),
    "job-partition-down": (with_job(job(7, reason="PartitionDown"), partitions=(partition(state="DOWN"),)), "partition bridge is DOWN", "PartitionName=bridge State=UP"),
    "job-partition-limit": (with_job(job(7, reason="PartitionTimeLimit")), "PartitionTimeLimit", "PartitionName=bridge MaxTime="),
    "job-nodes-unavailable": (with_job(job(7, reason="ReqNodeNotAvail"), nodes=DRAINED), "2 of 2 nodes take no jobs: w1 is IDLE+EXTERNAL+DRAIN (disk is broken)", "NodeName=w[1-2] State=RESUME"),
    "job-some-nodes-unavailable": (with_job(job(7), nodes=(*DRAINED, node("w3"))), "2 of 3 nodes", "slinky explain node"),
    "job-reservation-in-the-way": (with_job(job(7, reason="ReqNodeNotAvail"), reservations=(reservation(),)), "reservation maint has w1 from 2026-11-15 12:10 UTC", "before the reservation begins (2026-11-15 12:10 UTC)"),
    "job-reservation-not-begun": (with_job(job(7, reason="Reservation", resv_name="beam")), "its reservation has not begun", "show reservation beam"),
    "job-qos-limit": (with_job(job(7, reason="QOSMaxJobsPerUserLimit", qos="small")), "QOSMaxJobsPerUserLimit", "sacctmgr show qos small"),
    "job-account-limit": (with_job(job(7, reason="AssocGrpCpuLimit")), "AssocGrpCpuLimit", "account=physics"),
    "job-account-invalid": (with_job(job(7, reason="InvalidAccount")), "InvalidAccount", "JobId=7 Account="),
    "job-licenses": (with_job(job(7, reason="Licenses")), "licenses are in use", "show licenses"),
    "job-constraints": (with_job(job(7, reason="BadConstraints", features="zone=b")), "no node has the features", "it asks for zone=b"),
    "job-resources": (with_job(job(7)), "not enough is free yet", "backfill"),
    "job-priority": (with_job(job(7, reason="Priority"), queue=(job(5, priority=number(300)), job(6, priority=number(50)), job(7))), "1 job goes first in partition bridge", "sprio -j 7"),
    "job-waits": (with_job(job(7, reason="BurstBufferOperation")), "BurstBufferOperation", "squeue(1)"),
}  # fmt: skip


@pytest.mark.parametrize("code", CASES)
def test_it_is_found_with_the_advice_that_helps(code: str) -> None:
    situation, seen, change = CASES[code]
    found = {each.code: each for each in job_findings(situation)}
    assert code in found, sorted(found)
    assert seen in found[code].seen
    assert change in found[code].change


def test_of_jobs_with_the_same_priority_the_earlier_ones_go_first() -> None:
    queue = (job(5), job(6), job(7), job(8), job(4, priority=number(0)), job(3, hold=True))
    (found,) = job_findings(with_job(job(7, reason="Priority"), queue=queue))
    assert "2 jobs go first in partition bridge" in found.seen


def test_where_no_job_is_seen_to_go_first_no_number_is_told() -> None:
    (found,) = job_findings(with_job(job(7, reason="Priority"), queue=(job(7),)))
    assert found.seen == "Slurm says Priority (others go first)"


def test_a_running_job_shows_what_it_has_and_a_waiting_one_what_it_asks_for() -> None:
    asked, has = "cpu=4,mem=30G,node=1", "cpu=4,mem=120G,node=4"
    for state, expected in (
        ("PENDING", f"asks for {asked}"),
        ("RUNNING", f"has {has}"),
        ("SUSPENDED", f"has {has}"),
        ("COMPLETED", f"asks for {asked}"),
    ):
        found = job(7, state, "None", nodes="w[0-3]", tres_req_str=asked, tres_alloc_str=has)
        (line,) = (line for line in job_lines([found], NOW) if "QoS" in line)
        assert line.endswith(f", {expected}")


def test_an_expected_start_is_told_only_where_slurm_knows_one() -> None:
    soon, next_year = number(STAMP + 3600), number(STAMP + 365 * 86400)
    told = {
        "soon": job(7, start_time=soon),
        "behind a job without a limit": job(7, start_time=next_year),
        "held by its owner": job(7, reason="JobHeldUser", start_time=soon, hold=True),
        "held by an administrator": job(7, reason="JobHeldAdmin", start_time=soon, priority=number(0)),
    }
    lines = {name: [line for line in job_lines([each], NOW) if "expected" in line] for name, each in told.items()}
    assert lines.pop("soon") == ["job 7 is expected to start at 2026-11-15 13:00 UTC"]
    assert not any(lines.values()), lines


# As Slurm 26.05 writes the limit of a job that its main scheduler started, and of one that backfill
# started.
ENDLESS = ({"set": False, "infinite": True, "number": 0}, number(525600))


@pytest.mark.parametrize("limit", ENDLESS)
def test_a_running_job_without_a_limit_has_no_end(limit: dict[str, object]) -> None:
    endless = job(7, "RUNNING", "None", nodes="w1", end_time=number(STAMP + 365 * 86400), time_limit=limit)
    (found,) = job_findings(with_job(endless))
    assert found.seen == "it runs on w1, without a time limit"


@pytest.mark.parametrize("limit", ENDLESS)
@pytest.mark.parametrize("days", [0, 70, 340, 364])
def test_behind_a_job_without_a_limit_no_start_is_told_however_long_that_one_has_run(days: int, limit: dict[str, object]) -> None:
    ends = STAMP + (365 - days) * 86400
    endless = job(5, "RUNNING", "None", nodes="w1", end_time=number(ends), time_limit=limit)
    limited = job(6, "RUNNING", "None", nodes="w1", end_time=number(STAMP + 3600))
    waits = job(7, start_time=number(ends))
    assert not any("expected" in line for line in explain_job(with_job(waits, queue=(endless, limited, waits))).slurm)
    soon = job(7, start_time=number(STAMP + 3600))
    assert any("expected" in line for line in explain_job(with_job(soon, queue=(endless, limited, soon))).slurm)


def test_where_a_cause_was_found_that_others_go_first_is_not_said() -> None:
    found = job_findings(with_job(job(7, reason="Priority"), partitions=(partition(state="DOWN"),)))
    assert [each.code for each in found] == ["job-partition-down"]


def test_a_reservation_after_its_end_or_of_other_nodes_or_its_own_is_not_in_the_way() -> None:
    for harmless in (reservation(starts=7200), reservation(nodes="w9"), reservation("own")):
        found = job_findings(with_job(job(7, resv_name="own"), reservations=(harmless,)))
        assert "job-reservation-in-the-way" not in {each.code for each in found}


def test_nodes_under_maintenance_are_told_by_their_reservation() -> None:
    under = (node("w1", "IDLE+MAINTENANCE+RESERVED"),)
    found = job_findings(with_job(job(7, reason="ReqNodeNotAvail"), nodes=under, reservations=(reservation(starts=-60),)))
    assert [each.code for each in found] == ["job-reservation-in-the-way"]


def test_of_a_hetjob_the_part_that_waits_for_something_of_its_own_is_heard() -> None:
    found = job_findings(with_job(job(7, reason="None"), job(8, reason="BadConstraints")))
    assert [each.code for each in found] == ["job-constraints"]


def test_any_word_of_slurms_is_told() -> None:
    assert NOW
    for reason in ("", "None", "SomethingNew", "ReqNodeNotAvail, UnavailableNodes:w1"):
        found = job_findings(with_job(job(7, reason=reason, state_description="x")))
        assert [each.code for each in found] == ["job-waits"]
