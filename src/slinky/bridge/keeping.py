"""Jobs that wait are told where they may go now, when nodes or pods have changed: without a storm of updates.

Comes in: that something changed. Goes out: updates of jobs that wait, few: each change is looked at once for all that wait, and judged once for all jobs that ask the same; a job is looked at and updated only where its whereabouts are others than it was told, and so many a second. What must stay true: what an
administrator says about where a job may go (`scontrol update … ExcNodeList=`) stays, also after a restart; a job that has started is left alone (what was wrong with it is seen when its pods are to be bound); whoever waits and has no node left is given back, and waits in the bridge.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from slinky.bridge.directions import Directions
from slinky.bridge.executor import EXPECTED, Executor
from slinky.bridge.keys import EXTERNAL_NODE, SLURM_NODE_NAME
from slinky.bridge.memory import Known
from slinky.bridge.pacing import Pace
from slinky.bridge.translate import components, members
from slinky.bridge.whereabouts import change_between, change_of, put_on, put_on_all
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Node, Pod, WorkQueue
from slinky.slurm import JobDescription, RefusedError, SlurmError

__all__ = ["Keeper", "concerns_slurm", "says_other"]

log = logging.getLogger(__name__)

SWEEP_SECONDS = 5.0
UPDATES_PER_SECOND = 20.0
REST = 4.0  # times what a sweep took, before the next one
STILL_SECONDS = 30.0  # a job is updated at most this often

Waiting = Callable[[], Iterable[tuple[WorkloadKey, Known]]]
Lookup = Callable[[WorkloadKey], tuple[Workload, Known] | None]


def says_other(old: Node | None, new: Node | None) -> bool:
    """Whether a node's change can make a difference to where pods may go: a heartbeat does not."""
    if old is None or new is None:
        return True
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
        or old.metadata.uid != new.metadata.uid
    )


def concerns_slurm(old: Node | None, new: Node | None, mapped: Iterable[str]) -> bool:
    """Whether a node's change can make a difference to Slurm's nodes: a label does only where it is `mapped` to a feature, or is one of the bridge's own."""
    if old is None or new is None or old.spec != new.spec or old.status.allocatable != new.status.allocatable:
        return True
    before, after = old.metadata.labels, new.metadata.labels
    return old.metadata.uid != new.metadata.uid or any(
        before.get(key) != after.get(key) for key in (*mapped, EXTERNAL_NODE, SLURM_NODE_NAME)
    )


