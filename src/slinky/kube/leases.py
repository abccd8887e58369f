"""Who may hold a Lease: the rules of leader election, after client-go's.

Pure. In: the Lease as last read, when we first saw it so, what time it is by our own clock. Out: take it, keep it, or wait.
What must stay true: times written by others are never compared with our clock: a Lease is another's until it has gone unchanged, before our own eyes, for as long as it
says; and we call ourselves leader only while no other can have seen ours expire.
"""

import datetime as dt
import enum
import math
import time
from dataclasses import dataclass
from typing import Any

from slinky.kube.client import micro_time
from slinky.kube.errors import ConfigurationError
from slinky.kube.objects import Lease

__all__ = ["ElectionTimes", "Move", "Observation", "leader_until", "lease_clock", "next_move", "taken_spec"]


@dataclass(frozen=True)
class ElectionTimes:
    """`lease`: how long others wait after our last sign of life. `renew`: how long we try to renew before we step down. `retry`: between tries."""

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not (self.lease > self.renew > 1.2 * self.retry > 0) or self.lease < 1:
            raise ConfigurationError(
                f"leader election: lease {self.lease:g} s, renew {self.renew:g} s, retry {self.retry:g} s; "
                "expected lease ≥ 1, lease > renew > 1.2 x retry > 0"
            )

    @classmethod
    def within(cls, seconds: float) -> "ElectionTimes":
        """A lease of so many seconds, and the rest in proportion."""
        return cls(seconds, seconds * 2 / 3, seconds / 7.5)


class Move(enum.Enum):
    TAKE = "take"  # nobody's, or nobody's any more
    KEEP = "keep"  # ours
    WAIT = "wait"  # another's


@dataclass(frozen=True)
class Observation:
    """A Lease, and when by our clock we first saw it with this resource version."""

    lease: Lease
    first_seen: float

    def updated(self, lease: Lease, now: float) -> "Observation":
        return self if lease.metadata.resource_version == self.lease.metadata.resource_version else Observation(lease, now)


def next_move(seen: Observation, identity: str, now: float) -> Move:
    spec = seen.lease.spec
    if spec.holder_identity == identity:
        return Move.KEEP
    if not spec.holder_identity or now >= seen.first_seen + spec.lease_duration_seconds:
        return Move.TAKE
    return Move.WAIT


def leader_until(sent: float, times: ElectionTimes) -> float:
    """We sent a renewal at `sent` and it was accepted: nobody saw it earlier, so nobody takes the Lease before `sent + lease`. The rest is margin."""
    return sent + times.renew


def taken_spec(previous: Lease | None, identity: str, times: ElectionTimes, now: dt.datetime) -> dict[str, Any]:
    """The Lease's spec when we take it or keep it."""
    spec: dict[str, Any] = {"holderIdentity": identity, "leaseDurationSeconds": math.ceil(times.lease), "renewTime": micro_time(now)}
    old = previous.spec if previous else None
    if old and old.holder_identity == identity:
        acquired = old.acquire_time or now
        return spec | {"acquireTime": micro_time(acquired), "leaseTransitions": old.lease_transitions}
    return spec | {"acquireTime": micro_time(now), "leaseTransitions": (old.lease_transitions + 1) if old else 0}


def released_spec(held: Lease, now: dt.datetime) -> dict[str, Any]:
    """Ours no more, and free at once."""
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "renewTime": micro_time(now),
        "acquireTime": micro_time(now),
        "leaseTransitions": held.spec.lease_transitions,
    }


def lease_clock() -> float:
    """Goes on while the machine sleeps, as the others' clocks do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
