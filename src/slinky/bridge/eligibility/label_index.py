"""Which of many things (nodes, pods) have which value of one label, as masks of their places.

A requirement is a few operations on masks so, however many things there are.

*Invariants:* the same things are found as by a look at each. A value that few things have is kept as a
set of places, any other as a mask: an index takes memory in proportion to the things in it, however
many different values there are.
"""

from collections.abc import Iterable, Iterator

from slinky.bridge.bit_places import mask_of
from slinky.bridge.eligibility.selectors import Requirement, meets

__all__ = ["LabelIndex"]

SPARSE = 256  # a place in a set takes as much memory as so many bits of a mask


class LabelIndex:
    """`labelled` are places, each with the label's value."""

    __slots__ = ("_many", "_sets", "having")

    def __init__(self, labelled: Iterable[tuple[int, str]] = ()) -> None:
        self._sets: dict[str, set[int]] = {}
        self._many: dict[str, int] = {}
        for place, value in labelled:
            self._sets.setdefault(value, set()).add(place)
        self.having = mask_of([place for places in self._sets.values() for place in places])
        for value in [value for value, places in self._sets.items() if self._is_dense(places)]:
            self._many[value] = mask_of(self._sets.pop(value))

    def add(self, place: int, value: str) -> None:
        bit = 1 << place
        self.having |= bit
        mask = self._many.get(value)
        if mask is not None:
            self._many[value] = mask | bit
            return
        places = self._sets.setdefault(value, set())
        places.add(place)
        if self._is_dense(places):
            self._many[value] = mask_of(self._sets.pop(value))

    def remove(self, place: int, value: str) -> None:
        bit = 1 << place
        self.having &= ~bit
        mask = self._many.get(value)
        if mask is None:
            places = self._sets[value]
            places.remove(place)
            if not places:
                del self._sets[value]
        elif left := mask & ~bit:
            self._many[value] = left
        else:
            del self._many[value]

    def _is_dense(self, places: set[int]) -> bool:
        return len(places) * SPARSE > self.having.bit_length()

    def mask(self, values: Iterable[str]) -> int:
        """The things that have one of these values."""
        found = 0
        few: list[int] = []
        for value in values:
            if (mask := self._many.get(value)) is not None:
                found |= mask
            elif places := self._sets.get(value):
                few.extend(places)
        return found | mask_of(few) if few else found

    def meeting(self, requirement: Requirement, everyone: int) -> int:
        """The things, of `everyone`, that meet a requirement on this label."""
        key, operator, wanted = requirement
        match operator:
            case "In":
                return self.mask(wanted)
            case "NotIn":
                return everyone & ~self.mask(wanted)
            case "Exists":
                return self.having
            case "DoesNotExist":
                return everyone & ~self.having
            case _:
                return self.mask([value for value in self._values() if meets({key: value}, requirement)])

    def steps(self, requirement: Requirement) -> int:
        """How many values are looked at for a requirement."""
        if requirement.operator in ("In", "NotIn"):
            return len(requirement.values)
        return len(self._sets) + len(self._many) if requirement.operator in ("Gt", "Lt") else 0

    def _values(self) -> Iterator[str]:
        yield from self._sets
        yield from self._many
