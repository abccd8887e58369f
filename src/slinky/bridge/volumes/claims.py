"""Where a pod's claims let it run. Pure, over the stock.

Comes in: a pod, a node, what is known of storage. Goes out: why the pod has to wait wherever it would run; why one node will not do; or what is to be bound or made there. What must stay true: the answer is kube-scheduler's own (its plugins
VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits), no stricter and no laxer.
"""

from collections.abc import Sequence

import msgspec

from slinky.bridge.volumes.disks import disk_refusal
from slinky.bridge.volumes.limits import limit_refusal
from slinky.bridge.volumes.matching import Candidates, Labels, node_suits, selected, size_of, topology_admits, zones_admit
from slinky.bridge.volumes.stock import Stock, claim_names
from slinky.kube import Key, Node, PersistentVolumeClaim, Pod
from slinky.kube.quantities import quantity, whole

__all__ = ["Found", "Judgement", "claim_waits"]

NO_PROVISIONER = "kubernetes.io/no-provisioner"
ONE_POD = "ReadWriteOncePod"


class Found(msgspec.Struct, frozen=True):
    """What is to be done before the pod can be bound to the node: volumes to be given to claims, and claims whose volume is to be made there. Nothing of either where all are bound."""

    static: tuple[tuple[str, Key], ...] = ()
    provision: tuple[Key, ...] = ()


class Judgement:
    """Of one pod; then quick for each node. It knows the stock as it was at the beginning: make another after a change."""

    def __init__(self, pod: Pod, stock: Stock) -> None:
        self._pod = pod
        self._stock = stock
        self._names = claim_names(pod)
        self._delayed: list[PersistentVolumeClaim] = []
        self._bound: list[PersistentVolumeClaim] = []
        self.waits = ""  # why the pod cannot run anywhere yet
        for name in self._names:
            claim = stock.claim(Key(pod.metadata.namespace, name))
            self.waits = self.waits or claim_waits(pod, name, claim, stock)
            if claim is not None and claim.is_bound:
                self._bound.append(claim)
            elif claim is not None and not stock.is_on_its_way(claim):  # else it will be bound in a moment: then its volume decides
                self._delayed.append(claim)
        self._candidates: dict[Key, Candidates] = {}
        if not self.waits:
            self._candidates = {claim.key: Candidates(claim, stock.volumes_for(claim)) for claim in self._delayed}
            self.waits = self._used_by_another()

    def refusal(self, node: Node) -> str:
        """Empty where the pod's volumes can be had on that node."""
        found = self.find(node)
        return found if isinstance(found, str) else ""

    def find(self, node: Node) -> Found | str:
        """What is to be done for its claims on that node, or why they cannot be had there."""
        if self.waits:
            return self.waits
        name, labels = node.metadata.name, node.metadata.labels
        if problem := self._bound_elsewhere(name, labels):
            return problem
        static, provision, problem = self._unbound(name, labels)
        if problem := problem or self._cannot_be_made(provision, name, labels) or self._too_much(name):
            return problem
        return Found(tuple(static), tuple(claim.key for claim in provision))

    def _too_much(self, node: str) -> str:
        return disk_refusal(self._pod, node, self._stock) or limit_refusal(self._pod, node, self._stock)

    def _bound_elsewhere(self, node: str, labels: Labels) -> str:
        ephemeral = {f"{self._pod.metadata.name}-{volume.name}" for volume in self._pod.spec.volumes if volume.ephemeral is not None}
        for claim in self._bound:
            volume = self._stock.volume(claim.spec.volume_name)
            if volume is None:
                return f"volume {claim.spec.volume_name} of claim {claim.key} does not exist"
            if not node_suits(volume, labels):
                return f"volume {volume.metadata.name} of claim {claim.key} cannot be had on node {node}, by the volume's node affinity"
            if claim.metadata.name not in ephemeral and not zones_admit(volume, labels):
                return f"volume {volume.metadata.name} of claim {claim.key} is in another zone than node {node}"
        return ""

    def _unbound(self, node: str, labels: Labels) -> tuple[list[tuple[str, Key]], list[PersistentVolumeClaim], str]:
        """The smallest claims choose first."""
        provision, choosing = [], []
        for claim in self._delayed:
            where = self._stock.selected_node(claim)
            if where is None:
                choosing.append(claim)
            elif where == node:
                provision.append(claim)
            else:
                return [], [], f"the volume of claim {claim.key} is being made for node {where}"
        static: dict[str, Key] = {}
        for claim in sorted(choosing, key=size_of):
            if volume := self._candidates[claim.key].best(labels, static):
                static[volume.metadata.name] = claim.key
            else:
                provision.append(claim)
        return list(static.items()), provision, ""

    def _cannot_be_made(self, claims: Sequence[PersistentVolumeClaim], node: str, labels: Labels) -> str:
        for claim in claims:
            storage = self._stock.storage_class(claim.class_name)
            if storage is None:
                return f"storage class {claim.class_name} of claim {claim.key} does not exist"
            if storage.provisioner in ("", NO_PROVISIONER):
                return f"no free volume of class {claim.class_name} suits claim {claim.key} on node {node}"
            if not topology_admits(storage.allowed_topologies, labels):
                return f"class {claim.class_name} of claim {claim.key} makes no volumes for node {node}, by its allowedTopologies"
            if not self._has_room(claim, storage.provisioner, labels):
                return f"CSI driver {storage.provisioner} has no room for claim {claim.key} ({claim.size}) on node {node}"
        return ""

    def _has_room(self, claim: PersistentVolumeClaim, provisioner: str, labels: Labels) -> bool:
        """Of drivers that publish what room they have."""
        driver = self._stock.driver(provisioner)
        if not claim.size or driver is None or not driver.spec.storage_capacity:
            return True
        for capacity in self._stock.capacities(claim.class_name):
            room = capacity.maximum_volume_size or capacity.capacity
            if (
                room
                and capacity.node_topology is not None
                and whole(quantity(room)) >= whole(size_of(claim))
                and selected(capacity.node_topology, labels)
            ):
                return True
        return False

    def _used_by_another(self) -> str:
        """Claims that one pod alone may use; those of generic ephemeral volumes are the pod's own anyway."""
        for volume in self._pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            claim = self._stock.claim(Key(self._pod.metadata.namespace, volume.persistent_volume_claim.claim_name))
            if claim is None or ONE_POD not in claim.spec.access_modes:
                continue
            for user in self._stock.users(claim.key):
                if user.metadata.uid != self._pod.metadata.uid and _uses_by_name(user, claim.metadata.name):
                    return f"claim {claim.key} may be used by one pod at a time ({ONE_POD}), and pod {user.key} uses it"
        return ""


