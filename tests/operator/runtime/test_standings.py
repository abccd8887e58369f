"""What pods mean for the object that they were made for."""

from typing import Any

import msgspec

from slinky.kube import Pod
from slinky.operator.children import Workload
from slinky.operator.conditions import DEGRADED, PROGRESSING, READY
from slinky.operator.standings import PodTrouble, pod_trouble, standing_of


def workload(wanted: int = 1, generation: int = 1, **status: int) -> Workload:
    said = {"observedGeneration": generation, **status}
    return msgspec.convert({"metadata": {"generation": 1}, "spec": {"replicas": wanted}, "status": said}, Workload)


def pod(**status: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "c-controller-0"}, "status": status}, Pod)


def said(found: Workload | None, trouble: PodTrouble | None = None) -> tuple[bool, bool, bool]:
    standing = standing_of(found, "slurmctld", trouble)
    return standing[READY].status, standing[PROGRESSING].status, standing[DEGRADED].status


def test_ready_is_who_has_all_pods_ready_and_of_the_present_template() -> None:
    assert said(workload(replicas=1, readyReplicas=1, updatedReplicas=1)) == (True, False, False)
    assert said(workload(replicas=1, readyReplicas=1, updatedReplicas=0)) == (True, True, False)
    assert said(workload(replicas=2, readyReplicas=2, updatedReplicas=1)) == (True, True, False)
    assert said(workload(replicas=1, readyReplicas=0, updatedReplicas=1)) == (False, True, False)
    assert said(workload(generation=0, replicas=1, readyReplicas=1, updatedReplicas=1)) == (True, True, False)
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
