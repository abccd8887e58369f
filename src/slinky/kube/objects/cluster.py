"""The other objects we read: nodes, namespaces, Jobs, Events, Leases."""

import datetime as dt
from collections.abc import Mapping

import msgspec

from slinky.kube.objects.meta import NOTHING, Condition, KubeObject, ObjectReference, Record
from slinky.kube.objects.pod import PodSpec

__all__ = [
    "Event",
    "EventSeries",
    "Job",
    "JobSpec",
    "JobStatus",
    "Lease",
    "LeaseSpec",
    "Namespace",
    "NamespaceStatus",
    "Node",
    "NodeAddress",
    "NodeSpec",
    "NodeStatus",
    "PodTemplate",
    "Taint",
    "TemplateMeta",
]


class Taint(Record, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Record, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeAddress(Record, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(Record, frozen=True):
    capacity: Mapping[str, str] = NOTHING
    allocatable: Mapping[str, str] = NOTHING
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(KubeObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def condition(self, kind: str) -> Condition | None:
        return next((found for found in self.status.conditions if found.type == kind), None)


class NamespaceStatus(Record, frozen=True):
    phase: str = ""


class Namespace(KubeObject, frozen=True):
    status: NamespaceStatus = NamespaceStatus()


class TemplateMeta(Record, frozen=True):
    """What the API server takes as it stands; a template's dates mean nothing, and may be none."""

    labels: Mapping[str, str] = NOTHING
    annotations: Mapping[str, str] = NOTHING


class PodTemplate(Record, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class JobSpec(Record, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    suspend: bool = False
    managed_by: str = ""
    template: PodTemplate = PodTemplate()


class JobStatus(Record, frozen=True):
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[Condition, ...] = ()
    start_time: dt.datetime | None = None
    completion_time: dt.datetime | None = None


class Job(KubeObject, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class EventSeries(Record, frozen=True):
    count: int = 0
    last_observed_time: dt.datetime | None = None


class Event(KubeObject, frozen=True):
    """Of `events.k8s.io/v1`."""

    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    regarding: ObjectReference = ObjectReference()
    reporting_controller: str = ""
    reporting_instance: str = ""
    event_time: dt.datetime | None = None
    series: EventSeries | None = None


class LeaseSpec(Record, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: dt.datetime | None = None
    renew_time: dt.datetime | None = None
    lease_transitions: int = 0


class Lease(KubeObject, frozen=True):
    spec: LeaseSpec = LeaseSpec()
