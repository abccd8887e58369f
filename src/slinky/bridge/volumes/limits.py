"""How many volumes of a driver a node can have attached. Pure, over the stock.

Comes in: a pod, a node, what is attached and used there. Goes out: nothing, or the driver whose limit this pod would exceed. What must stay true: a volume counts once, however many pods use it and whether it is attached or about to be; a
claim that has no volume yet counts as one of the driver that will make it.
"""

from collections.abc import Iterable
from itertools import chain

from slinky.bridge.volumes.stock import Stock, claim_names
from slinky.kube import Key, PersistentVolume, PersistentVolumeClaim, Pod
from slinky.kube.objects import CSINode, Volume

__all__ = ["limit_refusal"]

# Drivers that took the place of the plugins that once were in Kubernetes itself.
SUCCESSORS = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
NOT_COUNTED = {"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume", "kubernetes.io/rbd"}

Attached = tuple[str, str]  # driver, handle


def limit_refusal(pod: Pod, node: str, stock: Stock) -> str:
    """Empty where the node can have this pod's volumes as well."""
    csi_node = stock.csi_node(node)
    wanted = set(_volumes(pod, csi_node, stock))
    if not wanted:
        return ""
    for driver in sorted({driver for driver, _ in wanted}):
        if _is_missed(driver, csi_node, stock):
            return f"CSI driver {driver} is not on node {node}"
    limits = _limits(csi_node)
    if not limits:
        return ""
    others = (other for other in stock.pods_with_volumes(node) if other.metadata.uid != pod.metadata.uid)
    used = set(chain.from_iterable(_volumes(other, csi_node, stock) for other in others))
    there = used | set(_attached(node, stock))
    for driver, limit in limits.items():
        new = sum(kind == driver for kind, _ in wanted - used)
        held = sum(kind == driver for kind, _ in there)
        if new and held + new > limit:
            return f"node {node} can have {limit} volumes of CSI driver {driver}: {held} are there, {new} more would come"
    return ""


def _volumes(pod: Pod, csi_node: CSINode | None, stock: Stock) -> Iterable[Attached]:
    for name in claim_names(pod):
        claim = stock.claim(Key(pod.metadata.namespace, name))
        if claim is not None and (found := _attached_as(claim, csi_node, stock)):
            yield found
    for volume in pod.spec.volumes:
        if csi_node and (disk := _disk(volume)):
            yield disk


def _attached_as(claim: PersistentVolumeClaim, csi_node: CSINode | None, stock: Stock) -> Attached | None:
    volume = stock.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        if volume.spec.csi:
            return (volume.spec.csi.driver, volume.spec.csi.volume_handle) if volume.spec.csi.volume_handle else None
        plugin = _plugin(volume)
        return (SUCCESSORS[plugin], f"in-tree volume {volume.metadata.name}") if plugin and csi_node else None
    storage = stock.storage_class(claim.class_name)
    if storage is None or storage.provisioner in NOT_COUNTED:
        return None
    handle = f"for claim {claim.key}"
    if storage.provisioner in SUCCESSORS:
        return (SUCCESSORS[storage.provisioner], handle) if csi_node else None
    return (storage.provisioner, handle)


def _disk(volume: Volume) -> Attached | None:
    """One that the pod names itself, without a claim."""
    disks = {
        "kubernetes.io/aws-ebs": volume.aws_elastic_block_store and volume.aws_elastic_block_store.volume_id,
        "kubernetes.io/gce-pd": volume.gce_persistent_disk and volume.gce_persistent_disk.pd_name,
        "kubernetes.io/azure-disk": volume.azure_disk and volume.azure_disk.disk_uri,
        "kubernetes.io/cinder": volume.cinder and volume.cinder.volume_id,
        "kubernetes.io/portworx-volume": volume.portworx_volume and volume.portworx_volume.volume_id,
    }
    return next(((SUCCESSORS[plugin], f"disk {name}") for plugin, name in disks.items() if name), None)


def _attached(node: str, stock: Stock) -> Iterable[Attached]:
    for attachment in stock.attachments(node):
        volume = stock.volume(attachment.spec.source.persistent_volume_name)
        if volume is not None and volume.spec.csi and attachment.spec.attacher:
            yield attachment.spec.attacher, volume.spec.csi.volume_handle


def _plugin(volume: PersistentVolume) -> str:
    spec = volume.spec
    sources = {
        "kubernetes.io/aws-ebs": spec.aws_elastic_block_store,
        "kubernetes.io/gce-pd": spec.gce_persistent_disk,
        "kubernetes.io/azure-disk": spec.azure_disk,
        "kubernetes.io/cinder": spec.cinder,
        "kubernetes.io/portworx-volume": spec.portworx_volume,
    }
    return next((name for name, source in sources.items() if source is not None), "")


def _limits(csi_node: CSINode | None) -> dict[str, int]:
    drivers = (csi_node.spec.drivers or ()) if csi_node else ()
    return {driver.name: driver.allocatable.count for driver in drivers if driver.allocatable and driver.allocatable.count is not None}


def _is_missed(driver: str, csi_node: CSINode | None, stock: Stock) -> bool:
    """Only of a driver that asks for it."""
    known = stock.driver(driver)
    if known is None or not known.spec.prevent_pod_scheduling_if_missing:
        return False
    return csi_node is None or all(found.name != driver for found in csi_node.spec.drivers or ())
