"""Where a workload stands, in words: written once, and so that autoscalers buy nothing for a wait for priority."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from slinky.bridge.keys import CONDITION
from slinky.bridge.standing import UNSCHEDULABLE, Standing, conditions_for, standing_of
from slinky.kube import Pod
from slinky.kube.objects import PodSpec, PodStatus
from slinky.slurm import Job

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def with_conditions(pod: Pod, written: list[dict[str, Any]]) -> Pod:
    """The pod after a strategic merge: by type."""
    held = {condition["type"]: condition for condition in msgspec.to_builtins(pod.status.conditions)}
    for condition in written:
        held[condition["type"]] = held.get(condition["type"], {}) | condition
    return msgspec.structs.replace(pod, status=msgspec.convert({"conditions": list(held.values())}, PodStatus))


@pytest.mark.parametrize(
    ("reason", "scheduled"),
    [
        ("Resources", UNSCHEDULABLE),
        ("Priority", "WaitingForSlurm"),
        ("QOSMaxJobsPerUserLimit", "WaitingForSlurm"),
        ("None", "WaitingForSlurm"),
    ],
)
def test_only_a_wait_for_resources_is_unschedulable(reason: str, scheduled: str) -> None:
    standing = standing_of([Job(job_id=7, partition="bridge", state_reason=reason)], NOW)
    assert standing.scheduled == scheduled
    assert "Slurm job 7 waits in partition bridge" in standing.message
    written = {condition["type"]: condition for condition in conditions_for(Pod(), standing, NOW)}
    assert written["PodScheduled"]["reason"] == scheduled
    assert written["PodScheduled"]["status"] == written[CONDITION]["status"] == "False"


def test_slurms_words_are_explained_and_a_word_that_kubernetes_would_refuse_is_none() -> None:
    assert "(others go first)" in standing_of([Job(job_id=7, state_reason="Priority")], NOW).message
    assert "(a limit is reached)" in standing_of([Job(job_id=7, state_reason="AssocGrpNewLimit")], NOW).message
    assert standing_of([Job(job_id=7, state_reason="Reserved for maintenance")], NOW).reason == "Pending"


def test_an_expected_start_is_told() -> None:
    start = int(NOW.timestamp()) + 3600
    plain = {"job_id": 7, "job_state": ["PENDING"], "start_time": {"set": True, "infinite": False, "number": start}}
    assert "expected start 2030-01-01 01:00 UTC" in standing_of([msgspec.convert(plain, Job)], NOW).message
    held = plain | {"hold": True}
    assert "expected" not in standing_of([msgspec.convert(held, Job)], NOW).message
    for days in (365, 295, 40):  # behind a job without a time limit that has run for 0, 70, 325 days
        endless = plain | {"start_time": {"set": True, "infinite": False, "number": start + days * 86400}}
        assert "expected" not in standing_of([msgspec.convert(endless, Job)], NOW).message
    job = msgspec.convert(plain, Job)
    assert "expected start" not in standing_of([job], NOW, 3601).message, "it is past by Slurm's clock"
    assert "expected start 2030-01-01 00:10 UTC" in standing_of([job], NOW, 3001).message, "by the clock that people have"
    assert "expected start 2030-01-01 02:00 UTC" in standing_of([job], NOW, -3600).message


@pytest.mark.parametrize("message", ["waits", "x" * 5000])
def test_nothing_is_written_twice(message: str) -> None:
    standing = Standing(reason="Priority", message=message)
    written = conditions_for(Pod(), standing, NOW)
    assert {condition["type"] for condition in written} == {CONDITION, "PodScheduled"}
    assert all(len(condition["message"]) <= 1024 for condition in written)
    assert conditions_for(with_conditions(Pod(), written), standing, NOW) == []


def test_the_moment_is_told_only_when_the_status_changes() -> None:
    pod = with_conditions(Pod(), conditions_for(Pod(), Standing(reason="Priority", message="one"), NOW))
    again = conditions_for(pod, Standing(reason="Resources", message="two"), NOW + dt.timedelta(hours=1))
    assert [condition.get("lastTransitionTime") for condition in again] == [None, None]
    bound = msgspec.structs.replace(pod, spec=PodSpec(node_name="n"))
    runs = conditions_for(bound, Standing(reason="Running", message="runs", holds=True), NOW + dt.timedelta(hours=1))
    assert [(condition["type"], condition["status"], condition["lastTransitionTime"]) for condition in runs] == [
        (CONDITION, "True", "2030-01-01T01:00:00Z")
    ]


def test_a_pod_that_started_before_anything_had_to_be_said_gets_no_word() -> None:
    assert conditions_for(Pod(), Standing(reason="Running", message="runs", holds=True), NOW) == []


def test_a_pod_on_a_node_keeps_its_podscheduled() -> None:
    pod = Pod(spec=PodSpec(node_name="n"))
    written = conditions_for(pod, Standing(reason="NodeNotFree", message="full"), NOW)
    assert [condition["type"] for condition in written] == [CONDITION]


def test_of_a_hetjob_the_part_that_has_something_to_say_speaks() -> None:
    """As seen: the leader says nothing while another part is held or cannot be had; where one waits for something else, the others wait for resources."""

    def said(*reasons: str) -> str:
        parts = [Job(job_id=7 + number, partition="bridge", state_reason=reason) for number, reason in enumerate(reasons)]
        standing = standing_of(parts, NOW)
        assert "Slurm job 7 waits" in standing.message
        return standing.reason

    assert said("None", "PartitionConfig") == "PartitionConfig"
    assert said("Resources", "JobHeldUser") == "JobHeldUser"
    assert said("Dependency", "Resources") == "Dependency"
    assert said("None", "Resources") == "Resources"
    assert said("None", "None") == "Pending"


def test_a_priority_that_grows_with_age_is_no_news_and_one_that_somebody_set_is() -> None:
    def waits(priority: int) -> Standing:
        number = {"set": True, "infinite": False, "number": priority}
        return standing_of(
            [msgspec.convert({"job_id": 7, "partition": "bridge", "state_reason": "Priority", "priority": number}, Job)], NOW
        )

    assert waits(1000).message.endswith("priority 1000")
    pod = with_conditions(Pod(), conditions_for(Pod(), waits(1000), NOW))
    assert conditions_for(pod, waits(1001), NOW) == []
    assert conditions_for(pod, waits(1100), NOW) == []
    assert conditions_for(pod, waits(5000), NOW)
    assert conditions_for(pod, waits(100), NOW)
    assert "priority" not in waits(0).message, "it is held"


def test_a_suspended_job_is_told_also_where_nothing_was_before() -> None:
    standing = Standing(reason="Suspended", message="Slurm job 7 is suspended: its pods run on as they are")
    [written] = conditions_for(Pod(spec=PodSpec(node_name="n")), standing, NOW)
    assert (written["status"], written["reason"]) == ("False", "Suspended")
