"""The groups of pods that are known, from whichever APIs the server offers, as cached watches.

Comes in: the API server's discovery and its objects. Goes out: the `PodGroup` behind a workload's key, and the keys of groups that came, went or changed. What must stay true: a read costs no
request; what is offered is looked at again every minute, and at once when the coscheduling CRD is installed or removed (where we may watch CRDs); an API that is gone leaves no group and no watch
behind; between two looks there is always a wait.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from slinky.bridge.groupapis import BUILTIN, COSCHEDULING, BuiltinGroup, GroupWorkload, Source, choose, group_from, workload_behind
from slinky.bridge.workload import PART, PodGroup, WorkloadKey
from slinky.kube import Backoff, Cache, Change, Client, ForbiddenError, Job, KubeError, KubeObject, NotFoundError, Reflector, Resource

__all__ = ["PodGroups"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", KubeObject, namespaced=False)
CRD_NAME = f"podgroups.{COSCHEDULING}"


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


class PodGroups:
    """`async with groups.running(): await groups.wait_synced()`; then `groups.get(key)`.

    `touched` is told the group as `group_of` gives it, which is what `Membership.group_changed` takes. `jobs` are for the annotations of a Job that owns a PodGroup.
    """

    def __init__(
        self,
        client: Client,
        touched: Callable[[WorkloadKey], None],
        *,
        jobs: Cache[Job] | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._client = client
        self._touched = touched
        self._jobs = jobs
        self._look_seconds = look_seconds
        self._watches: dict[Source, _Watch] = {}
        self._crds: _Watch | None = None
        self._looked = asyncio.Event()
        self._look_now = asyncio.Event()
        self._said: dict[str, str] = {}
        self._trouble = "the server's APIs were not read yet"

    # Reading

    def get(self, key: WorkloadKey) -> PodGroup | None:
        """None where there is no such group (any more, or yet), or one with a policy that is not known here."""
        cache = self._cache(key.kind)
        found = cache.get(key.object_name, key.namespace) if cache is not None else None
        if found is None:
            return None
        workloads, behind = self._cache(None), None
        if workloads is not None and (name := workload_behind(found)):
            behind = workloads.get(name, key.namespace)
        job = self._owner(found)
        return group_from(found, key.part, behind.metadata if behind else None, job.metadata if job else None)

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
    async def running(self) -> AsyncIterator["PodGroups"]:
        unsubscribe = self._jobs.subscribe(self._job_changed, replay=False) if self._jobs is not None else lambda: None
        task = asyncio.create_task(self._follow(), name="groups")
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            unsubscribe()
            for watch in (*self._watches.values(), *([self._crds] if self._crds else [])):
                await watch.end()
            self._watches, self._crds = {}, None

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
        if self._crds is None:
            self._crds = await self._watch_crds()
        wanted: set[Source] = set()
        for group in (BUILTIN, COSCHEDULING):
            choice = choose(group, await self._served(group))
            wanted.update(choice.sources)
            if choice.problem:
                self._say_once(group, logging.WARNING, choice.problem)
        if self._has_crd():  # discovery lags behind, above all while the server starts
            wanted.update(source for source in self._watches if source.group == COSCHEDULING)
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

    async def _watch_crds(self) -> _Watch | None:
        """Of the one CRD, if we may."""
        try:
            await self._client.list(CRDS, fields=f"metadata.name={CRD_NAME}")
        except ForbiddenError as error:
            self._say_once(
                CRD_NAME, logging.INFO, f"{error}; whether {CRD_NAME} is there is looked at every {self._look_seconds:g} s instead"
            )
            return None
        reflector = Reflector(self._client, CRDS, fields=f"metadata.name={CRD_NAME}")
        reflector.cache.subscribe(lambda change: self._look_now.set() if change.old is None or change.new is None else None)
        return _Watch(reflector)

    async def _change_to(self, wanted: set[Source]) -> None:
        for source in set(self._watches) - wanted:
            watch = self._watches.pop(source)
            await watch.end()
            for found in watch.cache.list():
                self._tell(source, found)
        for source in wanted - set(self._watches):
            reflector = Reflector(self._client, source.resource)
            if source.kind == "PodGroup":
                reflector.cache.add_index("workload", lambda found: [f"{found.metadata.namespace}/{workload_behind(found)}"])
                reflector.cache.add_index("owner", lambda found: [owner.uid for owner in found.metadata.owner_references])
            reflector.cache.subscribe(partial(self._changed, source))
            self._watches[source] = _Watch(reflector)

    # Telling

    def _changed(self, source: Source, change: Change[Any]) -> None:
        """Of the status, which changes often, nothing is read."""
        old, new = change.old, change.new
        if old is not None and new is not None and _said(old) == _said(new):
            return
        if isinstance(new, BuiltinGroup) and group_from(new) is None:
            log.warning("PodGroup %s has a scheduling policy that is not known here (known are basic and gang): its pods wait", new.key)
        for found in (old, new) if isinstance(old or new, GroupWorkload) else (new or old,):
            if found is not None:
                self._tell(source, found)

    def _tell(self, source: Source, found: Any) -> None:
        meta = found.metadata
        if source.kind is None:
            self._tell_all("workload", f"{meta.namespace}/{meta.name}")
        elif isinstance(found, GroupWorkload):
            for part in found.spec.pod_groups:
                self._touched(WorkloadKey("Workload", meta.namespace, f"{meta.name}{PART}{part.name}"))
        else:
            self._touched(WorkloadKey(source.kind, meta.namespace, meta.name))

    def _tell_all(self, index: str, value: str) -> None:
        groups = self._cache("PodGroup")
        for group in groups.by_index(index, value) if groups is not None else ():
            self._touched(WorkloadKey("PodGroup", group.metadata.namespace, group.metadata.name))

    def _job_changed(self, change: Change[Job]) -> None:
        known = change.new or change.old
        before, after = (job.metadata.annotations if job else None for job in (change.old, change.new))
        if known is not None and before != after:
            self._tell_all("owner", known.metadata.uid)

    # What is held

    def _cache(self, kind: str | None) -> Cache[Any] | None:
        return next((watch.cache for source, watch in self._watches.items() if source.kind == kind), None)

    def _owner(self, found: KubeObject) -> Job | None:
        for owner in found.metadata.owner_references if self._jobs is not None else ():
            job = self._jobs.get(owner.name, found.metadata.namespace) if self._jobs is not None and owner.kind == "Job" else None
            if job is not None and job.metadata.uid == owner.uid:
                return job
        return None

    def _has_crd(self) -> bool:
        return self._crds is not None and len(self._crds.cache) > 0

    def _agrees(self) -> bool:
        """Whether discovery shows what the CRD says; where it does not, it is looked at again soon."""
        if self._crds is None or not self._crds.cache.is_synced:
            return True
        return self._has_crd() == (self._cache("CoschedulingPodGroup") is not None)

    def _say_once(self, about: str, level: int, text: str) -> None:
        if self._said.get(about) != text:
            self._said[about] = text
            log.log(level, "%s", text)


def _said(found: Any) -> Iterable[Any]:
    return getattr(found, "spec", None), found.metadata.annotations, found.metadata.owner_references


def _state(source: Source, watch: _Watch) -> str:
    if not watch.cache.is_synced:
        return f"{source}: not read yet ({watch.reflector.health.last_error or 'no answer so far'})"
    failures = watch.reflector.health.failures
    return f"{source}: {len(watch.cache)}" + (f", {failures} failures in a row: {watch.reflector.health.last_error}" if failures else "")
