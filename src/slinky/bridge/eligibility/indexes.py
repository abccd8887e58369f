"""Things that ask for labels (the anti-affinity of placed pods, say), found by the labels of a pod.

*Invariants:* what is found may not match, but nothing that matches is left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from slinky.bridge.eligibility.selectors import Requirement

__all__ = ["Askers", "narrowest"]

NEEDING = ("Exists", "Gt", "Lt")  # operators that hold of no pod without the label
K = TypeVar("K")
T = TypeVar("T")


def narrowest(requirements: Iterable[Requirement]) -> Requirement | None:
    """The one that leaves the fewest values, of those that name values."""
    return min((one for one in requirements if one.operator == "In"), key=lambda one: len(one.values), default=None)


class Askers(Generic[T]):
    """Things that each have requirements, of which all must hold; found by labels for which they may.

    One that names values of a label is found by these, one that asks for a label by that label, and any
    other always.
    """

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], dict[T, None]] = {}
        self._by_key: dict[str, dict[T, None]] = {}
        self._by_none: dict[T, None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_label or self._by_key or self._by_none)

    def add(self, thing: T, requirements: Iterable[Requirement]) -> None:
        asked = tuple(requirements)
        if narrow := narrowest(asked):
            for value in narrow.values:
                self._by_label.setdefault((narrow.key, value), {})[thing] = None
        elif key := _needed(asked):
            self._by_key.setdefault(key, {})[thing] = None
        else:
            self._by_none[thing] = None

    def remove(self, thing: T, requirements: Iterable[Requirement]) -> None:
        """With the requirements that it was added with."""
        asked = tuple(requirements)
        if narrow := narrowest(asked):
            for value in narrow.values:
                _take(self._by_label, (narrow.key, value), thing)
        elif key := _needed(asked):
            _take(self._by_key, key, thing)
        else:
            del self._by_none[thing]

    def crowd(self, narrow: Requirement) -> int:
        """How many there are already that are found by one of these values."""
        return max((len(self._by_label.get((narrow.key, value), ())) for value in narrow.values), default=0)

    def of(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Each once: who asks for a value of one key is found by that key only."""
        yield from self._by_none
        for pair in labels.items():
            yield from self._by_label.get(pair, ())
            yield from self._by_key.get(pair[0], ())


def _needed(requirements: Iterable[Requirement]) -> str:
    """A label without which one of them does not hold."""
    return next((one.key for one in requirements if one.operator in NEEDING), "")


def _take(buckets: dict[K, dict[T, None]], name: K, thing: T) -> None:
    bucket = buckets[name]
    del bucket[thing]
    if not bucket:
        del buckets[name]
