"""Storage in memory: claims, volumes, classes and nodes as a test says, and what the server and its controllers would do with what we write."""

from typing import Any, TypeVar

import msgspec

from slinky.bridge.volumes.live import Volumes
from slinky.bridge.volumes.stock import SELECTED_NODE, Stock, StorageCaches
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Cache, Key, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from slinky.kube.objects import CSIDriver, CSINode, CSIStorageCapacity, ObjectReference, VolumeAttachment
from slinky.kube.objects.storage import BIND_COMPLETED

__all__ = ["HOST", "Shelves", "a_claim", "a_class", "a_node", "a_pod", "a_volume", "made"]

T = TypeVar("T")
HOST = "kubernetes.io/hostname"


def made(kind: type[T], document: dict[str, Any]) -> T:
    """As the API server would send it."""
    return msgspec.convert(document, kind)


def a_node(name: str, **labels: str) -> Node:
    return made(
        Node, {"metadata": {"name": name, "labels": {HOST: name} | {key.replace("_", "/"): value for key, value in labels.items()}}}
    )


def a_class(name: str, provisioner: str = "kubernetes.io/no-provisioner", mode: str = "WaitForFirstConsumer", **more: Any) -> StorageClass:
    return made(StorageClass, {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **more})


def a_claim(
    name: str, storage: str = "1Gi", kind: str = "local", meta: dict[str, Any] | None = None, phase: str = "Pending", **spec: Any
) -> PersistentVolumeClaim:
    wanted = {"storageClassName": kind, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}} | spec
    metadata = {"name": name, "namespace": "ns", "uid": f"{name}-uid", "resourceVersion": "1"} | (meta or {})
    return made(PersistentVolumeClaim, {"metadata": metadata, "spec": wanted, "status": {"phase": phase}})


def a_volume(
    name: str,
    storage: str = "1Gi",
    node: str = "",
    kind: str = "local",
    meta: dict[str, Any] | None = None,
    phase: str = "Available",
    **spec: Any,
) -> PersistentVolume:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}]
    there: dict[str, Any] = {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], "storageClassName": kind}
    there |= {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if node else {}
    metadata = {"name": name, "uid": f"{name}-uid", "resourceVersion": "1"} | (meta or {})
    return made(PersistentVolume, {"metadata": metadata, "spec": there | spec, "status": {"phase": phase}})


def a_pod(name: str, *claims: str, node: str = "", ephemeral: tuple[str, ...] = (), phase: str = "Pending") -> Pod:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    volumes += [{"name": volume, "ephemeral": {}} for volume in ephemeral]
    meta = {"name": name, "namespace": "ns", "uid": f"{name}-uid"}
    return made(Pod, {"metadata": meta, "spec": {"nodeName": node, "volumes": volumes}, "status": {"phase": phase}})


class Shelves:
    """All caches, a stock over them, and hands that write as the API server would."""

    def __init__(self) -> None:
        self.claims: Cache[PersistentVolumeClaim] = Cache()
        self.volumes: Cache[PersistentVolume] = Cache()
        self.classes: Cache[StorageClass] = Cache()
        self.csi_nodes: Cache[CSINode] = Cache()
        self.drivers: Cache[CSIDriver] = Cache()
        self.capacities: Cache[CSIStorageCapacity] = Cache()
        self.attachments: Cache[VolumeAttachment] = Cache()
        self.pods: Cache[Pod] = Cache()
        self.nodes: Cache[Node] = Cache()
        self.woken: list[WorkloadKey] = []
        self.acts: list[str] = []
        self._version = 1

    def caches(self) -> StorageCaches:
        return StorageCaches(
            claims=self.claims,
            volumes=self.volumes,
            classes=self.classes,
            csi_nodes=self.csi_nodes,
            drivers=self.drivers,
            capacities=self.capacities,
            attachments=self.attachments,
        )

    def stock(self) -> Stock:
        return Stock(self.caches(), [self.pods])

    def put(self, *things: Any) -> "Shelves":
        by_kind: dict[type, Any] = {
            PersistentVolumeClaim: self.claims,
            PersistentVolume: self.volumes,
            StorageClass: self.classes,
            CSINode: self.csi_nodes,
            CSIDriver: self.drivers,
            CSIStorageCapacity: self.capacities,
            VolumeAttachment: self.attachments,
            Pod: self.pods,
            Node: self.nodes,
        }
        for thing in things:
            by_kind[type(thing)].put(thing)
        return self

    def version(self) -> str:
        self._version += 1
        return str(self._version)

    def change(
        self,
        thing: Any,
        annotations: dict[str, str | None] | None = None,
        *,
        spec: dict[str, Any] | None = None,
        status: dict[str, Any] | None = None,
    ) -> str:
        """Annotations that are None are taken off. Returns the new version."""
        known = {**thing.metadata.annotations, **(annotations or {})}
        meta = msgspec.structs.replace(
            thing.metadata, resource_version=self.version(), annotations={key: value for key, value in known.items() if value is not None}
        )
        new = msgspec.structs.replace(thing, metadata=meta)
        if spec:
            new = msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, **spec))
        if status:
            new = msgspec.structs.replace(new, status=msgspec.structs.replace(new.status, **status))
        self.put(new)
        return str(meta.resource_version)

    # What the binder writes

    async def select(self, claim: PersistentVolumeClaim, node: str) -> str:
        self.acts.append(f"select {node} for {claim.metadata.name}")
        return self.change(claim, {SELECTED_NODE: node})

    async def give(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
        self.acts.append(f"give {volume.metadata.name} to {claim.metadata.name}")
        ref = ObjectReference(namespace="ns", name=claim.metadata.name, uid=claim.metadata.uid)
        return self.change(volume, spec={"claim_ref": ref})

    async def unselect(self, claim: Key, uid: str, node: str) -> None:
        self.acts.append(f"unselect {node} for {claim.name}")
        now = self.claims.by_key(claim)
        if now is not None and now.metadata.uid == uid and not now.spec.volume_name:
            self.change(now, {SELECTED_NODE: None})

    async def take_back(self, volume: str, claim: Key, uid: str, *, by_name: bool) -> None:
        assert uid and not by_name
        self.acts.append(f"take {volume} back from {claim.name}")
        if (now := self.volumes.get(volume)) is not None:
            self.change(now, spec={"claim_ref": None})

    # What the controllers do

    def controller_binds(self, claim: str, volume: str) -> None:
        here, there = self.claims.get(claim, "ns"), self.volumes.get(volume)
        assert here and there
        ref = ObjectReference(namespace="ns", name=claim, uid=here.metadata.uid)
        self.change(there, spec={"claim_ref": ref}, status={"phase": "Bound"})
        self.change(here, {BIND_COMPLETED: "yes"}, spec={"volume_name": volume}, status={"phase": "Bound"})

    def live(self) -> Volumes:
        """All known, without a server."""
        volumes = Volumes(self.caches(), (self.pods,), self.woken.append)
        volumes.learned()
        return volumes
