"""Which volume suits which claim, and which node suits which volume. Pure.

*Invariants:* the rules are Kubernetes' own, in their smallest detail, for its controller has the last word
on each binding. Of several volumes that fit, the smallest is taken, and of equals always the same.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from slinky.bridge.eligibility.selectors import Requirement, SelectorError, meets, requirement_of
from slinky.kube import Key, PersistentVolume, PersistentVolumeClaim
from slinky.kube.objects import CSIStorageCapacity, LabelSelector, SelectorRequirement
from slinky.kube.objects.storage import AllowedTopology
from slinky.kube.quantities import quantity, whole

__all__ = [
    "ZONE_LABELS",
    "Candidates",
    "Labels",
    "Rooms",
    "Shelf",
    "is_for",
    "node_suits",
    "room_of",
    "selected",
    "size_of",
    "topology_admits",
    "zones_admit",
]

Labels = Mapping[str, str]
Names = tuple[str, ...]
Values = tuple[str | None, ...]  # of labels
Pin = tuple[str, str]  # a label of nodes, and its value
Size = int | Fraction  # in bytes
LOOSE: list[Pin | None] = [None]
Place = tuple[Size, str]  # size and name, by which volumes are in order

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_NAMES = {"failure-domain.beta.kubernetes.io/zone": ZONE, "failure-domain.beta.kubernetes.io/region": REGION}
ZONE_LABELS = (*OLD_NAMES, ZONE, REGION)
ALL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


@lru_cache(4096)
def _requirement(said: SelectorRequirement) -> Requirement | None:
    """None where it cannot be read, and so never met."""
    try:
        return requirement_of(said, ALL_OPERATORS)
    except SelectorError:
        return None


def _meets(said: SelectorRequirement, labels: Labels) -> bool:
    wanted = _requirement(said)
    return wanted is not None and meets(labels, wanted)


def selected(selector: LabelSelector, labels: Labels) -> bool:
    """An empty selector selects all."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_meets(wanted, labels) for wanted in selector.match_expressions)


