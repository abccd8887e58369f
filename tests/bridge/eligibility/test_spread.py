"""Topology spread that forbids: who counts, and when a difference is too great."""

from typing import Any

import pytest

from tests.bridge.eligibility.things import HOSTNAME, ZONE, World, a_node, a_pod, spread

WEB = {"app": "web"}


@pytest.fixture
async def world() -> World:
    """Two nodes in zone a, one in b, one in none; two web pods in a, one in b."""
    found = World(a_node("a1", zone="a"), a_node("a2", zone="a"), a_node("b1", zone="b"), a_node("x"))
    for name, node in (("1", "a1"), ("2", "a2"), ("3", "b1")):
        found.own.put(a_pod(name, labels=WEB, node=node))
    return found


def spreading(*constraints: dict[str, Any], labels: dict[str, str] | None = None, **more: Any) -> Any:
    return a_pod(labels=WEB if labels is None else labels, topologySpreadConstraints=list(constraints), **more)


def test_a_domain_may_be_ahead_of_the_emptiest_by_the_skew_and_no_more(world: World) -> None:
    pod = spreading(spread(ZONE, WEB))
    assert world.accepted(pod) == {"b1"}
    assert world.judge.refusal(pod, "a1") == (
        f"node a1 ({ZONE}=a) has 2 pods with app=web already, the emptiest 1: the pod's topology spread allows a difference of 1"
    )
    assert world.judge.refusal(pod, "x") == f"node x has no label {ZONE}, by which the pod's kind is to be spread"
    assert world.accepted(spreading(spread(ZONE, WEB, 2))) == {"a1", "a2", "b1"}


def test_a_pod_that_its_own_selector_does_not_match_adds_nothing(world: World) -> None:
    assert world.accepted(spreading(spread(ZONE, WEB), labels={})) == {"a1", "a2", "b1"}


def test_what_only_prefers_forbids_nothing(world: World) -> None:
    assert world.accepted(spreading({**spread(ZONE, WEB), "whenUnsatisfiable": "ScheduleAnyway"})) == {"a1", "a2", "b1", "x"}


def test_too_few_domains_count_as_an_empty_one(world: World) -> None:
    assert world.accepted(spreading(spread(ZONE, WEB, 2, minDomains=2))) == {"a1", "a2", "b1"}
    assert world.accepted(spreading(spread(ZONE, WEB, 2, minDomains=3))) == {"b1"}


def test_pods_that_are_being_deleted_or_of_another_namespace_do_not_count(world: World) -> None:
    world.own.put(a_pod("1", labels=WEB, node="a1", deleting=True))
    assert world.accepted(spreading(spread(ZONE, WEB))) == {"a1", "a2", "b1"}
    world.own.put(a_pod("4", "elsewhere", labels=WEB, node="a1"))
    assert world.accepted(spreading(spread(ZONE, WEB))) == {"a1", "a2", "b1"}


def test_nodes_that_the_pod_does_not_ask_for_are_no_domain_unless_the_policy_says_so(world: World) -> None:
    world.nodes.put(a_node("c1", zone="c", disk="hdd"))
    for name in ("a1", "a2", "b1"):
        world.nodes.put(a_node(name, zone=name[0], disk="ssd"))
    assert world.accepted(spreading(spread(ZONE, WEB), nodeSelector={"disk": "ssd"})) == {"b1"}
    assert world.accepted(spreading(spread(ZONE, WEB, nodeAffinityPolicy="Ignore"), nodeSelector={"disk": "ssd"})) == set()


def test_tainted_nodes_are_a_domain_unless_the_policy_says_so(world: World) -> None:
    world.nodes.put(a_node("c1", zone="c", taints=["gpu:NoSchedule"]))
    assert world.accepted(spreading(spread(ZONE, WEB))) == set()
    assert world.accepted(spreading(spread(ZONE, WEB, nodeTaintsPolicy="Honor"))) == {"b1"}
    world.nodes.put(a_node("c1", zone="c", cordoned=True))
    assert world.accepted(spreading(spread(ZONE, WEB, nodeTaintsPolicy="Honor"))) == set(), "a cordon without its taint still counts"


def test_a_node_counts_only_with_the_labels_of_all_constraints(world: World) -> None:
    world.nodes.put(a_node("b2", zone="b", rack="r"))
    assert world.accepted(spreading(spread(ZONE, WEB), spread("rack", WEB))) == {"b2"}, "zone a and the pods of b1 are not seen"


def test_label_keys_narrow_the_selector_to_the_pods_own_value(world: World) -> None:
    own = {**WEB, "rev": "2"}
    assert world.accepted(spreading(spread(ZONE, WEB, matchLabelKeys=["rev", "missing"]), labels=own)) == {"a1", "a2", "b1"}
    world.own.put(a_pod("4", labels=own, node="a1"))
    assert world.accepted(spreading(spread(ZONE, WEB, matchLabelKeys=["rev"]), labels=own)) == {"b1"}


def test_a_selector_without_requirements_counts_nobody_and_none_matches_nobody(world: World) -> None:
    assert world.accepted(spreading(spread(HOSTNAME, {}))) == {"a1", "a2", "b1", "x"}
    constraint = spread(ZONE, WEB)
    del constraint["labelSelector"]
    assert world.accepted(spreading(constraint)) == {"a1", "a2", "b1"}
