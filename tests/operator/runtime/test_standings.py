"""What pods mean for the object that they were made for."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from slinky.kube import Node, Pod
from slinky.operator.children import Workload
from slinky.operator.conditions import AVAILABLE, DEGRADED, PROGRESSING, READY, is_available
from slinky.operator.standings import (
    OUT_OF_SERVICE,
    PodTrouble,
    bears_on_heads,
    seconds_to_next,
    standing_of,
)
from slinky.operator.standings import pod_trouble as judged

NOW = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


def workload(wanted: int = 1, generation: int = 1, **status: int) -> Workload:
    said = {"observedGeneration": generation, **status}
    return msgspec.convert({"metadata": {"generation": 1}, "spec": {"replicas": wanted}, "status": said}, Workload)


def pod(node: str = "", leaving: dt.datetime | None = None, **status: Any) -> Pod:
    meta = {"name": "c-controller-0", "namespace": "hpc", "deletionTimestamp": leaving}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node}, "status": status}, Pod)


def node(ready: str = "True", *taints: str) -> Node:
    condition = {
        "type": "Ready",
        "status": ready,
        "message": "Kubelet stopped posting node status." if ready == "Unknown" else "",
        "lastTransitionTime": NOW - dt.timedelta(seconds=30),
    }
    spec = {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}
    plain = {"metadata": {"name": "k1"}, "spec": spec, "status": {"conditions": [condition]}}
    return msgspec.convert(plain, Node)


def ready(status: str, seconds: float = 10) -> dict[str, Any]:
    since = NOW - dt.timedelta(seconds=seconds)
    return {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}]}


def pod_trouble(pods: Iterable[Pod], *nodes: Node) -> PodTrouble | None:
    return judged(pods, {each.metadata.name: each for each in nodes}.get, NOW)


def said(found: Workload | None, trouble: PodTrouble | None = None) -> tuple[bool, bool, bool]:
    standing = standing_of(found, "slurmctld", trouble)
    return standing[READY].status, standing[PROGRESSING].status, standing[DEGRADED].status


def test_ready_is_who_has_all_pods_ready_and_of_the_present_template() -> None:
    assert said(workload(replicas=1, readyReplicas=1, updatedReplicas=1)) == (True, False, False)
    assert said(workload(replicas=1, readyReplicas=1, updatedReplicas=0)) == (False, True, False)
    assert said(workload(replicas=2, readyReplicas=2, updatedReplicas=1)) == (False, True, False)
    assert said(workload(replicas=1, readyReplicas=0, updatedReplicas=1)) == (False, True, False)
    older = workload(generation=0, replicas=1, readyReplicas=1, updatedReplicas=1)
    assert said(older) == (False, True, False)
    assert is_available(standing_of(older, "slurmctld"))
    assert said(None) == (False, True, False)


def test_none_wanted_is_as_written() -> None:
    assert said(workload(wanted=0)) == (True, False, False)


def test_a_pod_that_cannot_run_says_why() -> None:
    waiting = {"name": "slurmctld", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    trouble = pod_trouble([pod(containerStatuses=[waiting])])
    assert trouble is not None and trouble.reason == "ImagePullBackOff" and "no such image" in trouble.message
    assert said(workload(replicas=1, updatedReplicas=1), trouble) == (False, False, True)
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    found = pod_trouble([pod(conditions=[scheduled])])
    assert found is not None and "0/3 nodes" in found.message


def test_a_container_that_left_last_words_is_quoted() -> None:
    """Not the kubelet's: back-off 10s restarting failed container."""
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}
    words = "no access to the state folder /var/spool/slurmctld/c: it belongs to 0:0 with mode 755"
    for message, wanted in ((f"{words}\n", f"{words} (exit code 1)"), ("", "back-off 10s restarting failed container; its last exit")):
        ended = {"terminated": {"exitCode": 1, "message": message}}
        found = pod_trouble([pod(containerStatuses=[{"name": "slurmctld", "state": waiting, "lastState": ended}])])
        assert found is not None and found.reason == "CrashLoopBackOff"
        assert found.message.startswith(f"pod c-controller-0: container slurmctld: {wanted}")


