"""Whether nodes are ready, for how long they are not, and whether they flap.

Comes in: each node's readiness as it is seen, and the time. Goes out: a verdict, and when it will be another if nothing happens. Pure but for what it remembers, which is little: a few times for each node. What must stay true: a node that was not ready for a moment is not drained, one that
changes again and again is, and stays so until it has not changed for `flapSeconds`; times are ours, as the clocks of nodes may be wrong.
"""

from collections import deque

import msgspec

__all__ = ["NodeReadiness", "Verdict"]


class Verdict(msgspec.Struct, frozen=True):
    """`again` seconds later it may be another."""

    not_ready: bool = False
    flapping: bool = False
    again: float | None = None


class _Seen(msgspec.Struct):
    ready: bool
    since: float
    changes: deque[float]
    flapping: bool = False


class NodeReadiness:
    def __init__(self, not_ready_seconds: float, flap_changes: int, flap_seconds: float) -> None:
        self._not_ready_seconds, self._flap_changes, self._flap_seconds = not_ready_seconds, flap_changes, flap_seconds
        self._seen: dict[str, _Seen] = {}

    def note(self, name: str, ready: bool, now: float) -> None:
        """To be told of each change; the same again is no news."""
        seen = self._seen.get(name)
        if seen is None:
            self._seen[name] = _Seen(ready, now, deque(maxlen=self._flap_changes))
            return
        if seen.ready == ready:
            return
        seen.ready, seen.since = ready, now
        seen.changes.append(now)
        if len(seen.changes) == self._flap_changes and now - seen.changes[0] <= self._flap_seconds:
            seen.flapping = True

    def adopt(self, name: str, now: float) -> None:
        """It is known to flap, from before our time: it has to be calm from now on."""
        seen = self._seen.get(name)
        if seen is not None and not seen.flapping and not seen.changes:
            seen.flapping = True
            seen.changes.append(now)

    def forget(self, name: str) -> None:
        self._seen.pop(name, None)

    def verdict(self, name: str, now: float) -> Verdict:
        seen = self._seen.get(name)
        if seen is None:
            return Verdict()
        calm_in = seen.changes[-1] + self._flap_seconds - now if seen.flapping else 0.0
        if seen.flapping and calm_in <= 0:
            seen.flapping = False
        due_in = 0.0 if seen.ready else seen.since + self._not_ready_seconds - now
        waits = [wait for wait in (calm_in, due_in) if wait > 0]
        return Verdict(not seen.ready and due_in <= 0, seen.flapping, min(waits) if waits else None)
