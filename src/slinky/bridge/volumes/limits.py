"""How many volumes of a driver a node can have attached. Pure, over the stock.

*Invariants:* a volume counts once, however many pods use it and whether it is attached or about to be. A
claim that has no volume yet counts as one of the driver that will make it. What a node has is counted once
until it changes.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from slinky.bridge.volumes.stock import Attached, NodeUse, Stock, claim_names
from slinky.kube import Key, PersistentVolume, PersistentVolumeClaim, Pod
from slinky.kube.objects import CSINode, Volume

__all__ = ["Counted", "Limits", "counted", "limit_refusal"]

# Drivers that took the place of the plugins that once were in Kubernetes itself.
SUCCESSORS = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
NOT_COUNTED = {"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume", "kubernetes.io/rbd"}

# Driver, whether it counts on nodes without a CSINode too, handle ("" if new on every node), number.
Counted = tuple[str, bool, str, int]


class Limits:
    """Of one pod; then quick for each node."""

    def __init__(self, pod: Pod, stock: Stock) -> None:
        self._uid = pod.metadata.uid
        self._stock = stock
        self._wanted = {has: frozenset(_volumes(pod, stock, has_csi_node=has)) for has in (False, True)}
        self._drivers = {has: sorted({driver for driver, _ in wanted}) for has, wanted in self._wanted.items()}

    def refusal(self, node: str) -> str:
        """Empty where the node can have this pod's volumes as well."""
        csi_node = self._stock.csi_node(node)
        wanted, drivers = self._wanted[csi_node is not None], self._drivers[csi_node is not None]
        for driver in drivers:
            if _is_missed(driver, csi_node, self._stock):
                return f"CSI driver {driver} is not on node {node}"
        limits = _limits(csi_node)
        if limits.keys().isdisjoint(drivers):
            return ""
        use = self._stock.use_of(node, lambda: _use_of(node, self._stock))
        if self._uid in use.pods:
            use = _use_of(node, self._stock, but=self._uid)
        for driver, limit in limits.items():
            new = sum(kind == driver for kind, _ in wanted - use.used)
            held = use.held[driver]
            if new and held + new > limit:
                return f"node {node} can have {limit} volumes of CSI driver {driver}: {held} are there, {new} more would come"
        return ""


def limit_refusal(pod: Pod, node: str, stock: Stock) -> str:
    """Empty where the node can have this pod's volumes as well."""
    return Limits(pod, stock).refusal(node)


def _use_of(node: str, stock: Stock, but: str = "") -> NodeUse:
    """`but` is the UID of a pod that does not count."""
    has = stock.csi_node(node) is not None
    pods = [pod for pod in stock.pods_with_volumes(node) if pod.metadata.uid != but]
    used = frozenset(chain.from_iterable(_volumes(pod, stock, has_csi_node=has) for pod in pods))
    held = Counter(driver for driver, _ in used.union(_attached(node, stock)))
    return NodeUse(frozenset(pod.metadata.uid for pod in pods), used, held)


def counted(pod: Pod, stock: Stock) -> tuple[Counted, ...]:
    """All that matters of a pod's volumes to the limits of nodes; nothing where no node limits their drivers.

    A volume that other pods use already is new on some nodes only, and named.
    """
    found: Counter[tuple[str, bool, str]] = Counter()
    for name in claim_names(pod):
        claim = stock.claim(Key(pod.metadata.namespace, name))
        attached = _attached_as(claim, stock, has_csi_node=True) if claim is not None else None
        if claim is None or attached is None or not stock.has_limit(attached[0]):
            continue
        everywhere = _attached_as(claim, stock, has_csi_node=False) is not None
        is_new = stock.is_used_by_none(claim, pod) and stock.is_one_disk(attached)
        found[attached[0], everywhere, "" if is_new else attached[1]] += 1
    for volume in pod.spec.volumes:
        if (disk := _disk(volume)) and stock.has_limit(disk[0]):
            found[disk[0], False, disk[1]] += 1
    return tuple(sorted((*what, number) for what, number in found.items()))


def _volumes(pod: Pod, stock: Stock, *, has_csi_node: bool) -> Iterable[Attached]:
    for name in claim_names(pod):
        claim = stock.claim(Key(pod.metadata.namespace, name))
        if claim is not None and (found := _attached_as(claim, stock, has_csi_node=has_csi_node)):
            yield found
    for volume in pod.spec.volumes:
        if has_csi_node and (disk := _disk(volume)):
            yield disk


def _attached_as(claim: PersistentVolumeClaim, stock: Stock, *, has_csi_node: bool) -> Attached | None:
    volume = stock.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        if volume.spec.csi:
            return (volume.spec.csi.driver, volume.spec.csi.volume_handle) if volume.spec.csi.volume_handle else None
        plugin = _plugin(volume)
        return (SUCCESSORS[plugin], f"in-tree volume {volume.metadata.name}") if plugin and has_csi_node else None
    storage = stock.storage_class(claim.class_name)
    if storage is None or storage.provisioner in NOT_COUNTED:
        return None
    handle = f"for claim {claim.key}"
    if storage.provisioner in SUCCESSORS:
        return (SUCCESSORS[storage.provisioner], handle) if has_csi_node else None
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
