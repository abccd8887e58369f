"""What both servers tell while the demo runs: pods by the API server's watch, jobs by the Slurm client's; and which jobs' prologs wait, of which neither server tells.

Comes in: a client for each side, and the prologs' logs. Goes out: the life of every pod of a namespace and of every job of Slurm's own, links between them, and a word to those who wait for news. What must stay true: times are those at which it was told, by one
clock that begins with the watching; a watch that fails is an error, not a picture with a gap.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from slinky.bridge.keys import job_id_of
from slinky.cli.demo.lives import Life, Link, Phase, Sighting, dependencies, grown, held_by_prologs, job_sighting, pod_sighting
from slinky.kube import PODS, Cache, Change, Client, Pod, Reflector
from slinky.sandbox.building import ungrouped
from slinky.slurm import Job, JobState, JobStatus, NotFoundError, Pace, SlurmClient

__all__ = ["Watching", "watching"]

PACE = Pace(fastest=0.1, slowest=0.3)
PROLOG_SECONDS = 0.2
JOB_NAME = "batch.kubernetes.io/job-name"


class Watching:
    """`lives` by key, in the order in which they were first seen."""

    def __init__(self, pods: Cache[Pod], slurm: SlurmClient, prologs: Callable[[], str]) -> None:
        self.pods = pods
        self.lives: dict[str, Life] = {}
        self.links: list[Link] = []
        self.preempted: dict[int, float] = {}  # when Slurm was first seen to say so, by job
        self._slurm, self._prologs = slurm, prologs
        self._held: dict[int, str] = {}
        self._statuses: dict[int, JobStatus] = {}
        self._records: dict[int, Job] = {}
        self._began = time.monotonic()
        self._news = asyncio.Event()
        self._listeners: list[Callable[[Life], None]] = []

    @property
    def now(self) -> float:
        """Seconds since the watching began."""
        return time.monotonic() - self._began

    def subscribe(self, listener: Callable[[Life], None]) -> None:
        """Told of each life that comes to another phase."""
        self._listeners.append(listener)

    async def news(self, seconds: float) -> None:
        """Until anything was told, or so long."""
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def job_id(self, pod: Pod) -> int:
        """By its label; before it has one, by its job's name: its own, or of a gang the Job's."""
        meta = pod.metadata
        return (
            job_id_of(pod) or self._named(f"{meta.namespace}/{meta.name}") or self._named(f"{meta.namespace}/{meta.labels.get(JOB_NAME)}")
        )

    def _named(self, name: str) -> int:
        """The latest of that name that is not over, of those for pods."""
        found = (job_id for job_id, job in self._records.items() if job.is_external and job.name == name)
        return max((job_id for job_id in found if not self._statuses[job_id].is_finished), default=0)

    def status(self, job_id: int) -> JobStatus | None:
        return self._statuses.get(job_id)

    def life(self, name: str, *, of_pod: bool) -> Life | None:
        """The latest of that name."""
        return next((life for life in reversed(self.lives.values()) if life.last.name == name and life.last.is_pod is of_pod), None)

    # Being told

    def hear_pod(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        seen = self._sighting(pod)
        self._see(seen if change.new else msgspec.structs.replace(seen, phase=Phase.OVER))

    async def follow(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_jobs())
            group.create_task(self._follow_prologs())

    async def _follow_prologs(self) -> None:
        """A file tells nobody that there is more in it: it is read again and again."""
        while True:
            before, self._held = self._held, held_by_prologs(self._prologs())
            for job_id in before.keys() ^ self._held.keys():
                self._see_job(job_id)
            await asyncio.sleep(PROLOG_SECONDS)

    async def _follow_jobs(self) -> None:
        async for told in self._slurm.jobs.watch(pace=PACE):
            if told.after is None:
                continue
            job_id, status = told.job_id, told.after
            try:
                record = await self._slurm.jobs.get(job_id)
            except NotFoundError:
                continue
            if job_id not in self._records:
                self.links += dependencies(job_id, record.dependency)
            self._records[job_id], self._statuses[job_id] = record, status
            if status.state is JobState.PREEMPTED:
                self.preempted.setdefault(job_id, self.now)
            self._see_job(job_id)
            for pod in self.pods.list():
                if self.job_id(pod) == job_id:
                    self._see(self._sighting(pod))
            self._news.set()

    def _see_job(self, job_id: int) -> None:
        """Where it is one of Slurm's own."""
        record = self._records.get(job_id)
        if record is not None and not record.is_external:
            self._see(job_sighting(record, self._statuses[job_id], self._held.get(job_id, "")))

    def _sighting(self, pod: Pod) -> Sighting:
        job_id = self.job_id(pod)
        record = self._records.get(job_id)
        return pod_sighting(pod, self._statuses.get(job_id), job_id, record.nodes if record else "")

    def _see(self, seen: Sighting) -> None:
        before = self.lives.get(seen.key)
        after = self.lives[seen.key] = grown(before, seen, self.now)
        if before is None or before.last.phase is not after.last.phase:
            for listener in self._listeners:
                listener(after)
        self._news.set()


@asynccontextmanager
async def watching(
    kube: Client, slurm: SlurmClient, namespace: str, prologs: Callable[[], str]
) -> AsyncIterator[tuple[Watching, asyncio.Task[None]]]:
    """The second follows the jobs: it ends only by an error."""
    async with Reflector(kube, PODS, namespace=namespace).running() as pods:
        await pods.wait_synced()
        found = Watching(pods, slurm, prologs)
        unsubscribe = pods.subscribe(found.hear_pod)
        task = asyncio.create_task(ungrouped(found.follow()), name="the demo's watch of jobs")
        try:
            yield found, task
        finally:
            unsubscribe()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
