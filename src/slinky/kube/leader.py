"""Leader election on a Lease, in a thread of its own with its own event loop and connection, so that a busy main loop does not lose it.

In: an `Access`, a Lease's name, an identity that no other has. Out: `is_leader`, which may be asked from anywhere at any time, and two callbacks.
What must stay true: `is_leader` is false before another could have become leader, also where this process was stopped for an hour and has just been
let go on; callbacks come in turns (started, stopped, started …) in the loop that called `start`.
"""

import asyncio
import datetime as dt
import logging
import random
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from slinky.kube.access import Access
from slinky.kube.client import Client
from slinky.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from slinky.kube.leases import (
    ElectionTimes,
    Move,
    Observation,
    leader_until,
    lease_clock,
    next_move,
    released_spec,
    taken_spec,
)
from slinky.kube.objects import Lease
from slinky.kube.resources import LEASES
from slinky.kube.retries import NEVER
from slinky.kube.transport import Observer

__all__ = ["LeaderElector"]

log = logging.getLogger(__name__)

JITTER = 0.2
STOP_SECONDS = 10.0


class LeaderElector:
    """`elector.start()` … `if elector.is_leader: act()` … `await elector.stop()`, which gives the Lease back.

    `notes()` are annotations that go along with each write of the Lease, for the next leader. It is called in the elector's thread.
    """

    def __init__(
        self,
        access: Access,
        name: str,
        namespace: str,
        identity: str,
        *,
        times: ElectionTimes | None = None,
        on_started: Callable[[], None] = lambda: None,
        on_stopped: Callable[[], None] = lambda: None,
        observer: Observer | None = None,
        clock: Callable[[], float] = lease_clock,
        notes: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.identity = identity
        self._access = access
        self._name, self._namespace = name, namespace
        self._times = times or ElectionTimes()
        self._on_started, self._on_stopped = on_started, on_stopped
        self._observer = observer
        self._clock = clock
        self._notes = notes
        self._until = float("-inf")
        self._leading = False  # what the callbacks were told
        self._seen: Observation | None = None
        self._main: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_leader(self) -> bool:
        """Ask right before each act: it looks at the clock, not at a flag."""
        return self._clock() < self._until

    @property
    def holder(self) -> str:
        """Who held the Lease when last seen; empty where nobody did."""
        return self._seen.lease.spec.holder_identity if self._seen else ""

    def start(self) -> None:
        """From within the event loop in which the callbacks are to run."""
        self._main = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=f"leader election {self._name}", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Step down, tell so, and give the Lease back so that another need not wait."""
        if self._thread is None:
            return
        if self._loop and self._stopping:
            self._loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)
        self._thread = None

    # In the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._compete())
        except Exception:
            log.exception("Lease %s/%s: leader election ended by a fault of ours", self._namespace, self._name)
            self._until = float("-inf")
            self._tell()

    async def _compete(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with Client(self._access, connections=2, observer=self._observer, retries=NEVER) as client:
            while not self._stopping.is_set():
                await self._try(client)
                await self._wait()
            self._until = float("-inf")
            self._tell()
            await self._release(client)

    async def _wait(self) -> None:
        """Until the next try, or the end, or the moment at which our lead runs out."""
        assert self._stopping is not None
        pause = self._times.retry * (1 + JITTER * random.random())  # noqa: S311 spreads the load, guards nothing
        if self._leading:
            pause = max(0.0, min(pause, self._until - self._clock()))
        try:
            async with asyncio.timeout(pause):
                await self._stopping.wait()
        except TimeoutError:
            self._tell()

    async def _try(self, client: Client) -> None:
        """One attempt to take or keep the Lease; short enough for a second one while we still lead."""
        try:
            async with asyncio.timeout(self._times.renew / 2):
                await self._take_or_keep(client)
        except (KubeError, TimeoutError) as error:
            state = f"leading for {max(0.0, self._until - self._clock()):.1f} s more" if self.is_leader else "not leading"
            log.warning("Lease %s/%s: %s; %s, on again in about %g s", self._namespace, self._name, _said(error), state, self._times.retry)
            self._seen = None if isinstance(error, ConflictError) and self.is_leader else self._seen
        self._tell()

    async def _take_or_keep(self, client: Client) -> None:
        """While we lead, one write from what we know; else (or after a conflict) a look first."""
        if (self._seen is None or not self.is_leader) and not await self._look(client):
            return
        assert self._seen is not None
        sent = self._clock()
        spec = taken_spec(self._seen.lease, self.identity, self._times, dt.datetime.now(dt.UTC))
        await self._write(client, self._seen.lease, spec)
        self._until = leader_until(sent, self._times)

    async def _look(self, client: Client) -> bool:
        """Whether the Lease may be written by us now. Makes it where there is none."""
        try:
            lease = await client.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            return await self._create(client)
        now = self._clock()
        self._seen = self._seen.updated(lease, now) if self._seen else Observation(lease, now)
        move = next_move(self._seen, self.identity, now)
        if move is Move.WAIT:
            self._until = float("-inf")
        return move is not Move.WAIT

    async def _create(self, client: Client) -> bool:
        sent = self._clock()
        body = {"metadata": {"name": self._name}, "spec": taken_spec(None, self.identity, self._times, dt.datetime.now(dt.UTC))}
        try:
            made = await client.create(LEASES, body, self._namespace)
        except AlreadyExistsError:
            return False  # another was quicker; the next try looks at it
        self._seen = Observation(made, self._clock())
        self._until = leader_until(sent, self._times)
        return False

    async def _write(self, client: Client, held: Lease, spec: dict[str, Any]) -> None:
        """The version goes along: the write is refused where another came first. The rest of the Lease stays as it is."""
        notes = dict(self._notes())
        annotations = {"annotations": notes} if notes else {}
        patch = {"metadata": {"resourceVersion": held.metadata.resource_version, **annotations}, "spec": spec}
        written = await client.patch(LEASES, self._name, patch, self._namespace)
        self._seen = Observation(written, self._clock())

    async def _release(self, client: Client) -> None:
        if self._seen is None or self._seen.lease.spec.holder_identity != self.identity:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS / 2):
                await self._write(client, self._seen.lease, released_spec(self._seen.lease, dt.datetime.now(dt.UTC)))
        except (KubeError, TimeoutError) as error:
            log.warning("Lease %s/%s could not be given back: %s; it runs out by itself", self._namespace, self._name, _said(error))

    def _tell(self) -> None:
        """Callbacks, when what is true has changed since they were last told."""
        leading = self.is_leader
        if leading == self._leading or self._main is None:
            return
        self._leading = leading
        log.info("Lease %s/%s: %s %s", self._namespace, self._name, self.identity, "leads" if leading else "leads no more")
        with suppress(RuntimeError):  # the main loop is closed: nobody is left to be told
            self._main.call_soon_threadsafe(self._on_started if leading else self._on_stopped)


def _said(error: BaseException) -> str:
    return str(error) or "no answer in time"
