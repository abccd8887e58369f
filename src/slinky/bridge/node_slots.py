"""A place for each node, so that a set of nodes is one number: its mask, with a bit for each.

Thousands of answers about thousands of nodes fit into memory so, two of them are compared at once,
and an answer that is a little old is brought up to date by a look at the nodes that have changed.

*Invariants:* a node keeps its place as long as it is there. `epoch` is another number when a place
has another node than before, so two masks of one epoch that are equal name the same nodes.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import compress

__all__ = ["Named", "NodeSlots"]

BITS = bytes(int(code == ord("1")) for code in range(256))


class NodeSlots:
    """Which node has which place, and in which order places changed last."""

    __slots__ = ("_changed", "_free", "_names", "epoch", "everyone", "places", "serial")

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []
        self._changed: dict[int, int] = {}  # place → the number of its last change, in that order
        self.everyone = 0  # the mask of all nodes that are there
        self.epoch = 0
        self.serial = 0  # the number of the last change

    def __len__(self) -> int:
        return len(self.places)

    def enter(self, name: str) -> int:
        """Give a node a place, if it has none; it counts as changed then."""
        place = self.places.get(name)
        if place is None:
            place = self._free.pop() if self._free else len(self._names)
            self._names[place : place + 1] = [name]
            self.places[name] = place
            self.everyone |= 1 << place
            self.epoch += 1
            self.touch(place)
        return place

    def leave(self, name: str) -> int | None:
        """Take a node's place away: which one it was."""
        place = self.places.pop(name, None)
        if place is not None:
            self._free.append(place)
            self.everyone &= ~(1 << place)
            self.epoch += 1
            self.touch(place)
        return place

    def touch(self, place: int) -> None:
        """Something about the node there has changed."""
        self.serial += 1
        self._changed.pop(place, None)
        self._changed[place] = self.serial

    def since(self, serial: int) -> list[int]:
        """The places that have changed after that change."""
        found = []
        for place in reversed(self._changed):
            if self._changed[place] <= serial:
                break
            found.append(place)
        return found

    def name(self, place: int) -> str:
        """The node there; "" where there is none now."""
        return self._names[place] if self.everyone >> place & 1 else ""

    def bit(self, name: str) -> int:
        """A node's mask: 0 where there is no such node."""
        place = self.places.get(name)
        return 0 if place is None else 1 << place

    def mask(self, names: Iterable[str]) -> int:
        """Of nodes; those that are not there do not count."""
        digits = bytearray(len(self._names) // 8 + 1)
        for name in names:
            if (place := self.places.get(name)) is not None:
                digits[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(digits, "little")

    def names(self, mask: int) -> Iterator[str]:
        return compress(self._names, f"{mask:b}"[::-1].encode().translate(BITS))


class Named(Collection[str]):
    """The names of the nodes in a mask. To be read at once."""

    __slots__ = ("_slots", "mask")

    def __init__(self, slots: NodeSlots, mask: int) -> None:
        self._slots = slots
        self.mask = mask & slots.everyone

    def __contains__(self, node: object) -> bool:
        place = self._slots.places.get(node)  # type: ignore[call-overload]
        return place is not None and bool(self.mask >> place & 1)

    def __iter__(self) -> Iterator[str]:
        return self._slots.names(self.mask)

    def __len__(self) -> int:
        return self.mask.bit_count()
