"""Waiting lines before Slurm: for a submit limit of Slurm's, and for pods whose placement depends on pods in flight. Pure: the caller brings the clock.

*Invariants:* a line keeps the order of arrival, also for a workload that leaves it and comes back. Each event costs the
same however many wait. Only the first of a line is tried. Lines exist only while something waits in them.
"""

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import NamedTuple

from slinky.bridge.annotations import JobSettings
from slinky.bridge.eligibility.in_flight import InFlight, interacts, pinned_to
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Backoff, Pod

__all__ = ["FRONT", "Line", "Scope", "Siblings", "SubmitLimits", "scope_of"]

FRONT = 100  # this many of a line know their position
MOST_AT_ONCE = 16  # submits of one line side by side, while none of them is refused
MOST_CALLED = 8  # lines whose first is called for one event; the others have their turn at the next
MOST_STRIKES = 2
MOST_LOOKED_AT = 64  # lines, for one event
PROBE = Backoff(first=2.0, most=30.0)  # other people's jobs count for a limit too, and nothing tells when they end
PATIENCE = 60.0  # so long the first of a line waits for pods in flight, and so long a pod in flight is waited for
STEP = 15.0  # the same wait once a whole `PATIENCE` has shown that Slurm starts none of them
MOST_TOGETHER = 256  # pods of one line that enter Slurm's queue in one step

Call = Callable[[WorkloadKey, float], None]


class Scope(NamedTuple):
    """What a submit limit can belong to, and the namespace: no line reaches from one tenant to another."""

    namespace: str
    user: str
    account: str
    qos: str
    partition: str

    def shares(self, other: "Scope") -> bool:
        """Whether the end of a job of `other` may make room for one of these."""
        return any(one == two for one, two in zip(self[1:], other[1:], strict=True))


def scope_of(namespace: str, settings: JobSettings) -> Scope:
    """Of settings as the namespace's policy has them. Partitions in another order are the same scope."""
    partitions = ",".join(sorted(set((settings.partition or "").split(","))))
    named = (settings.user_id, settings.account, settings.qos, partitions)
    return Scope(namespace, *(name or "" for name in named))


class Line:
    """Workloads by the number of their arrival. The first `FRONT` are sorted, the rest is a heap."""

    __slots__ = ("_front", "_numbers", "_rest")

    def __init__(self) -> None:
        self._numbers: dict[WorkloadKey, tuple[int, bool]] = {}  # and whether it is in front
        self._front: list[tuple[int, WorkloadKey]] = []
        self._rest: list[tuple[int, WorkloadKey]] = []  # may still hold some that have left

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._numbers

    def add(self, key: WorkloadKey, number: int) -> None:
        """One that is there already stays where it is."""
        if key in self._numbers:
            return
        entry = (number, key)
        if len(self._front) < FRONT or entry < self._front[-1]:
            insort(self._front, entry)
            self._numbers[key] = (number, True)
            if len(self._front) > FRONT:
                number, key = last = self._front.pop()
                self._numbers[key] = (number, False)
                heapq.heappush(self._rest, last)
        else:
            self._numbers[key] = (number, False)
            heapq.heappush(self._rest, entry)

    def remove(self, key: WorkloadKey) -> WorkloadKey | None:
        """Returns one that has a position from now on."""
        number, in_front = self._numbers.pop(key, (0, False))
        if not in_front:
            if len(self._rest) > 2 * len(self._numbers) + FRONT:
                self._rest = [(number, other) for other, (number, front) in self._numbers.items() if not front]
                heapq.heapify(self._rest)
            return None
        del self._front[bisect_left(self._front, (number, key))]
        while self._rest:
            entry = heapq.heappop(self._rest)
            if self._numbers.get(entry[1]) == (entry[0], False):
                self._front.append(entry)
                self._numbers[entry[1]] = (entry[0], True)
                return entry[1]
        return None

    def first(self, count: int = 1) -> list[WorkloadKey]:
        return [key for _, key in self._front[:count]]

    def position(self, key: WorkloadKey) -> int:
        """From 1; 0 where more than `FRONT` are ahead."""
        number, in_front = self._numbers.get(key, (0, False))
        return bisect_left(self._front, (number, key)) + 1 if in_front else 0


