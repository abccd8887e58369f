"""When Slurm is down, do not make it worse: a circuit that opens after a row of failures and closes when a ping succeeds.

Comes in: how each attempt ended. Goes out: permission to try, or CircuitOpenError at once. While it is open one task, and one only, pings at growing
intervals; the first ping that succeeds closes it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from slinky.slurm.errors import CircuitOpenError

__all__ = ["Circuit"]

log = logging.getLogger(__name__)


class Circuit:
    """`ping` answers whether Slurm is there; it may raise nothing."""

    def __init__(self, ping: Callable[[], Awaitable[bool]], threshold: int = 8, first_ping: float = 0.1, slowest_ping: float = 5.0) -> None:
        self._ping = ping
        self.threshold = threshold
        self._first, self._slowest = first_ping, slowest_ping
        self._failures = 0
        self._why = ""
        self._opened_at = 0.0
        self.is_open = False
        self._closed = asyncio.Event()
        self._closed.set()
        self._prober: asyncio.Task[None] | None = None
        self._stopped = False

    def check(self, request: str) -> None:
        """Raise if it is open."""
        if self.is_open:
            seconds = time.monotonic() - self._opened_at
            raise CircuitOpenError(f"not tried: Slurm has not answered a ping for {seconds:.1f} s ({self._why})", request=request)

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, why: str) -> None:
        self._failures += 1
        if self._failures < self.threshold or self.is_open or self._stopped:
            return
        self._why, self._opened_at = why[:200], time.monotonic()
        self.is_open = True
        self._closed.clear()
        log.warning("Slurm failed %d times in a row (%s): no requests until a ping succeeds", self._failures, self._why)
        self._prober = asyncio.create_task(self._probe(), name="slinky.slurm circuit")

    async def closed(self) -> None:
        """Wait until requests may be sent."""
        await self._closed.wait()

    async def stop(self) -> None:
        self._stopped = True
        if self._prober:
            self._prober.cancel()
            with suppress(asyncio.CancelledError):
                await self._prober
            self._prober = None

    async def _probe(self) -> None:
        pause = self._first
        while not await self._ping():
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311
            pause = min(pause * 2, self._slowest)
        self._failures = 0
        self.is_open = False
        self._closed.set()
        log.info("Slurm answers pings again, after %.1f s", time.monotonic() - self._opened_at)
