"""Evicting the pods of a job that ends, within their disruption budgets for as long as that can wait.

Comes in: a pod that is to go, why, and until when Slurm's decision can wait. Goes out: an eviction; or, where a budget stands in the way, when to try again; or a deletion past the budget.

*Invariants:* a budget that says no is asked by one pod alone, every few seconds, however many pods it covers; a budget is passed over only where the site says so, not before its time, and never without an Event that names it; the pod's
own grace period is always honoured.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Literal

import msgspec

from slinky.bridge.budgets import LONGEST_AGAIN, Budget, Budgets, name_of_budget
from slinky.bridge.eviction_settings import EvictionSettings
from slinky.bridge.executor import Executor
from slinky.bridge.memory import Evicted, Known, Refusal
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.plan import Evict
from slinky.bridge.telling import Teller
from slinky.kube import ForbiddenError, Pod

__all__ = ["Evictions", "is_passed_over"]

log = logging.getLogger(__name__)


def is_passed_over(mode: Literal["override", "honour", "ignore"], since: float, until: float, patience: float, now: float) -> bool:
    """Whether a budget that has been in the way `since` then is to be passed over now, given `until` when Slurm's decision can wait (0: it is made)."""
    return mode == "ignore" or (mode == "override" and now >= max(since + patience, until))


class Evictions:
    def __init__(self, executor: Executor, teller: Teller, metrics: BridgeMetrics, settings: EvictionSettings | None = None) -> None:
        self._executor = executor
        self._teller = teller
        self._metrics = metrics
        self._settings = settings or EvictionSettings()
        self._budgets = Budgets()

    @staticmethod
    def in_turn(wanted: Sequence[Evict], known: Known) -> Sequence[Evict]:
        """Pods that asked their budget least often first, so that not one pod alone asks for all."""
        if len(wanted) < 2 or not known.refusals:
            return wanted
        return sorted(wanted, key=lambda each: refusal.tries if (refusal := known.refusals.get(each.uid)) else 0)

    def ask_again(self, namespace: str, known: Known) -> None:
        """The budgets that said no to pods of this workload are asked again at once."""
        self._budgets.reopen(namespace, {name_of_budget(refusal.words) for refusal in known.refusals.values()})

    async def evict(self, pod: Pod, wanted: Evict, known: Known) -> None:
        """Where it is refused, `known` says when it is to be tried again."""
        now, uid = asyncio.get_running_loop().time(), pod.metadata.uid
        before = known.refusals.get(uid)
        if before and now < before.again and not self._is_due(before, wanted, now):
            return
        if self._settings.budgets == "ignore" or (before and self._is_due(before, wanted, now)):
            known.evicted[uid] = Evicted(wanted.reason, wanted.why)
            if await self._past(pod, wanted, before):
                known.refusals.pop(uid, None)
                return
            words = before.words if before else ""
        else:
            answer = await self._ask(pod, wanted, before, known)
            if answer is None:
                return
            words = answer
            if not words:
                known.refusals.pop(uid, None)
                self._evicted(pod, wanted)
                return
        known.refusals[uid] = self._refused(pod, wanted, words, before, known.job_id)

    async def _ask(self, pod: Pod, wanted: Evict, before: Refusal | None, known: Known) -> str | None:
        """What its budget says: nothing where the pod is evicted. None where the budget is not to be asked yet."""
        uid, loop = pod.metadata.uid, asyncio.get_running_loop()
        if before is None:
            known.evicted[uid] = Evicted(wanted.reason, wanted.why)
            return await self._executor.evict(pod, wanted.reason, wanted.why)
        namespace, budget = pod.metadata.namespace, self._budget(pod, before.words, loop.time())
        if not self._budgets.may_ask(namespace, loop.time()):
            self._put_off(uid, wanted, before, known, loop.time() + LONGEST_AGAIN * random.uniform(0.5, 1.0))  # noqa: S311
            return None
        if not await budget.may_ask():
            self._put_off(uid, wanted, before, known, budget.again(known.job_id))
            return None
        try:
            known.evicted[uid] = Evicted(wanted.reason, wanted.why)
            words = await self._executor.evict(pod, wanted.reason, wanted.why)
            if not words:
                budget.granted()
                return words
            self._budgets.refused(namespace)
            if name_of_budget(words) == name_of_budget(before.words):
                budget.refused(loop.time())  # before the next in turn asks
            return words
        finally:
            budget.left()

    def _put_off(self, uid: str, wanted: Evict, before: Refusal, known: Known, again: float) -> None:
        again = self._not_after_due(again, before.since, wanted, asyncio.get_running_loop().time())
        known.refusals[uid] = msgspec.structs.replace(before, again=again)

    def _budget(self, pod: Pod, words: str, now: float) -> Budget:
        ready = pod.condition("Ready")
        is_ready = ready is not None and ready.status == "True"
        return self._budgets.of(pod.metadata.namespace, name_of_budget(words), now, ready=is_ready)

    def _not_after_due(self, again: float, since: float, wanted: Evict, now: float) -> float:
        """Not later than the moment at which the budget may be passed over."""
        due = max(since + self._settings.budget_seconds, wanted.until) if self._settings.budgets == "override" else 0.0
        return min(again, due) if now < due else again

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

    def _refused(self, pod: Pod, wanted: Evict, words: str, before: Refusal | None, workload: int) -> Refusal:
        now = asyncio.get_running_loop().time()
        budget = self._budget(pod, words, now)
        budget.refused(now)
        since = before.since if before else now
        again = self._not_after_due(budget.again(workload), since, wanted, now)
        log.info("pod %s is not evicted yet (%s): %s; again in %.1f s", pod.key, wanted.why, words, again - now)
        if before is None:
            self._metrics.evicted(wanted.reason, "delayed")
            self._teller.spared(pod, f"{wanted.why}; its disruption budget does not let it go yet: {words}")
        return Refusal(since, before.tries + 1 if before else 1, again, words)
