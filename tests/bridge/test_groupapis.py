"""Which group API is watched, and what the objects of each version say: as the servers of 1.35, 1.36 and 1.37 send them."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from slinky.bridge.groupapis import (
    BUILTIN,
    COSCHEDULING,
    BuiltinGroup,
    CoschedulingGroup,
    GroupWorkload,
    choose,
    group_from,
    workload_behind,
)
from slinky.kube import Meta

PRIORITIES = {"v1": ["priorityclasses"]}
GANG = {"gang": {"minCount": 4}}
META = {"name": "ring", "namespace": "ns", "annotations": {"a": "group"}}


@pytest.mark.parametrize(
    ("served", "watched"),
    [
        ({"v1alpha1": ["workloads"]}, ["workloads.scheduling.k8s.io/v1alpha1"]),
        (
            {"v1alpha2": ["podgroups", "podgroups/status", "workloads"]},
            ["podgroups.scheduling.k8s.io/v1alpha2", "workloads.scheduling.k8s.io/v1alpha2"],
        ),
        (
            {"v1beta1": ["podgroups", "workloads"], "v1alpha3": ["podgroups", "workloads"]},
            ["podgroups.scheduling.k8s.io/v1beta1", "workloads.scheduling.k8s.io/v1beta1"],
        ),
        ({"v1alpha3": ["podgroups"]}, ["podgroups.scheduling.k8s.io/v1alpha3"]),
        ({"v2": ["podgroups"], "v1beta1": ["podgroups"]}, ["podgroups.scheduling.k8s.io/v1beta1"]),
        ({}, []),
    ],
)
def test_the_newest_known_version_is_watched(served: Mapping[str, Collection[str]], watched: list[str]) -> None:
    choice = choose(BUILTIN, {**PRIORITIES, **served})
    assert [str(source) for source in choice.sources] == watched
    assert not choice.problem


def test_versions_that_nobody_knows_are_named() -> None:
    choice = choose(BUILTIN, {"v1": ["podgroups", "priorityclasses"], "v1beta2": ["podgroups"]})
    assert not choice.sources
    assert choice.problem.startswith("the server has podgroups.scheduling.k8s.io as v1, v1beta2 only; known here are v1beta1 (podgroups)")


def test_coscheduling_is_watched_where_it_is_served() -> None:
    assert [source.kind for source in choose(COSCHEDULING, {"v1alpha1": ["podgroups"]}).sources] == ["CoschedulingPodGroup"]
    assert choose(COSCHEDULING, {}).sources == ()


def _read(kind: type[Any], spec: dict[str, Any]) -> Any:
    return msgspec.convert({"metadata": META, "spec": spec, "status": {"conditions": [{"type": "x"}]}}, kind)


@pytest.mark.parametrize(
    "reference",
    [
        {"podGroupTemplateRef": {"workload": {"workloadName": "train", "podGroupTemplateName": "t"}}},
        {"workloadRef": {"workloadName": "train", "templateName": "t"}},
    ],
    ids=["v1alpha2", "v1alpha3 and v1beta1"],
)
def test_a_built_in_group_names_its_workload_whose_annotations_override(reference: dict[str, Any]) -> None:
    found = _read(BuiltinGroup, {"schedulingPolicy": GANG, **reference})
    assert workload_behind(found) == "train"
    group = group_from(found, behind=Meta(annotations={"a": "workload"}), owner=Meta(annotations={"a": "job", "b": "job"}))
    assert group is not None
    assert (group.min_count, group.gang, group.builtin) == (4, True, True)
    assert (group.annotations, group.overriding) == ({"a": "job", "b": "job"}, {"a": "workload"})


def test_a_basic_group_is_no_gang() -> None:
    group = group_from(_read(BuiltinGroup, {"schedulingPolicy": {"basic": {}}}))
    assert group is not None
    assert not group.gang


def test_an_unknown_policy_is_taken_for_no_other() -> None:
    group = group_from(_read(BuiltinGroup, {"schedulingPolicy": {"elastic": {"least": 2}}}))
    assert group is not None
    assert group.refusal.startswith(
        "PodGroup ns/ring uses fields that the bridge does not support: spec.schedulingPolicy is elastic; supported: gang, basic"
    )


# As the API servers of 1.36 (v1alpha2) and 1.37 (v1alpha3, v1beta1) send them, with what they fill in.
@pytest.mark.parametrize(
    "more",
    [
        {"disruptionMode": "Pod", "priority": 0},
        {"disruptionMode": "PodGroup", "priorityClassName": "high", "priority": 1000},
        {"disruptionMode": {"single": {}}, "preemptionPolicy": "PreemptLowerPriority"},
        {"disruptionMode": {"all": {}}, "parentCompositePodGroupName": None, "resourceClaims": []},
        {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}},
        {"schedulingConstraints": {}},
    ],
)
def test_what_a_gang_is_honoured_for(more: dict[str, Any]) -> None:
    group = group_from(_read(BuiltinGroup, {"schedulingPolicy": GANG, **more}))
    assert group is not None
    assert group.refusal == ""
    assert group.same_domain == ("example.com/rack" if more.get("schedulingConstraints") else "")
    assert group.priority_class == more.get("priorityClassName", "")


@pytest.mark.parametrize(
    ("policy", "more", "field"),
    [
        (GANG, {"parentCompositePodGroupName": "all"}, "spec.parentCompositePodGroupName is not supported"),
        (GANG, {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}, "spec.resourceClaims is not supported"),
        (GANG, {"preemptionPolicy": "Never"}, "spec.preemptionPolicy is Never"),
        (GANG, {"disruptionMode": {"half": {}}}, "spec.disruptionMode is half"),
        (GANG, {"schedulingConstraints": {"devices": [1]}}, "spec.schedulingConstraints.devices is not supported"),
        (
            GANG,
            {"schedulingConstraints": {"topology": [{"key": "a", "level": "rack"}]}},
            "spec.schedulingConstraints.topology[0].level is not supported",
        ),
        (GANG, {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}, "spec.schedulingConstraints.topology has 2 entries"),
        ({"gang": {"minCount": 2, "maxCount": 4}}, {}, "spec.schedulingPolicy.gang.maxCount is not supported"),
        (GANG, {"ofALaterRelease": {"x": 1}}, "spec.ofALaterRelease is not supported"),
        (
            {"basic": {}},
            {"schedulingConstraints": {"topology": [{"key": "a"}]}},
            "spec.schedulingConstraints.topology needs the policy gang",
        ),
        ({"basic": {}}, {"disruptionMode": {"all": {}}}, "spec.disruptionMode needs the policy gang"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(policy: dict[str, Any], more: dict[str, Any], field: str) -> None:
    group = group_from(_read(BuiltinGroup, {"schedulingPolicy": policy, **more}))
    assert group is not None
    assert field in group.refusal


def test_the_groups_within_a_workload_are_read_by_name() -> None:
    found = _read(GroupWorkload, {"podGroups": [{"name": "workers", "policy": GANG}, {"name": "driver", "policy": {"basic": {}}}]})
    workers, driver = group_from(found, "workers"), group_from(found, "driver")
    assert workers is not None
    assert driver is not None
    assert (workers.min_count, workers.gang, driver.gang) == (4, True, False)
    assert workers.overriding == {"a": "group"}
    assert group_from(found, "other") is None


@pytest.mark.parametrize(("spec", "count"), [({"minMember": 3}, 3), ({}, 1), ({"minMember": 0}, 1)])
def test_a_coscheduling_group_is_a_gang(spec: dict[str, Any], count: int) -> None:
    group = group_from(_read(CoschedulingGroup, spec), behind=None)
    assert group is not None
    assert (group.min_count, group.gang, group.builtin) == (count, True, False)
    assert group.annotations == {"a": "group"}
