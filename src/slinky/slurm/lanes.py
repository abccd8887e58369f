"""Whose turn it is: a limit on requests in flight, in which urgent ones go before bulk and nobody starves.

Comes in: requests, each in a lane. Goes out: permission to send, one at a time. Some places are kept free of bulk, so that a read that someone waits for
never stands behind a queue of slow submits; and after a row of urgent ones, bulk gets its turn.
"""

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Lane", "Lanes"]


class Lane(enum.IntEnum):
    """In the order of who goes first."""

    URGENT = 0  # pings, states: small, and somebody waits
    NORMAL = 1  # what people and controllers ask for
    BULK = 2  # submits by the thousand, full lists


class Lanes:
    """`limit` requests at a time, of which bulk may use all but `reserved`."""

    PATIENCE = 8  # turns taken by others before a waiting lower lane gets one

    def __init__(self, limit: int, reserved: int | None = None) -> None:
        if limit < 1:
            raise ValueError(f"a limit of {limit} requests leaves no room for any")
        self.limit = limit
        self.bulk_limit = max(1, limit - (limit // 8 + 1 if reserved is None else reserved))
        self.in_flight = 0
        self.bulk_in_flight = 0
        self._queues: dict[Lane, deque[asyncio.Future[None]]] = {lane: deque() for lane in Lane}
        self._waiting = 0
        self._passed_over = dict.fromkeys(Lane, 0)

    @asynccontextmanager
    async def turn(self, lane: Lane) -> AsyncIterator[None]:
        await self.enter(lane)
        try:
            yield
        finally:
            self.leave(lane)

    async def enter(self, lane: Lane) -> None:
        """Wait for a turn; `leave` must follow."""
        if not self._waiting and self._has_room(lane):
            self._take(lane)
            return
        self._waiting += 1
        try:
            await self._wait(lane)
        finally:
            self._waiting -= 1

    def leave(self, lane: Lane) -> None:
        """The turn is over."""
        self.in_flight -= 1
        self.bulk_in_flight -= lane is Lane.BULK
        if self._waiting:
            self._call_next()

    async def _wait(self, lane: Lane) -> None:
        ticket = asyncio.get_running_loop().create_future()
        self._queues[lane].append(ticket)
        self._call_next()
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled():
                self.leave(lane)
            else:
                ticket.cancel()
                self._call_next()
            raise

    def _take(self, lane: Lane) -> None:
        self.in_flight += 1
        self.bulk_in_flight += lane is Lane.BULK

    def _has_room(self, lane: Lane) -> bool:
        return self.in_flight < self.limit and (lane is not Lane.BULK or self.bulk_in_flight < self.bulk_limit)

    def _call_next(self) -> None:
        while (lane := self._next_lane()) is not None:
            self._take(lane)
            self._queues[lane].popleft().set_result(None)

    def _next_lane(self) -> Lane | None:
        for queue in self._queues.values():
            while queue and queue[0].done():  # gave up waiting
                queue.popleft()
        ready = [lane for lane in Lane if self._queues[lane] and self._has_room(lane)]
        if not ready:
            return None
        overdue = [lane for lane in ready if self._passed_over[lane] >= self.PATIENCE]
        chosen = overdue[0] if overdue else ready[0]
        for lane in ready:
            self._passed_over[lane] = 0 if lane is chosen else self._passed_over[lane] + 1
        return chosen
