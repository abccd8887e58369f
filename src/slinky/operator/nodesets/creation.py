"""How a NodeSet's pods are created where Kubernetes may refuse them: a few first, and after a refusal later and later.

In: what is to be created, and what became of it. Out: which are tried together, and whether any may be tried now. Pure.
*Invariants:* a refusal ends the attempt, so a quota that is used up costs one request each time; a change of the NodeSet ends the wait; no wait is longer than `BACKOFF.most`.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

from slinky.kube import Backoff
from slinky.operator.trouble import Trouble

__all__ = ["BACKOFF", "Creation", "slow_start"]

BACKOFF = Backoff(first=2.0, most=120.0)

T = TypeVar("T")


def slow_start(wanted: Sequence[T]) -> Iterator[Sequence[T]]:
    """1, 2, 4 and so on, until all have had their turn."""
    start, size = 0, 1
    while start < len(wanted):
        yield wanted[start : start + size]
        start, size = start + size, size * 2


class Creation:
    """Of one NodeSet. `now` is time.monotonic()."""

    def __init__(self) -> None:
        self._of: Hashable = None
        self._failures = 0
        self._until = 0.0
        self.trouble: Trouble | None = None  # the refusal that the next attempt waits for

    def begins(self, of: Hashable) -> None:
        """`of`: what the pods are made from. Where that is new, it may be accepted: nothing is waited for."""
        if of != self._of:
            self._of = of
            self.went_well()

    def waits(self, now: float) -> float:
        """Seconds until an attempt may be made; 0 where it may be made now."""
        return max(0.0, self._until - now) if self._failures else 0.0

    def was_refused(self, refusal: str, waiting: int, now: float) -> Trouble:
        """`waiting`: how many pods are not there for it."""
        self._failures += 1
        self._until = now + BACKOFF.seconds(self._failures)
        workers = "1 worker waits" if waiting == 1 else f"{waiting} workers wait"
        self.trouble = Trouble(
            "Refused",
            f"Kubernetes refuses a new worker: {refusal}. {workers}; one is tried again within "
            f"{BACKOFF.most:g} s, or when the NodeSet changes",
            lasting=True,
        )
        return self.trouble

    def went_well(self) -> None:
        self._failures, self._until, self.trouble = 0, 0.0, None
