"""The kinds of things the API server keeps: where each is found, and as which type it is read.

Pure. A `Resource` makes paths; the ones the rest of the project uses stand at the end, and any other is one line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from slinky.kube.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Event,
    Job,
    KubeObject,
    Lease,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    VolumeAttachment,
)
from slinky.kube.objects.sharing import compact_pod

__all__ = [
    "ATTACHMENTS",
    "CLAIMS",
    "CSI_DRIVERS",
    "CSI_NODES",
    "EVENTS",
    "JOBS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "STORAGE_CAPACITIES",
    "STORAGE_CLASSES",
    "VOLUMES",
    "Resource",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Resource(Generic[T]):
    """`type` is what answers are decoded as: a Struct of `slinky.kube.objects`, a KubeObject where metadata is enough, or `dict[str, Any]`."""

    group: str
    version: str
    plural: str
    type: type[T]
    namespaced: bool = True
    compact: Callable[[T], T] | None = None  # makes a decoded object smaller, for caches

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Without a namespace: those of all namespaces, which can be listed and watched only."""
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.plural} {name!r}: a namespaced object needs its namespace")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [part for part in (self.plural, quote(name, safe=""), subresource) if part]
        return "/".join(parts)

    @property
    def untyped(self) -> "Resource[dict[str, Any]]":
        """The same, read whole: for an object that is to be changed and written back."""
        return Resource(self.group, self.version, self.plural, dict, self.namespaced)

    @property
    def metadata_only(self) -> "Resource[KubeObject]":
        return Resource(self.group, self.version, self.plural, KubeObject, self.namespaced)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods", Pod, compact=compact_pod)
NODES = Resource("", "v1", "nodes", Node, namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", Namespace, namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", PersistentVolumeClaim)
VOLUMES = Resource("", "v1", "persistentvolumes", PersistentVolume, namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", StorageClass, namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", CSINode, namespaced=False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", CSIDriver, namespaced=False)
STORAGE_CAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", CSIStorageCapacity)
ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", VolumeAttachment, namespaced=False)
JOBS = Resource("batch", "v1", "jobs", Job)
LEASES = Resource("coordination.k8s.io", "v1", "leases", Lease)
EVENTS = Resource("events.k8s.io", "v1", "events", Event)
