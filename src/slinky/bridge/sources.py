"""What a server offers of the APIs that tell of groups of pods, as cached watches that come and go with it.

Comes in: the API server's discovery, the CRDs that it has, and the objects. Goes out: a cache for each kind that is offered now, and each change of an object. What must stay true: a read costs no request; what is offered is looked at again
every minute, and at once when one of the CRDs is installed or removed (where we may watch CRDs); an API that is gone leaves no object and no watch behind; between two looks there is always a wait.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from slinky.bridge.groupapis import CRDS, KNOWN, Source, choose
from slinky.kube import Backoff, Cache, Change, Client, ForbiddenError, KubeError, KubeObject, NotFoundError, Reflector, Resource

__all__ = ["LOOK_SECONDS", "Sources"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", KubeObject, namespaced=False)


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class _Plural(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Plural] = []


class _Watch:
    """A source that is being followed."""

    def __init__(self, reflector: Reflector[Any]) -> None:
        self.reflector = reflector
        self.cache: Cache[Any] = reflector.cache
        self.task = asyncio.create_task(reflector.run(), name=f"groups {reflector.resource}")

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Sources:
    """`async with sources.running(): await sources.wait_synced()`; then `sources.cache(kind)`.

    `changed` is told each change of an object, `gone` each object of an API that went; `prepare` may add indexes to a cache before it is filled.
    """

    def __init__(
        self,
        client: Client,
        changed: Callable[[Source, Change[Any]], None],
        gone: Callable[[Source, Any], None],
        *,
        prepare: Callable[[Source, Cache[Any]], None] = lambda *_: None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._client = client
        self._changed = changed
        self._gone = gone
        self._prepare = prepare
        self._look_seconds = look_seconds
        self._watches: dict[Source, _Watch] = {}
        self._crds: dict[str, _Watch] = {}  # by API group
        self._looked = asyncio.Event()
        self._look_now = asyncio.Event()
        self._said: dict[str, str] = {}
        self._trouble = "the server's APIs were not read yet"

    # Reading

    def cache(self, kind: str | None) -> Cache[Any] | None:
        """None where the server does not offer it. Kind None are the Workloads that PodGroups refer to."""
        return next((watch.cache for source, watch in self._watches.items() if source.kind == kind), None)

    def source(self, kind: str) -> Source | None:
        return next((source for source in self._watches if source.kind == kind), None)

    def names(self) -> list[str]:
        """What is watched, as `podgroups.scheduling.k8s.io/v1alpha2`."""
        return sorted(str(source) for source in self._watches)

    def describe(self) -> str:
        """For the log and for health."""
        parts = [_state(source, watch) for source, watch in sorted(self._watches.items(), key=lambda item: str(item[0]))]
        return "; ".join([*parts, *([self._trouble] if self._trouble else [])]) or "the server offers no groups of pods"

    async def wait_synced(self, seconds: float = LOOK_SECONDS) -> None:
        """Until the APIs were looked at and the first list of each has arrived."""
        try:
            async with asyncio.timeout(seconds):
                await self._looked.wait()
                for watch in list(self._watches.values()):
                    await watch.cache.wait_synced(seconds)
        except (TimeoutError, KubeError):
            raise KubeError(f"the groups of pods were not read within {seconds:g} s: {self.describe()}") from None

    # Following

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Sources"]:
        task = asyncio.create_task(self._follow(), name="groups")
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for watch in (*self._watches.values(), *self._crds.values()):
                await watch.end()
            self._watches, self._crds = {}, {}

    async def _follow(self) -> None:
        failures = 0
        backoff = Backoff(first=min(0.5, self._look_seconds), most=self._look_seconds)
        while True:
            self._look_now.clear()
            try:
                await self._look()
                self._trouble = ""
                failures = 0 if self._agrees() else failures + 1
            except KubeError as error:
                failures += 1
                self._trouble = f"the server's APIs could not be read: {error}"
                log.warning("%s; failure %d in a row", self._trouble, failures)
            except Exception as error:
                failures += 1
                self._trouble = f"the server's APIs could not be read: {type(error).__name__}: {error}"
                log.exception("a fault of ours while looking for groups of pods; failure %d in a row", failures)
            spread = 0.75 + 0.5 * random.random()  # noqa: S311 spreads the load, guards nothing
            seconds = backoff.seconds(failures) if failures else self._look_seconds * spread
            try:
                async with asyncio.timeout(seconds):
                    await self._look_now.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        """Discovery, and the watches that follow from it."""
        for group, name in CRDS.items():
            if group not in self._crds and (watch := await self._watch_crd(name)):
                self._crds[group] = watch
        wanted: set[Source] = set()
        for group in KNOWN:
            choice = choose(group, await self._served(group))
            wanted.update(choice.sources)
            if choice.problem:
                self._say_once(group, logging.WARNING, choice.problem)
            if self._has_crd(group):  # discovery lags behind, above all while the server starts
                wanted.update(source for source in self._watches if source.group == group)
        if wanted != set(self._watches):
            await self._change_to(wanted)
            log.info("groups of pods: watching %s", ", ".join(self.names()) or "nothing: the server offers none")
        self._looked.set()

    async def _served(self, group: str) -> dict[str, set[str]]:
        """The resources of each version of an API group; none where the server does not have it."""
        try:
            found = msgspec.json.decode(await self._client.raw("GET", f"/apis/{group}", resource="discovery"), type=_Group)
        except NotFoundError:
            return {}
        served: dict[str, set[str]] = {}
        for version in (item.version for item in found.versions):
            try:
                answer = await self._client.raw("GET", f"/apis/{group}/{version}", resource="discovery")
            except NotFoundError:
                continue
            served[version] = {item.name for item in msgspec.json.decode(answer, type=_Resources).resources}
        return served

    async def _watch_crd(self, name: str) -> _Watch | None:
        """Of the one CRD, if we may."""
        try:
            await self._client.list(DEFINITIONS, fields=f"metadata.name={name}")
        except ForbiddenError as error:
            self._say_once(name, logging.INFO, f"{error}; whether {name} is there is looked at every {self._look_seconds:g} s instead")
            return None
        reflector = Reflector(self._client, DEFINITIONS, fields=f"metadata.name={name}")
        reflector.cache.subscribe(lambda change: self._look_now.set() if change.old is None or change.new is None else None)
        return _Watch(reflector)

    async def _change_to(self, wanted: set[Source]) -> None:
        for source in set(self._watches) - wanted:
            watch = self._watches.pop(source)
            await watch.end()
            for found in watch.cache.list():
                self._gone(source, found)
        for source in wanted - set(self._watches):
            reflector = Reflector(self._client, source.resource)
            self._prepare(source, reflector.cache)
            reflector.cache.subscribe(partial(self._changed, source))
            self._watches[source] = _Watch(reflector)

    # What is held

    def _has_crd(self, group: str) -> bool:
        return group in self._crds and len(self._crds[group].cache) > 0

    def _agrees(self) -> bool:
        """Whether discovery shows what the CRDs say; where it does not, it is looked at again soon."""
        watched = {source.group for source in self._watches}
        return all(not watch.cache.is_synced or (group in watched) == self._has_crd(group) for group, watch in self._crds.items())

    def _say_once(self, about: str, level: int, text: str) -> None:
        if self._said.get(about) != text:
            self._said[about] = text
            log.log(level, "%s", text)


def _state(source: Source, watch: _Watch) -> str:
    if not watch.cache.is_synced:
        return f"{source}: not read yet ({watch.reflector.health.last_error or 'no answer so far'})"
    failures = watch.reflector.health.failures
    return f"{source}: {len(watch.cache)}" + (f", {failures} failures in a row: {watch.reflector.health.last_error}" if failures else "")
