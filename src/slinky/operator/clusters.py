"""Each cluster's Slurm: one client and one watcher, for as long as there is a RestApi.

Comes in: where a cluster's slurmrestd is, and the key that its tokens are signed with. Goes out: its nodes as Slurm tells them, since when that is known, and a call when they change. What must stay true: what was not seen lately does not count as
known; a Slurm that is slow or dead keeps nobody waiting but those who ask for it.
"""

import asyncio
import datetime as dt
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from slinky.kube import Backoff, Key
from slinky.operator.recording import Recording
from slinky.operator.settings import SlurmSettings
from slinky.slurm import (
    CircuitOpenError,
    Limits,
    MintedToken,
    Node,
    Observer,
    Pace,
    SlurmClient,
    SlurmError,
)

__all__ = ["Cluster", "Clusters", "changed_names"]

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.5, most=4.0)
CONNECTIONS = 8
SHARE = 0.1  # of the time, at most, that is spent looking

Changed = Callable[[frozenset[str], Mapping[str, Node]], None]
AnyChanged = Callable[[Key, frozenset[str], Mapping[str, Node]], None]


def changed_names(before: Mapping[str, Node], after: Mapping[str, Node]) -> frozenset[str]:
    """Nodes that are new, gone, or other than they were. Load and free memory, which always change, are no news."""
    return frozenset(name for name in before.keys() | after.keys() if _told(before.get(name)) != _told(after.get(name)))


def _told(node: Node | None) -> object:
    if node is None:
        return None
    return (
        node.states,
        node.reason,
        node.comment,
        node.alloc_cpus,
        node.alloc_memory,
        node.gres,
        node.gres_used,
        node.features,
        node.active_features,
        node.partitions,
        node.topology,
        node.reservation,
        node.hostname,
        node.address,
        node.version,
        node.slurmd_start_time,
    )