class Keeper:
    """`waiting` gives the workloads whose job waits, or that are parked for want of a node; `lookup` a workload as it is now; `look(key)` asks for another look at it; `is_still_own` tells whether its job is still known to be its own; `pods` are a workload's."""

    def __init__(
        self,
        executor: Executor,
        directions: Directions,
        waiting: Waiting,
        lookup: Lookup,
        look: Callable[[WorkloadKey], None],
        is_still_own: Callable[[Known], Awaitable[bool]],
        pods: Callable[[WorkloadKey], Sequence[Pod]] = lambda _: (),
    ) -> None:
        self._pods = pods
        self._is_still_own = is_still_own
        self._executor = executor
        self._directions = directions
        self._waiting = waiting
        self._lookup = lookup
        self._look = look
        self._nodes_changed = True  # what was adopted may have been told something else
        self._pods_changed = True
        self._told_at: dict[WorkloadKey, float] = {}
        self.queue: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace, expected=EXPECTED)

    def nodes_changed(self) -> None:
        self._nodes_changed = True

    def pods_changed(self) -> None:
        """A pod came onto a node, or went."""
        self._pods_changed = True

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep(), name="changes")
            tasks.create_task(self.queue.serve(self._keep, workers=1), name="updates")

    async def _sweep(self) -> None:
        """Once for all changes of some seconds, however many there were: a fifth of the process's time at most."""
        rest = SWEEP_SECONDS
        while True:
            await asyncio.sleep(rest)
            nodes, pods = self._nodes_changed, self._pods_changed
            if not nodes and not pods:
                continue
            self._nodes_changed = self._pods_changed = False
            began = time.perf_counter()
            try:
                await self._look_at_all(nodes=nodes)
            except SlurmError as error:
                self._nodes_changed, self._pods_changed = self._nodes_changed or nodes, self._pods_changed or pods
                log.info("Slurm's nodes cannot be read (%s): jobs that wait are looked at again in %g s", error, SWEEP_SECONDS)
            rest = max(SWEEP_SECONDS, REST * (time.perf_counter() - began))

    async def _look_at_all(self, *, nodes: bool) -> None:
        """Those of which it is not quickly seen that what they were told holds are looked at in full. `nodes` have changed, not only pods. Raises SlurmError."""
        alive = set()
        pace = Pace()
        names_read = False
        for key, known in list(self._waiting()):
            await pace.step()
            alive.add(key)
            if not nodes and not known.depends_on_pods and not known.avoided:
                continue
            if _leaves_out(known) and not names_read:
                names_read = True
                if not await self._directions.read_names():
                    self._nodes_changed = True  # to be asked in the next sweep
            as_told = await self._is_as_told(key, known)
            if known.avoided:
                avoided = self._directions.still_avoided(known.avoided)
                as_told = as_told and (bool(known.job_id) or len(avoided) == len(known.avoided))  # what it was parked for may be over
                known.avoided = avoided
            if as_told:
                continue
            if known.job_id:
                self.queue.add(key)
            else:
                known.parked_until = 0.0
                self._look(key)
        self._told_at = {key: at for key, at in self._told_at.items() if key in alive}

    async def _is_as_told(self, key: WorkloadKey, known: Known) -> bool:
        """Whether what it was told holds, by what Kubernetes says now of pods of its shape. Raises SlurmError."""
        if known.asked is None or (known.where is None and known.job_id):
            return False
        if _leaves_out(known) and known.names_version != self._directions.names_version:
            return False  # Slurm may know a node now that it did not, or the other way round
        pods = [pod for pod in self._pods(key) if not pod.is_over and pod.metadata.deletion_timestamp is None]
        tasks = known.submission.tasks if known.job_id and known.submission else len(pods)
        if not pods or len(pods) != tasks:
            return False
        found = await self._directions.again(known.asked, pods, known.avoided, known.basis)
        if found is None:
            return True
        if known.where is None:  # it was parked after its job was given back: from here on it is seen whether that changes
            known.where = [found.where]
        if [found.where] != known.where:
            return False
        known.basis = found.basis
        return True

    async def _keep(self, key: WorkloadKey) -> None:
        found = self._lookup(key)
        if found is None:
            return
        workload, known = found
        now = asyncio.get_running_loop().time()
        job_id, submission = known.job_id, known.submission
        if not _waits(known) or submission is None or workload.count != submission.tasks:
            return
        if (due := self._told_at.get(key, float("-inf")) + STILL_SECONDS) > now:
            self.queue.add_after(key, due - now)
            return
        names_version = self._directions.names_version
        workload, unknown = await self._directions.known_only(workload)
        site = await self._executor.site_for(workload)
        if len(known.job_ids) == 1:
            site = msgspec.structs.replace(site, no_hetjobs=site.no_hetjobs or "its job is one")
        jobs = [msgspec.structs.replace(job, partition=submission.partition) for job in components(workload, site)]
        if len(jobs) != len(known.job_ids):
            return
        directed = await self._directions.directed(jobs, members(workload, site), known.avoided, workload.same_domain)
        after = directed.where
        known.depends_on_pods = self._directions.depend_on_pods(workload.everyone)
        if nowhere := next((found.nowhere for found in after if found.nowhere), ""):
            priority = (await self._executor.record(job_id)).priority
            if known.job_id != job_id or not _waits(known):
                return
            log.info("%s: %s; cancelling job %d", key, nowhere, job_id)
            known.keep_place(priority)
            known.rejected = nowhere
            self._look(key)
            return
        if not await self._is_still_own(known):
            self._look(key)
            return
        if known.job_id != job_id or not _waits(known):
            return
        before = known.where if unknown == known.unknown_nodes else None
        known.was_directed(directed)
        known.unknown_nodes, known.names_version = unknown, names_version
        told = False
        for number, (job_id, wanted) in enumerate(zip(known.job_ids, put_on_all(jobs, after), strict=False)):
            if before is not None and len(before) == len(jobs):
                held = before[number]
                if held == after[number] or not change_between(put_on(jobs[number], held), wanted):
                    continue  # what it was told holds
            if change := change_of(await self._executor.record(job_id), wanted):
                told = await self._tell(key, job_id, change, known)
        if told:
            self._told_at[key] = now

    async def _tell(self, key: WorkloadKey, job_id: int, change: JobDescription, known: Known) -> bool:
        try:
            await self._executor.update_waiting(job_id, change)
        except RefusedError as error:
            log.info("%s: job %d cannot be told where it may go now: %s", key, job_id, error)
            known.where = None
        else:
            log.info(
                "%s: job %d may go elsewhere now (%s)",
                key,
                job_id,
                change.constraints or ",".join(change.excluded_nodes or ()) or "everywhere",
            )
        await asyncio.sleep(1 / UPDATES_PER_SECOND)
        return True


def _leaves_out(known: Known) -> bool:
    return known.said is not None and bool(known.said.exclude)


def _waits(known: Known) -> bool:
    return bool(known.job_id and not known.started_at and not known.over and not known.rejected)
