"""One poller for all jobs: what state each of ours is in, by one small request a tick.

Comes in: the ids of the jobs that are ours and not over. Goes out: their states, and a call for each that changed. No other code asks Slurm for lists. What must stay true: a tick costs Slurm no more than a
small share of its time, however many jobs there are: only our own are asked for, those that run more rarely than those that wait, and the pause is at least several times what the last answer took; while one of ours
waits it is short, so that a start is seen at once; what was submitted or ended by us is looked for at once; an outage is waited out, and afterwards, or when jobs went where none can go, `epoch` is another, as job ids may mean
other jobs then: of two that have had one id, the last is followed.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import msgspec

from slinky.bridge.clocks import RemoteClock
from slinky.bridge.workload import WorkloadKey
from slinky.slurm import Diagnostics, JobStatus, SlurmClient, SlurmError

__all__ = ["JobPoller", "PollTimes", "next_pause"]

log = logging.getLogger(__name__)

OVERDUE_SECONDS = 2.0


IDLE_START_SECONDS = 5.0  # how often that is asked where nobody has to know
START_SECONDS = 1.0  # how long it is good enough to know that slurmctld was not restarted


class PollTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. `waiting` is the longest pause while a job of ours waits or a change is due; `share` bounds what polling may take of Slurm's time."""

    fastest: float = 0.03
    waiting: float = 0.1
    slowest: float = 1.0
    share: float = 0.2
    longest_outage_pause: float = 5.0


def next_pause(times: PollTimes, last: float, took: float, *, changed: bool, waiting: bool) -> float:
    """Fast after a change, slower while nothing happens; never more than a share of Slurm's time."""
    pause = times.fastest if changed else min(last * 1.5, times.waiting if waiting else times.slowest)
    return max(pause, times.fastest, took * (1 / times.share - 1))


