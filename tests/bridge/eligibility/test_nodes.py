"""What depends on the node alone: name, labels, taints, cordon."""

from typing import Any

import msgspec
import pytest

from slinky.bridge.eligibility import label_rules, node_refusal
from slinky.bridge.eligibility.bounds import MOST_RULES
from slinky.bridge.eligibility.node_labels import Alternative, rules_of, said
from slinky.bridge.eligibility.selectors import Requirement
from slinky.bridge.keys import CORDONED_FOR_SLURM
from slinky.kube.objects import NodeSelector, NodeSelectorTerm, NodeStatus, SelectorRequirement
from tests.bridge.eligibility.things import REQUIRED, World, a_node, a_pod


def choosing(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def asking(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_a_pod_that_says_nothing_takes_any_node_and_a_named_one_only_that() -> None:
    assert node_refusal(a_pod(), a_node("kn1")) == ""
    assert node_refusal(a_pod(node="kn2"), a_node("kn1")) == "node kn1 is not kn2, which the pod names"
    assert node_refusal(a_pod(node="kn1"), a_node("kn1")) == ""


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["4", "8"], {"four", "eight"}),
        ("NotIn", ["4"], {"eight", "many", "none"}),
        ("Exists", [], {"four", "eight", "many"}),
        ("DoesNotExist", [], {"none"}),
        ("Gt", ["4"], {"eight"}),
        ("Gt", ["003"], {"four", "eight"}),
        ("Lt", ["8"], {"four"}),
        ("Lt", ["many"], set()),
        ("Gt", ["9223372036854775808"], set()),
        ("NotIn", ["not a label"], set()),
        ("Gt", ["-1"], set()),
        ("In", [], set()),
        ("Near", ["4"], set()),
    ],
)
def test_each_operator_chooses_by_a_label_and_one_that_cannot_be_read_chooses_nothing(
    operator: str, values: list[str], fits: set[str]
) -> None:
    nodes = [a_node("four", gpus="4"), a_node("eight", gpus="8"), a_node("many", gpus="many"), a_node("none")]
    pod = a_pod(affinity=choosing(asking("gpus", operator, *values)))
    assert {node.metadata.name for node in nodes if not node_refusal(pod, node)} == fits


def test_terms_are_a_choice_and_what_stands_in_one_must_all_hold_with_the_node_selector() -> None:
    both = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}, {"key": "gpus", "operator": "Exists"}]}
    pod = a_pod(affinity=choosing(both, asking("special", "Exists"), {}), nodeSelector={"team": "red"})
    assert node_refusal(pod, a_node("a", disk="ssd", gpus="4", team="red")) == ""
    assert node_refusal(pod, a_node("b", special="", team="red")) == ""
    assert "is not among those" in node_refusal(pod, a_node("c", disk="ssd", team="red"))
    assert "the pod asks for team=red" in node_refusal(pod, a_node("d", special="yes"))


def test_a_node_can_be_chosen_or_left_out_by_its_name() -> None:
    named = a_pod(affinity=choosing({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["kn1"]}]}))
    assert node_refusal(named, a_node("kn1")) == ""
    assert node_refusal(named, a_node("kn2")) == "node kn2 is not among those that the pod asks for: metadata.name=kn1"
    other = a_pod(affinity=choosing({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["kn1"]}]}))
    assert node_refusal(other, a_node("kn1"))
    assert node_refusal(other, a_node("kn2")) == ""


def test_an_empty_choice_takes_no_node() -> None:
    assert (
        node_refusal(a_pod(affinity=choosing({})), a_node("kn1")) == "node kn1 cannot be chosen: no node can match the pod's node affinity"
    )
    assert label_rules(a_pod(affinity=choosing({}))) == ()
    assert label_rules(a_pod()) is None


def test_the_rules_are_told_as_a_choice_of_conjunctions() -> None:
    pod = a_pod(affinity=choosing(asking("gpus", "Gt", "4"), asking("disk", "In", "ssd")), nodeSelector={"team": "red"})
    rules = label_rules(pod)
    assert rules is not None
    assert said(rules) == "team=red and gpus > 4, or team=red and disk=ssd"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "only"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "only", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "other"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_a_taint_keeps_away_who_does_not_tolerate_it(toleration: dict[str, str], tolerated: bool) -> None:
    pod = a_pod(tolerations=[toleration] if toleration else [])
    refusal = node_refusal(pod, a_node("kn1", taints=["gpu=only:NoSchedule"]))
    assert refusal == ("" if tolerated else "node kn1 has the taint gpu=only:NoSchedule, which the pod does not tolerate")


def test_only_taints_that_forbid_keep_a_pod_away() -> None:
    assert node_refusal(a_pod(), a_node("kn1", taints=["spot:PreferNoSchedule"])) == ""
    assert (
        node_refusal(a_pod(), a_node("kn1", taints=["spot:NoExecute"]))
        == "node kn1 has the taint spot:NoExecute, which the pod does not tolerate"
    )


