"""Two ways around looking at everything: pods found by a label, and those who ask for labels found by a pod.

Comes in: things and their labels, or things and their requirements. Goes out: few things that may match, never fewer than those that do. What must stay true: an index by a label is made when it is first asked for and then follows every
change; indexes have a limit, the longest unused is dropped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from slinky.bridge.eligibility.selectors import Requirement

__all__ = ["Askers", "ByLabel", "narrowest"]

MOST_INDEXES = 24
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
    """Things that each have requirements, of which all must hold; found by labels for which they may."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], dict[T, None]] = {}
        self._by_none: dict[T, None] = {}

    def add(self, thing: T, requirements: Iterable[Requirement]) -> None:
        narrow = narrowest(requirements)
        if narrow is None:
            self._by_none[thing] = None
            return
        for value in narrow.values:
            self._by_label.setdefault((narrow.key, value), {})[thing] = None

    def remove(self, thing: T, requirements: Iterable[Requirement]) -> None:
        """With the requirements that it was added with."""
        narrow = narrowest(requirements)
        if narrow is None:
            del self._by_none[thing]
            return
        for value in narrow.values:
            bucket = self._by_label[narrow.key, value]
            del bucket[thing]
            if not bucket:
                del self._by_label[narrow.key, value]

    def of(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Each once: who asks for a value of one key is found by that key only."""
        yield from self._by_none
        for pair in labels.items():
            yield from self._by_label.get(pair, ())
