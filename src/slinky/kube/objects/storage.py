"""Storage, as far as a scheduler reads it: claims, volumes, classes, and what drivers say of themselves and of nodes."""

from collections.abc import Mapping

from slinky.kube.objects.meta import NOTHING, KubeObject, LabelSelector, ObjectReference, Record
from slinky.kube.objects.placement import NodeSelector
from slinky.kube.objects.pod import ResourceNeeds

__all__ = [
    "AllowedTopology",
    "AttachmentSource",
    "AttachmentSpec",
    "CSIDriver",
    "CSINode",
    "CSINodeDriver",
    "CSIStorageCapacity",
    "CSIVolumeSource",
    "ClaimSpec",
    "ClaimStatus",
    "DriverSpec",
    "DriversOnNode",
    "InTreeSource",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "TopologyRequirement",
    "VolumeAttachment",
    "VolumeNodeAffinity",
    "VolumeRoom",
    "VolumeSpec",
    "VolumeStatus",
]

CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"  # older than the field, and goes before it
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


class ClaimSpec(Record, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceNeeds = ResourceNeeds()


class ClaimStatus(Record, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(KubeObject, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def class_name(self) -> str:
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name or "")

    @property
    def is_bound(self) -> bool:
        """On both sides: the controller has finished."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def size(self) -> str:
        """Empty where it asks for none."""
        return str(self.spec.resources.requests.get("storage", ""))


class VolumeNodeAffinity(Record, frozen=True):
    required: NodeSelector | None = None


class CSIVolumeSource(Record, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class InTreeSource(Record, frozen=True):
    """That it is there is all we read."""


class VolumeSpec(Record, frozen=True):
    """Of the places a volume can be, those that a CSI driver attaches to nodes, by itself or in the stead of an older plugin."""

    capacity: Mapping[str, str] = NOTHING
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    aws_elastic_block_store: InTreeSource | None = None
    gce_persistent_disk: InTreeSource | None = None
    azure_disk: InTreeSource | None = None
    cinder: InTreeSource | None = None
    portworx_volume: InTreeSource | None = None


class VolumeStatus(Record, frozen=True):
    phase: str = ""


class PersistentVolume(KubeObject, frozen=True):
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def class_name(self) -> str:
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name)


class TopologyRequirement(Record, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class AllowedTopology(Record, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(KubeObject, frozen=True):
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[AllowedTopology, ...] = ()


class VolumeRoom(Record, frozen=True):
    count: int | None = None


class CSINodeDriver(Record, frozen=True):
    name: str = ""
    allocatable: VolumeRoom | None = None


class DriversOnNode(Record, frozen=True):
    drivers: tuple[CSINodeDriver, ...] | None = ()


class CSINode(KubeObject, frozen=True):
    spec: DriversOnNode = DriversOnNode()


class DriverSpec(Record, frozen=True):
    storage_capacity: bool | None = False
    prevent_pod_scheduling_if_missing: bool | None = False


class CSIDriver(KubeObject, frozen=True):
    spec: DriverSpec = DriverSpec()


class CSIStorageCapacity(KubeObject, frozen=True):
    """`node_topology` None: reachable from no node."""

    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | None = None
    maximum_volume_size: str | None = None


class AttachmentSource(Record, frozen=True):
    persistent_volume_name: str = ""


class AttachmentSpec(Record, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(KubeObject, frozen=True):
    spec: AttachmentSpec = AttachmentSpec()
