"""A place for each thing (a node, a pod), so that a set of things is one number: its mask, with a bit for each.

Thousands of answers about thousands of nodes fit into memory so, two of them are compared at once,
and an answer that is a little old is brought up to date by a look at the nodes that have changed.

*Invariants:* a thing keeps its place as long as it is there. `epoch` is another number when a place
has another thing than before, so two masks of one epoch that are equal name the same things.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress
from typing import TypeVar

__all__ = ["BitPlaces", "Named", "chosen", "mask_of"]

T = TypeVar("T")

BITS = bytes(int(code == ord("1")) for code in range(256))


def mask_of(places: Collection[int]) -> int:
    """With a bit for each place."""
    digits = bytearray(max(places, default=0) // 8 + 1)
    for place in places:
        digits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(digits, "little")


def chosen(items: Sequence[T], mask: int) -> Iterator[T]:
    """Those of `items`, which are in the order of places, that the mask has."""
    return compress(items, f"{mask:b}"[::-1].encode().translate(BITS))


class BitPlaces:
    """Which thing has which place, by name, and in which order places changed last."""

    __slots__ = ("_changed", "_free", "_names", "epoch", "everyone", "places", "serial")

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []
        self._changed: dict[int, int] = {}  # place → the number of its last change, in that order
        self.everyone = 0  # the mask of all things that are there
        self.epoch = 0
        self.serial = 0  # the number of the last change

    def __len__(self) -> int:
        return len(self.places)

    def enter(self, name: str) -> int:
        """Give a thing a place, if it has none; it counts as changed then."""
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
        """Take a thing's place away: which one it was."""
        place = self.places.pop(name, None)
        if place is not None:
            self._free.append(place)
            self.everyone &= ~(1 << place)
            self.epoch += 1
            self.touch(place)
        return place

    def touch(self, place: int) -> None:
        """Something about the thing there has changed."""
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
        """The thing there; "" where there is none now."""
        return self._names[place] if self.everyone >> place & 1 else ""

    def bit(self, name: str) -> int:
        """A thing's mask: 0 where there is no such thing."""
        place = self.places.get(name)
        return 0 if place is None else 1 << place

    def mask(self, names: Iterable[str]) -> int:
        """Of things; those that are not there do not count."""
        digits = bytearray(len(self._names) // 8 + 1)
        for name in names:
            if (place := self.places.get(name)) is not None:
                digits[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(digits, "little")

    def names(self, mask: int) -> Iterator[str]:
        return chosen(self._names, mask)


class Named(Collection[str]):
    """The names of the things in a mask. To be read at once."""

    __slots__ = ("_slots", "mask")

    def __init__(self, slots: BitPlaces, mask: int) -> None:
        self._slots = slots
        self.mask = mask & slots.everyone

    def __contains__(self, node: object) -> bool:
        place = self._slots.places.get(node)  # type: ignore[call-overload]
        return place is not None and bool(self.mask >> place & 1)

    def __iter__(self) -> Iterator[str]:
        return self._slots.names(self.mask)

    def __len__(self) -> int:
        return self.mask.bit_count()
