"""What is to be worked on next: keys, each once, in a fair order.

In: keys, now or later, with priorities, and what time it is. Out: keys to work on. It waits for nothing and knows no clock: `WorkQueue` does that.
What must stay true: a key is with at most one worker; added while it is worked on, it comes once more afterwards, and none is lost; memory is bounded
by the number of distinct keys; among keys of one priority every group gets its turn, and no priority waits for ever.
"""

import heapq
import itertools
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from slinky.kube.backoff import Backoff

__all__ = ["Agenda", "first_part"]

K = TypeVar("K", bound=Hashable)

LOWEST_TURN = 16  # every so many keys one is taken from the lowest priority that waits
SLACK = 64


def first_part(key: Hashable) -> Hashable:
    """The group of a `Key`: its namespace."""
    return key[0] if isinstance(key, tuple) and key else None


class Agenda(Generic[K]):
    """What is to be worked on next. Pure but for its own state: the caller says what time it is."""

    def __init__(
        self,
        *,
        group: Callable[[K], Hashable] = first_part,
        backoff: Backoff = Backoff(first=0.05, most=300.0),
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._group = group
        self._backoff = backoff
        self._dice = dice
        self._priority: dict[K, int] = {}  # of every key that is ready, later or wanted again
        self._ready: dict[int, OrderedDict[Hashable, OrderedDict[K, None]]] = {}
        self._ready_keys: set[K] = set()
        self._later: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = itertools.count()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._taken = 0

    def add(self, key: K, *, priority: int = 0) -> None:
        """Now. Of several priorities the highest counts."""
        self._later.pop(key, None)
        if key in self._working:
            self._raise_priority(key, priority)
            self._again.add(key)
        elif key not in self._ready_keys:
            self._raise_priority(key, priority)
            self._make_ready(key)
        elif priority > self._priority[key]:
            self._unready(key)
            self._priority[key] = priority
            self._make_ready(key)

    def add_after(self, key: K, now: float, seconds: float, *, priority: int = 0) -> None:
        """Later; of several moments the earliest counts, and one that is ready already stays so."""
        if seconds <= 0:
            self.add(key, priority=priority)
            return
        if key in self._ready_keys or key in self._again:
            return
        due = now + seconds
        if due >= self._later.get(key, float("inf")):
            return
        self._raise_priority(key, priority)
        self._later[key] = due
        heapq.heappush(self._heap, (due, next(self._numbers), key))
        self._trim()

    def add_after_failure(self, key: K, now: float, *, priority: int = 0) -> float:
        """Later, and later still after each failure in a row. Returns the wait."""
        self._failures[key] = self._failures.get(key, 0) + 1
        seconds = self._backoff.seconds(self._failures[key], self._dice)
        self.add_after(key, now, seconds, priority=priority)
        return seconds

    def forget(self, key: K) -> None:
        """Its failures are over; call it for every key that succeeded or is gone."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def take(self, now: float) -> K | None:
        """The next key, now with the caller until `done`."""
        self._wake(now)
        if not self._ready:
            return None
        self._taken += 1
        priority = min(self._ready) if self._taken % LOWEST_TURN == 0 else max(self._ready)
        groups = self._ready[priority]
        group, keys = next(iter(groups.items()))
        key, _ = keys.popitem(last=False)
        if keys:
            groups.move_to_end(group)
        else:
            del groups[group]
        if not groups:
            del self._ready[priority]
        self._ready_keys.discard(key)
        del self._priority[key]
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._make_ready(key)

    def next_due(self) -> float | None:
        """When the first of the later ones becomes ready."""
        while self._heap and self._later.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def drop_later(self) -> None:
        """Forget what is not due yet: for a shutdown that does not wait for it."""
        for key in self._later:
            if key not in self._again:
                self._priority.pop(key, None)
        self._later.clear()
        self._heap.clear()

    @property
    def ready(self) -> int:
        return len(self._ready_keys)

    @property
    def later(self) -> int:
        return len(self._later)

    @property
    def working(self) -> int:
        return len(self._working)

    @property
    def entries(self) -> int:
        """All that is held in memory, for tests of its bound."""
        return len(self._priority) + len(self._heap) + len(self._working) + len(self._failures)

    def _wake(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._later[key]
            self.add(key, priority=self._priority.get(key, 0))

    def _raise_priority(self, key: K, priority: int) -> None:
        self._priority[key] = max(priority, self._priority.get(key, priority))

    def _make_ready(self, key: K) -> None:
        groups = self._ready.setdefault(self._priority[key], OrderedDict())
        groups.setdefault(self._group(key), OrderedDict())[key] = None
        self._ready_keys.add(key)

    def _unready(self, key: K) -> None:
        priority, group = self._priority[key], self._group(key)
        groups = self._ready[priority]
        del groups[group][key]
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._ready[priority]
        self._ready_keys.discard(key)

    def _trim(self) -> None:
        """Moments that were overtaken stay in the heap; when they are more than the rest, it is made anew."""
        if len(self._heap) > 2 * len(self._later) + SLACK:
            self._heap = [entry for entry in self._heap if self._later.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