@pytest.mark.parametrize(
    ("operator", "value", "taint", "tolerated"),
    [
        ("Gt", "10", "11", True),
        ("Gt", "10", "10", False),
        ("Lt", "10", "-3", True),
        ("Lt", "10", "010", False),
        ("Lt", "x", "1", False),
        ("Gt", "0", "", False),
    ],
)
def test_comparing_tolerations_count_only_where_the_servers_have_them(operator: str, value: str, taint: str, tolerated: bool) -> None:
    pod = a_pod(tolerations=[{"key": "sla", "operator": operator, "value": value}])
    node = a_node("kn1", taints=[f"sla={taint}:NoSchedule"])
    assert node_refusal(pod, node)
    assert (node_refusal(pod, node, comparing=True) == "") is tolerated


def test_a_cordon_that_the_bridge_made_because_slurm_drained_the_node_is_no_refusal() -> None:
    """Slurm gives no jobs to it anyway, and what waits for it must not be taken out of Slurm's queue."""
    node = a_node("kn1", cordoned=True, taints=["node.kubernetes.io/unschedulable:NoSchedule"])
    marked = msgspec.structs.replace(node.metadata, annotations={CORDONED_FOR_SLURM: "DRAIN: fan"})
    assert node_refusal(a_pod(), msgspec.structs.replace(node, metadata=marked)) == ""
    assert node_refusal(a_pod(), node) != ""
    world = World()
    world.nodes.put(node)
    assert world.accepted(a_pod()) == set()
    world.nodes.put(msgspec.structs.replace(node, metadata=marked))
    assert world.accepted(a_pod()) == {"kn1"}


def test_a_cordoned_node_takes_only_who_tolerates_the_cordon() -> None:
    assert node_refusal(a_pod(), a_node("kn1", cordoned=True)) == "node kn1 is cordoned (unschedulable)"
    tolerant = a_pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}])
    assert node_refusal(tolerant, a_node("kn1", cordoned=True)) == ""


async def test_the_answer_for_pods_that_say_the_same_is_kept_and_follows_the_nodes() -> None:
    world = World(a_node("a", disk="ssd"), a_node("b", disk="hdd"))
    pod = a_pod(nodeSelector={"disk": "ssd"})
    assert world.accepted(pod) == {"a"}
    world.nodes.put(a_node("a", disk="ssd"))
    assert world.accepted(pod) == {"a"}, "a heartbeat is no change"
    world.nodes.put(a_node("b", disk="ssd"))
    world.nodes.put(a_node("c", disk="ssd", taints=["gpu:NoSchedule"]))
    assert world.accepted(pod) == {"a", "b"}
    world.nodes.put(a_node("c", disk="ssd"))
    world.nodes.put(a_node("a", disk="ssd", cordoned=True))
    assert world.accepted(pod) == {"b", "c"}
    world.nodes.remove(world.nodes.list()[1].key)
    assert world.accepted(pod) == {"c"}
    assert world.judge.refusal(pod, "b") == "Kubernetes has no node b"


async def test_a_pod_that_needs_a_feature_of_the_kubelet_goes_where_it_is_declared() -> None:
    restarting = {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}
    pod = a_pod(containers=[restarting])
    world = World(
        a_node("a"), msgspec.structs.replace(a_node("b"), status=NodeStatus(declared_features=("RestartAllContainersOnContainerExits",)))
    )
    assert world.accepted(pod) == {"b"}
    assert world.judge.refusal(pod, "a") == "node a does not declare the feature RestartAllContainersOnContainerExits, which the pod needs"
    world.nodes.put(a_node("b"))
    assert world.accepted(pod) == set()
    assert world.accepted(a_pod(hostNetwork=True, hostUsers=False)) == set()
    assert world.accepted(a_pod(hostNetwork=True, hostUsers=True)) == {"a", "b"}


def test_what_a_pod_asks_for_is_told_in_few_words_however_much_it_says() -> None:
    """The sentence is kept for each node that refuses the pod."""
    many = tuple(Alternative((Requirement(f"key-{number}", "In", ("v" * 60,)),)) for number in range(400))
    assert len(said(many)) < 400
    assert said(many).endswith("or 397 more terms")
    assert said(many[:2]).count(", or ") == 1


def test_more_rules_than_a_pod_may_have_match_no_node() -> None:
    term = NodeSelectorTerm(match_expressions=(SelectorRequirement(key="k", operator="Exists"),))
    assert rules_of({}, NodeSelector(node_selector_terms=(term,) * MOST_RULES))
    assert rules_of({}, NodeSelector(node_selector_terms=(term,) * (MOST_RULES + 1))) == ()
