"""Ends of jobs that are seen before they come: a preemption that leaves a grace time, a time limit.

In: each look of the reconciler at a workload whose job runs, and the jobs' own records. A record is read after the job's first seconds, at the moment that it gives itself, at once when Slurm signals the job, and every
so often between: limits are changed, and some preemptions show nowhere else. After a preemption all records are read once, faster: Slurm often preempts many jobs at once, and not all of them show it. Out: that it is time for a workload's pods to go, or no longer; and each record to the code that sends checkpoint signals.

*Invariants:* nothing is done on a record that is not just read, or is not of the workload's own job; a deadline is compared with slurmctld's own clock, and while that is not known nobody is evicted for one; jobs that Slurm signals
are read first, then those whose moment has come, then all others; a job that ends within seconds costs no read; Slurm is never asked to send a signal itself; a checkpoint signal that hangs delays its own workload alone.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from slinky.bridge.checkpoint import AGAIN_SECONDS, Checkpoints, Signals
from slinky.bridge.ends import End, Ending, end_of, is_credible, longest_grace
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Backoff, Pod, WorkQueue
from slinky.slurm import Job, NotFoundError, SlurmClient, SlurmError

__all__ = ["Endings"]

log = logging.getLogger(__name__)

SHORTEST_LOOK = 1.0
LONGEST_LOOK = 15.0  # a preemption that no state shows, or a limit that was made shorter, is noticed within this
FIRST_LOOK = 12.0  # no limit is below a minute, and no pod goes before half of it has passed
ROUND_PER_SECOND = 20.0  # records in all, for looks that are due to nothing but time: 1.5 ms of slurmrestd's time each
LOOKS_PER_SECOND = 40.0
URGENT_PER_SECOND = 200.0  # of jobs that Slurm is signalling, or whose moment has come: a thousand at once are told within seconds
SWEEP_PER_SECOND = 100.0  # after a preemption: 3,000 records in 30 s, at 15 % of a core of slurmrestd's
SWEEP_DELAY = 1.0  # Slurm marks all jobs that it preempts for another within this
SWEEP_PAUSE = 30.0  # between two such rounds at least, and twice as long as one takes
CLOCK_SECONDS = 2.0  # until the next look while Slurm's clock is not known
DOUBT_SECONDS = 60.0  # between two log lines about records that contradict Slurm's clock
WORKERS = 4
BACKOFF = Backoff(first=0.1, most=15.0)

# Priorities of looks.
ROUTINE, DUE, SIGNALLED = 0, 1, 2


class _Followed(msgspec.Struct, frozen=True):
    """`called`: the end, in seconds since 1970, for which its pods were told to go; that it would have been early enough later, now that some of them are gone, calls nobody back."""

    job_id: int
    warned: bool
    called: int = 0
    told: bool = False  # that they are to go
    read: bool = False  # its record was read
    preempted: bool = False  # by its record


def _sweep_pause(followed: int) -> float:
    """Between the beginnings of two rounds after preemptions, where so many jobs are followed."""
    return max(SWEEP_PAUSE, 2 * followed / SWEEP_PER_SECOND)


def _routine_wait(followed: int) -> float:
    """Between two looks at a job that are due to nothing but time, where so many jobs are followed."""
    return max(LONGEST_LOOK, followed / ROUND_PER_SECOND)


async def _nothing_to_confirm() -> None:
    """The clock is as good as it gets."""


class Endings:
    """`pods(key)` are a workload's; `is_own(job, key, names)` whether a record is of its own job, given its pods' names where these tell; `is_signalled(job_id)` whether Slurm is sending the job a signal right now, by what is polled anyway; `tell(key, job_id, ending)` takes what was found: None that it is not time.

    `clock()` is slurmctld's time, None where it is not known; `confirm()` reads that clock once more if the last reading is older than a second.
    """

    def __init__(
        self,
        slurm: SlurmClient,
        pods: Callable[[WorkloadKey], Sequence[Pod]],
        is_own: Callable[[Job, WorkloadKey, Sequence[str]], bool],
        is_signalled: Callable[[int], bool],
        tell: Callable[[WorkloadKey, int, Ending | None], None],
        clock: Callable[[], float | None],
        confirm: Callable[[], Awaitable[None]] = _nothing_to_confirm,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._slurm = slurm
        self._pods = pods
        self._is_own = is_own
        self._is_signalled = is_signalled
        self._tell = tell
        self._clock = clock
        self._confirm = confirm
        self._checkpoints = checkpoints
        self._followed: dict[WorkloadKey, _Followed] = {}
        self._first: set[WorkloadKey] = set()  # to be read before all others
        self._moments: dict[WorkloadKey, asyncio.TimerHandle] = {}
        self._come: set[WorkloadKey] = set()  # whose moment has come
        self._swept: set[WorkloadKey] = set()  # to be read soon, as another job is being preempted
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._swept_at = float("-inf")
        self.queue: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace, backoff=BACKOFF, expected=(SlurmError,))
        self._doubted_at = float("-inf")
        self._held: set[WorkloadKey] = set()  # it is time for their pods to go, when these have had their signals
        if checkpoints:
            checkpoints.done = lambda key: self.hasten(key) if key in self._held else None

    def look(self, key: WorkloadKey, workload: Workload | None, running_job: int) -> None:
        """After each look of the reconciler. `running_job` is 0 where the workload's job does not run."""
        news = self._checkpoints.look(key, workload, running_job) if self._checkpoints else False
        if not running_job:
            self._forget(key)
            return
        warned = bool(self._checkpoints and workload and workload.settings.signal)
        before = self._followed.get(key)
        if before and before.job_id == running_job:
            self._followed[key] = msgspec.structs.replace(before, warned=warned)
        else:
            self._followed[key] = _Followed(running_job, warned)
        if self._is_signalled(running_job) or key in self._first:
            self.hasten(key)  # a preemption, perhaps: its record tells
        elif news:
            self.queue.add(key)
        elif before is None or before.job_id != running_job:
            self.queue.add_after(key, FIRST_LOOK * random.uniform(0.8, 1.2))  # noqa: S311

    def _forget(self, key: WorkloadKey) -> None:
        self._followed.pop(key, None)
        self._first.discard(key)
        self._come.discard(key)
        self._held.discard(key)
        self._swept.discard(key)
        if timer := self._moments.pop(key, None):
            timer.cancel()

    def expect(self, key: WorkloadKey) -> None:
        """The reconciler will look at it: if its job runs then, its record is read before all others."""
        self._first.add(key)

    def hasten(self, key: WorkloadKey) -> None:
        """If its job runs, its record is read before all others."""
        if key in self._followed:
            self._first.add(key)
            self.queue.add(key, priority=SIGNALLED)

    def signalled(self, key: WorkloadKey) -> None:
        """Slurm has just signalled its job. That may show for a tenth of a second only, so it is noted here and not looked up later."""
        self.expect(key)
        self.hasten(key)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.queue.serve(self._turn, workers=WORKERS)
        finally:
            if self._sweep_timer:
                self._sweep_timer.cancel()
                self._sweep_timer = None
            for key in list(self._followed):
                self._forget(key)

    async def _turn(self, key: WorkloadKey) -> None:
        followed = self._followed.get(key)
        if followed is None:
            return
        urgency = SIGNALLED if key in self._first else DUE if key in self._come else ROUTINE
        rate = URGENT_PER_SECOND if urgency > ROUTINE else SWEEP_PER_SECOND if key in self._swept else LOOKS_PER_SECOND
        self._swept.discard(key)
        try:
            parts = await self._slurm.jobs.parts(followed.job_id, brief=True)
            (self._first if urgency == SIGNALLED else self._come).discard(key)
            await self._read(key, followed, parts, urgent=urgency > ROUTINE)
        except NotFoundError:
            self.queue.add_after(key, _routine_wait(len(self._followed)))  # the reconciler will hear of it
        except SlurmError:
            if urgency > ROUTINE and key in self._followed:
                (self._first if urgency == SIGNALLED else self._come).add(key)
                self.queue.add_after(key, BACKOFF.most, priority=urgency)  # or earlier, as it failed
            raise
        await asyncio.sleep(WORKERS / rate)

    async def _read(self, key: WorkloadKey, followed: _Followed, parts: Sequence[Job], *, urgent: bool) -> None:
        """Its job's record, just read."""
        pods = self._pods(key)
        names = [pod.metadata.name for pod in pods] if key.job_id else ()
        if not parts or not all(self._is_own(part, key, names) for part in parts):
            self.queue.add_after(key, _routine_wait(len(self._followed)))
            return
        grace, now = longest_grace(pods), self._time(parts)
        end = end_of(parts, grace, now, warned=followed.warned)
        if end is not None and now is not None and end.evict_at <= now:
            await self._confirm()  # pods go on the word of a clock: is it still what it was?
            now = self._time(parts)
            end = end_of(parts, grace, now, warned=followed.warned)
        wait = _routine_wait(len(self._followed)) if now is not None else max(CLOCK_SECONDS, len(self._followed) / LOOKS_PER_SECOND)
        signals = self._checkpoints.seen(key, parts[0], end, now) if self._checkpoints else None
        ending = self._ending(end, followed, now)
        since = self._followed.get(key)
        if since is None or since.job_id != followed.job_id:
            return
        preempted = end is not None and end.kind == "preemption"
        if preempted and not since.preempted:
            self._plan_sweep()
        since = self._followed[key] = msgspec.structs.replace(since, read=True, preempted=preempted)
        held = ending is not None and signals is not None and signals.holds and not since.told
        (self._held.add if held else self._held.discard)(key)
        self._set_moment(key, AGAIN_SECONDS if held else self._seconds_to_moment(end, now, urgent=urgent), signals)
        self.queue.add_after(key, AGAIN_SECONDS if signals and signals.again else wait)
        if not held and (now is not None or ending is not None):
            self._followed[key] = msgspec.structs.replace(since, called=end.at if end and ending else 0, told=ending is not None)
            self._tell(key, followed.job_id, ending)

    def _plan_sweep(self) -> None:
        """A job is being preempted; others may be too, and not show it. One round is planned at a time, for all that are found until it begins."""
        if self._sweep_timer is None:
            loop = asyncio.get_running_loop()
            at = max(loop.time() + SWEEP_DELAY, self._swept_at + _sweep_pause(len(self._followed)))
            self._sweep_timer = loop.call_at(at, self._sweep)

    def _sweep(self) -> None:
        """Jobs in their first seconds are left out: their first look comes soon."""
        self._sweep_timer, self._swept_at = None, asyncio.get_running_loop().time()
        self._swept = {key for key, followed in self._followed.items() if followed.read and not followed.preempted}
        log.info("a job is being preempted: the records of %d others are read, as they may be preempted too", len(self._swept))
        for key in self._swept:
            self.queue.add(key)

    @staticmethod
    def _seconds_to_moment(end: End | None, now: float | None, *, urgent: bool) -> float:
        """Until its pods have to go; of one whose moment has come, until the clock may be known."""
        if now is None:
            return CLOCK_SECONDS if urgent else float("inf")
        return end.evict_at - now if end is not None and end.evict_at > now else float("inf")

    def _set_moment(self, key: WorkloadKey, seconds: float, signals: Signals | None) -> None:
        """When its record is to be read whatever else waits: for its end, or for a signal before that."""
        if timer := self._moments.pop(key, None):
            timer.cancel()
        seconds = min(seconds, signals.wait if signals else float("inf"))
        if seconds < float("inf"):
            self._moments[key] = asyncio.get_running_loop().call_later(max(seconds, SHORTEST_LOOK), self._moment, key)

    def _moment(self, key: WorkloadKey) -> None:
        self._moments.pop(key, None)
        self._come.add(key)
        self.queue.add(key, priority=DUE)

    def _time(self, parts: Sequence[Job]) -> float | None:
        """Slurm's time, unless the job's record contradicts it."""
        now = self._clock()
        if now is None or is_credible(parts, now):
            return now
        if (moment := asyncio.get_running_loop().time()) - self._doubted_at >= DOUBT_SECONDS:
            self._doubted_at = moment
            log.warning(
                "job %d (perhaps others too) has a start time in the future of slurmctld's clock. The bridge does not evict its"
                " pods for the time limit. Check the clock on slurmctld's host",
                parts[0].job_id,
            )
        return None

    def _ending(self, end: End | None, followed: _Followed, now: float | None) -> Ending | None:
        moment = asyncio.get_running_loop().time()
        if end is None:
            return None
        if now is None:
            return Ending(end.reason, end.why(followed.job_id), moment, end.at)
        if end.evict_at > now and end.at > followed.called:
            return None
        return Ending(end.reason, end.why(followed.job_id), moment + end.last_call - now, end.at)