def node_suits(volume: PersistentVolume, labels: Labels) -> bool:
    """By its node affinity: one of its terms, of which an empty one is none. The node's own name is not looked at, as in kube-scheduler."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(
        all(_meets(wanted, labels) for wanted in term.match_expressions)
        for term in affinity.required.node_selector_terms
        if term.match_expressions or term.match_fields
    )


def zones_admit(volume: PersistentVolume, labels: Labels) -> bool:
    """By labels of zone and region on the volume itself, from before there was affinity. A node that has none of them is in a cluster of one zone."""
    if not any(key in labels for key in ZONE_LABELS):
        return True
    for key in ZONE_LABELS:
        if (said := volume.metadata.labels.get(key)) is None:
            continue
        zones = {zone.strip() for zone in said.split("__")}
        if "" in zones:
            continue  # not readable, and so not heeded
        if labels.get(key, labels.get(OLD_NAMES.get(key, key))) not in zones:
            return False
    return True


def topology_admits(allowed: Sequence[AllowedTopology], labels: Labels) -> bool:
    """A class's allowedTopologies; none means everywhere."""
    return not allowed or any(
        all(labels.get(wanted.key) in wanted.values for wanted in term.match_label_expressions)
        for term in allowed
        if term.match_label_expressions
    )


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume names this claim: by its user (then perhaps without UID), by us, or by the controller."""
    ref = volume.spec.claim_ref
    return ref is not None and (ref.namespace, ref.name) == claim.key and ref.uid in ("", claim.metadata.uid)


def size_of(thing: PersistentVolume | PersistentVolumeClaim) -> Fraction:
    said = thing.size if isinstance(thing, PersistentVolumeClaim) else thing.spec.capacity.get("storage", "")
    return quantity(said) if said else Fraction(0)


class Shelf:
    """Volumes of one class that no claim has, in the order in which claims take them.

    *Invariants:* they are kept in order as they come and go, so that no claim costs a look at all of them.
    Local volumes are found by the label of the node that they are on.
    """

    def __init__(self, volumes: Iterable[PersistentVolume] = ()) -> None:
        self._volumes: dict[str, PersistentVolume] = {}
        self._rows: dict[Pin | None, list[Place]] = {}
        self._keys: Counter[str] = Counter()
        for volume in volumes:
            self.put(volume)

    def __len__(self) -> int:
        return len(self._volumes)

    def put(self, volume: PersistentVolume) -> None:
        self.remove(volume.metadata.name)
        self._volumes[volume.metadata.name] = volume
        for pin in _pins(volume) or LOOSE:
            row = self._rows.setdefault(pin, [])
            if not row and pin is not None:
                self._keys[pin[0]] += 1
            insort(row, _place(volume))

    def remove(self, name: str) -> bool:
        """Whether it was there."""
        volume = self._volumes.pop(name, None)
        if volume is None:
            return False
        for pin in _pins(volume) or LOOSE:
            row = self._rows[pin]
            del row[bisect_left(row, _place(volume))]
            if not row:
                del self._rows[pin]
                if pin is not None:
                    self._keys -= Counter([pin[0]])
        return True

    def pins(self, labels: Labels) -> Iterator[Pin | None]:
        """The rows in which a node with these labels finds volumes; None: those without a pin."""
        yield None
        for key in self._keys:
            if (value := labels.get(key)) is not None:
                yield key, value

    def row(self, pin: Pin | None, least: Size) -> Iterator[PersistentVolume]:
        """The volumes of a row that are large enough, the smallest first."""
        row = self._rows.get(pin, [])
        for _, name in row[bisect_left(row, (least, "")) :]:
            if (volume := self._volumes.get(name)) is not None:
                yield volume


class Candidates:
    """The volumes that would do for a claim: `named` are those that name it, `shelf` has those that are free.

    `best` looks at as few of them as it can, for each of thousands of nodes.
    """

    def __init__(self, claim: PersistentVolumeClaim, named: Iterable[PersistentVolume], shelf: Shelf) -> None:
        self._claim = claim
        self._shelf = shelf
        self.own = next((volume for volume in named if _suits(claim, volume) and is_for(volume, claim)), None)
        self._rows: dict[Pin | None, tuple[list[PersistentVolume], Iterator[PersistentVolume]]] = {}

    def best(self, labels: Labels, taken: Container[str] = ()) -> PersistentVolume | None:
        """The volume that is meant for this claim, if it is near the node (else none at all), or the smallest that is free."""
        if self.own is not None and self.own.metadata.name not in taken:
            return self.own if node_suits(self.own, labels) else None
        firsts = [found for pin in self._shelf.pins(labels) if (found := self._first(pin, labels, taken)) is not None]
        return min(firsts, key=_place, default=None)

    def _first(self, pin: Pin | None, labels: Labels, taken: Container[str]) -> PersistentVolume | None:
        row = self._rows.get(pin)
        if row is None:
            row = self._rows[pin] = [], self._shelf.row(pin, _size(self._claim))
        fitting, left = row
        for volume in fitting:
            if volume.metadata.name not in taken and node_suits(volume, labels):
                return volume
        for volume in left:  # those that were not needed so far
            if _suits(self._claim, volume) and _is_free_for(self._claim, volume):
                fitting.append(volume)
                if volume.metadata.name not in taken and node_suits(volume, labels):
                    return volume
        return None


class Rooms:
    """Where a driver says that it has room for volumes of one class, found by the labels of a node.

    *Invariants:* a node costs as much as there are kinds of topologies (sets of labels), however many
    capacities there are.
    """

    def __init__(self) -> None:
        self._held: dict[Key, tuple[Names, Values]] = {}
        self._kinds: dict[Names, dict[Values, dict[Key, CSIStorageCapacity]]] = {}

    def put(self, capacity: CSIStorageCapacity) -> None:
        self.remove(capacity.key)
        if capacity.node_topology is None:
            return  # it is reachable from no node
        keys, values = self._held[capacity.key] = _topology(capacity.node_topology)
        self._kinds.setdefault(keys, {}).setdefault(values, {})[capacity.key] = capacity

    def remove(self, key: Key) -> None:
        keys, values = self._held.pop(key, (None, None))
        if keys is None or values is None:
            return
        kind = self._kinds[keys]
        del kind[values][key]
        if not kind[values]:
            del kind[values]
            if not kind:
                del self._kinds[keys]

    def has(self, size: int, labels: Labels) -> bool:
        """Whether there is room for a volume of that many bytes on a node with these labels."""
        for keys, kind in self._kinds.items():
            for capacity in kind.get(tuple(labels.get(key) for key in keys), {}).values():
                topology = capacity.node_topology
                if room_of(capacity) >= size and topology is not None and selected(topology, labels):
                    return True
        return False


def room_of(capacity: CSIStorageCapacity | None) -> int:
    """The largest volume, in bytes, that it has room for; -1 where it says nothing."""
    said = (capacity.maximum_volume_size or capacity.capacity) if capacity is not None else None
    return whole(quantity(said)) if said else -1


def _topology(selector: LabelSelector) -> tuple[Names, Values]:
    """The labels that a node must have, as far as each has one value: keys and values."""
    said = selector.match_expressions
    single = [wanted for wanted in said if wanted.operator == "In" and len(wanted.values) == 1]
    labels = {wanted.key: wanted.values[0] for wanted in single} | dict(selector.match_labels)
    keys = tuple(sorted(labels))
    return keys, tuple(labels[key] for key in keys)


def _size(thing: PersistentVolume | PersistentVolumeClaim) -> Size:
    """As a whole number where it is one: fractions are slow to compare."""
    size = size_of(thing)
    return size.numerator if size.denominator == 1 else size


def _place(volume: PersistentVolume) -> Place:
    return _size(volume), volume.metadata.name


def _suits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    if volume.spec.claim_ref is not None and not is_for(volume, claim):
        return False
    wanted, there = claim.spec, volume.spec
    return (
        size_of(volume) >= size_of(claim)
        and wanted.volume_mode == there.volume_mode
        and wanted.volume_attributes_class_name == there.volume_attributes_class_name
        and volume.metadata.deletion_timestamp is None
    )


def _is_free_for(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    return (
        volume.status.phase == "Available"
        and volume.class_name == claim.class_name
        and (claim.spec.selector is None or selected(claim.spec.selector, volume.metadata.labels))
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


def _pins(volume: PersistentVolume) -> list[Pin]:
    """Labels of which a node must have one; none where its affinity does not say so."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    pins: dict[Pin, None] = {}
    for term in affinity.required.node_selector_terms:
        wanted = next((wanted for wanted in term.match_expressions if wanted.operator == "In"), None)
        if wanted is not None:
            pins |= dict.fromkeys((wanted.key, value) for value in wanted.values)
        elif term.match_expressions or term.match_fields:
            return []
    return list(pins)
