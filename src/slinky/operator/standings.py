"""How a StatefulSet or a Deployment, and its pods, stand for the object that they were made for. Pure.

*Invariants:* an object is Ready only where all its pods are of the present template and ready. What
keeps a pod from running is said in the words of whoever says it. A pod whose Kubernetes node is
lost is named with its node, and with what lets the pod move.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from slinky.kube import Node, Pod
from slinky.kube.objects import ContainerStatus
from slinky.operator.children import Workload
from slinky.operator.conditions import Standing, broken, settled, under_way

__all__ = [
    "OUT_OF_SERVICE",
    "PodTrouble",
    "bears_on_heads",
    "pod_trouble",
    "seconds_to_next",
    "standing_of",
]

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
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
ENDING = dt.timedelta(seconds=60)  # that a pod may take beyond its grace period to be gone
STARTING = dt.timedelta(seconds=120)  # that a pod on a node may be unready before it is called wrong

NodeOf = Callable[[str], Node | None]


class PodTrouble(NamedTuple):
    reason: str
    message: str


def pod_trouble(pods: Iterable[Pod], node_of: NodeOf, now: dt.datetime) -> PodTrouble | None:
    """What keeps one of them from running; a node that is lost before all else."""
    known = sorted(pods, key=lambda each: each.metadata.name)
    for judge in (_on_lost_node, _never_ends):
        for pod in known:
            if found := judge(pod, node_of, now):
                return found
    for pod in known:
        if found := _as_the_kubelet_says(pod) or _long_unready(pod, now):
            return found
    return None


def seconds_to_next(pods: Iterable[Pod], now: dt.datetime) -> float | None:
    """Until time alone makes `pod_trouble` say something else; None where it does not."""
    moments = (moment for pod in pods for moment in _moments(pod) if moment > now)
    return min(((moment - now).total_seconds() for moment in moments), default=None)


def bears_on_heads(node: Node) -> object:
    """What of a Kubernetes node `pod_trouble` looks at."""
    ready = node.condition("Ready")
    status = (ready.status, ready.message) if ready is not None else ("", "")
    return (node.metadata.uid, *status, _is_out_of_service(node))


def _on_lost_node(pod: Pod, node_of: NodeOf, now: dt.datetime) -> PodTrouble | None:  # noqa: ARG001
    name = pod.spec.node_name
    if not name or _is_ready(pod) or pod.is_over:
        return None
    node, about = node_of(name), f"pod {pod.metadata.name}"
    if node is None:
        said = f"{about} was on Kubernetes node {name}, which was deleted: Kubernetes replaces it"
        return PodTrouble("NodeGone", f"{said} within a minute")
    ready = node.condition("Ready")
    if ready is None or ready.status == "True":
        return None
    since = f" since {_moment(ready.last_transition_time)}" if ready.last_transition_time else ""
    why = f" ({ready.message.rstrip('.')})" if ready.message else ""
    ending = " and cannot end there" if pod.metadata.deletion_timestamp else ""
    lost = f"{about} is on Kubernetes node {name}, which is not ready{since}{why}{ending}"
    return PodTrouble("NodeNotReady", f"{lost}. {_remedy(pod, node)}")


def _remedy(pod: Pod, node: Node) -> str:
    meta, name = pod.metadata, node.metadata.name
    if _is_out_of_service(node) and _bears_out_of_service(pod):
        force = f"kubectl -n {meta.namespace} delete pod {meta.name} --grace-period=0 --force"
        return f"The node has the out-of-service taint, which the pod tolerates: {force}"
    if _is_out_of_service(node):
        return "The node has the out-of-service taint: Kubernetes moves the pod within a minute"
    taint = f"kubectl taint nodes {name} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    return (
        "Bring the node back. If it is switched off for good or for long, let Kubernetes move the"
        f" pod: {taint} (never while the node may still run: two daemons would write to one"
        " state). Remove the taint when the node is back"
    )


def _never_ends(pod: Pod, node_of: NodeOf, now: dt.datetime) -> PodTrouble | None:  # noqa: ARG001
    due = pod.metadata.deletion_timestamp
    if due is None or now < due + ENDING:
        return None
    meta, where = pod.metadata, pod.spec.node_name or "no node"
    held = f"its finalizers hold it ({', '.join(meta.finalizers)})" if meta.finalizers else ""
    look = held or f"the kubelet of {where} does not end it: look at that node"
    return PodTrouble(
        "PodNotEnding",
        f"pod {meta.name} should have ended at {_moment(due)}, and no other can take its place before it is gone; {look}",
    )


def _as_the_kubelet_says(pod: Pod) -> PodTrouble | None:
    name = pod.metadata.name
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in STUCK:
            return PodTrouble(
                waiting.reason,
                f"pod {name}: container {container.name}: {_why(container)}",
            )
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


def _long_unready(pod: Pod, now: dt.datetime) -> PodTrouble | None:
    since = _unready_since(pod)
    if since is None or now < since + STARTING:
        return None
    meta = pod.metadata
    restarts = sum(container.restart_count for container in pod.status.container_statuses)
    again = f", and its containers were restarted {restarts} times" if restarts else ""
    look = f"kubectl -n {meta.namespace} describe pod {meta.name}, and its log, say more"
    where = f"on Kubernetes node {pod.spec.node_name}"
    said = f"pod {meta.name} {where} is not ready since {_moment(since)}{again}"
    return PodTrouble("PodNotReady", f"{said}: {look}")


def _moments(pod: Pod) -> Iterator[dt.datetime]:
    if pod.metadata.deletion_timestamp is not None:
        yield pod.metadata.deletion_timestamp + ENDING
    if (since := _unready_since(pod)) is not None:
        yield since + STARTING


def _unready_since(pod: Pod) -> dt.datetime | None:
    """Of one that is on a node and is to run."""
    ready = pod.condition("Ready")
    leaves = pod.is_over or pod.metadata.deletion_timestamp is not None
    if leaves or not pod.spec.node_name or ready is None or ready.status == "True":
        return None
    return ready.last_transition_time


def _is_ready(pod: Pod) -> bool:
    ready = pod.condition("Ready")
    return ready is not None and ready.status == "True"


def _is_out_of_service(node: Node) -> bool:
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _bears_out_of_service(pod: Pod) -> bool:
    return any(
        each.operator == "Exists" and each.key in ("", OUT_OF_SERVICE) and each.effect in ("", "NoExecute") for each in pod.spec.tolerations
    )


def _moment(moment: dt.datetime | None) -> str:
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC" if moment is not None else "?"


def standing_of(
    workload: Workload | None,
    daemon: str,
    trouble: PodTrouble | None = None,
    *,
    is_seen: bool = True,
) -> Standing:
    """`is_seen`: the workload is known as it was last written. Before, its status says nothing."""
    if workload is None:
        return under_way("Creating", f"{daemon} is being created")
    wanted, status = workload.spec.replicas, workload.status
    if not wanted and is_seen:
        return settled(f"no {daemon} is wanted", "ScaledToZero")
    if workload.is_settled and is_seen:
        return settled(f"{status.ready_replicas} of {wanted} {daemon} ready")
    usable = status.ready_replicas > 0
    if trouble is not None:
        return broken(trouble.reason, trouble.message, available=usable)
    if status.ready_replicas >= wanted:
        updated = status.updated_replicas if is_seen else 0
        said = f"{updated} of {wanted} {daemon} are of the present template"
        return under_way("Updating", said, available=True)
    ready = f"{status.ready_replicas} of {wanted} {daemon} ready"
    return under_way("NotReady", ready, available=usable)
