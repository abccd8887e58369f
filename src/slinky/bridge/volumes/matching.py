"""Which volume suits which claim, and which node suits which volume. Pure.

Comes in: a claim, the volumes of its class, a node's labels. Goes out: the volume to take, or none. What must stay true: the rules are Kubernetes' own, in their smallest detail, for its controller has the last word on each binding; of several
volumes that fit, the smallest is taken, and of equals always the same.
"""

from collections.abc import Container, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from slinky.bridge.eligibility.selectors import Requirement, SelectorError, meets, requirement_of
from slinky.kube import PersistentVolume, PersistentVolumeClaim
from slinky.kube.objects import LabelSelector, SelectorRequirement
from slinky.kube.objects.storage import AllowedTopology
from slinky.kube.quantities import quantity

__all__ = ["Candidates", "Labels", "is_for", "node_suits", "selected", "size_of", "topology_admits", "zones_admit"]

Labels = Mapping[str, str]

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


class Candidates:
    """The volumes that would do for a claim, wherever they are; `best` is then quick for each of thousands of nodes, as local volumes are found by the label that pins them."""

    def __init__(self, claim: PersistentVolumeClaim, volumes: Sequence[PersistentVolume]) -> None:
        suitable = [volume for volume in volumes if _suits(claim, volume)]
        self._own = next((volume for volume in suitable if is_for(volume, claim)), None)
        free = [volume for volume in suitable if _is_free_for(claim, volume)]
        self._sorted = sorted(free, key=lambda volume: (size_of(volume), volume.metadata.name))
        self._pinned: dict[tuple[str, str], list[int]] = {}
        self._loose: list[int] = []
        for index, volume in enumerate(self._sorted):
            if pins := _pins(volume):
                for pin in pins:
                    self._pinned.setdefault(pin, []).append(index)
            else:
                self._loose.append(index)
        self._keys = {key for key, _ in self._pinned}

    def best(self, labels: Labels, taken: Container[str] = ()) -> PersistentVolume | None:
        """The volume that is meant for this claim, if it is near the node (else none at all), or the smallest that is free."""
        if self._own is not None and self._own.metadata.name not in taken:
            return self._own if node_suits(self._own, labels) else None
        indexes = list(self._loose)
        for key in self._keys:
            if (value := labels.get(key)) is not None:
                indexes += self._pinned.get((key, value), ())
        for index in sorted(indexes):
            volume = self._sorted[index]
            if volume.metadata.name not in taken and node_suits(volume, labels):
                return volume
        return None


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


def _pins(volume: PersistentVolume) -> list[tuple[str, str]]:
    """The labels of which a node must have one, where that is all the volume asks for."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None or len(affinity.required.node_selector_terms) != 1:
        return []
    [term] = affinity.required.node_selector_terms
    if len(term.match_expressions) != 1 or term.match_expressions[0].operator != "In":
        return []
    [wanted] = term.match_expressions
    return [(wanted.key, value) for value in dict.fromkeys(wanted.values)]
