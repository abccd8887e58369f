"""Two ways around looking at everything: pods found by a label, and those who ask for labels found by a pod.

Comes in: things and their labels, or things and their requirements. Goes out: few things that may match, never fewer than those that do. What must stay true: an index by a label is made when it is first asked for and then follows every
change; indexes have a limit, the longest unused is dropped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from slinky.bridge.eligibility.selectors import Requirement

__all__ = ["Askers", "ByLabel", "narrowest"]

MOST_INDEXES = 24
NEEDING = ("Exists", "Gt", "Lt")  # operators that hold of no pod without the label
K = TypeVar("K")
T = TypeVar("T")


def narrowest(requirements: Iterable[Requirement]) -> Requirement | None:
    """The one that leaves the fewest values, of those that name values."""
    return min((one for one in requirements if one.operator == "In"), key=lambda one: len(one.values), default=None)


class ByLabel(Generic[T]):
    """Things by the value of a label. `value_of` gives it; what has none is not in that index."""

    def __init__(self, value_of: Callable[[T, str], str | None]) -> None:
        self._value_of = value_of
        self._all: dict[str, T] = {}
        self._indexes: dict[str, dict[str, dict[str, T]]] = {}

    def get(self, name: str) -> T | None:
        return self._all.get(name)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[T]:
        return iter(self._all.values())

    def add(self, name: str, thing: T) -> None:
        """`name` must be free."""
        self._all[name] = thing
        for key, index in self._indexes.items():
            self._put(index, key, name, thing)

    def pop(self, name: str) -> T | None:
        thing = self._all.pop(name, None)
        if thing is not None:
            for key, index in self._indexes.items():
                value = self._value_of(thing, key)
                if value is not None:
                    del index[value][name]
                    if not index[value]:
                        del index[value]
        return thing

    def having(self, key: str, values: Iterable[str]) -> list[dict[str, T]]:
        """Those with one of these values, in parts."""
        index = self._indexes.pop(key, None)
        if index is None:
            index = {}
            for name, thing in self._all.items():
                self._put(index, key, name, thing)
            if len(self._indexes) >= MOST_INDEXES:
                del self._indexes[next(iter(self._indexes))]
        self._indexes[key] = index  # the last in order is the last used
        return [index[value] for value in values if value in index]

    def _put(self, index: dict[str, dict[str, T]], key: str, name: str, thing: T) -> None:
        value = self._value_of(thing, key)
        if value is not None:
            index.setdefault(value, {})[name] = thing


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
