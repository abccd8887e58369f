"""Where a pod's claims let it run. Pure, over the stock.

*Invariants:* the answer is kube-scheduler's own (its plugins VolumeBinding, VolumeZone, VolumeRestrictions
and NodeVolumeLimits), no stricter and no laxer. Two pods whose `facts` are equal are refused by the same
nodes.
"""

from collections.abc import Collection, Hashable, Sequence
from functools import cached_property

import msgspec

from slinky.bridge.volumes.disks import disk_refusal, own_disks
from slinky.bridge.volumes.limits import Counted, Limits, counted
from slinky.bridge.volumes.matching import ZONE_LABELS, Candidates, Labels, node_suits, size_of, topology_admits, zones_admit
from slinky.bridge.volumes.stock import Stock, claim_names
from slinky.kube import Key, Node, PersistentVolumeClaim, Pod
from slinky.kube.objects import Volume
from slinky.kube.quantities import whole

__all__ = ["Found", "Judgement", "claim_waits"]

NO_PROVISIONER = "kubernetes.io/no-provisioner"
ONE_POD = "ReadWriteOncePod"


class Found(msgspec.Struct, frozen=True):
    """What is to be done before the pod can be bound to the node: volumes to be given to claims, and claims whose volume is to be made there. Nothing of either where all are bound."""

    static: tuple[tuple[str, Key], ...] = ()
    provision: tuple[Key, ...] = ()


