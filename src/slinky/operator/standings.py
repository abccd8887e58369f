"""How a StatefulSet or a Deployment, and the pods of it, stand for the object that they were made for. Pure.

What must stay true: an object is Ready only where all its pods are of the present template and ready; what keeps a pod from running is said in the words of whoever says it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from slinky.kube import Pod
from slinky.kube.objects import ContainerStatus
from slinky.operator.children import Workload
from slinky.operator.conditions import Standing, broken, settled, under_way

__all__ = ["PodTrouble", "pod_trouble", "standing_of"]

STUCK = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


class PodTrouble(NamedTuple):
    reason: str
    message: str


def pod_trouble(pods: Iterable[Pod]) -> PodTrouble | None:
    """What keeps one of them from running, as the kubelet or the scheduler says it."""
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        name = pod.metadata.name
        for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            waiting = container.state.waiting
            if waiting is not None and waiting.reason in STUCK:
                return PodTrouble(waiting.reason, f"pod {name}: container {container.name}: {_why(container)}")
        scheduled = pod.condition("PodScheduled")
        if scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable":
            return PodTrouble("Unschedulable", f"pod {name}: {scheduled.message}")
    return None


def _why(container: ContainerStatus) -> str:
    """Its own last words, where it left some; else the kubelet's, and where to look."""
    waiting, ended = container.state.waiting, container.last_state.terminated
    told = (waiting.message or waiting.reason) if waiting else ""
    if ended is not None and (words := ended.message.strip()):
        return f"{words} (exit code {ended.exit_code})"
    if ended is not None and ended.exit_code:
        return f"{told}; its last exit code was {ended.exit_code}; its log may tell more"
    return f"{told}; its log may tell more"


def standing_of(workload: Workload | None, daemon: str, trouble: PodTrouble | None = None) -> Standing:
    if workload is None:
        return under_way("Creating", f"{daemon} is being created")
    wanted, status = workload.spec.replicas, workload.status
    if not wanted:
        return settled(f"no {daemon} is wanted", "ScaledToZero")
    if workload.is_settled:
        return settled(f"{status.ready_replicas} of {wanted} {daemon} ready")
    usable = status.ready_replicas > 0
    if trouble is not None:
        return broken(trouble.reason, trouble.message, ready=usable)
    if status.ready_replicas >= wanted:
        return under_way("Updating", f"{status.updated_replicas} of {wanted} {daemon} are of the present template", ready=True)
    return under_way("NotReady", f"{status.ready_replicas} of {wanted} {daemon} ready", ready=False)
