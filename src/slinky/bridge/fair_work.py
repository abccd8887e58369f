"""Work for many namespaces side by side: a limit for all together, and none can take it all.

In: pieces of work, each with a key and the group (namespace) it is for. Out: each is run once.

*Invariants:* at most `limit` run at once. A group gets at most half of what the others leave, so that one whose work hangs leaves room for the next, and that one for another. What waits is bounded by the number of distinct keys.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["FairWork", "share_of"]

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
Work = Callable[[], Awaitable[None]]


def share_of(limit: int, others: int) -> int:
    """How many pieces of work a group may have under way while all others have `others`: half of what is left, and at least one while there is any."""
    left = limit - others
    return max(left // 2, min(left, 1), 0)


class FairWork(Generic[K]):
    """`add` work at any time; it is done while `run` runs. Belongs to one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: OrderedDict[str, OrderedDict[K, Work]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def running(self) -> int:
        return self._running.total()

    def add(self, group: str, key: K, work: Work) -> None:
        """Where it waits already, the latest `work` is done in its place."""
        self._waiting.setdefault(group, OrderedDict())[key] = work
        self._start()

    async def run(self) -> None:
        """Until cancelled. What is under way is cancelled too, and what waits is dropped."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._start()
                await asyncio.Event().wait()
        finally:
            self._tasks = None
            self._waiting.clear()
            self._running.clear()

    def _start(self) -> None:
        """As many as may run now, from one group after another."""
        while self._tasks is not None and (group := self._next_group()) is not None:
            waiting = self._waiting[group]
            key, work = waiting.popitem(last=False)
            if waiting:
                self._waiting.move_to_end(group)
            else:
                del self._waiting[group]
            self._running[group] += 1
            self._tasks.create_task(self._one(group, key, work))

    def _next_group(self) -> str | None:
        total = self.running
        return next((group for group in self._waiting if self._running[group] < share_of(self._limit, total - self._running[group])), None)

    async def _one(self, group: str, key: K, work: Work) -> None:
        try:
            await work()
        except Exception:
            log.exception("%s: the work failed", key)
        finally:
            self._running[group] -= 1
            if not self._running[group]:
                del self._running[group]
        self._start()
