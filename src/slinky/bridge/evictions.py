"""Evicting the pods of a job that ends, within their disruption budgets for as long as that can wait.

Comes in: a pod that is to go, why, and until when Slurm's decision can wait. Goes out: an eviction; or, where a budget stands in the way, when to try again; or a deletion past the budget. What must stay true: nobody is tried more often than every few seconds, however
long a budget says no; a budget is passed over only where the site says so, not before its time, and never without an Event that names it; the pod's own grace period is always honoured.
"""

import asyncio
import logging
import random
from typing import Literal

from slinky.bridge.eviction_settings import EvictionSettings
from slinky.bridge.executor import Executor
from slinky.bridge.memory import Evicted, Known, Refusal
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.plan import Evict
from slinky.bridge.telling import Teller
from slinky.kube import ForbiddenError, Pod

__all__ = ["Evictions", "is_passed_over", "seconds_to_next"]

log = logging.getLogger(__name__)

FIRST_AGAIN = 1.0
LONGEST_AGAIN = 15.0
MOST_DOUBLINGS = 10


def seconds_to_next(tries: int) -> float:
    """After so many refusals in a row, one or more."""
    return float(min(FIRST_AGAIN * 2 ** min(tries - 1, MOST_DOUBLINGS), LONGEST_AGAIN))


def is_passed_over(mode: Literal["override", "honour", "ignore"], since: float, until: float, patience: float, now: float) -> bool:
    """Whether a budget that has been in the way `since` then is to be passed over now, given `until` when Slurm's decision can wait (0: it is made)."""
    return mode == "ignore" or (mode == "override" and now >= max(since + patience, until))


class Evictions:
    def __init__(self, executor: Executor, teller: Teller, metrics: BridgeMetrics, settings: EvictionSettings | None = None) -> None:
        self._executor = executor
        self._teller = teller
        self._metrics = metrics
        self._settings = settings or EvictionSettings()

    async def evict(self, pod: Pod, wanted: Evict, known: Known) -> None:
        """Where it is refused, `known` says when it is to be tried again."""
        now, uid = asyncio.get_running_loop().time(), pod.metadata.uid
        before = known.refusals.get(uid)
        if before and now < before.again and not self._is_due(before, wanted, now):
            return
        known.evicted[uid] = Evicted(wanted.reason, wanted.why)
        if self._settings.budgets == "ignore" or (before and self._is_due(before, wanted, now)):
            if await self._past(pod, wanted, before):
                known.refusals.pop(uid, None)
                return
            words = before.words if before else ""
        elif not (words := await self._executor.evict(pod, wanted.reason, wanted.why)):
            known.refusals.pop(uid, None)
            self._evicted(pod, wanted)
            return
        known.refusals[uid] = self._refused(pod, wanted, words, before, now)

    def _is_due(self, before: Refusal, wanted: Evict, now: float) -> bool:
        return is_passed_over(self._settings.budgets, before.since, wanted.until, self._settings.budget_seconds, now)

    async def _past(self, pod: Pod, wanted: Evict, before: Refusal | None) -> bool:
        try:
            await self._executor.remove(pod, wanted.reason, wanted.why)
        except ForbiddenError as error:
            log.warning("pod %s cannot be deleted past its disruption budget: %s", pod.key, error)
            return False
        if before:
            self._teller.overridden(pod, f"{wanted.why}; its disruption budget could not be honoured any longer: {before.words}")
            self._metrics.evicted(wanted.reason, "overridden")
        else:
            self._evicted(pod, wanted)
        return True

    def _evicted(self, pod: Pod, wanted: Evict) -> None:
        self._metrics.evicted(wanted.reason, "evicted")
        self._teller.evicted(pod, wanted.why)

    def _refused(self, pod: Pod, wanted: Evict, words: str, before: Refusal | None, now: float) -> Refusal:
        tries = before.tries + 1 if before else 1
        pause = seconds_to_next(tries) * random.uniform(0.8, 1.2)  # noqa: S311
        since = before.since if before else now
        due = max(since + self._settings.budget_seconds, wanted.until) if self._settings.budgets == "override" else 0.0
        if now < due:
            pause = min(pause, due - now)
        log.info("pod %s is not evicted yet (%s): %s; again in %.1f s", pod.key, wanted.why, words, pause)
        if before is None:
            self._metrics.evicted(wanted.reason, "delayed")
            self._teller.spared(pod, f"{wanted.why}; its disruption budget does not let it go yet: {words}")
        return Refusal(since, tries, now + pause, words)
