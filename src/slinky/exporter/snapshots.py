"""One look at Slurm for all who scrape, and never more than the set rate.

Comes in: what looks, and scrapers who ask for something fresh. Goes out: the last snapshot that succeeded, and whether the last look did. What must stay true: at most one look runs; between the beginnings of two lie at least `seconds`, and
so much that looks take no more than their share of the time; a scraper waits no longer than it is ready to; a look that fails changes nothing but `is_up`.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from slinky.exporter.settings import SnapshotSettings
from slinky.exporter.snapshot import Snapshot
from slinky.slurm import SlurmError

__all__ = ["Snapshots"]

log = logging.getLogger(__name__)

Look = Callable[[], Awaitable[Snapshot]]


class Snapshots:
    def __init__(self, look: Look, settings: SnapshotSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._settings, self._clock = look, settings, clock
        self._running: asyncio.Task[None] | None = None
        self._next = float("-inf")
        self.latest: Snapshot | None = None
        self._seen_at = float("-inf")
        self.is_up = False
        self.problem = "nobody has looked yet"
        self.last_seconds = 0.0
        self.outcomes: Counter[str] = Counter(ok=0, failed=0)

    @property
    def age(self) -> float | None:
        """Of the last snapshot; None where there is none."""
        return None if self.latest is None else self._clock() - self._seen_at

    @property
    def current(self) -> Snapshot | None:
        """The last one, unless it is too old to be told."""
        return self.latest if self.age is not None and self.age <= self._settings.stale_seconds else None

    async def freshen(self, seconds: float | None = None) -> None:
        """Look, if that is allowed now; who comes while one looks waits for that one. Returns after `seconds` at the latest, and raises nothing of Slurm's."""
        if self._running is None and self._clock() >= self._next:
            self._running = asyncio.create_task(self._take(), name="look at Slurm")
        if self._running is not None:
            patience = self._settings.wait_seconds if seconds is None else min(seconds, self._settings.wait_seconds)
            await asyncio.wait({self._running}, timeout=max(0.0, patience))

    async def look(self) -> None:
        """Look now, for as long as a look may take. What goes wrong is in `is_up` and `problem`."""
        self._running = asyncio.create_task(self._take(), name="look at Slurm")
        await asyncio.wait({self._running})

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _take(self) -> None:
        began = self._clock()
        try:
            async with asyncio.timeout(self._settings.look_seconds):
                self.latest = await self._look()
        except TimeoutError:
            self._failed(f"no end within {self._settings.look_seconds:g} s")
        except SlurmError as error:
            self._failed(str(error))
        except Exception as error:
            log.exception("a look at Slurm failed")
            self._failed(f"{type(error).__name__}: {error}")
        else:
            if not self.is_up:
                log.info("Slurm answers")
            self._seen_at = self._clock()
            self.is_up, self.problem = True, ""
            self.outcomes["ok"] += 1
        finally:
            self.last_seconds = self._clock() - began
            self._next = began + max(self._settings.seconds, self.last_seconds / self._settings.share)
            self._running = None

    def _failed(self, problem: str) -> None:
        if self.is_up or self.problem != problem:
            log.warning("Slurm does not answer: %s", problem)
        self.is_up, self.problem = False, problem
        self.outcomes["failed"] += 1
