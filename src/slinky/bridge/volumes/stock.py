"""What is known of storage and of the pods that use it: the caches, and our decisions that they do not show yet.

*Invariants:* what one pod was promised is not free for the next, from the decision until the server shows it
or it is taken back. A pod uses its claims from the moment we decide to bind it, seen or not, until it is
over. Free volumes and room are kept in order as they change: no question walks over all of them. A
`Listener` hears of each change that can make a difference, and of no other.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from slinky.bridge.volumes.matching import Rooms, Shelf, room_of
from slinky.kube import Cache, Change, Key, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from slinky.kube.objects import CSIDriver, CSINode, CSIStorageCapacity, ObjectReference, VolumeAttachment

__all__ = ["SELECTED_NODE", "Attached", "Listener", "NodeUse", "Stock", "StorageCaches", "claim_names"]

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


Attached = tuple[str, str]  # driver, handle


class NodeUse(NamedTuple):
    """What is on a node: pods with volumes, by UID, what they use, and how many volumes each driver has."""

    pods: frozenset[str]
    used: frozenset[Attached]
    held: Counter[str]


class Listener:
    """Is told what has changed in the stock. It does nothing; subclasses override what they need."""

    def on_node(self, node: str, /) -> None:
        """The pods, disks or drivers on a node."""

    def on_claim(self, claim: Key, /) -> None:
        """A claim, its volume, or what we have decided for it."""

    def on_shelf(self, class_name: str, /) -> None:
        """The free volumes of a class."""

    def on_room(self, class_name: str, low: int, high: int, /) -> None:
        """A driver's room for a class: volumes of more than `low` and at most `high` bytes may fit or not."""

    def on_class(self, class_name: str, /) -> None:
        """A class itself."""

    def on_driver(self) -> None:
        """What a driver says of itself."""


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
        self.listeners: list[Listener] = []
        self._shelves: dict[str, Shelf] = {}
        self._shelved: dict[str, str] = {}  # free volume → its class
        self._rooms: dict[str, Rooms] = {}
        self._uses: dict[str, NodeUse] = {}  # by node
        self._limited: Counter[str] = Counter()  # driver → nodes that have a limit for it
        caches.volumes.add_index("disk", lambda volume: [str(disk)] if (disk := _disk_of(volume)) else [])
        caches.volumes.add_index("claim", lambda volume: [f"{ref.namespace}/{ref.name}"] if (ref := volume.spec.claim_ref) else [])
        caches.claims.add_index("volume", lambda claim: [claim.spec.volume_name] if claim.spec.volume_name else [])
        caches.attachments.add_index("volume", lambda attachment: [attachment.spec.source.persistent_volume_name])
        caches.attachments.add_index("node", lambda attachment: [attachment.spec.node_name])
        for cache in self._pods:
            cache.add_index(
                "claim", lambda pod: [f"{pod.metadata.namespace}/{name}" for name in claim_names(pod)] if _is_there(pod) else []
            )
            cache.add_index("node with volumes", lambda pod: [pod.spec.node_name] if pod.spec.volumes and _is_there(pod) else [])
            cache.subscribe(self._pod_changed, replay=False)
        caches.claims.subscribe(self._claim_changed)
        caches.volumes.subscribe(self._volume_changed)
        caches.classes.subscribe(self._class_changed)
        caches.csi_nodes.subscribe(self._csi_node_changed)
        caches.drivers.subscribe(self._driver_changed)
        caches.capacities.subscribe(self._capacity_changed)
        caches.attachments.subscribe(self._attachment_changed)

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
        """Those of its class that name it, by what is written: free ones are on the class's shelf."""
        named = (volume for volume in self._caches.volumes.by_index("claim", str(claim.key)) if volume.class_name == claim.class_name)
        return [*map(self._with_claim, named)]

    def shelf(self, class_name: str) -> Shelf:
        """The volumes of a class that no claim has, by what is written and by our own decisions. Live."""
        return self._shelves.get(class_name, NO_VOLUMES)

    def storage_class(self, name: str) -> StorageClass | None:
        return self._caches.classes.get(name) if name else None

    def csi_node(self, node: str) -> CSINode | None:
        return self._caches.csi_nodes.get(node)

    def driver(self, name: str) -> CSIDriver | None:
        return self._caches.drivers.get(name)

    def rooms(self, class_name: str) -> Rooms:
        """Where drivers say that they have room for volumes of a class. It is live."""
        return self._rooms.get(class_name, NO_ROOM)

    def has_limit(self, driver: str) -> bool:
        """Whether some node may refuse a pod for a volume of this driver."""
        known = self._caches.drivers.get(driver)
        return driver in self._limited or bool(known and known.spec.prevent_pod_scheduling_if_missing)

    def is_one_disk(self, disk: Attached) -> bool:
        """Whether at most one volume stands for it: a driver and its handle."""
        return self._caches.volumes.count("disk", str(disk)) < 2

    def is_used_by_none(self, claim: PersistentVolumeClaim, but: Pod) -> bool:
        """Whether no other pod on a node has it, or another claim its volume. `but` has no node yet."""
        name = claim.spec.volume_name
        if name and self._caches.claims.count("volume", name) > 1:
            return False
        coming = self._coming_for.get(claim.key, {})
        if len(coming) > (but.metadata.uid in coming):
            return False
        return not any(cache.count("claim", str(claim.key)) for cache in self._pods)

    def is_expected(self, uid: str) -> bool:
        """Whether the pod is on its way to a node."""
        return uid in self._coming

    def attachments(self, node: str) -> Sequence[VolumeAttachment]:
        return self._caches.attachments.by_index("node", node)

    def users(self, claim: Key) -> list[Pod]:
        """Pods on nodes, or on their way there, that use it."""
        there = {pod.metadata.uid: pod for cache in self._pods for pod in cache.by_index("claim", str(claim))}
        return list((self._coming_for.get(claim, {}) | there).values())

    def pods_with_volumes(self, node: str) -> list[Pod]:
        there = {pod.metadata.uid: pod for cache in self._pods for pod in cache.by_index("node with volumes", node)}
        return list((self._coming_to.get(node, {}) | there).values())

    def use_of(self, node: str, count: Callable[[], NodeUse]) -> NodeUse:
        """What is on a node, counted where it has changed."""
        found = self._uses.get(node)
        if found is None:
            found = self._uses[node] = count()
        return found

    def is_on_its_way(self, claim: PersistentVolumeClaim) -> bool:
        """Whether we have begun to bind it, for whichever pod."""
        return claim.key in self._selected or claim.key in self._receiving

    # What we have decided

    def select(self, claim: Key, node: str) -> None:
        self._selected[claim] = node
        self._tell_of_claim(claim)

    def give(self, volume: str, claim: PersistentVolumeClaim) -> None:
        self._given[volume] = claim
        self._receiving.add(claim.key)
        self._shelve(volume)
        self._tell_of_claim(claim.key)

    def expect(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        self._expect_no_more(uid)
        self._coming[uid] = (pod, node)
        self._coming_to.setdefault(node, {})[uid] = pod
        for claim in _claims(pod):
            self._coming_for.setdefault(claim, {})[uid] = pod
        self._tell_of_node(node)

    def unselect(self, claim: Key) -> None:
        if self._selected.pop(claim, None) is not None:
            self._tell_of_claim(claim)

    def take_back(self, volume: str) -> None:
        if claim := self._given.pop(volume, None):
            self._receiving.discard(claim.key)
            self._shelve(volume)
            self._tell_of_claim(claim.key)

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
        self._tell_of_node(node)
        return True

    def forget_decisions(self) -> None:
        """Of an earlier time of leading."""
        self._selected.clear()
        given, self._given = self._given, {}
        for volume in given:
            self._shelve(volume)
        for node in tuple(self._coming_to):
            self._tell_of_node(node)
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

    # Being told

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        if _claim_says(change.old) != _claim_says(change.new):
            self._tell_of_claim(change.key)

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        if _volume_says(change.old) == _volume_says(change.new):
            return
        self._shelve(change.key.name)
        refs = [found.spec.claim_ref for found in (change.old, change.new) if found is not None]
        claims = {Key(ref.namespace, ref.name) for ref in refs if ref is not None}
        claims |= {claim.key for claim in self._caches.claims.by_index("volume", change.key.name)}
        for claim in claims:
            self._tell_of_claim(claim)
        for attachment in self._caches.attachments.by_index("volume", change.key.name):
            self._tell_of_node(attachment.spec.node_name)

    def _class_changed(self, change: Change[StorageClass]) -> None:
        if _class_says(change.old) != _class_says(change.new):
            self._uses.clear()
            for listener in self.listeners:
                listener.on_class(change.key.name)

    def _driver_changed(self, change: Change[CSIDriver]) -> None:
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            for listener in self.listeners:
                listener.on_driver()

    def _csi_node_changed(self, change: Change[CSINode]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec:
            return
        self._limited.subtract(_limited(old))
        self._limited.update(_limited(new))
        self._limited = +self._limited
        self._tell_of_node(change.key.name)

    def _capacity_changed(self, change: Change[CSIStorageCapacity]) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or new.storage_class_name != old.storage_class_name):
            self._rooms[old.storage_class_name].remove(change.key)
        if new is not None:
            self._rooms.setdefault(new.storage_class_name, Rooms()).put(new)
        if old is not None and new is not None and _reach_of(old) == _reach_of(new):
            low, high = sorted((room_of(old), room_of(new)))
            self._tell_of_room(new.storage_class_name, low, high)
            return
        for capacity in (old, new):
            if capacity is not None:
                self._tell_of_room(capacity.storage_class_name, -1, room_of(capacity))

    def _attachment_changed(self, change: Change[VolumeAttachment]) -> None:
        specs = {found.spec for found in (change.old, change.new) if found is not None}
        if change.old is None or change.new is None or len(specs) > 1:
            for spec in specs:
                self._tell_of_node(spec.node_name)

    def _shelve(self, name: str) -> None:
        """Where it belongs now: on its class's shelf while it is no claim's."""
        before = self._shelved.pop(name, None)
        was = before is not None and self._shelves[before].remove(name)
        volume = self._caches.volumes.get(name)
        if volume is not None and volume.spec.claim_ref is None and name not in self._given:
            self._shelved[name] = volume.class_name
            self._shelves.setdefault(volume.class_name, Shelf()).put(volume)
            self._tell_of_shelf(volume.class_name)
        if was and before is not None and self._shelved.get(name) != before:
            self._tell_of_shelf(before)

    def _tell_of_node(self, node: str) -> None:
        self._uses.pop(node, None)
        for listener in self.listeners:
            listener.on_node(node)

    def _tell_of_claim(self, claim: Key) -> None:
        """What its users have on their nodes depends on it."""
        for listener in self.listeners:
            listener.on_claim(claim)
        for user in self.users(claim):
            _, node = self._coming.get(user.metadata.uid, (user, user.spec.node_name))
            self._tell_of_node(node)

    def _tell_of_shelf(self, class_name: str) -> None:
        for listener in self.listeners:
            listener.on_shelf(class_name)

    def _tell_of_room(self, class_name: str, low: int, high: int) -> None:
        if low < high:
            for listener in self.listeners:
                listener.on_room(class_name, low, high)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if (node := _node_of(old)) != _node_of(new):
            for name in filter(None, (node, _node_of(new))):
                self._tell_of_node(name)
        if new is not None and (new.spec.node_name or new.is_over):
            self._expect_no_more(new.metadata.uid)
        elif new is None and old is not None:
            self._expect_no_more(old.metadata.uid)
        if old is not None and old.spec.volumes and (new is None or new.is_over) and not old.is_over:
            self._let_go(old)

    def _let_go(self, pod: Pod) -> None:
        for name in claim_names(pod):
            self.released(Key(pod.metadata.namespace, name))


def _claims(pod: Pod) -> list[Key]:
    return [Key(pod.metadata.namespace, name) for name in claim_names(pod)]


def _drop(held: dict[K, dict[str, Pod]], key: K, uid: str) -> None:
    there = held.get(key)
    if there is not None and there.pop(uid, None) is not None and not there:
        del held[key]


def _is_there(pod: Pod) -> bool:
    return bool(pod.spec.volumes and pod.spec.node_name) and not pod.is_over


def _node_of(pod: Pod | None) -> str:
    """Where it uses its volumes."""
    return pod.spec.node_name if pod is not None and _is_there(pod) else ""


def _disk_of(volume: PersistentVolume) -> Attached | None:
    """Driver and handle."""
    csi = volume.spec.csi
    return (csi.driver, csi.volume_handle) if csi is not None and csi.volume_handle else None


def _limited(csi_node: CSINode | None) -> list[str]:
    """The drivers for which the node has a limit."""
    drivers = (csi_node.spec.drivers or ()) if csi_node is not None else ()
    return list({driver.name for driver in drivers if driver.allocatable and driver.allocatable.count is not None})


def _claim_says(claim: PersistentVolumeClaim | None) -> object:
    """All that we read of it."""
    if claim is None:
        return None
    meta = claim.metadata
    written = meta.uid, meta.deletion_timestamp is None, meta.annotations.get(SELECTED_NODE)
    return *written, claim.spec, claim.class_name, claim.is_bound, claim.status.phase


def _volume_says(volume: PersistentVolume | None) -> object:
    if volume is None:
        return None
    meta = volume.metadata
    return meta.uid, meta.deletion_timestamp is None, meta.labels, volume.spec, volume.class_name, volume.status.phase


def _class_says(found: StorageClass | None) -> object:
    return (found.provisioner, found.volume_binding_mode, found.allowed_topologies) if found is not None else None


def _reach_of(capacity: CSIStorageCapacity) -> object:
    return capacity.storage_class_name, capacity.node_topology


NO_VOLUMES, NO_ROOM = Shelf(), Rooms()  # nothing is ever put there
