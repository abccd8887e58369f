"""Pods that must not be in flight together, because Slurm could put both where Kubernetes takes one."""

from typing import Any

import pytest

from slinky.bridge.eligibility import interacts, pinned_to
from slinky.kube import Pod
from tests.bridge.eligibility.things import HOSTNAME, ZONE, World, a_node, a_pod, anti, near, port, spread

WEB = {"app": "web"}


def world() -> World:
    return World(a_node("a1", zone="a"), a_node("a2", zone="a"), a_node("b1", zone="b"))


def with_port(name: str, number: int, **spec: Any) -> Pod:
    return a_pod(name, containers=[{"name": "c", "ports": [port(number)]}], **spec)


def apart(name: str, key: str = HOSTNAME, **spec: Any) -> Pod:
    return a_pod(name, labels=WEB, affinity=anti(key, WEB), **spec)


def even(name: str, skew: int = 1) -> Pod:
    return a_pod(name, labels=WEB, topologySpreadConstraints=[spread(ZONE, WEB, skew)])


@pytest.mark.parametrize(
    ("pod", "other", "waits"),
    [
        (a_pod("p"), apart("o"), False),
        (a_pod("p", labels=WEB), apart("o"), True),
        (apart("p"), a_pod("o", labels=WEB), True),
        (apart("p"), apart("o"), True),
        (apart("p", ZONE), apart("o", ZONE), True),
        (apart("p"), a_pod("o", labels={"app": "other"}), False),
        (apart("p"), a_pod("o", "elsewhere", labels=WEB), False),
        (with_port("p", 80), with_port("o", 80), True),
        (with_port("p", 80), with_port("o", 81), False),
        (even("p"), even("o"), True),
        (even("p"), a_pod("o"), False),
        (even("p", 2), even("o", 2), False),
        (a_pod("p", labels=WEB, affinity=near(ZONE, WEB)), a_pod("o", labels=WEB, affinity=near(ZONE, WEB)), True),
        (a_pod("p"), a_pod("o"), False),
    ],
)
def test_a_pod_waits_for_one_in_flight_that_may_spoil_its_place(pod: Pod, other: Pod, waits: bool) -> None:
    judge = world().judge
    others = judge.in_flight()
    assert not judge.interference(pod, "", others)
    others.add("o", other)
    assert bool(judge.interference(pod, "", others)) is waits
    others.remove("o")
    assert not judge.interference(pod, "", others)
    assert not len(others)


def test_what_is_waited_for_is_named() -> None:
    judge = world().judge
    others = judge.in_flight()
    others.add("o", with_port("o", 80))
    assert judge.interference(with_port("p", 80), "", others) == "pod ns/o also asks for host port 80/TCP and has no node yet"


def test_pods_that_each_ask_for_a_node_of_their_own_do_not_wait_for_each_other() -> None:
    """As a DaemonSet would make them: they are thousands, and each knows its place."""
    judge = world().judge
    others = judge.in_flight()
    others.add("o", with_port("o", 80, nodeSelector={HOSTNAME: "a1"}), "a1")
    others.add("x", apart("x", nodeSelector={HOSTNAME: "a1"}), "a1")
    assert not judge.interference(with_port("p", 80), "a2", others)
    assert not judge.interference(apart("p"), "a2", others)
    assert judge.interference(with_port("p", 80), "a1", others)
    assert judge.interference(apart("p"), "a1", others)
    assert judge.interference(apart("p", ZONE), "a2", others)  # a1 is in the same zone
    assert not judge.interference(apart("p", ZONE), "b1", others)
    assert judge.interference(with_port("p", 80), "", others)
    assert judge.interference(apart("p"), "", others)


def test_a_spread_waits_only_where_those_in_flight_could_tip_it() -> None:
    here = world()
    judge = here.judge
    others = judge.in_flight()
    others.add("o", even("o"))
    here.own.put(a_pod("r1", labels=WEB, node="a1"))
    assert judge.interference(even("p"), "", others)  # b is the only one left, and the other may go there
    assert not judge.interference(even("p", 3), "", others)
    here.own.put(a_pod("r2", labels=WEB, node="a2"))
    assert judge.interference(even("p", 3), "", others)  # a has 2 already


def test_who_wants_to_be_near_others_waits_only_for_the_first_of_them() -> None:
    here = world()
    others = here.judge.in_flight()
    together = a_pod("p", labels=WEB, affinity=near(ZONE, WEB))
    others.add("o", a_pod("o", labels=WEB, affinity=near(ZONE, WEB)))
    assert here.judge.interference(together, "", others)
    here.own.put(a_pod("first", labels=WEB, node="a1"))
    assert not here.judge.interference(together, "", others)


def test_a_node_that_moves_to_another_zone_counts_there() -> None:
    here = world()
    others = here.judge.in_flight()
    others.add("x", apart("x", ZONE), "a1")
    assert not here.judge.interference(apart("p", ZONE), "b1", others)
    here.nodes.put(a_node("a1", zone="b"))
    assert here.judge.interference(apart("p", ZONE), "b1", others)


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({}, ""),
        ({"nodeSelector": {HOSTNAME: "a1"}}, "a1"),
        ({"nodeSelector": {ZONE: "a"}}, ""),
        ({"field": ("metadata.name", "In", ["a1"])}, "a1"),
        ({"label": (HOSTNAME, "In", ["a1"])}, "a1"),
        ({"label": (HOSTNAME, "In", ["a1", "a2"])}, ""),
        ({"label": (HOSTNAME, "NotIn", ["a1"])}, ""),
    ],
)
def test_a_pod_may_ask_for_one_node_only(spec: dict[str, Any], node: str) -> None:
    for kind, place in (("matchFields", "field"), ("matchExpressions", "label")):
        if place in spec:
            key, operator, values = spec[place]
            term = {kind: [{"key": key, "operator": operator, "values": values}]}
            required = {"nodeSelectorTerms": [term]}
            spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    assert pinned_to(a_pod(**spec)) == node


def test_most_pods_ask_nothing_of_others() -> None:
    assert not interacts(a_pod(labels=WEB))
    assert not interacts(a_pod(topologySpreadConstraints=[spread(ZONE, WEB) | {"whenUnsatisfiable": "ScheduleAnyway"}]))
    for pod in (apart("p"), even("p"), with_port("p", 80), a_pod(affinity=near(ZONE, WEB))):
        assert interacts(pod)
