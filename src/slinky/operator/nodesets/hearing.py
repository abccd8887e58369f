"""What a cluster's Slurm says of its nodes and jobs, as a snapshot wants it: one for all NodeSets of a cluster.

In: a `Cluster`, whose watcher hears of nodes. Out: a SlurmView; jobs are asked for where a decision hangs on them, once for all that want to know at about the same time.
*Invariants:* jobs that a pod's life hangs on are asked for after the nodes were seen, and all of them are read: those that hold a node without showing on it, such as suspended ones. Of the others, which show as an allocated node, some may stay unknown: then `is_complete` is false. No look reads the list of all jobs.
A job of which it is not known where it is makes the whole answer no answer.
"""

import asyncio
import datetime as dt
import time
from collections.abc import Iterable
from dataclasses import dataclass

from slinky.operator.clusters import Cluster
from slinky.operator.nodesets.job_ledger import JobLedger, Records, read
from slinky.operator.nodesets.plan import JobsNeeded
from slinky.operator.nodesets.snapshot import JobOnNodes, SlurmView
from slinky.slurm import Job, JobStatus, expand

__all__ = ["Hearing", "JobsSeen", "holds", "shows"]

LATELY = 30.0
FEW = 64  # jobs that are all read at each look

Waiting = tuple[tuple[int, frozenset[str]], ...]


@dataclass(frozen=True, slots=True)
class JobsSeen:
    """`waiting`: id and partitions of those that do not run yet, None where they were not looked at; all of them only if `all_waiting`."""

    holding: tuple[JobOnNodes, ...]
    is_complete: bool = True
    waiting: Waiting | None = None
    all_waiting: bool = False


class Hearing:
    """One for each cluster."""

    def __init__(self) -> None:
        self._begin(None)
        self._asking = asyncio.Lock()

    def _begin(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._since: dt.datetime | None = None
        self._jobs: JobsSeen | None = None
        self._asked_at = self._learned_at = float("-inf")
        self._running, self._pending = JobLedger(), JobLedger()

    def view(self, cluster: Cluster | None, now: dt.datetime) -> SlurmView:
        """Of its nodes."""
        if cluster is not self._cluster:
            self._begin(cluster)
        if cluster is None or not cluster.is_current:
            self._since = None
            return SlurmView()
        self._since = self._since or now
        return SlurmView(is_current=True, current_since=self._since, nodes=cluster.nodes, heard_at=cluster.taken_at)

    async def jobs(self, cluster: Cluster, needed: JobsNeeded, *, heard_at: float, which: bool = True, waiting: bool = False) -> JobsSeen:
        """Raises SlurmError. `heard_at`: of the nodes that are judged with it. What was asked for since then, or with LATELY not long ago, serves all. `which`: some more jobs are read that show on their nodes."""
        oldest = heard_at if needed is JobsNeeded.NOW else time.monotonic() - LATELY
        async with self._asking:
            held = self._jobs
            if held is None or self._asked_at < oldest or (waiting and not held.all_waiting):
                began = time.monotonic()
                self._jobs = held = await self._ask(cluster, which=which, waiting=waiting)
                self._asked_at = began
            return held

    async def _ask(self, cluster: Cluster, *, which: bool, waiting: bool) -> JobsSeen:
        states = await cluster.slurm.jobs.states()
        holding = [status for status in states if holds(status)]
        few = len({status.job_id for status in holding}) <= FEW
        vital = {status.job_id for status in holding if few or not shows(status)}
        fresh = await read(cluster.slurm, sorted(vital))
        others = {status.job_id for status in holding} - vital
        known = await self._learned(cluster, others, more=which)
        pending, all_waiting = None, False
        if waiting:
            pending, all_waiting = await self._waiting(cluster, {status.job_id for status in states if status.is_pending})
        return JobsSeen(
            holding=tuple(_on_nodes(job) for job in _jobs(fresh | known) if holds(job)),
            is_complete=others <= known.keys(),
            waiting=pending,
            all_waiting=all_waiting,
        )

    async def _learned(self, cluster: Cluster, job_ids: set[int], *, more: bool) -> dict[int, Records]:
        """Of jobs that show on their nodes: to rank workers by and to name what holds them, so some more are read now and then."""
        now = time.monotonic()
        self._running.keep(job_ids)
        if more and job_ids and now - self._learned_at >= LATELY:
            self._learned_at = now
            self._running.learn(await read(cluster.slurm, self._running.next_to_read(job_ids, now)), now)
        return self._running.known(job_ids, now)

    async def _waiting(self, cluster: Cluster, job_ids: set[int]) -> tuple[Waiting, bool]:
        """And whether these are all. They are read again and again, as a job may be moved to another partition."""
        now = time.monotonic()
        self._pending.keep(job_ids)
        self._pending.learn(await read(cluster.slurm, self._pending.next_to_read(job_ids, now, renew=True)), now)
        known = self._pending.known(job_ids, now)
        pending = tuple((job.job_id, frozenset(job.partition.split(","))) for job in _jobs(known) if job.is_pending)
        return pending, job_ids <= known.keys()


def holds(job: Job | JobStatus) -> bool:
    """It has nodes, or is being cleaned up on them. A word that we do not know counts as such."""
    return job.is_completing or not (job.is_pending or job.is_finished)


def shows(job: JobStatus) -> bool:
    """Its nodes say that they are allocated, or are being cleaned up. A suspended job's do not, and of a word that we do not know it is not believed."""
    return job.is_running or job.is_completing


def _jobs(records: dict[int, Records]) -> Iterable[Job]:
    """Each once: parts of a hetjob come with each other."""
    return {job.job_id: job for found in records.values() for job in found}.values()


def _on_nodes(job: Job) -> JobOnNodes:
    ends = job.end_time if isinstance(job.end_time, int) and isinstance(job.time_limit, int) and job.end_time else None
    return JobOnNodes(
        id=job.job_id,
        nodes=frozenset(expand(job.nodes)),
        ends=None if ends is None else dt.datetime.fromtimestamp(ends, dt.UTC),
        partition=job.partition,
        user=job.user_name,
    )
