"""Nodes by what they say: which have a label, which have the same taints. A question is a few operations on masks.

*Invariants:* the same nodes are found as by a look at each node. An index by a label is made when it is first asked for,
follows every change, and is dropped when it is the one that was not asked for for the longest time.
"""

from collections.abc import Hashable, Iterable, Iterator

from slinky.bridge.eligibility.node_labels import NAME, Rules
from slinky.bridge.eligibility.selectors import Requirement, meets
from slinky.bridge.eligibility.taints import is_cordoned_for_slurm
from slinky.bridge.node_slots import NodeSlots
from slinky.kube import Node

__all__ = ["NodeMasks", "said_by"]

MOST_INDEXES = 128


def said_by(node: Node) -> Hashable:
    """All that a node says besides its labels."""
    taints = tuple((taint.key, taint.value, taint.effect) for taint in node.spec.taints)
    return taints, node.spec.unschedulable, is_cordoned_for_slurm(node), node.status.declared_features


class _Values:
    """Nodes by one label's value."""

    __slots__ = ("having", "masks")

    def __init__(self) -> None:
        self.masks: dict[str, int] = {}
        self.having = 0

    def add(self, value: str, bit: int) -> None:
        self.masks[value] = self.masks.get(value, 0) | bit
        self.having |= bit

    def remove(self, value: str, bit: int) -> None:
        self.having &= ~bit
        if left := self.masks.get(value, 0) & ~bit:
            self.masks[value] = left
        else:
            self.masks.pop(value, None)


class NodeMasks:
    """`note` and `drop` are to be called for every change of a node; `steps` counts what was looked at, in all."""

    def __init__(self) -> None:
        self.slots = NodeSlots()
        self.steps = 0
        self._by_label: dict[str, _Values] = {}
        self._alike: dict[Hashable, tuple[int, Node]] = {}
        self._noted: dict[str, Node] = {}

    def seen(self, name: str) -> Node | None:
        """The node as it was noted last."""
        return self._noted.get(name)

    def note(self, node: Node) -> None:
        """It came, or says something else now."""
        name = node.metadata.name
        bit = 1 << self.slots.enter(name)
        self._move(self._noted.get(name), node, bit)
        self._noted[name] = node

    def drop(self, name: str) -> None:
        """It is gone."""
        self._move(self._noted.pop(name, None), None, self.slots.bit(name))
        self.slots.leave(name)

    def _move(self, old: Node | None, new: Node | None, bit: int) -> None:
        before, after = (said_by(old) if old else None), (said_by(new) if new else None)
        if before != after:
            if before is not None:
                mask, example = self._alike.pop(before)
                if mask := mask & ~bit:
                    self._alike[before] = mask, example
            if new is not None:
                self._alike[after] = self._alike.get(after, (0, new))[0] | bit, new
        had, has = (old.metadata.labels if old else {}), (new.metadata.labels if new else {})
        for key, values in self._by_label.items():
            value, now = had.get(key), has.get(key)
            if value != now:
                if value is not None:
                    values.remove(value, bit)
                if now is not None:
                    values.add(now, bit)

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
        key, operator, wanted = requirement
        values = self._values(key)
        match operator:
            case "In" | "NotIn":
                self.steps += len(wanted)
                found = _all(values.masks.get(value, 0) for value in wanted)
                return found if operator == "In" else self.slots.everyone & ~found
            case "Exists":
                return values.having
            case "DoesNotExist":
                return self.slots.everyone & ~values.having
            case _:
                self.steps += len(values.masks)
                return _all(mask for value, mask in values.masks.items() if meets({key: value}, requirement))

    def _named(self, requirement: Requirement) -> int:
        """A field that nodes do not have is empty, not missing."""
        if requirement.key == NAME:
            found = _all(self.slots.bit(value) for value in requirement.values)
        else:
            found = self.slots.everyone if "" in requirement.values else 0
        return found if requirement.operator == "In" else self.slots.everyone & ~found

    def _values(self, key: str) -> _Values:
        found = self._by_label.pop(key, None)
        if found is None:
            found = _Values()
            for name, node in self._noted.items():
                if (value := node.metadata.labels.get(key)) is not None:
                    found.add(value, self.slots.bit(name))
            self.steps += len(self._noted)
            if len(self._by_label) >= MOST_INDEXES:
                del self._by_label[next(iter(self._by_label))]
        self._by_label[key] = found  # the last in order is the last used
        return found


def _all(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
