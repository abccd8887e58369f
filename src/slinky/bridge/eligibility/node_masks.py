"""Nodes by what they say: which have a label, which have the same taints. A question is a few operations on masks.

*Invariants:* the same nodes are found as by a look at each node. An index by a label is made when it is first asked for,
follows every change, and is dropped when it is the one that was not asked for for the longest time.
"""

from collections.abc import Hashable, Iterator

from slinky.bridge.bit_places import BitPlaces
from slinky.bridge.eligibility.label_index import LabelIndex
from slinky.bridge.eligibility.node_labels import NAME, Rules
from slinky.bridge.eligibility.selectors import Requirement
from slinky.bridge.eligibility.taints import is_cordoned_for_slurm
from slinky.kube import Node

__all__ = ["NodeMasks", "said_by"]

MOST_INDEXES = 128


def said_by(node: Node) -> Hashable:
    """All that a node says besides its labels."""
    taints = tuple((taint.key, taint.value, taint.effect) for taint in node.spec.taints)
    return taints, node.spec.unschedulable, is_cordoned_for_slurm(node), node.status.declared_features


class NodeMasks:
    """`note` and `drop` are to be called for every change of a node; `steps` counts what was looked at, in all."""

    def __init__(self) -> None:
        self.slots = BitPlaces()
        self.steps = 0
        self._by_label: dict[str, LabelIndex] = {}
        self._alike: dict[Hashable, tuple[int, Node]] = {}
        self._noted: dict[str, Node] = {}

    def seen(self, name: str) -> Node | None:
        """The node as it was noted last."""
        return self._noted.get(name)

    def note(self, node: Node) -> None:
        """It came, or says something else now."""
        name = node.metadata.name
        place = self.slots.enter(name)
        self._move(self._noted.get(name), node, place)
        self._noted[name] = node

    def drop(self, name: str) -> None:
        """It is gone."""
        if (place := self.slots.places.get(name)) is not None:
            self._move(self._noted.pop(name, None), None, place)
            self.slots.leave(name)

    def _move(self, old: Node | None, new: Node | None, place: int) -> None:
        bit = 1 << place
        before, after = (said_by(old) if old else None), (said_by(new) if new else None)
        if before != after:
            if before is not None:
                mask, example = self._alike.pop(before)
                if mask := mask & ~bit:
                    self._alike[before] = mask, example
            if new is not None:
                self._alike[after] = self._alike.get(after, (0, new))[0] | bit, new
        had, has = (old.metadata.labels if old else {}), (new.metadata.labels if new else {})
        for key, index in self._by_label.items():
            value, now = had.get(key), has.get(key)
            if value != now:
                if value is not None:
                    index.remove(place, value)
                if now is not None:
                    index.add(place, now)

    def alike(self) -> Iterator[tuple[int, Node]]:
        """Nodes that say the same besides their labels, with an example of each kind."""
        self.steps += len(self._alike)
        return iter(self._alike.values())

    def following(self, rules: Rules | None) -> int:
        """The nodes that follow one of the rules; all where there are none."""
        if rules is None:
            return self.slots.everyone
        found = 0
        for rule in rules:
            mask = self.slots.everyone
            for requirement in rule.labels:
                mask &= self._meeting(requirement)
            for requirement in rule.names:
                mask &= self._named(requirement)
            found |= mask
        return found

    def _meeting(self, requirement: Requirement) -> int:
        index = self._index(requirement.key)
        self.steps += index.steps(requirement)
        return index.meeting(requirement, self.slots.everyone)

    def _named(self, requirement: Requirement) -> int:
        """A field that nodes do not have is empty, not missing."""
        empty = self.slots.everyone if "" in requirement.values else 0
        found = self.slots.mask(requirement.values) if requirement.key == NAME else empty
        return found if requirement.operator == "In" else self.slots.everyone & ~found

    def _index(self, key: str) -> LabelIndex:
        found = self._by_label.pop(key, None)
        if found is None:
            labelled = ((self.slots.places[name], node.metadata.labels.get(key)) for name, node in self._noted.items())
            found = LabelIndex((place, value) for place, value in labelled if value is not None)
            self.steps += len(self._noted)
            if len(self._by_label) >= MOST_INDEXES:
                del self._by_label[next(iter(self._by_label))]
        self._by_label[key] = found  # the last in order is the last used
        return found
