"""Jobs of ours that no pod belongs to: found while a process leads, not only when it begins, and ended.

Comes in: the jobs of Slurm that this process has neither submitted nor read so far, a few at a time. Goes out: the end of those that nobody has a use for: of a submit that was under way when leadership was lost, of one whose answer was lost and that came late after all, of a Slurm whose state was
restored from a time when the job ran. What must stay true: only jobs with our marker and our cluster's name are looked at, by their own record before anything is done; one that is new is left alone for a while, as its submit may not have been answered
yet; one that a pod's label names, or that a workload has, is none; while many jobs are absent at once none is ended. Each job is read once, and reading takes a small share of Slurm's time, however many jobs others have: what is missed at first is found later. No submit waits for it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from slinky.bridge.adoption import found_in
from slinky.bridge.claim import Claim
from slinky.bridge.executor import EXPECTED, Executor
from slinky.bridge.membership import Membership
from slinky.bridge.memory import Known
from slinky.bridge.views import needs_job, pod_view
from slinky.bridge.workload import WorkloadKey
from slinky.kube import WorkQueue
from slinky.slurm import Job, NotFoundError, SlurmClient, SlurmError

__all__ = ["STRAY_SECONDS", "Strays"]

log = logging.getLogger(__name__)

STRAY_SECONDS = 15.0  # between a leader's start and the end of jobs that no pod belongs to: the pods' watch may be a little behind
HELD_SECONDS = 10.0  # between two looks while nothing is to be ended
WORKERS = 2
TOGETHER = 16  # jobs that are read at a time
NEWEST = 128  # of the jobs not read yet, those that are read before the oldest
SHARE = 0.05  # of the time, that reading takes at most
SEARCH_SECONDS = 60.0  # after which Slurm is asked again which jobs there are


class Strays:
    """`known` is what is remembered of workloads, `owner(job_id)` whose job it is; `holds_back` that nothing is to be ended now."""

    def __init__(
        self,
        executor: Executor,
        slurm: SlurmClient,
        membership: Membership,
        known: Mapping[WorkloadKey, Known],
        owner: Callable[[int], WorkloadKey | None],
        seconds: float,
    ) -> None:
        self._executor = executor
        self._slurm = slurm
        self._membership = membership
        self._known = known
        self._owner = owner
        self._seconds = seconds
        self._queue: WorkQueue[int] = WorkQueue(group=lambda _: 0, expected=EXPECTED)
        self.note: Callable[[Sequence[Job]], Awaitable[None]] = _nothing  # what was read
        self.holds_back: Callable[[], bool] = lambda: False
        self.is_foreign: Callable[[int, Claim | None], bool] = lambda *_: False  # another copy of this cluster submitted it

    def suspect(self, job_id: int) -> None:
        """It was found at a leader's start, and seems to be nobody's."""
        self._queue.add_after(job_id, STRAY_SECONDS)

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.serve(self._end, workers=WORKERS), name="ends of strays")
            tasks.create_task(self._sweep(), name="sweeps for strays")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._seconds * random.uniform(0.8, 1.2))  # noqa: S311 spreads the load, guards nothing
            try:
                await self._search()
            except SlurmError as error:
                log.info("jobs without pods could not be looked for: %s; again in about %g s", error, self._seconds)

    async def _search(self) -> None:
        """Among the jobs that were not read yet: the newest first, as a late one of ours is likely to be there; then the oldest, so that each has its turn."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        unread = await self._slurm.jobs.unread(live=True)
        took = loop.time() - began
        until = began + took / SHARE + SEARCH_SECONDS
        ids = [*unread[: -NEWEST - 1 : -1], *unread[:-NEWEST]]
        for start in range(0, len(ids), TOGETHER):
            await asyncio.sleep(took * (1 / SHARE - 1))
            if loop.time() > until:
                return
            asked = loop.time()
            await self.note(await self._slurm.jobs.records(ids[start : start + TOGETHER], learn=True))
            took = loop.time() - asked

    async def _end(self, job_id: int) -> None:
        """If it is still nobody's, and still ours."""
        if self.holds_back():
            self._queue.add_after(job_id, HELD_SECONDS)
            return
        try:
            found = found_in(await self._slurm.jobs.get(job_id), self._executor.site.cluster)
        except NotFoundError:
            return
        if found is None or found.is_over or self._is_used(job_id, found.key):
            return
        if self.is_foreign(job_id, found.claim):
            return
        if self._is_under_way(found.key):
            self._queue.add_after(job_id, HELD_SECONDS)
            return
        log.info("job %d (%s) has no pods: it is ended", job_id, found.key)
        await self._executor.end_job(job_id, None, "no pod belongs to it", running=False)

    def _is_used(self, job_id: int, key: WorkloadKey) -> bool:
        known = self._known.get(key)
        if known is not None and job_id in known.job_ids:
            return True
        labelled = (pod for pod in map(pod_view, self._membership.pods(key)) if pod.job_id == job_id and needs_job(pod))
        return self._owner(job_id) is not None or any(labelled)

    def _is_under_way(self, key: WorkloadKey) -> bool:
        """A submit whose job this may turn out to be."""
        known = self._known.get(key)
        return known is not None and (known.submitting or known.unsettled is not None)


async def _nothing(_: Sequence[Job]) -> None:
    """Nothing is noted."""
