"""What is known of storage and of who uses it: the caches, with what we have decided and the watch has not shown yet laid over them.

Comes in: caches of claims, volumes, classes, drivers and pods; decisions of our own, from the moment they are made. Goes out: reads. What must stay true: what one pod was promised is not free for the next, from the decision until the server
shows it or it is taken back; a pod uses its claims from the moment we decide to bind it, seen or not, until it is over.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from slinky.kube import Cache, Change, Key, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from slinky.kube.objects import CSIDriver, CSINode, CSIStorageCapacity, ObjectReference, VolumeAttachment

__all__ = ["SELECTED_NODE", "Stock", "StorageCaches", "claim_names"]

K = TypeVar("K")
SELECTED_NODE = "volume.kubernetes.io/selected-node"


def claim_names(pod: Pod) -> list[str]:
    """Of all its claims, once each; those of generic ephemeral volumes are called POD-VOLUME."""
    names = [
        volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim else f"{pod.metadata.name}-{volume.name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim or volume.ephemeral is not None
    ]
    return list(dict.fromkeys(names))


class StorageCaches(msgspec.Struct, frozen=True, kw_only=True):
    claims: Cache[PersistentVolumeClaim]
    volumes: Cache[PersistentVolume]
    classes: Cache[StorageClass]
    csi_nodes: Cache[CSINode]
    drivers: Cache[CSIDriver]
    capacities: Cache[CSIStorageCapacity]
    attachments: Cache[VolumeAttachment]


class Stock:
    """`pods` are the caches that together hold all pods. `released(claim)` is called when a pod lets go of a claim."""

    def __init__(self, caches: StorageCaches, pods: Iterable[Cache[Pod]]) -> None:
        self._caches = caches
        self._pods = list(pods)
        self.released: Callable[[Key], None] = lambda _: None
        self._selected: dict[Key, str] = {}
        self._given: dict[str, PersistentVolumeClaim] = {}
        self._receiving: set[Key] = set()
        self._coming: dict[str, tuple[Pod, str]] = {}  # UID → pod that is being bound, and its node
        self._coming_to: dict[str, dict[str, Pod]] = {}  # the same by node
        self._coming_for: dict[Key, dict[str, Pod]] = {}  # and by claim
        caches.volumes.add_index("free", lambda volume: [volume.class_name] if volume.spec.claim_ref is None else [])
        caches.volumes.add_index("claim", lambda volume: [f"{ref.namespace}/{ref.name}"] if (ref := volume.spec.claim_ref) else [])
        caches.capacities.add_index("class", lambda capacity: [capacity.storage_class_name])
        caches.attachments.add_index("node", lambda attachment: [attachment.spec.node_name])
        for cache in self._pods:
            cache.add_index(
                "claim", lambda pod: [f"{pod.metadata.namespace}/{name}" for name in claim_names(pod)] if _is_there(pod) else []
            )
            cache.add_index("node with volumes", lambda pod: [pod.spec.node_name] if pod.spec.volumes and _is_there(pod) else [])
            cache.subscribe(self._pod_changed, replay=False)

    # Reading

    def claim(self, key: Key) -> PersistentVolumeClaim | None:
        return self._caches.claims.by_key(key)

    def selected_node(self, claim: PersistentVolumeClaim) -> str | None:
        """Where its volume is to be made, by our own decision or as it is written."""
        return self._selected.get(claim.key, claim.metadata.annotations.get(SELECTED_NODE))

    def volume(self, name: str) -> PersistentVolume | None:
        found = self._caches.volumes.get(name)
        return self._with_claim(found) if found is not None else None

    def seen_volume(self, name: str) -> PersistentVolume | None:
        """As the watch shows it, without our decisions: to be written upon."""
        return self._caches.volumes.get(name)

    def volumes_for(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Those of its class that are no other claim's, by what is written and by our own decisions. A class may have thousands of volumes that are other claims' already: they are not looked at."""
        named = (volume for volume in self._caches.volumes.by_index("claim", str(claim.key)) if volume.class_name == claim.class_name)
        free = map(self._with_claim, self._caches.volumes.by_index("free", claim.class_name))
        return [*map(self._with_claim, named), *(volume for volume in free if _may_be(volume, claim.key))]

    def storage_class(self, name: str) -> StorageClass | None:
        return self._caches.classes.get(name) if name else None

    def csi_node(self, node: str) -> CSINode | None:
        return self._caches.csi_nodes.get(node)

    def driver(self, name: str) -> CSIDriver | None:
        return self._caches.drivers.get(name)

    def capacities(self, class_name: str) -> Sequence[CSIStorageCapacity]:
        return self._caches.capacities.by_index("class", class_name)

    def attachments(self, node: str) -> Sequence[VolumeAttachment]:
        return self._caches.attachments.by_index("node", node)

    def users(self, claim: Key) -> list[Pod]:
        """Pods on nodes, or on their way there, that use it."""
        there = {pod.metadata.uid: pod for cache in self._pods for pod in cache.by_index("claim", str(claim))}
        return list((self._coming_for.get(claim, {}) | there).values())

    def pods_with_volumes(self, node: str) -> list[Pod]:
        there = {pod.metadata.uid: pod for cache in self._pods for pod in cache.by_index("node with volumes", node)}
        return list((self._coming_to.get(node, {}) | there).values())

    def is_on_its_way(self, claim: PersistentVolumeClaim) -> bool:
        """Whether we have begun to bind it, for whichever pod."""
        return claim.key in self._selected or claim.key in self._receiving

    # What we have decided

    def select(self, claim: Key, node: str) -> None:
        self._selected[claim] = node

    def give(self, volume: str, claim: PersistentVolumeClaim) -> None:
        self._given[volume] = claim
        self._receiving.add(claim.key)

    def expect(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        self._expect_no_more(uid)
        self._coming[uid] = (pod, node)
        self._coming_to.setdefault(node, {})[uid] = pod
        for claim in _claims(pod):
            self._coming_for.setdefault(claim, {})[uid] = pod

    def unselect(self, claim: Key) -> None:
        self._selected.pop(claim, None)

    def take_back(self, volume: str) -> None:
        if claim := self._given.pop(volume, None):
            self._receiving.discard(claim.key)

    def expect_no_more(self, pod: Pod) -> None:
        if self._expect_no_more(pod.metadata.uid):
            self._let_go(pod)

    def _expect_no_more(self, uid: str) -> bool:
        """Whether it was expected."""
        found = self._coming.pop(uid, None)
        if found is None:
            return False
        pod, node = found
        _drop(self._coming_to, node, uid)
        for claim in _claims(pod):
            _drop(self._coming_for, claim, uid)
        return True

    def forget_decisions(self) -> None:
        """Of an earlier time of leading."""
        self._selected.clear()
        self._given.clear()
        self._receiving.clear()
        self._coming.clear()
        self._coming_to.clear()
        self._coming_for.clear()

    def _with_claim(self, volume: PersistentVolume) -> PersistentVolume:
        claim = self._given.get(volume.metadata.name)
        ref = volume.spec.claim_ref
        if claim is None or (ref is not None and ref.uid):
            return volume
        ref = ObjectReference(namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid)
        return msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, claim_ref=ref))

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if new is not None and (new.spec.node_name or new.is_over):
            self._expect_no_more(new.metadata.uid)
        elif new is None and old is not None:
            self._expect_no_more(old.metadata.uid)
        if old is not None and old.spec.volumes and (new is None or new.is_over) and not old.is_over:
            self._let_go(old)

    def _let_go(self, pod: Pod) -> None:
        for name in claim_names(pod):
            self.released(Key(pod.metadata.namespace, name))


def _may_be(volume: PersistentVolume, claim: Key) -> bool:
    ref = volume.spec.claim_ref
    return ref is None or (ref.namespace, ref.name) == claim


def _claims(pod: Pod) -> list[Key]:
    return [Key(pod.metadata.namespace, name) for name in claim_names(pod)]


def _drop(held: dict[K, dict[str, Pod]], key: K, uid: str) -> None:
    there = held.get(key)
    if there is not None and there.pop(uid, None) is not None and not there:
        del held[key]


def _is_there(pod: Pod) -> bool:
    return bool(pod.spec.volumes and pod.spec.node_name) and not pod.is_over
