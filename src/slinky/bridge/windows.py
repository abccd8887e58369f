"""How many of our jobs may wait in Slurm at once, so that one Job of 100,000 pods cannot fill Slurm's job table or slow its scheduler down.

Comes in: workloads that are to be submitted, those whose job waits already, and those whose job no longer does. Goes out: who may go now, and who moves up. Pure. What must stay true: neither limit is passed (but by what is there
already when a leader's time begins); whoever waits here moves up when there is room, the namespaces in turn and within one in the order they came; a namespace at its limit keeps nobody else back.
"""

from collections import OrderedDict
from collections.abc import Callable

from slinky.bridge.workload import WorkloadKey

__all__ = ["Window"]


class Window:
    """`limit` gives a namespace's limit where they differ; otherwise `namespace` is that of each."""

    def __init__(self, namespace: int, total: int, limit: Callable[[str], int] | None = None) -> None:
        self._limit: Callable[[str], int] = limit or (lambda _: namespace)
        self._total = total
        self._inside: dict[str, set[WorkloadKey]] = {}
        self._waiting: OrderedDict[str, OrderedDict[WorkloadKey, None]] = OrderedDict()
        self.inside = 0

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def enter(self, key: WorkloadKey, *, again: bool = False) -> bool:
        """May it be submitted now? If not, it is remembered, and told by `leave` when it may try again. `again`: it had its turn before, and goes before the others of its namespace."""
        here = self._inside.get(key.namespace, set())
        if key in here:
            return True
        if again and self._waiting.get(key.namespace):
            self._wait(key, first=True)
        if not self._has_room(key.namespace) or not self._is_its_turn(key):
            self._wait(key, first=again)
            return False
        self._stop_waiting(key)
        self.keep(key)
        return True

    def keep(self, key: WorkloadKey) -> list[WorkloadKey]:
        """Its job waits in Slurm, whoever submitted it and when: it counts, even above the limits. Returns who may try now, in its stead."""
        waited = self.is_waiting(key)
        self._stop_waiting(key)
        here = self._inside.setdefault(key.namespace, set())
        if key not in here:
            here.add(key)
            self.inside += 1
        return self.next() if waited else []

    def leave(self, key: WorkloadKey) -> list[WorkloadKey]:
        """Its job started, ended, or will not be. Returns who may try now."""
        self._stop_waiting(key)
        here = self._inside.get(key.namespace)
        if here and key in here:
            here.discard(key)
            self.inside -= 1
            if not here:
                del self._inside[key.namespace]
        return self.next()

    def next(self) -> list[WorkloadKey]:
        """Who may try now: the first of each namespace that has room. To be asked again after each `enter` that succeeded."""
        free = self._total - self.inside
        found: list[WorkloadKey] = []
        for namespace in list(self._waiting):
            if len(found) >= free:
                break
            if self._has_room(namespace):
                found.append(next(iter(self._waiting[namespace])))
                self._waiting.move_to_end(namespace)
        return found

    def is_waiting(self, key: WorkloadKey) -> bool:
        return key in self._waiting.get(key.namespace, ())

    def _has_room(self, namespace: str) -> bool:
        return self.inside < self._total and len(self._inside.get(namespace, ())) < self._limit(namespace)

    def _is_its_turn(self, key: WorkloadKey) -> bool:
        """The first of its namespace, or one of a namespace where nobody waits, if what is free is not for others who wait."""
        if queue := self._waiting.get(key.namespace):
            return next(iter(queue)) == key
        ahead = sum(self._has_room(namespace) for namespace in self._waiting)
        return ahead < self._total - self.inside

    def _wait(self, key: WorkloadKey, *, first: bool) -> None:
        queue = self._waiting.setdefault(key.namespace, OrderedDict())
        queue[key] = None
        if first:
            queue.move_to_end(key, last=False)

    def _stop_waiting(self, key: WorkloadKey) -> None:
        queue = self._waiting.get(key.namespace)
        if queue and key in queue:
            del queue[key]
            if not queue:
                del self._waiting[key.namespace]