class _Limit:
    """`again`: when the first may be tried. `at_once`: how many of the first. `failures`: refused probes in a row.

    `second`: the one behind the first, which is tried right after the first was refused. `strikes`: how often in a row Slurm
    took the second, and not the first.
    """

    __slots__ = ("again", "at_once", "failures", "line", "second", "strikes", "why")

    def __init__(self, why: str) -> None:
        self.second: WorkloadKey | None = None
        self.strikes = 0
        self.line = Line()
        self.why = why
        self.again = 0.0
        self.at_once = 1
        self.failures = 0


class SubmitLimits:
    """Which scopes have reached a submit limit of Slurm's, and the line of each.

    Slurm gives one error (2050) for a submit limit and for a job that is larger than a limit allows, and does not say which.
    So after two refusals the second in line is tried as well: where Slurm takes that one, twice, the first is refused for
    what it asks for itself, and holds up nothing.

    `call(key, seconds)` asks for another look at a workload then. `moved(key)` tells that its position has become known.
    """

    def __init__(self, call: Call, moved: Callable[[WorkloadKey], None] = lambda _: None) -> None:
        self._call = call
        self._moved = moved
        self._limits: OrderedDict[Scope, _Limit] = OrderedDict()
        self._of: dict[WorkloadKey, Scope] = {}

    def __len__(self) -> int:
        """Workloads that wait."""
        return len(self._of)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._of

    def waits(self, key: WorkloadKey, now: float) -> bool:
        """It is in a line, and it is not its turn."""
        scope = self._of.get(key)
        return scope is not None and not self._is_its_turn(key, self._limits[scope], now)

    def may_try(self, key: WorkloadKey, scope: Scope, number: int, now: float) -> bool:
        """Whether it may be submitted. If not, it waits in line, by the number of its arrival."""
        if self._of.get(key, scope) != scope:
            self.left(key, now)
        limit = self._limits.get(scope)
        if limit is None:
            return True
        limit.line.add(key, number)
        self._of[key] = scope
        return self._is_its_turn(key, limit, now)

    def due(self, key: WorkloadKey) -> float:
        """When it may be tried without being called; 0 where it is not the first of a line."""
        scope = self._of.get(key)
        limit = self._limits[scope] if scope is not None else None
        return limit.again if limit is not None and limit.line.first() == [key] else 0.0

    def refused(self, key: WorkloadKey, scope: Scope, number: int, why: str, now: float) -> bool:
        """Slurm refused the job for a limit. The first of the line is tried again after a while.

        False where the workload is refused for what it asks for itself: it does not belong into the line.
        """
        limit = self._limits.get(scope)
        if limit is None:
            limit = self._limits[scope] = _Limit(why)
        limit.why, limit.at_once = why, 1
        limit.line.add(key, number)
        self._of[key] = scope
        if limit.line.first() == [key] and limit.strikes >= MOST_STRIKES:
            limit.strikes = 0
            self.left(key, now)
            return False
        if key == limit.second:
            limit.second, limit.strikes = None, 0
        if now >= limit.again:  # of several refusals side by side, one counts
            limit.failures += 1
            limit.again = now + PROBE.seconds(limit.failures)
        first, *behind = limit.line.first(2)
        if key == first and behind and (limit.failures > 1 or limit.strikes):
            limit.second = behind[0]
            self._call(limit.second, 0.0)
        self._call(first, limit.again - now)
        return True

    def passed(self, key: WorkloadKey, now: float) -> None:
        """It has a job: those behind it are tried at once, more and more of them side by side."""
        scope = self._of.get(key)
        if scope is None:
            return
        limit = self._limits[scope]
        if key == limit.second:
            limit.second, limit.strikes = None, limit.strikes + 1
        elif limit.line.first() == [key]:
            limit.second, limit.strikes = None, 0
        limit.failures, limit.again, limit.at_once = 0, now, min(2 * limit.at_once, MOST_AT_ONCE)
        if limit.strikes:
            limit.at_once = 1
        self._remove(key, limit)
        for first in limit.line.first(limit.at_once):
            self._call(first, 0.0)

    def left(self, key: WorkloadKey, now: float) -> None:
        """It is not to be submitted now: gone, deleted, or parked for another cause."""
        scope = self._of.get(key)
        if scope is None:
            return
        limit = self._limits[scope]
        was_first = limit.line.first() == [key]
        if was_first:
            limit.second, limit.strikes = None, 0
        elif key == limit.second:
            limit.second = None
        self._remove(key, limit)
        if was_first and (first := limit.line.first()):
            self._call(first[0], max(limit.again - now, 0.0))

    def job_ended(self, scope: Scope | None, now: float) -> None:
        """A job of the bridge's own has ended: there may be room. Without a scope any line may gain."""
        called = 0
        for own in list(islice(self._limits, MOST_LOOKED_AT)):
            if called == MOST_CALLED:
                break
            limit = self._limits[own]
            self._limits.move_to_end(own)
            if scope is None or own.shares(scope):
                called += 1
                limit.again = now
                self._call(limit.line.first()[0], 0.0)

    def standing(self, key: WorkloadKey) -> tuple[str, int] | None:
        """Of one that waits: Slurm's words, and its position (0: far behind)."""
        scope = self._of.get(key)
        if scope is None:
            return None
        limit = self._limits[scope]
        return limit.why, limit.line.position(key)

    @staticmethod
    def _is_its_turn(key: WorkloadKey, limit: _Limit, now: float) -> bool:
        return key == limit.second or (now >= limit.again and 0 < limit.line.position(key) <= limit.at_once)

    def _remove(self, key: WorkloadKey, limit: _Limit) -> None:
        scope = self._of.pop(key)
        if moved := limit.line.remove(key):
            self._moved(moved)
        if not limit.line:
            del self._limits[scope]