class Judgement:
    """Of one pod; then quick for each node. Make another after a change of the stock.

    Without `named`, its words fit all pods with the same facts: they name neither claims nor volumes.
    """

    def __init__(self, pod: Pod, stock: Stock, *, named: bool = True) -> None:
        self._pod = pod
        self._stock = stock
        self._named = named
        self._delayed: list[PersistentVolumeClaim] = []
        self._bound: list[PersistentVolumeClaim] = []
        self._chosen: dict[Key, Candidates] = {}
        self.waits = ""  # why the pod cannot run anywhere yet
        for name in claim_names(pod):
            claim = stock.claim(Key(pod.metadata.namespace, name))
            self.waits = self.waits or claim_waits(pod, name, claim, stock)
            if claim is not None and claim.is_bound:
                self._bound.append(claim)
            elif claim is not None and not stock.is_on_its_way(claim):  # else it will be bound in a moment: then its volume decides
                self._delayed.append(claim)
        self.waits = self.waits or self._used_by_another()
        if self.waits and not named:
            self.waits = "a claim of the pod is missing, in use, or not bound yet"

    @property
    def sizes(self) -> dict[str, set[int]]:
        """Of the volumes that are not chosen yet, in bytes, by class."""
        found: dict[str, set[int]] = {}
        for claim in self._delayed:
            found.setdefault(claim.class_name, set()).add(whole(size_of(claim)))
        return found

    @property
    def minds_users(self) -> bool:
        """Whether what other pods have on a node can be in its way there."""
        return bool(self._counted or self._disks)

    def facts(self) -> Hashable:
        """All that matters of the pod's volumes to which nodes refuse it; None where none can.

        The nodes themselves, free volumes, room, and what other pods have on a node are no part of it.
        """
        if self.waits:
            return self.waits
        ephemeral = self._ephemeral()
        bound = frozenset(fact for claim in self._bound if (fact := self._fact_of_bound(claim, ephemeral)) is not None)
        delayed = tuple(map(self._fact_of_delayed, self._delayed))
        if not (bound or delayed or self._counted or self._disks):
            return None
        uid = self._pod.metadata.uid
        itself = uid if self._stock.is_expected(uid) else ""  # it does not stand in its own way
        return bound, delayed, self._counted, self._disks, itself

    def _fact_of_bound(self, claim: PersistentVolumeClaim, ephemeral: Collection[str]) -> Hashable:
        volume = self._stock.volume(claim.spec.volume_name)
        if volume is None:
            return "no volume"
        affinity = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
        labels = volume.metadata.labels if claim.metadata.name not in ephemeral else {}
        zones = tuple((key, labels[key]) for key in ZONE_LABELS if key in labels)
        return (affinity, zones) if affinity is not None or zones else None

    def _fact_of_delayed(self, claim: PersistentVolumeClaim) -> Hashable:
        where = self._stock.selected_node(claim)
        if where is not None:
            return claim.class_name, claim.size, where
        spec, own = claim.spec, self._candidates(claim).own
        said = spec.selector
        selector = said and (tuple(sorted(said.match_labels.items())), said.match_expressions)
        reserved = own.metadata.name if own is not None else ""
        return (
            claim.class_name,
            claim.size,
            spec.volume_mode,
            spec.volume_attributes_class_name,
            spec.access_modes,
            selector,
            reserved,
            own and own.spec.node_affinity,
        )

    def _candidates(self, claim: PersistentVolumeClaim) -> Candidates:
        """Made only where it is asked for: whether a pod waits does not depend on it."""
        found = self._chosen.get(claim.key)
        if found is None:
            named, shelf = self._stock.volumes_for(claim), self._stock.shelf(claim.class_name)
            found = self._chosen[claim.key] = Candidates(claim, named, shelf)
        return found

    def _ephemeral(self) -> set[str]:
        return {f"{self._pod.metadata.name}-{volume.name}" for volume in self._pod.spec.volumes if volume.ephemeral is not None}

    def _claim(self, claim: PersistentVolumeClaim) -> str:
        return f"claim {claim.key}" if self._named else "a claim"

    def _volume(self, name: str, claim: PersistentVolumeClaim) -> str:
        return f"volume {name} of claim {claim.key}" if self._named else "the volume of a claim"

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
        if self._disks and (problem := disk_refusal(self._pod, node, self._stock)):
            return problem
        return self._limits.refusal(node) if self._counted else ""

    @cached_property
    def _disks(self) -> tuple[Volume, ...]:
        return own_disks(self._pod)

    @cached_property
    def _counted(self) -> tuple[Counted, ...]:
        return counted(self._pod, self._stock)

    @cached_property
    def _limits(self) -> Limits:
        return Limits(self._pod, self._stock)

    def _bound_elsewhere(self, node: str, labels: Labels) -> str:
        ephemeral = self._ephemeral() if self._bound else ()
        for claim in self._bound:
            volume = self._stock.volume(claim.spec.volume_name)
            if volume is None:
                return f"{self._volume(claim.spec.volume_name, claim)} does not exist"
            if not node_suits(volume, labels):
                return f"{self._volume(volume.metadata.name, claim)} cannot be had on node {node}, by the volume's node affinity"
            if claim.metadata.name not in ephemeral and not zones_admit(volume, labels):
                return f"{self._volume(volume.metadata.name, claim)} is in another zone than node {node}"
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
                return [], [], f"the volume of {self._claim(claim)} is being made for node {where}"
        static: dict[str, Key] = {}
        for claim in sorted(choosing, key=size_of) if len(choosing) > 1 else choosing:
            if volume := self._candidates(claim).best(labels, static):
                static[volume.metadata.name] = claim.key
            else:
                provision.append(claim)
        return list(static.items()), provision, ""

    def _cannot_be_made(self, claims: Sequence[PersistentVolumeClaim], node: str, labels: Labels) -> str:
        for claim in claims:
            storage = self._stock.storage_class(claim.class_name)
            if storage is None:
                return f"storage class {claim.class_name} of {self._claim(claim)} does not exist"
            if storage.provisioner in ("", NO_PROVISIONER):
                return f"no free volume of class {claim.class_name} suits {self._claim(claim)} on node {node}"
            if not topology_admits(storage.allowed_topologies, labels):
                return f"class {claim.class_name} of {self._claim(claim)} makes no volumes for node {node}, by its allowedTopologies"
            if not self._has_room(claim, storage.provisioner, labels):
                return f"CSI driver {storage.provisioner} has no room for {self._claim(claim)} ({claim.size}) on node {node}"
        return ""

    def _has_room(self, claim: PersistentVolumeClaim, provisioner: str, labels: Labels) -> bool:
        """Of drivers that publish what room they have."""
        driver = self._stock.driver(provisioner)
        if not claim.size or driver is None or not driver.spec.storage_capacity:
            return True
        return self._stock.rooms(claim.class_name).has(whole(size_of(claim)), labels)

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