def claim_waits(pod: Pod, name: str, claim: PersistentVolumeClaim | None, stock: Stock) -> str:
    """Why a pod with this claim can run nowhere yet; empty where it is bound, or is bound for the node that the pod gets."""
    key = Key(pod.metadata.namespace, name)
    ephemeral = any(volume.ephemeral is not None and f"{pod.metadata.name}-{volume.name}" == name for volume in pod.spec.volumes)
    if claim is None:
        return f"claim {key} is not there yet: the ephemeral volume controller makes it" if ephemeral else f"claim {key} does not exist"
    if ephemeral and not any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
        return f"claim {key} was not made for this pod, though the pod's ephemeral volume needs that name"
    if claim.status.phase == "Lost":
        return f"claim {key} has lost its volume {claim.spec.volume_name}"
    if claim.metadata.deletion_timestamp is not None:
        return f"claim {key} is being deleted"
    if claim.is_bound:
        return ""
    storage = stock.storage_class(claim.class_name)
    if claim.spec.volume_name:
        return f"claim {key} is not bound yet to volume {claim.spec.volume_name}, which it asks for"
    if storage is None and claim.class_name:
        return f"claim {key} is not bound yet, and its storage class {claim.class_name} does not exist"
    if storage is None or storage.volume_binding_mode != "WaitForFirstConsumer":
        return f"claim {key} is not bound yet"
    return ""


def _uses_by_name(pod: Pod, claim: str) -> bool:
    return any(
        volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name == claim for volume in pod.spec.volumes
    )