class _Waiting:
    """A line behind pods in flight. `first` was tried at `since` for the first time, and had to wait: `why`.

    `called`: something has changed since it was last tried. `together`: how many go when the first has waited long enough.
    `left`: how many of those have not gone yet.
    """

    __slots__ = ("called", "first", "left", "line", "since", "together", "why")

    def __init__(self) -> None:
        self.line = Line()
        self.first: WorkloadKey | None = None
        self.since = 0.0
        self.why = ""
        self.called = False
        self.together = 1
        self.left = 0

    @property
    def patience(self) -> float:
        """How long its first waits at most."""
        return STEP if self.together > 1 else PATIENCE

    def may_go(self, key: WorkloadKey, now: float) -> bool:
        """Whether this one, which is the first, goes whatever is in flight."""
        return self.left > 0 or (self.first == key and now - self.since >= self.patience)


class _Flights:
    """Of one scope: pods whose job was submitted and which have no node yet, and the lines behind them.

    `started`: those of them whose job runs, so that they are placed or given back soon.
    """

    __slots__ = ("lines", "others", "started", "uids")

    def __init__(self, others: InFlight) -> None:
        self.others = others
        self.started: set[WorkloadKey] = set()
        self.uids: OrderedDict[WorkloadKey, tuple[float, tuple[str, ...]]] = OrderedDict()  # the oldest first
        self.lines: OrderedDict[Hashable, _Waiting] = OrderedDict()


Interference = Callable[[Pod, str, InFlight], str]


