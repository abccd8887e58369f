"""Reading objects: everything that is wrong with one is said, by its path; nothing is passed over."""

from typing import Any

import pytest

from slinky.kube import Meta
from slinky.operator.kinds import KINDS, Controller, NodeSet, Written
from slinky.operator.kinds.nodeset import ScalingMode
from slinky.operator.kinds.reading import INVALID, UNKNOWN_FIELD, UNSUPPORTED_FIELD, Problem, read, read_as


def written(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Written:
    return Written(metadata=Meta(name="one", namespace="site"), spec=spec, status=status or {})


def problems(kind: str, spec: dict[str, Any]) -> list[Problem]:
    found = read(kind, written(spec))
    assert isinstance(found, list), found
    return found


def test_what_is_right_becomes_the_typed_object() -> None:
    found = read_as(
        NodeSet, written({"controllerRef": {"name": "c"}, "scalingMode": "DaemonSet", "slurmd": {"image": "i", "privileged": None}})
    )
    assert isinstance(found, NodeSet)
    assert found.metadata.name == "one"
    assert found.spec.controller_ref.name == "c"
    assert found.spec.scaling_mode is ScalingMode.DAEMON_SET
    assert found.spec.slurmd == {"image": "i", "privileged": None}


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_spec_can_be_read(kind: str) -> None:
    assert isinstance(read(kind, written({})), KINDS[kind])


def test_a_null_is_as_if_nothing_stood_there() -> None:
    spec = {
        "ssh": None,
        "replicas": None,
        "volumeClaimTemplates": None,
        "controllerRef": {"name": "c", "namespace": None},
        "template": {"metadata": None},
    }
    assert read("NodeSet", written(spec)) == read("NodeSet", written({"controllerRef": {"name": "c"}}))
    listed = {"metrics": {"serviceMonitor": {"endpoints": [{"path": "/m", "interval": None}]}}}
    assert isinstance(read("Controller", written(listed)), Controller)


def test_an_unknown_field_is_named_with_the_nearest_that_is_known() -> None:
    (found,) = problems("NodeSet", {"controlerRef": {"name": "c"}})
    assert str(found) == "spec.controlerRef: there is no such field; the nearest is controllerRef"
    assert found.reason == UNKNOWN_FIELD


def test_an_unknown_field_that_is_near_to_none_is_told_which_there_are() -> None:
    (found,) = problems("NodeSet", {"partition": {"xyz": 1}})
    assert str(found) == "spec.partition.xyz: there is no such field; there are enabled and config"


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("NodeSet", {"replicas": "3"}, 'spec.replicas: is "3"; it has to be a whole number'),
        ("NodeSet", {"replicas": True}, "spec.replicas: is true; it has to be a whole number"),
        ("NodeSet", {"extraConf": 7}, "spec.extraConf: is 7; it has to be a string (put it in quotes)"),
        ("NodeSet", {"pinToNode": "yes"}, 'spec.pinToNode: is "yes"; it has to be true or false'),
        (
            "NodeSet",
            {"scalingMode": "Daemonset"},
            'spec.scalingMode: is "Daemonset"; it has to be StatefulSet or DaemonSet (meant: DaemonSet?)',
        ),
        ("NodeSet", {"slurmd": []}, "spec.slurmd: is a list; it has to be a mapping"),
        ("NodeSet", {"volumeClaimTemplates": {}}, "spec.volumeClaimTemplates: is a mapping; it has to be a list"),
        ("NodeSet", {"volumeClaimTemplates": [3]}, "spec.volumeClaimTemplates[0]: is 3; it has to be a mapping"),
        (
            "NodeSet",
            {"template": {"metadata": {"labels": {"a": 1}}}},
            "spec.template.metadata.labels.a: is 1; it has to be a string (put it in quotes)",
        ),
        ("NodeSet", {"ssh": "on"}, 'spec.ssh: is "on"; it has to be a mapping with the fields enabled, extraSshdConfig and sssdConfRef'),
        (
            "NodeSet",
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1.5}}},
            "spec.updateStrategy.rollingUpdate.maxUnavailable: is 1.5; it has to be a whole number, or a share such as 25%",
        ),
        (
            "Controller",
            {"configFileRefs": [{"name": "a"}, {"nam": "b"}]},
            "spec.configFileRefs[1].nam: there is no such field; the nearest is name",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_told_what_would_be_right(kind: str, spec: dict[str, Any], said: str) -> None:
    assert str(problems(kind, spec)[0]).startswith(said)


def test_everything_is_said_at_once() -> None:
    found = problems("Controller", {"clustername": "x", "persistence": {"enabled": "no"}, "extraConf": ["a"]})
    assert [(each.path, each.reason) for each in found] == [
        ("spec.clustername", UNKNOWN_FIELD),
        ("spec.persistence.enabled", INVALID),
        ("spec.extraConf", INVALID),
    ]


def test_a_status_that_cannot_be_read_is_as_none() -> None:
    found = read_as(NodeSet, written({}, {"replicas": "many"}))
    assert isinstance(found, NodeSet)
    assert found.status.replicas == 0


def test_a_status_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    found = read_as(NodeSet, written({}, {"replicas": 3, "mood": "good", "collisionCount": None}))
    assert isinstance(found, NodeSet)
    assert found.status.replicas == 3


def test_what_the_original_has_and_we_do_not_is_refused_with_what_to_do_instead() -> None:
    found = problems("NodeSet", {"updateStrategy": {"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": "2026-01-01T00:00:00Z"}}})
    assert [each.path for each in found] == ["spec.updateStrategy.type", "spec.updateStrategy.scheduledUpdate"]
    assert all("ScheduledUpdate is not supported; use OnDelete" in each.message and each.reason == UNSUPPORTED_FIELD for each in found)
    (found_too,) = problems("Controller", {"sssdConfRef": {"name": "sssd", "key": "sssd.conf"}})
    assert "give sssdConfRef to the LoginSets" in found_too.message


@pytest.mark.parametrize("nothing", [None, {}])
def test_what_is_not_supported_may_stand_there_empty(nothing: object) -> None:
    assert isinstance(read("NodeSet", written({"updateStrategy": {"scheduledUpdate": nothing}})), NodeSet)
