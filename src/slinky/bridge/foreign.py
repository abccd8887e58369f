"""Pods of other schedulers, as far as they matter here.

Comes in: a pod that has a node and is not ours. Goes out: the same pod, with only what it takes of its node and what it means to ours: its resources and host ports, its claims, its labels, its required anti-affinity, whether it is being deleted.
What must stay true: 100,000 of them stay small; nothing is lost that the ledger or eligibility counts.
"""

import msgspec

from slinky.bridge.needs import counted_of, needs_of
from slinky.kube.objects import Affinity, ContainerStatus, Meta, Pod, PodAffinity, PodSpec, PodStatus

__all__ = ["shrunk"]


def shrunk(pod: Pod) -> Pod:
    meta = Meta(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        labels=pod.metadata.labels,
        deletion_timestamp=pod.metadata.deletion_timestamp,
    )
    spec = PodSpec(
        node_name=pod.spec.node_name,
        affinity=_keeping_away(pod.spec.affinity),
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers,
        overhead=pod.spec.overhead,
        resources=pod.spec.resources,
        volumes=pod.spec.volumes,
    )
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=_status(pod))


def _status(pod: Pod) -> PodStatus:
    """Whether it is over; and what its containers were given, where a resize makes that count."""
    if counted_of(pod) == needs_of(pod):
        return PodStatus(phase=pod.status.phase)
    status = pod.status
    return PodStatus(
        phase=status.phase,
        conditions=tuple(found for found in status.conditions if found.type == "PodResizePending"),
        container_statuses=tuple(map(_given, status.container_statuses)),
        init_container_statuses=tuple(map(_given, status.init_container_statuses)),
        resources=status.resources,
        allocated_resources=status.allocated_resources,
    )


def _given(status: ContainerStatus) -> ContainerStatus:
    return ContainerStatus(name=status.name, allocated_resources=status.allocated_resources, resources=status.resources)


def _keeping_away(affinity: Affinity | None) -> Affinity | None:
    if affinity is None or affinity.pod_anti_affinity is None or not affinity.pod_anti_affinity.required:
        return None
    return Affinity(pod_anti_affinity=PodAffinity(required=affinity.pod_anti_affinity.required))
