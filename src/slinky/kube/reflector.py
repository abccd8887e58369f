"""Keeps a Cache equal to what the API server holds.

In: a resource and selectors. Out: a Cache, and the state of its upkeep. The first list is streamed where the server can (WatchList), else read in pages; then a
watch goes on from its version, for ever: a version that expired means listing anew and telling the differences; a connection that says nothing for too long is cut.
What must stay true: no object is missed, none that is gone stays; between failures there is always a wait, which grows and has a cap; the reader never waits
for subscribers.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from slinky.kube.backoff import Backoff
from slinky.kube.cache import Cache
from slinky.kube.client import Client
from slinky.kube.errors import BadRequestError, ExpiredError, InterruptedReadError, InvalidError, KubeError
from slinky.kube.objects import Key, KubeObject
from slinky.kube.resources import Resource
from slinky.kube.retries import NEVER
from slinky.kube.transport import Request
from slinky.kube.watch import EventReader, LineSplitter, WatchEvent

__all__ = ["Reflector", "WatchHealth"]

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

SILENCE_SECONDS = 100.0  # the server sends a bookmark about once a minute when nothing else happens
WATCH_SECONDS = 300.0  # then the server ends the watch, which is renewed; the moment is spread over as long again
SHORTEST_WATCH = 1.0


@dataclass
class WatchHealth:
    """How the upkeep goes. Times are of `time.monotonic()`."""

    resource_version: str = ""
    last_contact: float = 0.0  # anything at all from the server, bookmarks included
    last_event: float = 0.0
    events: int = 0
    relists: int = 0
    connections: int = 0
    cut: int = 0  # connections we ended for their silence
    unreadable: int = 0
    failures: int = 0  # in a row
    last_error: str = ""

    @property
    def silent_for(self) -> float:
        return time.monotonic() - self.last_contact if self.last_contact else float("inf")


class _NoStreamedListsError(Exception):
    """The server does not stream lists."""


class Reflector(Generic[T]):
    """`async with Reflector(client, PODS).running() as pods: await pods.wait_synced()`.

    `transform` may return a smaller object, or None for one that is not to be held at all.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        transform: Callable[[T], T | None] | None = None,
        streamed_lists: bool = True,
        silence_seconds: float = SILENCE_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
        backoff: Backoff = Backoff(first=0.2, most=30.0),
    ) -> None:
        self.cache: Cache[T] = Cache()
        self.health = WatchHealth()
        self.resource = resource
        self._client = client
        self._namespace = namespace
        self._selectors = {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        self._path = resource.path(namespace)
        self._reader = EventReader(resource.type, self._path)
        self._transform = transform
        self._streamed_lists = streamed_lists
        self._silence_seconds = silence_seconds
        self._watch_seconds = watch_seconds
        self._backoff = backoff
        self._version: str | None = None
        self._arriving: dict[Key, T] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cache[T]]:
        task = asyncio.create_task(self.run(), name=f"reflector {self.resource}")
        try:
            yield self.cache
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            started, events = time.monotonic(), self.health.events
            try:
                await self._go_on()
            except ExpiredError as error:
                log.info("%s: %s; listing anew", self._path, error.message)
                self._version = None
                await self._pause(error, moved=self.health.events > events)
            except _NoStreamedListsError:
                log.info("%s: the server does not stream lists; reading it in pages", self._path)
                self._streamed_lists = False
            except KubeError as error:
                await self._pause(error, moved=self.health.events > events)
            except Exception as error:  # a fault of ours must not leave a cache that looks alive and is not
                log.exception("%s: listing anew after a fault of ours", self._path)
                self._version = None
                await self._pause(KubeError(f"{type(error).__name__}: {error}"), moved=False)
            else:
                if time.monotonic() - started < SHORTEST_WATCH and self.health.events == events:
                    await self._pause(InterruptedReadError("GET", self._path, "the server ended the watch at once"), moved=False)

    async def _go_on(self) -> None:
        """One list or one watch, whichever is due."""
        if self._version is not None:
            await self._watch({"resourceVersion": self._version})
        elif self._streamed_lists:
            await self._watch({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
        else:
            await self._read_in_pages()

    async def _pause(self, error: KubeError, *, moved: bool) -> None:
        self.health.failures = 1 if moved else self.health.failures + 1
        self.health.last_error = str(error)
        seconds = max(self._backoff.seconds(self.health.failures), getattr(error, "retry_after", None) or 0.0)
        log.warning("%s; failure %d in a row, on again in %.1f s", error, self.health.failures, seconds)
        await asyncio.sleep(seconds)

    async def _read_in_pages(self) -> None:
        labels, fields = self._selectors.get("labelSelector", ""), self._selectors.get("fieldSelector", "")
        listing = await self._client.list(self.resource, self._namespace, labels=labels, fields=fields)
        self.health.unreadable += listing.unreadable
        objects = {found.key: found for found in map(self._kept, listing.items) if found is not None}
        await self._become(objects, listing.resource_version)

    async def _become(self, objects: dict[Key, T], version: str) -> None:
        changes = await self.cache.replace(objects)
        self._version = self.health.resource_version = version
        self.health.relists += 1
        self.health.failures = 0
        self.health.last_contact = time.monotonic()
        log.info("%s: %d objects at version %s, %d of them news", self._path, len(objects), version, changes)

    async def _watch(self, parameters: dict[str, str]) -> None:
        lasting = self._watch_seconds * (1 + random.random())  # noqa: S311 spreads the load, guards nothing
        parameters = (
            parameters | self._selectors | {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(int(lasting) or 1)}
        )
        request = Request("GET", self._path, f"{self.resource}/watch", parameters, retries=NEVER)
        self._arriving = {} if "sendInitialEvents" in parameters else None
        try:
            async with self._client.transport.stream(request) as content:
                self.health.connections += 1
                splitter = LineSplitter()
                async for chunk in self._chunks(content.readany):
                    for line in splitter.feed(chunk):
                        await self._take(self._reader.read(line))
        except (InvalidError, BadRequestError) as error:
            if self._arriving is not None:
                raise _NoStreamedListsError from error
            raise

    async def _chunks(self, read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._silence_seconds):
                    chunk = await read()
            except TimeoutError:
                self.health.cut += 1
                raise InterruptedReadError("GET", self._path, f"silent for {self._silence_seconds:g} s; cut") from None
            if not chunk:
                return
            self.health.last_contact = time.monotonic()
            yield chunk
            await asyncio.sleep(0)  # what is buffered already is read without waiting: let the others run too

    async def _take(self, event: WatchEvent[T]) -> None:
        found = event.object
        if found is None:
            self.health.unreadable += 1
            log.error("%s: %s of an object that cannot be read, left as it was: %s", self._path, event.type, event.problem)
            return
        if event.type == "BOOKMARK":
            await self._bookmark(event, found)
            return
        self.health.events += 1
        self.health.last_event = self.health.last_contact
        if self._arriving is not None:
            self._arrive(event.type, found)
            return
        self._version = self.health.resource_version = found.metadata.resource_version
        kept = self._kept(found)
        if event.type == "DELETED" or kept is None:
            self.cache.remove(found.key, kept)
        else:
            self.cache.put(kept)

    async def _bookmark(self, event: WatchEvent[T], found: T) -> None:
        if self._arriving is None:
            self._version = self.health.resource_version = found.metadata.resource_version
        elif event.ends_initial:
            objects, self._arriving = self._arriving, None
            await self._become(objects, found.metadata.resource_version)
        else:
            raise _NoStreamedListsError  # an old server ignores what it does not know, and sends plain bookmarks

    def _arrive(self, kind: str, found: T) -> None:
        if self._arriving is None:
            return
        kept = self._kept(found)
        if kind == "DELETED" or kept is None:
            self._arriving.pop(found.key, None)
        else:
            self._arriving[found.key] = kept

    def _kept(self, found: T) -> T | None:
        if self.resource.compact is not None:
            found = self.resource.compact(found)
        if self._transform is None:
            return found
        try:
            return self._transform(found)
        except Exception:  # held whole rather than not at all: a subscriber would take it for deleted
            log.exception("%s: the transform failed on %s", self._path, found.key)
            return found
