"""Ends of jobs that are seen before they come: a preemption that leaves a grace time, a time limit.

Comes in: each look of the reconciler at a workload whose job runs, and the jobs' own records: asked for after the first seconds, then at the moment itself, at once when Slurm signals a job, and every so often between, as limits are changed and some preemptions show nowhere else; all
at a limited rate. Goes out: that it is time for a workload's pods to go, or no longer; and each record to whoever sends checkpoint signals. What must stay true: nothing is done on a record that is not just read, or is not of the workload's own job; a job that ends within seconds costs no
question; Slurm is never asked to send a signal itself; nothing of a pod's way waits for this.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence

import msgspec

from slinky.bridge.checkpoint import Checkpoints
from slinky.bridge.ends import End, Ending, end_of, longest_grace
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Pod, WorkQueue
from slinky.slurm import Job, NotFoundError, SlurmClient, SlurmError

__all__ = ["Endings", "seconds_to_next_look"]

log = logging.getLogger(__name__)

SHORTEST_LOOK = 1.0
LONGEST_LOOK = 15.0  # a preemption that no state shows, or a limit that was made shorter, is noticed within this
FIRST_LOOK = 12.0  # no limit is below a minute, and no pod goes before half of it has passed
ROUND_PER_SECOND = 5.0  # records in all, for looks that are due to nothing but time
LOOKS_PER_SECOND = 20.0
SIGNALLED_PER_SECOND = 200.0  # of jobs that Slurm is signalling: a thousand that are preempted at once are told within seconds
WORKERS = 4


class _Followed(msgspec.Struct, frozen=True):
    """`called`: the end, in seconds since 1970, for which its pods were told to go; that it would have been early enough later, now that some of them are gone, calls nobody back."""

    job_id: int
    warned: bool
    called: int = 0


def seconds_to_next_look(end: End | None, now: float, followed: int) -> float:
    """`followed` is how many jobs there are to look at."""
    base = max(LONGEST_LOOK, followed / ROUND_PER_SECOND)
    if end is None or end.evict_at <= now:
        return base
    return min(max(end.evict_at - now, SHORTEST_LOOK), base)


class Endings:
    """`pods(key)` are a workload's; `is_own(job, key, names)` whether a record is of its own job, given its pods' names where these tell; `is_signalled(job_id)` whether Slurm is sending the job a signal right now, by what is polled anyway; `tell(key, job_id, ending)` takes what was found: None that it is not time."""

    def __init__(
        self,
        slurm: SlurmClient,
        pods: Callable[[WorkloadKey], Sequence[Pod]],
        is_own: Callable[[Job, WorkloadKey, Sequence[str]], bool],
        is_signalled: Callable[[int], bool],
        tell: Callable[[WorkloadKey, int, Ending | None], None],
        checkpoints: Checkpoints | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._slurm = slurm
        self._pods = pods
        self._is_own = is_own
        self._is_signalled = is_signalled
        self._tell = tell
        self._checkpoints = checkpoints
        self._clock = clock
        self._followed: dict[WorkloadKey, _Followed] = {}
        self.queue: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace, expected=(SlurmError,))

    def look(self, key: WorkloadKey, workload: Workload | None, running_job: int) -> None:
        """After each look of the reconciler. `running_job` is 0 where the workload's job does not run."""
        news = self._checkpoints.look(key, workload, running_job) if self._checkpoints else False
        if not running_job:
            self._followed.pop(key, None)
            return
        warned = bool(self._checkpoints and workload and workload.settings.signal)
        before = self._followed.get(key)
        self._followed[key] = _Followed(running_job, warned, before.called if before and before.job_id == running_job else 0)
        if news or self._is_signalled(running_job):
            self.queue.add(key)  # a preemption, perhaps: its record tells
        elif before is None or before.job_id != running_job:
            self.queue.add_after(key, FIRST_LOOK * random.uniform(0.8, 1.2))  # noqa: S311

    async def run(self) -> None:
        """For ever."""
        await self.queue.serve(self._turn, workers=WORKERS)

    async def _turn(self, key: WorkloadKey) -> None:
        followed = self._followed.get(key)
        if followed is None:
            return
        try:
            parts = await self._slurm.jobs.parts(followed.job_id)
        except NotFoundError:
            parts = []  # the reconciler will hear of it
        wait = seconds_to_next_look(None, 0.0, len(self._followed))
        pods = self._pods(key)
        if parts and all(self._is_own(part, key, [pod.metadata.name for pod in pods] if key.job_id else ()) for part in parts):
            now = self._clock()
            end = end_of(parts, longest_grace(pods), now, warned=followed.warned)
            wait = seconds_to_next_look(end, now, len(self._followed))
            if self._checkpoints:
                wait = min(wait, await self._checkpoints.seen(key, parts[0], end))
            ending = self._ending(end, followed)
            if (since := self._followed.get(key)) is not None and since.job_id == followed.job_id:
                self._followed[key] = msgspec.structs.replace(since, called=end.at if end and ending else 0)
            self._tell(key, followed.job_id, ending)
        if key in self._followed:
            self.queue.add_after(key, wait)
        await asyncio.sleep(WORKERS / (SIGNALLED_PER_SECOND if self._is_signalled(followed.job_id) else LOOKS_PER_SECOND))

    def _ending(self, end: End | None, followed: _Followed) -> Ending | None:
        now = self._clock()
        if end is None or (end.evict_at > now and end.at > followed.called):
            return None
        return Ending(end.reason, end.why(followed.job_id), asyncio.get_running_loop().time() + end.last_call - now)
