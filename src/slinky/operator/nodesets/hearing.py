"""What a cluster's Slurm says of its nodes and jobs, as a snapshot wants it.

In: a `Cluster`, whose watcher hears of nodes. Out: a SlurmView; jobs are asked for where a decision hangs on them, once for all NodeSets of a cluster that want to know at about the same time.
What must stay true: jobs that a pod's life hangs on are asked for after the nodes were seen; a job of which it is not known where it is makes the whole answer no answer.
"""

import asyncio
import datetime as dt
import time
from dataclasses import dataclass

from slinky.operator.clusters import Cluster
from slinky.operator.nodesets.plan import JobsNeeded
from slinky.operator.nodesets.snapshot import JobOnNodes, SlurmView
from slinky.slurm import Job, JobStatus, NotFoundError, SlurmClient, expand

__all__ = ["Hearing", "JobsSeen", "jobs_of"]

LATELY = 30.0
FEW = 64  # jobs that are asked for one by one; a full list costs by all jobs there are


@dataclass(frozen=True, slots=True)
class JobsSeen:
    """`waiting`: id and partitions of those that do not run yet; None where they were not looked at."""

    holding: tuple[JobOnNodes, ...]
    waiting: tuple[tuple[int, frozenset[str]], ...] | None = None


class Hearing:
    """One for each cluster."""

    def __init__(self) -> None:
        self._since: dt.datetime | None = None
        self._cluster: Cluster | None = None
        self._jobs: JobsSeen | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    def view(self, cluster: Cluster | None, now: dt.datetime) -> SlurmView:
        """Of its nodes."""
        if cluster is not self._cluster:
            self._cluster, self._since, self._jobs = cluster, None, None
        if cluster is None or not cluster.is_current:
            self._since = None
            return SlurmView()
        self._since = self._since or now
        return SlurmView(is_current=True, current_since=self._since, nodes=cluster.nodes)

    async def jobs(self, cluster: Cluster, needed: JobsNeeded, *, waiting: bool = False) -> JobsSeen:
        """Raises SlurmError. What was asked for lately serves those for whom that is enough."""
        oldest = time.monotonic() if needed is JobsNeeded.NOW else time.monotonic() - LATELY
        async with self._asking:
            held = self._jobs
            if held is None or self._asked_at < oldest or (waiting and held.waiting is None):
                began = time.monotonic()
                self._jobs = held = await jobs_of(cluster.slurm, waiting=waiting)
                self._asked_at = began
            return held


async def jobs_of(slurm: SlurmClient, *, waiting: bool) -> JobsSeen:
    """Those that hold nodes, and with `waiting` also those that wait. Raises SlurmError."""
    states = await slurm.jobs.states()
    holding = [status for status in states if holds(status)]
    if not waiting and len(holding) <= FEW and all(status.label.isdecimal() for status in holding):
        found = await asyncio.gather(*(_one(slurm, status.job_id) for status in holding))
        return JobsSeen(tuple(_on_nodes(job) for job in found if job is not None and holds(job)))
    seen = [job async for job in slurm.jobs.stream() if not job.is_finished or job.is_completing]
    pending = tuple((job.job_id, frozenset(job.partition.split(","))) for job in seen if job.is_pending)
    return JobsSeen(tuple(_on_nodes(job) for job in seen if holds(job)), pending)


def holds(job: Job | JobStatus) -> bool:
    """It has nodes, or is being cleaned up on them. A word that we do not know counts as such."""
    return job.is_completing or not (job.is_pending or job.is_finished)


async def _one(slurm: SlurmClient, job_id: int) -> Job | None:
    try:
        return await slurm.jobs.get(job_id)
    except NotFoundError:
        return None


def _on_nodes(job: Job) -> JobOnNodes:
    ends = job.end_time if isinstance(job.end_time, int) and isinstance(job.time_limit, int) and job.end_time else None
    return JobOnNodes(
        id=job.job_id,
        nodes=frozenset(expand(job.nodes)),
        ends=None if ends is None else dt.datetime.fromtimestamp(ends, dt.UTC),
        partition=job.partition,
        user=job.user_name,
    )