class JobPoller:
    """`states` is what is known; `gone` are those that Slurm does not name any more, or never did, though it answers; `told(job_id)` is called for each job whose state is new, or that Slurm no longer names."""

    def __init__(self, slurm: SlurmClient, told: Callable[[int], None], times: PollTimes | None = None) -> None:
        self._slurm = slurm
        self._told = told
        self._times = times or PollTimes()
        self._open: dict[int, WorkloadKey | None] = {}  # and for whom
        self._unseen: set[int] = set()  # of those, what no look has answered for yet
        self._wake = asyncio.Event()
        self._all_at = float("-inf")
        self.states: dict[int, JobStatus] = {}
        self.gone: set[int] = set()
        self.epoch = 0
        self._start: Diagnostics | None = None  # what tells one start of slurmctld from another
        self._start_at = float("-inf")  # when that was last asked
        self._start_lock = asyncio.Lock()
        self.clock = RemoteClock()  # slurmctld's
        self.outage = ""
        self._good_until = float("-inf")

    def follow(self, job_id: int, owner: WorkloadKey | None = None) -> None:
        """Look at this job from now on, and soon. Where somebody else had a job of that id, this is another."""
        if job_id not in self._open or self._open[job_id] != owner:
            self._drop(job_id)
            self._open[job_id] = owner
            self._unseen.add(job_id)
            self._wake.set()

    def forget(self, job_ids: Iterable[int], owner: WorkloadKey | None = None) -> None:
        """Those of this owner; of anybody where none is named."""
        for job_id in job_ids:
            if owner is None or self._open.get(job_id) == owner:
                self._drop(job_id)

    def _drop(self, job_id: int) -> None:
        self._open.pop(job_id, None)
        self._unseen.discard(job_id)
        self.gone.discard(job_id)
        self.states.pop(job_id, None)

    def has_yet_to_see(self, job_id: int) -> bool:
        """No look has answered for it so far: the next one tells of it, be it there or not."""
        return job_id in self._unseen

    def is_signalled(self, job_id: int) -> bool:
        """Slurm is sending it a signal right now, whatever for."""
        status = self.states.get(job_id)
        return status is not None and status.is_signaling

    async def confirm(self) -> None:
        """Before anything is done that cannot be undone on the word of a state: that slurmctld is still the one that gave it. One question a second at most, for all who ask; a restart takes longer than that."""
        asked = asyncio.get_running_loop().time()
        async with self._start_lock:
            if self._start_at > asked - START_SECONDS:
                return  # the answer that was waited for serves all that waited
            now = asyncio.get_running_loop().time()
            found = await self._slurm.diag()
            if isinstance(found.req_time, int) and found.req_time:
                self.clock.note(found.req_time, now, asyncio.get_running_loop().time())
            before, self._start, self._start_at = self._start, found, now
            if before is not None and found.is_of_another_start(before):
                await self._slurm.jobs.distrust_markers()
                self.distrust()

    def distrust(self) -> None:
        """There are signs that Slurm has lost its state: any id may mean another job now."""
        log.warning("Slurm was restarted, or has lost jobs: every job is looked at again")
        self.epoch += 1

    def owners_gone(self) -> set[WorkloadKey]:
        """Whose jobs Slurm does not name, though it answers."""
        return {owner for job_id in self.gone if (owner := self._open[job_id]) is not None}

    def look_soon(self) -> None:
        """Something was done that may let a job start or end."""
        self._wake.set()

    @property
    def is_current(self) -> bool:
        """Whether the states are news: the last look was answered, and the next is not overdue. Not so while Slurm does not answer, nor when this process was itself stopped for a while."""
        return not self.outage and asyncio.get_running_loop().time() <= self._good_until

    @property
    def jobs(self) -> Collection[int]:
        """Those that are followed: ours, and not over as far as is known."""
        return self._open.keys()

    @property
    def following(self) -> int:
        return len(self._open)

    async def run(self) -> None:
        """For ever."""
        pause = self._times.fastest
        loop = asyncio.get_running_loop()
        with suppress(SlurmError):  # else the first look will tell
            await self.confirm()
        while True:
            began = loop.time()
            try:
                changed = await self._look()
            except SlurmError as error:
                await self._outage(error, pause)
                pause = min(pause * 2, self._times.longest_outage_pause)
                continue
            waiting = any(status.is_pending for status in self.states.values())
            took = loop.time() - began
            pause = next_pause(self._times, pause, took, changed=changed, waiting=waiting)
            self._good_until = loop.time() + pause + took + OVERDUE_SECONDS
            await self._sleep(pause)

    async def _look(self) -> bool:
        if asyncio.get_running_loop().time() - self._start_at >= IDLE_START_SECONDS:
            await self.confirm()  # those whose job was lost are not followed, and it may be back
        asked = self._due()
        if not asked:
            return False
        found = {status.job_id: status for status in await self._slurm.jobs.states(asked)}
        if self.outage:
            await self.confirm()
            log.info("Slurm answers again")
            self.outage = ""
            self.epoch += 1
        changed = backwards = False
        for job_id in asked & self._open.keys():
            before, now = self.states.get(job_id), found.get(job_id)
            backwards = backwards or _went_backwards(before, now)
            if now is None:
                gone = self.states.pop(job_id, None) is not None or job_id in self._unseen
                self.gone.add(job_id)
            else:
                self.states[job_id] = now
                self.gone.discard(job_id)
                gone = False
            self._unseen.discard(job_id)
            if gone or (now is not None and (before is None or before.states != now.states)):
                changed = True
                self._told(job_id)
        if backwards:
            await self._slurm.jobs.distrust_markers()
            self.distrust()
        return changed

    def _due(self) -> set[int]:
        """Those that may start at any moment each time; those that run, and only end, when the longest pause has passed since the last look at them."""
        now = asyncio.get_running_loop().time()
        if now - self._all_at >= self._times.slowest:
            self._all_at = now
            return set(self._open)
        return {
            job_id
            for job_id in self._open
            if (known := self.states.get(job_id)) is None or not known.is_running or "CONFIGURING" in known.states
        }

    async def _outage(self, error: SlurmError, pause: float) -> None:
        if not self.outage:
            log.warning("the jobs' states cannot be read (%s); pods run on, and it is tried again", error)
        self.outage = str(error)
        await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311

    async def _sleep(self, pause: float) -> None:
        """At least the shortest pause, so that a burst of submits is one look; the whole of it only where nothing wakes us."""
        shortest = min(pause, self._times.fastest)
        await asyncio.sleep(shortest)
        if self._wake.is_set() or pause <= shortest:
            self._wake.clear()
            return
        try:
            async with asyncio.timeout(pause - shortest):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()


def _went_backwards(before: JobStatus | None, now: JobStatus | None) -> bool:
    """What has begun neither vanishes before it is over, as Slurm keeps a job for a while after that, nor waits again; whoever sees that has looked at another state."""
    if before is None or before.is_finished:
        return False
    return now is None or (before.is_running and now.is_pending)