class Cluster:
    """`nodes` is what was last seen; `is_current` whether that may be gone by."""

    def __init__(self, key: Key, address: str, jwt_key: bytes, settings: SlurmSettings, observer: Observer | None = None) -> None:
        self.key = key
        self.address = address
        limits = Limits(deadline=settings.request_seconds, attempt=settings.request_seconds, connections=CONNECTIONS, circuit_threshold=4)
        credentials = MintedToken(jwt_key, settings.user, lifespan=settings.token_seconds)
        self.slurm = SlurmClient(address, credentials, limits=limits, observer=observer)
        rarely = Limits(
            deadline=settings.request_seconds,
            attempt=settings.request_seconds,
            connections=1,
            attempts=1,
        )
        asks = SlurmClient(address, credentials, limits=rarely, observer=observer)
        self.recording = Recording(key, asks, self._changed_standing)
        self.nodes: Mapping[str, Node] = MappingProxyType({})
        self.seen_at = float("-inf")  # of time.monotonic(), when the last look that was answered began
        self.taken_at = float("-inf")  # and when it was answered: `nodes` are not older than `seen_at`, and not younger than this
        self.problem = "Slurm was not asked yet"
        self.silent_since: dt.datetime | None = dt.datetime.now(dt.UTC)  # None while it answers
        self.error: SlurmError | None = None  # the last failure, while Slurm does not answer
        self._silent_at = time.monotonic()
        self._settings = settings
        self._pace = Pace(fastest=settings.fastest_poll, slowest=settings.slowest_poll, share=SHARE)
        self._subscribers: list[Changed] = []
        self._standing: list[Callable[[], None]] = []
        self._wake = asyncio.Event()
        self._looking = asyncio.Lock()
        self._begun = self._answered = 0  # numbers of the last look that began, and of the last that was answered or refused
        self._refusal: SlurmError | None = None  # of that one
        self._update_time = 0
        self._anew = True
        self._whole_at = float("-inf")
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_current(self) -> bool:
        """Whether Slurm answered when it was last asked, and not long ago."""
        return not self.problem and time.monotonic() - self.seen_at <= self._settings.current_seconds

    @property
    def has_answered(self) -> bool:
        """Whether it ever did."""
        return self.seen_at > float("-inf")

    @property
    def silence(self) -> float:
        """For how many seconds Slurm has not answered; 0 while it does."""
        return time.monotonic() - self._silent_at if self.problem else 0.0

    def on_change(self, callback: Changed) -> Callable[[], None]:
        """`callback(names, before)` after each look that shows something new: whom, and all nodes as they were. Returns the end of it."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    def on_standing(self, callback: Callable[[], None]) -> None:
        """Called when Slurm is there again, or no longer."""
        self._standing.append(callback)

    def hurry(self) -> None:
        """Something was done that changes nodes: look at once."""
        self._wake.set()

    def look_anew(self) -> None:
        """Nodes were deleted, which Slurm (26.05) does not count as a change: the next look, one that has not begun yet, is at all of them."""
        self._anew = True
        self.hurry()

    async def look(self) -> None:
        """Look now, or share the look of another that begins from now on. Raises SlurmError."""
        begun = self._begun
        async with self._looking:
            if self._answered <= begun:  # none that began after we came
                self._begun = number = self._begun + 1
                self._refusal = await self._look()
                self._answered = number
            if self._refusal is not None:
                raise self._refusal

    async def _look(self) -> SlurmError | None:
        began, anew, self._anew = time.monotonic(), self._anew, False
        anew = anew or began - self._whole_at >= self._pace.whole
        try:
            nodes, update_time = await self.slurm.nodes.since(0 if anew else self._update_time)
        except SlurmError as error:
            self._anew |= anew
            self._stands(str(error), error)
            return error
        self.seen_at, self.taken_at = began, time.monotonic()
        self._whole_at = began if anew else self._whole_at
        if nodes is not None:
            self._take(nodes, update_time)
        self._stands("")
        return None

    def _take(self, nodes: Iterable[Node], update_time: int) -> None:
        before, after = self.nodes, {node.name: node for node in nodes}
        self.nodes, self._update_time = MappingProxyType(after), update_time
        names = changed_names(before, after)
        if names:
            for callback in tuple(self._subscribers):
                callback(names, before)

    def _stands(self, problem: str, error: SlurmError | None = None) -> None:
        changed = bool(problem) != bool(self.problem)
        if changed:
            self._silent_at = time.monotonic()
            self.silent_since = dt.datetime.now(dt.UTC) if problem else None
        self.problem = problem
        if not isinstance(error, CircuitOpenError):  # which only says that it failed before
            self.error = error
        if changed:
            self._changed_standing()

    def _changed_standing(self) -> None:
        for callback in tuple(self._standing):
            callback()

    def start(self) -> None:
        records = self.recording.watch(lambda: self.is_current)
        self._tasks = [
            asyncio.create_task(self._watch(), name=f"Slurm of {self.key}"),
            asyncio.create_task(records, name=f"slurmdbd of {self.key}"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self.slurm.close()

    async def _watch(self) -> None:
        pause, failures = self._pace.fastest, 0
        while True:
            began, before = time.monotonic(), self.nodes
            try:
                await self.look()
            except SlurmError as error:
                failures += 1
                wait = BACKOFF.seconds(failures)
                if failures == 1 or failures % 20 == 0:
                    log.warning("Slurm of %s does not answer (%s); failure %d, again in %.1f s", self.key, error, failures, wait)
                await self._rest(wait)
                continue
            failures = 0
            pause = self._pace.next(pause, self.nodes is not before)
            await self._rest(self._pace.rest(pause, time.monotonic() - began))

    async def _rest(self, seconds: float) -> None:
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()


class Clusters:
    """By Controller. `on_change(callback)`: `callback(key, names, before)` for any cluster; `on_standing(callback)`: `callback(key)` when one came, went, or is there again."""

    def __init__(self, settings: SlurmSettings, observer: Observer | None = None) -> None:
        self._settings = settings
        self._observer = observer
        self._held: dict[Key, tuple[str, Cluster]] = {}
        self._changed: list[AnyChanged] = []
        self._standing: list[Callable[[Key], None]] = []

    def get(self, namespace: str, controller: str) -> Cluster | None:
        held = self._held.get(Key(namespace, controller))
        return held[1] if held else None

    def __iter__(self) -> Iterator[Cluster]:
        return iter([cluster for _, cluster in self._held.values()])

    def on_change(self, callback: AnyChanged) -> Callable[[], None]:
        self._changed.append(callback)
        return lambda: self._changed.remove(callback) if callback in self._changed else None

    def on_standing(self, callback: Callable[[Key], None]) -> Callable[[], None]:
        self._standing.append(callback)
        return lambda: self._standing.remove(callback) if callback in self._standing else None

    async def ensure(self, key: Key, address: str, jwt_key: bytes) -> Cluster:
        """The cluster's client; another one where its address or its key is another."""
        mark = hashlib.sha256(address.encode() + b"\0" + jwt_key).hexdigest()
        held = self._held.get(key)
        if held and held[0] == mark:
            return held[1]
        if held:
            await self.drop(key)
        cluster = Cluster(key, address, jwt_key, self._settings, self._observer)
        self._held[key] = (mark, cluster)
        cluster.on_change(lambda names, before: self._tell(key, names, before))
        cluster.on_standing(lambda: self._stands(key))
        cluster.start()
        log.info("Slurm of %s is at %s", key, address)
        self._stands(key)
        return cluster

    async def drop(self, key: Key) -> None:
        """There is no RestApi, or no Controller any more."""
        held = self._held.pop(key, None)
        if held:
            await held[1].stop()
            self._stands(key)

    async def close(self) -> None:
        for key in list(self._held):
            await self.drop(key)

    def _tell(self, key: Key, names: frozenset[str], before: Mapping[str, Node]) -> None:
        for callback in tuple(self._changed):
            callback(key, names, before)

    def _stands(self, key: Key) -> None:
        for callback in tuple(self._standing):
            callback(key)
