"""Objects held in memory, by key and by indexes, and told to subscribers as they change.

In: changes, from a Reflector only. Out: reads that cost no request, and `Change`s in the order in which they happened.
What must stay true: reads, indexes and subscribers agree at every moment (all are updated in one step, with no await between); a subscriber's failure or
slowness never holds up the writer; what a relist shows differs from what was held by exactly the changes told.
"""

import asyncio
import builtins
import enum
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from slinky.kube.errors import KubeError
from slinky.kube.objects import Key, KubeObject

__all__ = ["Cache", "Change", "ChangeType", "Changes", "differences"]

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)
IndexFunction = Callable[[T], Iterable[str]]


class ChangeType(enum.StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """ADDED has no `old`, DELETED no `new`; a DELETED's `old` is the object's last state, as the server told it where it did."""

    type: ChangeType
    key: Key
    old: T | None
    new: T | None


def differences(old: Mapping[Key, T], new: Mapping[Key, T]) -> Iterator[Change[T]]:
    """What turns `old` into `new`, deletions first; an object deleted and made again under its name is a DELETED and an ADDED."""
    for key, was in old.items():
        now = new.get(key)
        if now is None or now.metadata.uid != was.metadata.uid:
            yield Change(ChangeType.DELETED, key, was, None)
    for key, now in new.items():
        held = old.get(key)
        if held is None or held.metadata.uid != now.metadata.uid:
            yield Change(ChangeType.ADDED, key, None, now)
        elif held.metadata.resource_version != now.metadata.resource_version:
            yield Change(ChangeType.MODIFIED, key, held, now)


class Cache(Generic[T]):
    """Read by anyone in the same event loop, written by its Reflector."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._subscribers: list[Callable[[Change[T]], None]] = []
        self._synced = asyncio.Event()

    # Reading

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get(Key(namespace, name))

    def by_key(self, key: Key) -> T | None:
        return self._objects.get(key)

    def list(self, namespace: str = "") -> builtins.list[T]:
        """All, or those of one namespace (found by looking at all: make an index where this is asked often)."""
        if not namespace:
            return list(self._objects.values())
        return [found for key, found in self._objects.items() if key.namespace == namespace]

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        return list(self._indexes[index].held.get(value, {}).values())

    def count(self, index: str, value: str) -> int:
        """How many are found under it."""
        return len(self._indexes[index].held.get(value, ()))

    def index_values(self, index: str) -> builtins.list[str]:
        return list(self._indexes[index].held)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    @property
    def is_synced(self) -> bool:
        """Whether the first list has arrived whole. It stays true: later trouble shows in the Reflector's health."""
        return self._synced.is_set()

    async def wait_synced(self, seconds: float = 60.0) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._synced.wait()
        except TimeoutError:
            raise KubeError(f"the first list did not arrive within {seconds:g} s ({len(self)} objects so far)") from None

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """`function` gives the values an object is found under; it must be pure, for it is asked again to take the object out."""
        index = _Index(function)
        for key, found in self._objects.items():
            index.put(key, None, found)
        self._indexes[name] = index

    # Being told

    def subscribe(self, callback: Callable[[Change[T]], None], *, replay: bool = True) -> Callable[[], None]:
        """`callback` is called within the change: quick, no waiting. With `replay` it first gets an ADDED for all that is held. Returns the end of it."""
        if replay:
            for key, found in list(self._objects.items()):
                _tell(callback, Change(ChangeType.ADDED, key, None, found))
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def changes(self, *, replay: bool = True) -> "Changes[T]":
        """For those who must wait in between: `async with cache.changes() as changes: async for change in changes`."""
        return Changes(self, replay)

    # Writing

    def apply(self, change: Change[T]) -> None:
        held = self._objects.get(change.key)
        if change.new is None:
            self._objects.pop(change.key, None)
        else:
            self._objects[change.key] = change.new
        for index in self._indexes.values():
            index.put(change.key, held, change.new)
        for subscriber in tuple(self._subscribers):
            _tell(subscriber, change)

    def put(self, new: T) -> None:
        """An ADDED or MODIFIED from the server: what it is to us depends on what we hold."""
        key = new.key
        held = self._objects.get(key)
        if held is not None and held.metadata.uid != new.metadata.uid:
            self.apply(Change(ChangeType.DELETED, key, held, None))
            held = None
        self.apply(Change(ChangeType.MODIFIED if held is not None else ChangeType.ADDED, key, held, new))

    def remove(self, key: Key, last: T | None = None) -> None:
        held = self._objects.get(key)
        if held is not None:
            self.apply(Change(ChangeType.DELETED, key, last or held, None))

    async def replace(self, objects: Mapping[Key, T], *, batch: int = 500) -> int:
        """Become `objects`, change by change, letting others run in between. Returns the number of changes."""
        count = 0
        for change in differences(dict(self._objects), objects):
            self.apply(change)
            count += 1
            if count % batch == 0:
                await asyncio.sleep(0)
        self._synced.set()
        return count


class _Index(Generic[T]):
    """Value to the objects found under it."""

    def __init__(self, function: IndexFunction[T]) -> None:
        self._function = function
        self.held: dict[str, dict[Key, T]] = {}

    def put(self, key: Key, old: T | None, new: T | None) -> None:
        values = self._values(key, new)
        for value in self._values(key, old) - values:
            bucket = self.held[value]
            del bucket[key]
            if not bucket:
                del self.held[value]
        for value in values:
            self.held.setdefault(value, {})[key] = new  # type: ignore[assignment]

    def _values(self, key: Key, found: T | None) -> set[str]:
        """A function that fails gives none: its object is not found by it, and all else goes on."""
        try:
            return set() if found is None else set(self._function(found))
        except Exception:
            log.exception("an index function failed on %s", key)
            return set()


class Changes(Generic[T]):
    """A subscriber's own queue. Changes of one object that were not fetched yet become one, so it never holds more than one per object."""

    def __init__(self, cache: Cache[T], replay: bool) -> None:
        self._cache = cache
        self._replay = replay
        self._pending: dict[Key, list[Change[T]]] = {}
        self._some = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None

    async def __aenter__(self) -> "Changes[T]":
        self._unsubscribe = self._cache.subscribe(self._note, replay=self._replay)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._unsubscribe()

    def __aiter__(self) -> AsyncIterator[Change[T]]:
        return self._all()

    async def _all(self) -> AsyncIterator[Change[T]]:
        while True:
            await self._some.wait()
            batch, self._pending = self._pending, {}
            self._some.clear()
            for changes in batch.values():
                for change in changes:
                    yield change

    def _note(self, change: Change[T]) -> None:
        merged = _merged(self._pending.get(change.key, []), change)
        if merged:
            self._pending[change.key] = merged
            self._some.set()
        else:
            self._pending.pop(change.key, None)


def _merged(pending: list[Change[T]], change: Change[T]) -> list[Change[T]]:
    """At most a DELETED and an ADDED of one key (made again under its name); all else becomes one change, or none."""
    if not pending:
        return [change]
    *before, last = pending
    match (last.type, change.type):
        case (ChangeType.ADDED, ChangeType.MODIFIED):
            return [*before, Change(ChangeType.ADDED, change.key, None, change.new)]
        case (ChangeType.ADDED, ChangeType.DELETED):
            return before
        case (ChangeType.MODIFIED, _):
            return [*before, Change(change.type, change.key, last.old if change.new is not None else change.old, change.new)]
        case _:
            return [*pending, change]


def _tell(subscriber: Callable[[Change[T]], None], change: Change[T]) -> None:
    try:
        subscriber(change)
    except Exception:
        log.exception("a subscriber failed on %s %s; it is told of later changes all the same", change.type, change.key)
