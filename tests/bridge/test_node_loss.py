"""Pods on nodes that are gone: who is let go, and when."""

import datetime as dt
import time
from typing import Any

import pytest

from slinky.bridge.clocks import RemoteClock
from slinky.bridge.keys import FINALIZER
from slinky.bridge.node_loss import OUT_OF_SERVICE, NodeLoss, is_let_go, silent_seconds, silent_since
from slinky.kube import Cache, Key, Meta, Node, Pod
from slinky.kube.objects import Condition, NodeSpec, NodeStatus, PodSpec, PodStatus, Taint

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def a_node(ready: str = "True", since: float = 0, *taints: str) -> Node:
    condition = Condition(type="Ready", status=ready, last_transition_time=NOW - dt.timedelta(seconds=since))
    spec = NodeSpec(taints=tuple(Taint(key=key, effect="NoExecute") for key in taints))
    return Node(metadata=Meta(name="n"), spec=spec, status=NodeStatus(conditions=(condition,)))


@pytest.mark.parametrize(
    ("node", "missing", "deleting", "whole"),
    [
        (a_node(), 0, (False, False), "ready"),
        (a_node("Unknown", 299), 0, (False, False), "silent, but not for long"),
        (a_node("Unknown", 301), 0, (False, True), "silent for long: who is to go goes"),
        (a_node("False", 301), 0, (False, True), "not ready for long"),
        (a_node("Unknown", 1, OUT_OF_SERVICE), 0, (False, True), "out of service, says an administrator"),
        (a_node("True", 1, OUT_OF_SERVICE), 0, (False, True), "out of service, whatever it says itself"),
        (a_node("Unknown", 10, "node.kubernetes.io/unreachable"), 0, (False, False), "unreachable for a moment"),
        (None, 0, (False, True), "deleted: who is to go goes at once"),
        (None, 299, (False, True), "deleted, the others are the garbage collector's"),
        (None, 301, (True, True), "deleted for long: all"),
    ],
)
def test_a_pod_is_let_go_where_its_node_will_not_speak_for_it(
    node: Node | None, missing: float, deleting: tuple[bool, bool], whole: str
) -> None:
    silent = silent_seconds(silent_since(node), NOW.timestamp(), 0.0) if node else 0.0
    found = tuple(is_let_go(deleting=each, node=node, missing=missing, silent=silent, limit=300) for each in (False, True))
    assert found == deleting, whole


def a_pod(name: str, *, deleting: bool = False, node: str = "n", phase: str = "Running") -> Pod:
    meta = Meta(name=name, namespace="ns", uid=name, finalizers=(FINALIZER,), deletion_timestamp=NOW if deleting else None)
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(phase=phase))


def test_its_workload_is_looked_at_once_when_a_pod_is_let_go() -> None:
    nodes: Cache[Node] = Cache()
    pods: Cache[Pod] = Cache()
    looked: list[Any] = []
    nodes.put(a_node())
    for pod in (a_pod("stays"), a_pod("goes", deleting=True), a_pod("waits", node=""), a_pod("over", deleting=True, phase="Failed")):
        pods.put(pod)
    loss = NodeLoss(nodes, pods, 300)
    loss.look = lambda pod: looked.append(pod.metadata.name)
    loss._sweep()
    assert looked == []
    nodes.remove(Key("", "n"))
    assert not loss(a_pod("stays"))
    assert loss(a_pod("goes", deleting=True))
    loss._sweep()
    loss._sweep()
    assert looked == ["goes"]
    loss._missing["n"] -= 301
    loss._sweep()
    assert looked == ["goes", "stays"]
    nodes.put(a_node())
    assert not loss(a_pod("stays"))
    loss._sweep()
    assert loss._missing == {}


def test_how_long_a_node_is_silent_goes_by_kubernetes_clock_and_not_by_ours() -> None:
    """Ours is an hour ahead of it, or wrong by years: a node that has just become silent is not given up."""
    nodes: Cache[Node] = Cache()
    pods: Cache[Pod] = Cache()
    nodes.put(a_node("Unknown", 1))
    clock = RemoteClock()
    loss = NodeLoss(nodes, pods, 300, clock)
    goes = a_pod("goes", deleting=True)
    assert not loss(goes), "the API server's clock is not known: what counts is what was seen here"
    here = time.monotonic()
    clock.note(NOW.timestamp(), here, here)
    assert not loss(goes)
    nodes.put(a_node("Unknown", 301))
    assert loss(goes), "known to be silent since before this process began"
