"""What is made for an object of ours: which kinds there are, and what of each is in the API server at the moment.

Comes in: caches of metadata. Goes out: the children of an owner, and whether one is still as it was after we wrote it. What must stay true: a child is one that names its owner's UID as controller and has our label; what somebody else
made is never counted.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from slinky.kube import Key, KubeObject, Meta, Resource
from slinky.kube.objects import Record
from slinky.operator.kinds import GROUP, VERSION

__all__ = [
    "CHILD_KINDS",
    "CONFIG_MAPS",
    "DEPLOYMENTS",
    "MANAGED_BY",
    "MANAGER",
    "SECRETS",
    "STATEFUL_SETS",
    "Child",
    "Owner",
    "Workload",
    "controller_uids",
    "digest",
    "fingerprint",
    "is_managed",
]

MANAGER = "slinky-operator"
MANAGED_BY = "app.kubernetes.io/managed-by"


class WorkloadSpec(Record, frozen=True):
    replicas: int = 1


class WorkloadStatus(Record, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class Workload(KubeObject, frozen=True):
    """A StatefulSet or a Deployment, as far as it tells how its pods are."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def is_settled(self) -> bool:
        """All pods are of the present template, and ready."""
        status, wanted = self.status, self.spec.replicas
        if status.observed_generation < self.metadata.generation:
            return False
        return status.updated_replicas >= wanted and status.ready_replicas >= wanted and status.replicas <= wanted


class ServiceSpec(Record, frozen=True):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class Service(KubeObject, frozen=True):
    spec: ServiceSpec = ServiceSpec()


CONFIG_MAPS = Resource("", "v1", "configmaps", KubeObject)
SECRETS = Resource("", "v1", "secrets", KubeObject)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", Workload)
DEPLOYMENTS = Resource("apps", "v1", "deployments", Workload)

CHILD_KINDS: Mapping[str, Resource[Any]] = {
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "Service": Resource("", "v1", "services", Service),
    "StatefulSet": STATEFUL_SETS,
    "Deployment": DEPLOYMENTS,
    "PodDisruptionBudget": Resource("policy", "v1", "poddisruptionbudgets", KubeObject),
    "NetworkPolicy": Resource("networking.k8s.io", "v1", "networkpolicies", KubeObject),
    "ServiceMonitor": Resource("monitoring.coreos.com", "v1", "servicemonitors", KubeObject),
}


class Owner(NamedTuple):
    """An object of ours, as its children name it."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    def reference(self) -> dict[str, Any]:
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


class Child(NamedTuple):
    kind: str
    key: Key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


def is_managed(meta: Meta) -> bool:
    return meta.labels.get(MANAGED_BY) == MANAGER


def controller_uids(found: KubeObject) -> Iterable[str]:
    """For an index: under whose UID it is found."""
    owner = found.metadata.controller
    return [owner.uid] if owner is not None and is_managed(found.metadata) else []


def digest(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def fingerprint(meta: Meta) -> str:
    """Another one when somebody changed what is ours to say. A status that changes does not, where the kind counts generations."""
    if not meta.generation:
        return f"{meta.uid} {meta.resource_version}"
    owners = sorted(owner.uid for owner in meta.owner_references)
    return f"{meta.uid} {meta.generation} {digest([dict(meta.labels), dict(meta.annotations), owners])}"
