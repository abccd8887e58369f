"""The loop: what changed on either side leads to a look at its workload, a plan, and its execution.

Comes in: the caches of Kubernetes and the transitions of Slurm's jobs. Goes out: acts, through the executor. What must stay true: one workload is with one worker at a time; everything decided comes
from memory; what is remembered here beyond the two sides' own state is only a shortcut, and its loss (a restart) changes nothing but a few more questions.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from slinky.bridge.executor import Executor, Submission, task_annotations
from slinky.bridge.membership import Membership
from slinky.bridge.placement import PerTask, Placement, PlacementError, place
from slinky.bridge.plan import Bind, EndJob, Evict, JobView, Label, Release, Snapshot, Submit, plan
from slinky.bridge.views import job_id_of, job_view, pod_view
from slinky.bridge.workload import PodGroup, Workload, WorkloadKey, workload_of
from slinky.kube import Pod, WorkQueue
from slinky.slurm import JobDescription, JobStatus, NotFoundError, Pace, RefusedError, SlurmClient

__all__ = ["Reconciler"]

log = logging.getLogger(__name__)

PARKED_SECONDS = 30.0
SETTLE_SECONDS = 10.0  # how long a job must be unknown to an answering Slurm before it counts as lost

Groups = Callable[[WorkloadKey], PodGroup | None]


class _Remembered(msgspec.Struct):
    """What this process knows of a workload beyond its pods."""

    submission: Submission | None = None
    placements: list[Placement] = []
    parked_until: float = 0.0
    missing_since: float = 0.0


class Reconciler:
    def __init__(
        self, executor: Executor, slurm: SlurmClient, membership: Membership, queue: WorkQueue[WorkloadKey], groups: Groups
    ) -> None:
        self._executor = executor
        self._slurm = slurm
        self._membership = membership
        self._queue = queue
        self._groups = groups
        self._states: dict[int, JobStatus] = {}
        self._workload_of_job: dict[int, WorkloadKey] = {}
        self._remembered: dict[WorkloadKey, _Remembered] = {}

    async def follow_jobs(self, pace: Pace) -> None:
        """One poller for all jobs; for ever."""
        async for transition in self._slurm.jobs.watch(None, pace):
            job_id = transition.job_id
            if transition.after is not None:
                self._states[job_id] = transition.after
            else:
                self._states.pop(job_id, None)
            if key := self._workload_of_job.get(job_id):
                self._queue.add(key)

    async def reconcile(self, key: WorkloadKey) -> None:
        """Look, plan, act. What fails is raised: the queue comes back to it."""
        pods = self._membership.pods(key)
        known = self._remembered.setdefault(key, _Remembered())
        workload = self._workload(key, pods)
        job = await self._job(key, pods, known)
        if not pods and (job is None or job.state in ("over", "lost")):
            self._forget(key, known)
            return
        if job is not None and job.state == "running" and workload is not None:
            await self._place(workload, job.job_id, known)
        snapshot = Snapshot(
            pods=[pod_view(pod) for pod in pods],
            size=workload.size if workload else 1,
            job=job,
            placements=known.placements,
            parked=known.parked_until > time.monotonic(),
            gated=workload is None or any(pod.spec.scheduling_gates for pod in pods),
        )
        by_uid = {pod.metadata.uid: pod for pod in pods}
        await self._carry_out(plan(snapshot), key, workload, by_uid, known)

    async def _carry_out(
        self,
        actions: list[Submit | Label | Bind | Evict | EndJob | Release],
        key: WorkloadKey,
        workload: Workload | None,
        pods: dict[str, Pod],
        known: _Remembered,
    ) -> None:
        bindings = [action for action in actions if isinstance(action, Bind)]
        for action in actions:
            match action:
                case Submit():
                    await self._submit(key, workload, known)
                case Label(uid, job_id):
                    await self._executor.label(pods[uid], job_id)
                    if not job_id:
                        known.submission, known.placements = None, []
                case Evict(uid, why):
                    await self._executor.evict(pods[uid], why)
                case EndJob(job_id, _, why):
                    await self._executor.end_job(job_id, why)
                case Release(uid):
                    await self._executor.release(pods[uid])
                case Bind():
                    pass
        if bindings and known.submission:
            nodes = list(dict.fromkeys(placement.node for placement in known.placements))
            description = known.submission.description
            await asyncio.gather(
                *(
                    self._executor.bind(
                        pods[b.placement.uid], b.placement, task_annotations(description, b.placement, nodes, len(known.placements))
                    )
                    for b in bindings
                )
            )

    async def _submit(self, key: WorkloadKey, workload: Workload | None, known: _Remembered) -> None:
        if workload is None:
            return
        try:
            known.submission = await self._executor.submit(workload)
        except RefusedError as error:
            log.warning("%s is parked for %g s: Slurm says %s", key, PARKED_SECONDS, error)
            known.parked_until = time.monotonic() + PARKED_SECONDS
            self._queue.add_after(key, PARKED_SECONDS)
            return
        self._workload_of_job[known.submission.job_id] = key
        self._queue.add(key)

    def _workload(self, key: WorkloadKey, pods: list[Pod]) -> Workload | None:
        job = self._membership.job_of(pods[0]) if pods else None
        return workload_of(key, pods, self._groups(key), job)

    async def _job(self, key: WorkloadKey, pods: list[Pod], known: _Remembered) -> JobView | None:
        """The workload's job: the one this process submitted, else the one that its pods' labels name."""
        labels = sorted({job_id_of(pod) for pod in pods} - {0})
        job_id = known.submission.job_id if known.submission else labels[0] if labels else 0
        if not job_id:
            return None
        self._workload_of_job[job_id] = key
        if known.submission is None and (workload := self._workload(key, pods)) is not None:
            known.submission = Submission(job_id, self._executor.describe(workload))
        status = self._states.get(job_id)
        if status is not None:
            known.missing_since = 0.0
            return job_view(status)
        return await self._missing(key, job_id, known)

    async def _missing(self, key: WorkloadKey, job_id: int, known: _Remembered) -> JobView:
        """Not among the states: just submitted, or forgotten by Slurm. Asked for by name, and believed only after a while."""
        now = time.monotonic()
        known.missing_since = known.missing_since or now
        try:
            job = await self._slurm.jobs.get(job_id)
        except NotFoundError:
            if now - known.missing_since > SETTLE_SECONDS:
                return JobView(job_id=job_id, state="lost", why=f"Slurm does not know job {job_id}")
            self._queue.add_after(key, 1.0)
            return JobView(job_id=job_id, state="pending")
        known.missing_since = 0.0
        return job_view(JobStatus(str(job_id), job.states))

    async def _place(self, workload: Workload, job_id: int, known: _Remembered) -> None:
        if known.placements or known.submission is None:
            return
        allocation = await self._slurm.jobs.allocation(job_id)
        try:
            known.placements = place(workload.uids, _per_task(known.submission.description), allocation)
        except PlacementError as error:
            log.warning("%s: %s", workload.key, error)

    def _forget(self, key: WorkloadKey, known: _Remembered) -> None:
        self._remembered.pop(key, None)
        if known.submission:
            self._workload_of_job.pop(known.submission.job_id, None)


def _per_task(description: JobDescription) -> PerTask:
    memory = description.memory_per_cpu * (description.cpus_per_task or 1) if isinstance(description.memory_per_cpu, int) else 0
    gres: dict[str, int] = {}
    for word in filter(None, (description.tres_per_task or "").split(",")):
        name, *_, count = word.removeprefix("gres/").split(":")
        gres[name] = gres.get(name, 0) + int(count)
    return PerTask(memory=memory, gres=gres)
