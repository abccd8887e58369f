"""LeaderWorkerSets, as far as they are read: which group a pod is of, how large it is, and which of its pods come only later. Pure.

Comes in: a LeaderWorkerSet, a pod's labels. Goes out: a pod's place (group, and number in it), and for a group its size, its followers, and whether more pods will come. What must stay true: each group is a workload of its own; only
what can exist at one time is waited for.

- `LeaderReady`: the workers are made when the leader is ready, so the leader is all that can be waited for. The job is for the whole group all the same, the workers' needs from their template: two groups of which one fits
  can never each hold a half.
- Exclusive topology: the workers are made when the leader is on a node, and sent to where that is. Leader and workers are two jobs then, as nobody can say before where the second has to go.
- Subgroups are labels on pods that exist together, and change nothing here: a subgroup's pods are neighbours in rank.
"""

from typing import NamedTuple

import msgspec

from slinky.bridge.keys import MANAGED_NODE
from slinky.kube.objects import KubeObject, OwnerReference, Pod, Record
from slinky.kube.objects.cluster import PodTemplate
from slinky.kube.objects.meta import Meta

__all__ = [
    "LWS_GROUP",
    "LWS_NAME",
    "LeaderWorkerSet",
    "Place",
    "follower",
    "follows",
    "group_size",
    "is_awaited",
    "is_exclusive",
    "place_in_group",
]

LWS_GROUP = "leaderworkerset.x-k8s.io"
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE = "leaderworkerset.sigs.k8s.io/size"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
USUAL = (MANAGED_NODE, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")  # tolerations that pods are given at admission


class LeaderWorkerTemplate(Record, frozen=True):
    size: int = 1
    worker_template: PodTemplate = PodTemplate()


class LeaderWorkerSetSpec(Record, frozen=True):
    replicas: int = 1
    startup_policy: str = "LeaderCreated"
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(KubeObject, frozen=True):
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


class Place(NamedTuple):
    """Which group, and which number in it: the leader is 0."""

    group: int
    worker: int


def place_in_group(pod: Pod) -> Place | None:
    """By the labels that the set's controller and webhook give; only a pod of a StatefulSet can be of one."""
    labels, owner = pod.metadata.labels, pod.metadata.controller
    group, worker = labels.get(GROUP_INDEX, ""), labels.get(WORKER_INDEX, "")
    if owner is None or owner.kind != "StatefulSet" or LWS_NAME not in labels:
        return None
    return Place(int(group), int(worker)) if _is_number(group) and _is_number(worker) else None


def is_exclusive(lws: LeaderWorkerSet) -> bool:
    return EXCLUSIVE in lws.metadata.annotations


def group_size(lws: LeaderWorkerSet, pods: tuple[Pod, ...] = ()) -> int:
    """As its pods say, where there are some: while a new size is being rolled out, groups of the old one are still there."""
    said = next((text for pod in pods if _is_number(text := pod.metadata.annotations.get(SIZE, ""))), "")
    return max(int(said) if said else lws.spec.leader_worker_template.size, 1)


def follows(lws: LeaderWorkerSet) -> bool:
    """Whether workers are made only when the leader runs."""
    return lws.spec.startup_policy == "LeaderReady"


def is_awaited(lws: LeaderWorkerSet, group: int) -> bool:
    """Whether pods of this group will be made again: not where the set is being deleted, or was made smaller."""
    return lws.metadata.deletion_timestamp is None and group < lws.spec.replicas


def follower(lws: LeaderWorkerSet, group: int, leader: Pod | None = None) -> Pod:
    """A worker that is yet to be made, for all of them: they differ in their number only. What every pod is given when it is made, the leader shows."""
    template = lws.spec.leader_worker_template.worker_template
    labels = {**template.metadata.labels, LWS_NAME: lws.metadata.name, GROUP_INDEX: str(group), WORKER_INDEX: "1"}
    meta = Meta(
        name=f"{lws.metadata.name}-{group}-1",
        namespace=lws.metadata.namespace,
        labels=labels,
        annotations=template.metadata.annotations,
        owner_references=(OwnerReference(api_version="apps/v1", kind="StatefulSet", name=f"{lws.metadata.name}-{group}", controller=True),),
    )
    usual = tuple(each for each in leader.spec.tolerations if each.key in USUAL and each not in template.spec.tolerations) if leader else ()
    return Pod(metadata=meta, spec=msgspec.structs.replace(template.spec, tolerations=(*template.spec.tolerations, *usual)))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