class Siblings:
    """Keeps pods whose placements depend on each other from being in flight together.

    `interference(pod, node, in_flight)` says why a pod must wait for pods in flight; the node is named where the pod asks for
    no other. `call` and `moved` are as for `SubmitLimits`.

    On a full cluster the pods in flight stay in Slurm's queue, where they can spoil nothing yet. So the first of a line goes
    after `PATIENCE`, then 2, 4, 8 ... of the line go after a `STEP` each, up to `MOST_TOGETHER`. A job that was given back
    ends that: pods go one after the other again.

    *Invariants:* pods wait only for pods of the same scope. The first of a line waits `PATIENCE` at most, and not at all for
    jobs that have been in Slurm's queue for longer: a job that stays there holds nothing up for ever.
    """

    def __init__(
        self,
        new: Callable[[], InFlight],
        interference: Interference,
        call: Call,
        moved: Callable[[WorkloadKey], None] = lambda _: None,
    ) -> None:
        self._new = new
        self._interference = interference
        self._call = call
        self._moved = moved
        self._scopes: dict[Scope, _Flights] = {}
        self._in_flight: dict[WorkloadKey, tuple[Scope, Hashable]] = {}  # and the line that it came from
        self._waiting: dict[WorkloadKey, tuple[Scope, Hashable]] = {}

    def __len__(self) -> int:
        """Workloads that wait."""
        return len(self._waiting)

    def __contains__(self, key: WorkloadKey) -> bool:
        """Whether it waits in line."""
        return key in self._waiting

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def knows(self, key: WorkloadKey) -> bool:
        return key in self._in_flight

    def waits(self, key: WorkloadKey, now: float) -> bool:
        """It is in a line, and it is not its turn."""
        found = self._waiting.get(key)
        if found is None:
            return False
        waiting = self._scopes[found[0]].lines[found[1]]
        return waiting.line.first() != [key] or not (waiting.called or waiting.may_go(key, now))

    def due(self, key: WorkloadKey) -> float:
        """When it may be tried without being called; 0 where it is not the first of a line."""
        found = self._waiting.get(key)
        waiting = self._scopes[found[0]].lines[found[1]] if found is not None else None
        return waiting.since + waiting.patience if waiting is not None and waiting.first == key else 0.0

    def enter(self, key: WorkloadKey, scope: Scope, pods: Sequence[Pod], number: int, now: float) -> bool:
        """Whether it may be submitted; it is in flight then. If not, it waits in line. `pods` are one of each kind."""
        if key in self._in_flight:
            return True
        flights = self._flights_of(scope)
        held_back = 2 * len(flights.started) <= len(flights.uids)  # Slurm starts few of those in flight
        self._forget_old(flights, now)
        name = _line_of(pods)
        waiting = flights.lines.get(name)
        if waiting is not None and waiting.line.first() == [key] and waiting.may_go(key, now):
            if not waiting.left:
                waiting.left = waiting.together
                waiting.together = min((1 + held_back) * waiting.together, MOST_TOGETHER)
            waiting.left -= 1
            self._take_off(key, scope, flights, pods, now)
            if waiting.line:
                self._call_first(waiting)
            return True
        why = next((why for pod in pods if (why := self._interference(pod, pinned_to(pod), flights.others))), "")
        if not why and not (waiting is not None and waiting.line.first() != [key] and any(map(_yields, pods))):
            self._take_off(key, scope, flights, pods, now)
            return True
        if waiting is None:
            waiting = flights.lines[name] = _Waiting()
        waiting.line.add(key, number)
        self._waiting[key] = (scope, name)
        waiting.why = why or waiting.why
        if waiting.line.first() != [key]:
            return False
        if waiting.first != key:
            waiting.first, waiting.since = key, now
        waiting.called = False
        return False

    def keep(self, key: WorkloadKey, scope: Scope, pods: Sequence[Pod], now: float) -> None:
        """It has a job that waits in Slurm, from an earlier leader: it is in flight."""
        if key not in self._in_flight:
            self._take_off(key, scope, self._flights_of(scope), pods, now)

    def started(self, key: WorkloadKey) -> None:
        """Its job runs, and its pods have no nodes yet: they are bound, or the job is given back, soon."""
        found = self._in_flight.get(key)
        flights = self._scopes.get(found[0]) if found is not None else None
        if flights is not None and key in flights.uids:
            flights.started.add(key)

    def land(self, key: WorkloadKey) -> None:
        """It has its nodes, or has got no job: it is in flight no more. One that stands in line stays there."""
        found = self._in_flight.pop(key, None)
        if found is not None:
            scope = found[0]
            flights = self._scopes.get(scope)
            if flights is not None and key in flights.uids:
                self._forget(flights, key)
                self._call_next(scope, flights)

    def rejected(self, key: WorkloadKey, number: int) -> None:
        """Its job is given back, as its nodes did not suit: it waits in line again, and its line goes one by one."""
        found = self._in_flight.pop(key, None)
        if found is None:
            return
        scope, name = found
        flights = self._flights_of(scope)
        if key in flights.uids:
            self._forget(flights, key)
        waiting = flights.lines.get(name)
        if waiting is None:
            waiting = flights.lines[name] = _Waiting()
        waiting.together, waiting.left = 1, 0
        waiting.line.add(key, number)
        self._waiting[key] = found
        self._call_next(scope, flights)

    def leave(self, key: WorkloadKey) -> None:
        """It is not to be submitted: it is neither in flight nor in line."""
        self.land(key)
        if key in self._waiting:
            scope = self._stop_waiting(key)
            self._call_next(scope, self._scopes[scope])

    def standing(self, key: WorkloadKey) -> tuple[str, int] | None:
        """Of one that waits: why, and its position (0: far behind)."""
        found = self._waiting.get(key)
        if found is None:
            return None
        waiting = self._scopes[found[0]].lines[found[1]]
        return waiting.why, waiting.line.position(key)

    def _flights_of(self, scope: Scope) -> _Flights:
        flights = self._scopes.get(scope)
        if flights is None:
            flights = self._scopes[scope] = _Flights(self._new())
        return flights

    def _take_off(self, key: WorkloadKey, scope: Scope, flights: _Flights, pods: Sequence[Pod], now: float) -> None:
        if key in self._waiting:
            self._stop_waiting(key)
        self._in_flight[key] = (scope, _line_of(pods))
        uids = tuple(f"{key} {number}" for number in range(len(pods)))  # pods yet to be made have no UID
        flights.uids[key] = (now, uids)
        for uid, pod in zip(uids, pods, strict=True):
            flights.others.add(uid, pod, pinned_to(pod))
        self._call_next(scope, flights)

    def _forget_old(self, flights: _Flights, now: float) -> None:
        while flights.uids:
            oldest = next(iter(flights.uids))
            if now - flights.uids[oldest][0] < PATIENCE:
                return
            self._forget(flights, oldest)

    @staticmethod
    def _forget(flights: _Flights, key: WorkloadKey) -> None:
        flights.started.discard(key)
        for uid in flights.uids.pop(key)[1]:
            flights.others.remove(uid)

    def _stop_waiting(self, key: WorkloadKey) -> Scope:
        scope, name = self._waiting.pop(key)
        lines = self._scopes[scope].lines
        waiting = lines[name]
        if moved := waiting.line.remove(key):
            self._moved(moved)
        if not waiting.line:
            del lines[name]
        return scope

    def _call_next(self, scope: Scope, flights: _Flights) -> None:
        """The first of some lines, in turn."""
        for name in list(islice(flights.lines, MOST_CALLED)):
            flights.lines.move_to_end(name)
            self._call_first(flights.lines[name])
        if not flights.uids and not flights.lines:
            self._scopes.pop(scope, None)

    def _call_first(self, waiting: _Waiting) -> None:
        waiting.called = True
        self._call(waiting.line.first()[0], 0.0)


def _yields(pod: Pod) -> bool:
    """Whether it waits behind those that came before it, though nothing in flight is in its way right now."""
    return interacts(pod) and not pinned_to(pod)


def _line_of(pods: Sequence[Pod]) -> str:
    """Pods of one controller wait in one line, in order."""
    owner = pods[0].metadata.controller
    return owner.uid if owner else ""
