"""What the status of a PodGroup is to say, by the words of its API."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from slinky.bridge.group_status import builtin_condition, coscheduling_status
from slinky.bridge.groupapis import BuiltinGroup, CoschedulingGroup
from slinky.bridge.keys import CONDITION
from slinky.kube.objects import Pod

NOW = dt.datetime(2026, 11, 15, 12, 0, 0, 500, tzinfo=dt.UTC)


def pods(*phases: str, reason: str = "") -> list[Pod]:
    """A phase with a `*` is of a pod that is on no node."""
    found = []
    for index, phase in enumerate(phases):
        waiting = phase.endswith("*")
        conditions = [{"type": kind, "status": "False", "reason": reason, "message": "why"} for kind in (CONDITION, "PodScheduled")]
        meta = {
            "name": f"p{index}",
            "namespace": "ns",
            "ownerReferences": [{"kind": "Job", "name": "train", "uid": "u", "controller": True}],
        }
        spec = {} if waiting else {"nodeName": "n"}
        status = {"phase": phase.rstrip("*"), "conditions": conditions if waiting and reason else []}
        found.append(msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod))
    return found


def coscheduling(least: int = 2, **status: Any) -> CoschedulingGroup:
    return msgspec.convert({"metadata": {"name": "ring"}, "spec": {"minMember": least}, "status": status}, CoschedulingGroup)


CLAIMS = {"schedulingPolicy": {"gang": {"minCount": 1}}, "resourceClaims": [{"name": "gpus", "resourceClaimName": "all"}]}


@pytest.mark.parametrize(
    ("phases", "phase"),
    [
        (["Pending*"], "Pending"),
        (["Pending*", "Pending*"], "Pending"),
        (["Pending", "Pending*"], "Unknown"),
        (["Pending", "Pending"], "Scheduling"),
        (["Running", "Pending"], "Scheduling"),
        (["Running", "Running"], "Running"),
        (["Running", "Succeeded"], "Running"),
        (["Succeeded", "Succeeded"], "Finished"),
        (["Failed", "Running"], "Failed"),
        (["Failed"], "Unknown"),
    ],
)
def test_a_coscheduling_groups_phase(phases: list[str], phase: str) -> None:
    status = coscheduling_status(coscheduling(), pods(*phases), NOW)
    assert status.phase == phase
    assert (status.running, status.succeeded, status.failed) == tuple(phases.count(each) for each in ("Running", "Succeeded", "Failed"))


def test_who_has_the_group_and_since_when_is_told_once_all_are_there() -> None:
    assert coscheduling_status(coscheduling(), pods("Pending*"), NOW).schedule_start_time is None
    status = coscheduling_status(coscheduling(), pods("Pending*", "Pending*"), NOW)
    assert (status.occupied_by, status.schedule_start_time) == ("ns/train", NOW.replace(microsecond=0))
    later = coscheduling_status(coscheduling(**msgspec.to_builtins(status)), pods("Running", "Running"), NOW + dt.timedelta(hours=1))
    assert later.schedule_start_time == status.schedule_start_time


def test_a_group_whose_pods_are_gone_keeps_its_end() -> None:
    ended = coscheduling(phase="Finished", succeeded=2)
    assert coscheduling_status(ended, [], NOW) == ended.status
    assert coscheduling_status(ended, pods("Succeeded"), NOW) == ended.status
    assert coscheduling_status(ended, pods("Running", "Running"), NOW).phase == "Running", "others came"


def builtin(policy: dict[str, Any] | None = None, *conditions: dict[str, Any]) -> BuiltinGroup:
    spec = {"schedulingPolicy": policy or {"gang": {"minCount": 2}}}
    return msgspec.convert(
        {"metadata": {"name": "ring", "generation": 3}, "spec": spec, "status": {"conditions": conditions}}, BuiltinGroup
    )


def test_the_built_in_groups_condition() -> None:
    assert builtin_condition(builtin(), "v1alpha2", pods("Pending*", "Pending*"), NOW) is None, "nobody has waited long enough to say so"
    waits = builtin_condition(builtin(), "v1alpha2", pods("Pending*", "Pending*", reason="WaitingForSlurm"), NOW)
    assert waits == {
        "type": "PodGroupScheduled",
        "status": "False",
        "reason": "WaitingForSlurm",
        "message": "why",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-11-15T12:00:00Z",
    }
    assert builtin_condition(builtin(None, waits), "v1alpha2", pods("Pending*", "Pending*", reason="WaitingForSlurm"), NOW) is None
    other = builtin_condition(builtin(None, waits), "v1alpha2", pods("Pending*", "Pending*", reason="Unschedulable"), NOW)
    assert other is not None
    assert "lastTransitionTime" not in other, "it was false before"
    scheduled = builtin_condition(builtin(None, waits), "v1alpha2", pods("Pending", "Running"), NOW)
    assert scheduled is not None
    assert (scheduled["status"], scheduled["reason"]) == ("True", "Scheduled")
    assert builtin_condition(builtin(None, scheduled), "v1alpha2", pods("Pending*", reason="Unschedulable"), NOW) is None, "it stays so"


@pytest.mark.parametrize(
    ("version", "kind"),
    [("v1alpha2", "PodGroupScheduled"), ("v1alpha3", "PodGroupInitiallyScheduled"), ("v1beta1", "PodGroupInitiallyScheduled")],
)
def test_each_version_has_its_own_name_for_it(version: str, kind: str) -> None:
    found = builtin_condition(builtin({"basic": {}}), version, pods("Running"), NOW)
    assert found is not None
    assert found["type"] == kind


def test_a_group_that_asks_for_what_the_bridge_cannot_do_is_never_said_to_be_scheduled() -> None:
    """Whatever became of its pods: they may have been there before."""
    for found in (builtin({"later": {}}), msgspec.structs.replace(builtin({"gang": {"minCount": 1}}), spec=CLAIMS)):
        condition = builtin_condition(found, "v1beta1", pods("Running"), NOW)
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert "uses fields that the bridge does not support: spec." in condition["message"]
