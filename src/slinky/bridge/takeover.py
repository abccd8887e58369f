"""Takes over the jobs that an earlier leader left, without reading the jobs of others.

At a leader's start three things tell which jobs are the bridge's. Pods' labels name most of them. A job that was submitted moments before the last leader stopped has no label yet: it is among the newest
jobs of Slurm. Any other (its pods are gone, or its label could not be written) is found later, by the slow search of `slinky.bridge.strays`.

*Invariants:* a workload for which an earlier leader may have submitted a job is not submitted before the jobs that this could be were read. A workload that came after this leader's start never waits. A job that is found late is
adopted if its workload has no other, else ended. Only jobs with our marker and our cluster's name are looked at.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from slinky.bridge.adoption import Found, found_in, whole
from slinky.bridge.keys import job_id_of
from slinky.bridge.membership import Membership
from slinky.bridge.pacing import Pace
from slinky.bridge.reconciler import Reconciler
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Backoff, KubeError, Pod
from slinky.slurm import Job, NotFoundError, SlurmClient, SlurmError

__all__ = ["LABELLED_SECONDS", "Takeover"]

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_AT_ONCE = 500  # workloads: what was read of them is kept if the next cannot be read
LOOKS, LOOK_SECONDS = 20, 0.1  # at most so many, until the states of jobs that were taken over are known
OLDEST = 3  # jobs whose claim is looked at: one of them shows that its leader lives
RECENT_SECONDS = 60.0  # of submits that are looked at first
LABELLED_SECONDS = 15.0  # by which the last leader's note may be too late, the clocks of the two machines included


class Takeover:
    """`is_of(job, key)` tells whether a job is of pods that are known by its label alone. `inherit(key, jobs)` gives a workload the one of these jobs that is its own, and ends the others. `noted()` is what the last leader noted: up to which moment (seconds since 1970) each of its jobs has its label, and the highest job id that it knew; 0 where that is not known."""

    def __init__(
        self,
        slurm: SlurmClient,
        cluster: str,
        membership: Membership,
        reconciler: Reconciler,
        is_of: Callable[[Found, WorkloadKey], bool],
        inherit: Callable[[WorkloadKey, Sequence[Found]], None],
        suspect: Callable[[int], None],
        noted: Callable[[], Awaitable[tuple[float, int]]],
    ) -> None:
        self._slurm = slurm
        self._cluster = cluster
        self._membership = membership
        self._reconciler = reconciler
        self._is_of, self._inherit = is_of, inherit
        self._suspect = suspect
        self._noted = noted
        self.leaves: Callable[[Found], bool] = lambda found: found.is_leaving  # its end is near: it goes first
        self.is_seen: Callable[[WorkloadKey], bool] = lambda _: True  # its job's state is known
        self._began = float("inf")
        self._ahead = 0.0
        self._unnoted: list[Job] = []
        self._waiting: set[WorkloadKey] = set()
        self._released: set[WorkloadKey] = set()
        self._found: dict[WorkloadKey, dict[int, Found]] = {}
        self._by_label: dict[int, WorkloadKey] = {}
        self.is_done = False

    def begin(self, ahead: float = 0.0) -> None:
        """What is there now may have been submitted by an earlier leader. `ahead`: by how much Slurm's clock is ahead of the API server's."""
        self._began, self._ahead = time.time(), ahead
        self._waiting = set(self._membership.keys())
        self._by_label = {key.job_id: key for key in self._waiting if key.job_id}

    def may_begin(self, key: WorkloadKey) -> bool:
        """Whether it is known which jobs the workload has."""
        if self.is_done or key in self._released:
            return True
        if key not in self._waiting and not self._is_new(key):  # the watch was behind
            self._waiting.add(key)
        return key not in self._waiting

    async def look_first(self, again: Sequence[int] = ()) -> list[Found]:
        """Jobs of this cluster by which another copy of it would show itself: the newest, and the oldest that live and that pods' labels name. `again`: those that were looked at before. Raises SlurmError.

        A copy that was restored from a backup has the labels and the note of that moment. What production has done since is in its newer jobs, and on the oldest one that lives.
        """
        labels = await self._labels()
        named = sorted(set[int]().union(*labels.values()))
        live = sorted(status.job_id for status in await self._slurm.jobs.states(named) if not status.is_finished) if named else []
        fresh = await self._slurm.jobs.records([*again, *live[:OLDEST]])
        until, last_id = await self._noted()
        await self._slurm.jobs.ids_used(last_id)
        async for group in self._slurm.jobs.newest(until - LABELLED_SECONDS if until else self._began - RECENT_SECONDS):
            # Kept also for the next try, as no job is told twice. Nothing is done about them before this copy may act.
            self._unnoted += [job for job in group if found_in(job, self._cluster)]
        jobs = {job.job_id: job for job in self._unnoted if job.job_id not in set(again)} | {job.job_id: job for job in fresh}
        return [found for job in jobs.values() if (found := found_in(job, self._cluster, self._ahead))]

    async def run(self) -> None:
        """Until each workload that was there has its job, or is known to have none."""
        labels = await self._labels()
        await self.until_answered(lambda: self.note(self._unnoted))
        self._unnoted = []
        labelled = sorted(filter(labels.get, labels), key=self._youngest)
        for start in range(0, len(labelled), READ_AT_ONCE):
            keys = labelled[start : start + READ_AT_ONCE]
            named = set[int]().union(*(labels[key] for key in keys))
            await self.until_answered(partial(self._read, named))
            await self._release(
                key for key in keys if labels[key] & {job_id for found in self._of(key) for job_id in found.submission.job_ids}
            )
        until, last_id = await self._noted()
        await self._slurm.jobs.ids_used(last_id)
        floor = until - LABELLED_SECONDS if until else 0.0
        first = max(floor, self._began - RECENT_SECONDS)
        await self.until_answered(lambda: self._look_back_to(first))
        await self._release(key for key in list(self._waiting) if max(floor, self._youngest(key)) >= first)
        if self._waiting:
            last = min(max(floor, self._youngest(key)) for key in self._waiting)
            log.info("%d workloads wait until the jobs of the last %.0f s are read", len(self._waiting), time.time() - last)
            await self.until_answered(lambda: self._look_back_to(last))
        while self._waiting:  # more may come meanwhile
            await self._release(list(self._waiting))
        self.is_done = True
        self._found, self._released = {}, set()

    async def note(self, jobs: Iterable[Job]) -> None:
        """Jobs that were just read: what is ours among them, whole. Raises SlurmError."""
        parts: dict[int, list[Found]] = {}
        for job in jobs:
            if found := found_in(job, self._cluster, self._ahead):
                parts.setdefault(job.hetjob_id or job.job_id, []).append(found)
        for leader, some in parts.items():
            if some[0].hetjob_id:
                some = await self._parts(leader) or some
            for found in whole(some):
                self._keep(found)

    async def _parts(self, leader: int) -> list[Found]:
        try:
            return [found for job in await self._slurm.jobs.parts(leader) if (found := found_in(job, self._cluster, self._ahead))]
        except NotFoundError:
            return []

    def _keep(self, found: Found) -> None:
        labelled = self._by_label.get(found.submission.job_id)
        key = labelled if labelled and self._is_of(found, labelled) else found.key
        if key in self._waiting:
            self._found.setdefault(key, {})[found.submission.job_id] = found
            return
        if any(self._reconciler.owner_of(job_id) for job_id in found.submission.job_ids):
            return
        known = self._reconciler.known.get(key)
        if known is not None and (known.submitting or known.unsettled is not None or (known.job_id and not known.lost)):
            for job_id in found.to_end:
                self._suspect(job_id)
            return
        if known is not None and known.job_id:
            self._reconciler.knowledge.drop_job(key, known)
        self._inherit(key, [found])

    def _of(self, key: WorkloadKey) -> list[Found]:
        return list(self._found.get(key, {}).values())

    async def _labels(self) -> dict[WorkloadKey, set[int]]:
        """The jobs that the pods' labels name, of each workload that waits."""
        pace, found = Pace(), {}
        for key in list(self._waiting):
            found[key] = {job_id_of(pod) for pod in self._membership.pods(key)} - {0}
            await pace.step()
        return found

    async def _release(self, keys: Iterable[WorkloadKey]) -> None:
        """In the order in which they came: one that waits for the window keeps its place. Those whose jobs are about to end go first.

        It takes short turns, as each is judged. The others are looked at when all have their jobs and the poller has
        seen these: each would be asked about on its own otherwise.
        """
        pace, rest = Pace(), list[WorkloadKey]()
        for key in sorted(keys, key=lambda key: (not self._leaves(key), self._youngest(key))):
            await pace.step()
            leaves = self._leaves(key)
            self._inherit(key, self._of(key))
            if leaves:
                self._let_go(key)
            else:
                rest.append(key)
        for _ in range(LOOKS):
            if all(map(self.is_seen, rest)):
                break
            await asyncio.sleep(LOOK_SECONDS)
        for key in rest:
            self._let_go(key)

    def _let_go(self, key: WorkloadKey) -> None:
        self._waiting.discard(key)
        self._released.add(key)
        self._reconciler.queue.add(key)

    def _leaves(self, key: WorkloadKey) -> bool:
        return any(map(self.leaves, self._of(key)))

    async def _read(self, job_ids: Iterable[int]) -> None:
        await self.note(await self._slurm.jobs.records(sorted(job_ids), learn=True))

    async def _look_back_to(self, moment: float) -> None:
        async for group in self._slurm.jobs.newest(moment):
            await self.note(group)

    async def until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A leader's first questions are asked until both sides have answered."""
        backoff, failures = Backoff(first=0.5, most=15.0), 0
        while True:
            try:
                return await ask()
            except (SlurmError, KubeError) as error:
                failures += 1
                wait = backoff.seconds(failures)
                log.warning("takeover failed (%s); running pods keep running; retrying in %.1f s", error, wait)
                await asyncio.sleep(wait)

    def _youngest(self, key: WorkloadKey) -> float:
        """When the last of its pods was created: its job was submitted after that."""
        return max((pod.metadata.born for pod in self._membership.pods(key)), default=0.0)

    def _is_new(self, key: WorkloadKey) -> bool:
        pods: Sequence[Pod] = self._membership.pods(key)
        return all(pod.metadata.born >= self._began and not job_id_of(pod) for pod in pods)
