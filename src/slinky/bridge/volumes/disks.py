"""Disks that pods name themselves, without a claim, and that two pods on a node cannot have at once. Pure, over the stock.

What must stay true: as kube-scheduler's VolumeRestrictions says: a disk of AWS in one pod only; those of GCE, iSCSI and Ceph in several if all only read.
"""

from slinky.bridge.volumes.stock import Stock
from slinky.kube import Pod
from slinky.kube.objects import Volume

__all__ = ["disk_refusal", "own_disks"]


def own_disks(pod: Pod) -> tuple[Volume, ...]:
    """Those that another pod on the node may be in the way of."""
    return tuple(
        volume for volume in pod.spec.volumes if volume.gce_persistent_disk or volume.aws_elastic_block_store or volume.iscsi or volume.rbd
    )


def disk_refusal(pod: Pod, node: str, stock: Stock) -> str:
    """Empty where no other pod on the node has a disk that this one wants for itself."""
    wanted = own_disks(pod)
    if not wanted:
        return ""
    for other in stock.pods_with_volumes(node):
        if other.metadata.uid != pod.metadata.uid:
            for mine in wanted:
                if any(_conflict(mine, theirs) for theirs in other.spec.volumes):
                    return f"pod {other.key} on node {node} has the disk of volume {mine.name} already"
    return ""


def _conflict(mine: Volume, theirs: Volume) -> bool:
    if mine.aws_elastic_block_store and theirs.aws_elastic_block_store:
        return mine.aws_elastic_block_store.volume_id == theirs.aws_elastic_block_store.volume_id
    if mine.gce_persistent_disk and theirs.gce_persistent_disk:
        here, there = mine.gce_persistent_disk, theirs.gce_persistent_disk
        return here.pd_name == there.pd_name and not (here.read_only and there.read_only)
    if mine.iscsi and theirs.iscsi:
        return mine.iscsi.iqn == theirs.iscsi.iqn and not (mine.iscsi.read_only and theirs.iscsi.read_only)
    if mine.rbd and theirs.rbd:
        same = (mine.rbd.pool, mine.rbd.image) == (theirs.rbd.pool, theirs.rbd.image) and set(mine.rbd.monitors) & set(theirs.rbd.monitors)
        return bool(same) and not (mine.rbd.read_only and theirs.rbd.read_only)
    return False
