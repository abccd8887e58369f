"""Where workers wait for keys: the thin edge of an `Agenda`, which decides.

In: keys that need work, from subscribers of caches. Out: each key to one worker at a time; after a failure again, later and later.
What must stay true: a worker that waits is woken when there is a key for it, also where another one was cancelled at that moment; after a shutdown what was ready is finished.
"""

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

from slinky.kube.agenda import Agenda, first_part
from slinky.kube.backoff import Backoff
from slinky.kube.errors import KubeError

__all__ = ["QueueClosedError", "WorkQueue"]

log = logging.getLogger(__name__)

TURN_SECONDS = 0.002  # of one worker, before others have theirs

K = TypeVar("K", bound=Hashable)


class QueueClosedError(KubeError):
    """The queue is shut down and has nothing more to give."""


class WorkQueue(Generic[K]):
    """`await queue.serve(handle, workers=8)` is a controller's loop; `async with queue.work() as key` is one turn of it. Belongs to one event loop.

    After a turn: `forget(key)` where it went well, `add_after_failure(key)` where it did not; `serve` does both. Failures of the kinds `expected` (and KubeErrors) are logged in a line, others with where they come from.
    """

    def __init__(
        self,
        *,
        group: Callable[[K], Hashable] = first_part,
        backoff: Backoff = Backoff(first=0.05, most=300.0),
        clock: Callable[[], float] | None = None,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        self.agenda: Agenda[K] = Agenda(group=group, backoff=backoff)
        self._clock = clock
        self._expected: tuple[type[Exception], ...] = (KubeError, *expected)
        self._wanted: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._alarm: float | None = None  # for when it is set
        self._closed = False
        self._idle = asyncio.Event()

    def add(self, key: K, *, priority: int = 0) -> None:
        if not self._closed:
            self.agenda.add(key, priority=priority)
            self._notify()

    def add_after(self, key: K, seconds: float, *, priority: int = 0) -> None:
        if not self._closed:
            self.agenda.add_after(key, self._now(), seconds, priority=priority)
            self._notify()

    def add_after_failure(self, key: K, *, priority: int = 0) -> float:
        """Returns the wait, for the log line that every retry has."""
        if self._closed:
            return 0.0
        seconds = self.agenda.add_after_failure(key, self._now(), priority=priority)
        self._notify()
        return seconds

    def forget(self, key: K) -> None:
        self.agenda.forget(key)

    def done(self, key: K) -> None:
        self.agenda.done(key)
        self._notify()

    def __len__(self) -> int:
        """Keys that wait, now or later."""
        return self.agenda.ready + self.agenda.later

    async def take(self) -> K:
        """The next key; `done(key)` must follow. Raises QueueClosedError when shut down and empty."""
        while True:
            key = self.agenda.take(self._now())
            if key is not None:
                self._notify()
                return key
            if self._closed and not self.agenda.working:
                raise QueueClosedError("the work queue is shut down")
            await self._wait()

    @asynccontextmanager
    async def work(self) -> AsyncIterator[K]:
        key = await self.take()
        try:
            yield key
        finally:
            self.done(key)

    async def serve(self, handle: Callable[[K], Awaitable[None]], *, workers: int = 1) -> None:
        """Until the queue is shut down and empty. What `handle` raises is logged, and the key comes again later."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._serve_one(handle))

    async def _serve_one(self, handle: Callable[[K], Awaitable[None]]) -> None:
        began = time.perf_counter()
        with suppress(QueueClosedError):
            while True:
                async with self.work() as key:
                    await self._turn(key, handle)
                if time.perf_counter() - began > TURN_SECONDS:  # keys that are decided from memory never wait for anything
                    await asyncio.sleep(0)
                    began = time.perf_counter()

    async def _turn(self, key: K, handle: Callable[[K], Awaitable[None]]) -> None:
        try:
            await handle(key)
        except Exception as error:
            wait = self.add_after_failure(key)
            expected = isinstance(error, self._expected)
            log.warning("%s: %s; failure %d, again in %.1f s", key, error, self.agenda.failures(key), wait, exc_info=not expected)
        else:
            self.forget(key)

    async def shut_down(self, seconds: float = 30.0) -> bool:
        """No more adds; what is ready and in work is finished, what was for later is dropped. Returns whether all was done in time."""
        self._closed = True
        self.agenda.drop_later()
        self._notify()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _now(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()

    def _notify(self) -> None:
        """Wake as many waiting workers as there are keys, or all when it is over; set the alarm for the first of the later ones."""
        over = self._closed and not self.agenda.ready and not self.agenda.working
        if over:
            self._idle.set()
        if self._wanted and (over or self.agenda.ready):
            self._wake_workers(len(self._wanted) if over else self.agenda.ready)
        due = self.agenda.next_due() if self._wanted else None
        if due == self._alarm and self._timer is not None:
            return
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._alarm = due
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - self._now()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake_workers(1)

    def _wake_workers(self, count: int) -> None:
        for waiter in itertools.islice(self._wanted, count):
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted[waiter] = None
        self._notify()
        try:
            await waiter
        except asyncio.CancelledError:
            self._wanted.pop(waiter, None)
            self._notify()  # it may have been woken already: pass that on
            raise
        self._wanted.pop(waiter, None)
