"""A service's times as leader, one after the other: what acts runs while this process has the Lease, and only then.

In: a Lease's name, and what a leader does. Out: that, started each time this process comes to lead and cancelled when it no longer does; `may_act`, for right before each act.
What must stay true: nothing runs before the first lead; one time has ended, with all that it leaves, before the next begins; at the end the Lease is given back. Without an election there is one time, for ever.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from slinky.kube.access import Access
from slinky.kube.leader import LeaderElector
from slinky.kube.leases import ElectionTimes
from slinky.kube.metrics import KubeMetrics

__all__ = ["Leading"]

log = logging.getLogger(__name__)


class Leading:
    """`leading = Leading(access, "slurm-operator", namespace, elect=True, seconds=15)`; when all is warm `await leading.run(lead)`, until cancelled."""

    def __init__(
        self, access: Access, lease: str, namespace: str, *, elect: bool, seconds: float, metrics: KubeMetrics | None = None
    ) -> None:
        self._access, self._lease, self._namespace = access, lease, namespace
        self._elect, self._seconds, self._metrics = elect, seconds, metrics
        self._lead = asyncio.Event()
        self._lost = asyncio.Event()
        self._elector: LeaderElector | None = None
        self.notes: Mapping[str, str] = {}  # that go along with the Lease, for the next leader; to be replaced as a whole

    def may_act(self) -> bool:
        """Ask right before each act."""
        return self._elector.is_leader if self._elector else not self._elect

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`lead()` is one time, until it is cancelled. What it raises ends this too."""
        self._elector = self._started_elector() if self._elect else None
        try:
            while True:
                if self._elector:
                    await self._lead.wait()
                await self._one_time(lead)
        finally:
            if self._elector:
                await self._elector.stop()

    async def _one_time(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        log.info("this process leads")
        time = asyncio.create_task(lead(), name="leading")
        lost = asyncio.create_task(self._lost.wait(), name="leadership lost")
        try:
            await asyncio.wait({time, lost}, return_when=asyncio.FIRST_COMPLETED)
            if time.done():
                time.result()
            log.warning("another process leads now: this one waits")
        finally:
            time.cancel()
            lost.cancel()
            await asyncio.gather(time, lost, return_exceptions=True)

    def _started_elector(self) -> LeaderElector:
        elector = LeaderElector(
            self._access,
            self._lease,
            self._namespace,
            f"{socket.gethostname()}_{os.urandom(4).hex()}",
            times=ElectionTimes.within(self._seconds),
            on_started=self._started,
            on_stopped=self._stopped,
            observer=self._metrics.observe if self._metrics else None,
            notes=lambda: self.notes,
        )
        if self._metrics:
            self._metrics.follow(self._lease, elector)
        elector.start()
        return elector

    def _started(self) -> None:
        self._lost.clear()
        self._lead.set()

    def _stopped(self) -> None:
        self._lead.clear()
        self._lost.set()