def test_a_pod_that_begins_is_no_trouble() -> None:
    assert pod_trouble([pod(containerStatuses=[{"name": "x", "state": {"waiting": {"reason": "ContainerCreating"}}}])]) is None
    assert pod_trouble([]) is None


def test_what_was_just_written_is_not_ready_before_it_is_seen() -> None:
    """The cache may show the workload as it was before: `kubectl wait` must not see that as new."""
    settled = workload(replicas=1, readyReplicas=1, updatedReplicas=1)
    standing = standing_of(settled, "slurmctld", is_seen=False)
    assert (standing[READY].status, standing[AVAILABLE].status) == (False, True)
    assert "0 of 1 slurmctld are of the present template" in standing[READY].message
    assert not standing_of(workload(wanted=0), "slurmrestd", is_seen=False)[READY].status


def test_a_pod_on_a_lost_node_is_named_with_the_node_and_what_lets_it_move() -> None:
    lost = pod("k1", leaving=NOW, **ready("False"))
    found = pod_trouble([lost], node("Unknown"))
    assert found is not None and found.reason == "NodeNotReady"
    for words in (
        "pod c-controller-0 is on Kubernetes node k1, which is not ready since 2026-01-02 11:59:30",
        "(Kubelet stopped posting node status) and cannot end there",
        "kubectl taint nodes k1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        "never while the node may still run",
    ):
        assert words in found.message
    standing = standing_of(workload(), "slurmctld", found)
    assert (standing[READY].status, standing[AVAILABLE].status) == (False, False)
    assert standing[DEGRADED].status


def test_a_lost_node_with_the_taint_is_said_to_give_the_pod_away() -> None:
    found = pod_trouble([pod("k1", **ready("False"))], node("Unknown", OUT_OF_SERVICE))
    assert found is not None and "Kubernetes moves the pod within a minute" in found.message
    assert "kubectl taint" not in found.message


def test_a_pod_that_tolerates_the_taint_has_to_be_deleted_by_force() -> None:
    bears = msgspec.convert({"nodeName": "k1", "tolerations": [{"operator": "Exists"}]}, type(pod().spec))
    stubborn = msgspec.structs.replace(pod("k1", **ready("False")), spec=bears)
    found = pod_trouble([stubborn], node("Unknown", OUT_OF_SERVICE))
    assert found is not None
    assert "kubectl -n hpc delete pod c-controller-0 --grace-period=0 --force" in found.message


def test_a_node_that_is_gone_and_one_that_is_well() -> None:
    found = pod_trouble([pod("k1", **ready("False"))])
    assert found is not None and found.reason == "NodeGone"
    assert pod_trouble([pod("k1", **ready("False"))], node()) is None
    assert pod_trouble([pod("k1", **ready("True"))], node("Unknown")) is None


def test_a_pod_that_never_ends_is_said_after_a_minute() -> None:
    def leaving(seconds: float) -> Pod:
        return pod("k1", leaving=NOW - dt.timedelta(seconds=seconds), **ready("False"))

    assert pod_trouble([leaving(59)], node()) is None
    assert seconds_to_next([leaving(59)], NOW) == pytest.approx(1)
    found = pod_trouble([leaving(61)], node())
    assert found is not None and found.reason == "PodNotEnding" and "kubelet of k1" in found.message


def test_a_pod_that_is_not_ready_for_long_is_said() -> None:
    assert pod_trouble([pod("k1", **ready("False", 119))], node()) is None
    assert seconds_to_next([pod("k1", **ready("False", 119))], NOW) == pytest.approx(1)
    found = pod_trouble([pod("k1", **ready("False", 121))], node())
    assert found is not None and found.reason == "PodNotReady"
    assert "kubectl -n hpc describe pod c-controller-0" in found.message
    assert pod_trouble([pod("k1", **ready("True", 9999))], node()) is None
    assert seconds_to_next([pod("k1", **ready("True"))], NOW) is None


def test_of_a_node_only_its_readiness_and_its_being_out_of_service_are_news() -> None:
    assert bears_on_heads(node()) == bears_on_heads(node("True", "another"))
    assert bears_on_heads(node()) != bears_on_heads(node("Unknown"))
    assert bears_on_heads(node("Unknown")) != bears_on_heads(node("Unknown", OUT_OF_SERVICE))
