"""The groups of pods that are known, from whichever APIs the server offers.

Comes in: the objects that `sources` follows, Jobs, and the pods of a workload. Goes out: the `PodGroup` behind a workload's key, the part of a set that a pod is of, and the keys of groups and workloads for which that came, went or
changed. What must stay true: a read costs no request; the status of an object, which changes often, is no reason to look unless something rests on it.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from slinky.bridge.groupapis import BuiltinGroup, GroupWorkload, Source, group_from, workload_behind
from slinky.bridge.jobsets import JobSet, makes_more, roles_of, the_only_job
from slinky.bridge.roots import Root, group_of_root, part_in, says_the_same
from slinky.bridge.sources import LOOK_SECONDS, Sources
from slinky.bridge.workload import PART, PodGroup, WorkloadKey
from slinky.kube import Cache, Change, Client, Job, KubeObject, Pod

__all__ = ["PodGroups"]

log = logging.getLogger(__name__)

ROOTS = ("JobSet", "LeaderWorkerSet")


class PodGroups:
    """`async with groups.running(): await groups.wait_synced()`; then `groups.get(key)`.

    `touched` is told the group as `group_of` gives it, which is what `Membership.group_changed` takes. `jobs` are for the annotations of a Job that owns a PodGroup, and for how far the Jobs of a JobSet are; `members` are a workload's pods;
    `look` is told workloads that may have no pods, and for which there may be something to do all the same; of a JobSet or LeaderWorkerSet, its key without a part, which means all of its parts that are known.
    """

    def __init__(
        self,
        client: Client,
        touched: Callable[[WorkloadKey], None],
        *,
        jobs: Cache[Job] | None = None,
        members: Callable[[WorkloadKey], Sequence[Pod]] = lambda _: (),
        look: Callable[[WorkloadKey], None] = lambda _: None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._touched = touched
        self._jobs = jobs
        self._members = members
        self._look = look
        self.sources = Sources(client, self._changed, self._tell, prepare=_prepare, look_seconds=look_seconds)
        if jobs is not None:
            jobs.add_index("replicated job", _replicated_job)

    # Reading

    def get(self, key: WorkloadKey, *, members: bool = True) -> PodGroup | None:
        """`members` False: without what depends on the pods that it has, for callers that ask once for each of them. None where there is no such group (any more, or yet), or one with a policy that is not known here. Of a set without a part: what holds for all of it."""
        if key.kind in ROOTS:
            root = self._root(key)
            if root is None:
                return None
            return group_of_root(root, key.part, self._jobs_of(root, key.part), self._members(key))
        found = self.object(key)
        if found is None:
            return None
        workloads, behind = self.sources.cache(None), None
        if workloads is not None and (name := workload_behind(found)):
            behind = workloads.get(name, key.namespace)
        job = self._owner(found)
        group = group_from(found, key.part, behind.metadata if behind else None, job.metadata if job else None)
        if group is not None and job is not None and members:
            return msgspec.structs.replace(group, awaited=makes_more(job, self._members(key)))
        return group

    def part(self, named: WorkloadKey, pod: Pod) -> str:
        """Which part of the set that it names this pod is of; empty where that is not known, and for groups, which have none."""
        root = self._root(named) if named.kind in ROOTS else None
        return part_in(root, pod) if root is not None else ""

    def object(self, key: WorkloadKey) -> Any | None:
        """The PodGroup or set itself, as far as it is read."""
        cache = self.sources.cache(key.kind)
        return cache.get(key.object_name, key.namespace) if cache is not None else None

    def names(self) -> list[str]:
        """What is watched, as `podgroups.scheduling.k8s.io/v1alpha2`."""
        return self.sources.names()

    def describe(self) -> str:
        """For the log and for health."""
        return self.sources.describe()

    async def wait_synced(self, seconds: float = LOOK_SECONDS) -> None:
        """Until the APIs were looked at and the first list of each has arrived."""
        await self.sources.wait_synced(seconds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["PodGroups"]:
        unsubscribe = self._jobs.subscribe(self._job_changed, replay=False) if self._jobs is not None else lambda: None
        async with self.sources.running():
            try:
                yield self
            finally:
                unsubscribe()

    # Telling

    def _changed(self, source: Source, change: Change[Any]) -> None:
        """Of a group's status, which changes often, nothing is read here."""
        old, new = change.old, change.new
        same = says_the_same if source.kind in ROOTS else _same_group
        if old is not None and new is not None and same(old, new):
            return
        if isinstance(new, BuiltinGroup) and (group := group_from(new)) is not None and group.refusal:
            log.warning("%s; its pods wait", group.refusal)
        for found in (old, new) if isinstance(old or new, GroupWorkload) or source.kind == "LeaderWorkerSet" else (new or old,):
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
            key = WorkloadKey(source.kind, meta.namespace, meta.name)
            self._touched(key)
            if source.kind in ROOTS:
                self._look(key)

    def _tell_all(self, index: str, value: str) -> None:
        groups = self.sources.cache("PodGroup")
        for group in groups.by_index(index, value) if groups is not None else ():
            key = WorkloadKey("PodGroup", group.metadata.namespace, group.metadata.name)
            self._touched(key)
            self._look(key)

    def _job_changed(self, change: Change[Job]) -> None:
        known = change.new or change.old
        before, after = ((job.metadata.annotations, makes_more(job)) if job else None for job in (change.old, change.new))
        if known is not None and before != after:
            self._tell_all("owner", known.metadata.uid)

    # What is held

    def _root(self, key: WorkloadKey) -> Root | None:
        found: Root | None = self.object(key)
        return found

    def _jobs_of(self, root: Root, part: str) -> Iterable[Job]:
        """The Jobs of a JobSet that can matter to this part: there may be thousands of parts and of Jobs."""
        if self._jobs is None or not part or not isinstance(root, JobSet):
            return ()
        meta, only = root.metadata, the_only_job(part)
        if not only:
            values = [f"{meta.uid}/{meta.name}-{role}" for role in roles_of(root, part)]
            return [job for value in values for job in self._jobs.by_index("replicated job", value)]
        job = self._jobs.get(only, meta.namespace)
        owner = job.metadata.controller if job is not None else None
        return [job] if job is not None and owner is not None and owner.uid == meta.uid else ()

    def _owner(self, found: KubeObject) -> Job | None:
        for owner in found.metadata.owner_references if self._jobs is not None else ():
            job = self._jobs.get(owner.name, found.metadata.namespace) if self._jobs is not None and owner.kind == "Job" else None
            if job is not None and job.metadata.uid == owner.uid:
                return job
        return None


def _replicated_job(job: Job) -> list[str]:
    """Of a JobSet's Job: the set's UID, and the Job's name without its number."""
    owner = job.metadata.controller
    return [f"{owner.uid}/{job.metadata.name.rpartition('-')[0]}"] if owner else []


def _prepare(source: Source, cache: Cache[Any]) -> None:
    if source.kind == "PodGroup":
        cache.add_index("workload", lambda found: [f"{found.metadata.namespace}/{workload_behind(found)}"])
        cache.add_index("owner", lambda found: [owner.uid for owner in found.metadata.owner_references])


def _same_group(old: Any, new: Any) -> bool:
    return list(_said(old)) == list(_said(new))


def _said(found: Any) -> Iterable[Any]:
    return getattr(found, "spec", None), found.metadata.annotations, found.metadata.owner_references
