"""Which ids Slurm has jobs for, and which of them a client has yet to read.

One request for the states of all jobs takes 0.6 to 0.8 s for 20,000 jobs and 23 to 29 s for 100,000. So where Slurm has
many jobs, the client asks by number, 500 ids in a request (4 ms), from the newest id down: job ids rise with time.
Slurm 26.05 and later tell the next id (`/conf`); with an older one the client probes for the highest id.

*Invariants:* no request names more than 500 ids; a portion of ids is asked for again until each was read or is gone.
No gap between ids, however wide, hides the jobs below it.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence

import msgspec

from slinky.slurm.connection import Connection
from slinky.slurm.errors import UnsupportedError
from slinky.slurm.lanes import Lane
from slinky.slurm.models.cluster import ConfigurationAnswer, Diagnostics, DiagnosticsAnswer
from slinky.slurm.models.jobs import JobStatus, StatusList

__all__ = ["JobIds"]

MANY_JOBS = 20_000  # that wait or run: from there on ids are asked for by their numbers
TOGETHER = 500  # ids in a request
REQUESTS = 4  # at a time
PORTION = 20_000  # ids that are looked through at a time
STRIDE = 5_000  # between two looks for the highest id
FARTHEST = 5_000_000  # above the highest id that is known, that others may have used up
PROBES = 10  # stretches of ids that one request asks about
HIGHEST = 0x03FF0000  # no job id is higher, unless Slurm is configured so
WALKED_SECONDS = 86_400.0  # after which all ids are named again: an administrator may submit with an old id
WALK_SHARE = 0.25  # of the time, that a long walk takes

_STATES = msgspec.json.Decoder(StatusList)
_DIAGNOSTICS = msgspec.json.Decoder(DiagnosticsAnswer)
_CONFIGURATION = msgspec.json.Decoder(ConfigurationAnswer)


class JobIds:
    """`highest` is the highest id that is known to have been used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.highest = 0
        self._cursor: int | None = None  # ids from there up were looked through, up to
        self._covered = 0
        self._left: set[int] = set()  # of the last portion
        self._live: set[int] = set()  # of the ids that were named when the newest was
        self._walked, self._walked_at = 0, float("-inf")

    def saw(self, job_id: int) -> None:
        self.highest = max(self.highest, job_id)

    def begin_anew(self) -> None:
        """Ids may mean other jobs than they did."""
        self._cursor, self._left = None, set()
        self._live, self._walked_at = set(), float("-inf")

    def was_read(self, job_ids: Iterable[int]) -> None:
        """Or is gone."""
        self._left.difference_update(job_ids)

    async def diagnostics(self) -> Diagnostics:
        return (await self._connection.read("slurm/diag/", _DIAGNOSTICS)).statistics

    async def all(self) -> Sequence[JobStatus]:
        """In one request, for where there are few."""
        found = (await self._connection.read("slurm/jobs/state/", _STATES, lane=Lane.URGENT)).jobs or ()
        self.saw(max((status.job_id for status in found), default=0))
        return found

    async def among(self, job_ids: Collection[int]) -> list[JobStatus]:
        """Those of these ids that Slurm has jobs for."""
        ids = sorted(job_ids)
        parts = [ids[start : start + TOGETHER] for start in range(0, len(ids), TOGETHER)]
        found: list[JobStatus] = []
        for start in range(0, len(parts), REQUESTS):
            asked = (
                self._connection.read("slurm/jobs/state/", _STATES, {"job_id": part}, lane=Lane.URGENT)
                for part in parts[start : start + REQUESTS]
            )
            for answer in await asyncio.gather(*asked):
                found += answer.jobs or ()
        self.saw(max((status.job_id for status in found), default=0))
        return found

    async def live(self) -> set[int]:
        """The ids of all jobs and arrays that are not over.

        Where there are many, the first call names every id: 12 s of slurmrestd's time for a million of them, measured on
        two busy cores. Later calls name the newer ids and those that were live.
        """
        if await self.are_few():
            return {status.job_id for status in await self.all() if not status.is_finished}
        loop = asyncio.get_running_loop()
        newest = await self.newest()
        if newest < self._walked or loop.time() - self._walked_at > WALKED_SECONDS:
            self._live, self._walked_at = await self._walk(0, max(newest, self.highest)), loop.time()
        else:
            known = {status.job_id for status in await self.among(self._live) if not status.is_finished}
            self._live = known | await self._walk(self._walked, newest)
        self._walked = newest
        return set(self._live)

    async def _walk(self, low: int, high: int) -> set[int]:
        """The live ids above `low`, up to `high`. A long walk pauses after each portion."""
        loop, found = asyncio.get_running_loop(), set[int]()
        for start in range(low, high, PORTION):
            began = loop.time()
            some = await self.among(range(start + 1, min(start + PORTION, high) + 1))
            found.update(status.job_id for status in some if not status.is_finished)
            if start + PORTION < high:
                await asyncio.sleep((loop.time() - began) * (1 / WALK_SHARE - 1))
        return found

    async def descending(self) -> AsyncIterator[list[int]]:
        """All ids that Slurm has jobs for, arrays left out, in groups, the newest first."""
        async for statuses in self._falling():
            if ids := [status.job_id for status in statuses if "_" not in status.label]:
                yield ids

    async def _falling(self) -> AsyncIterator[Sequence[JobStatus]]:
        """The states of all jobs, in groups, the newest first: where ids began again at 1, the highest ones are old."""
        if await self.are_few():
            found = await self.all()
            newest = await self.newest(told=True) or self.highest  # after the list, so that none in it came later
            found = sorted(found, key=lambda status: (status.job_id <= newest, status.job_id), reverse=True)
            for start in range(0, len(found), TOGETHER):
                yield found[start : start + TOGETHER]
            return
        newest = await self.newest()
        for position, end in ((newest, 0), (self.highest, newest)):
            step = TOGETHER
            while position > end:
                low = max(end, position - step)
                some = await self.among(range(low + 1, position + 1))
                yield sorted(some, key=lambda status: status.job_id, reverse=True)
                position, step = low, TOGETHER if some else min(2 * step, PORTION)

    async def are_few(self) -> bool:
        now = await self.diagnostics()
        return now.jobs_pending + now.jobs_running <= MANY_JOBS

    async def newest(self, *, told: bool = False) -> int:
        """The id that was given out last. Where Slurm does not tell it: the highest, or, with `told`, 0."""
        try:
            await self._connection.require("conf")
        except UnsupportedError:
            return 0 if told else await self.top()
        state = (await self._connection.read("slurm/conf", _CONFIGURATION, lane=Lane.URGENT)).slurm_conf_meta
        if not isinstance(state.next_job_id, int) or state.next_job_id < 1:
            return 0 if told else await self.top()
        self.saw(state.next_job_id - 1)
        return state.next_job_id - 1

    async def top(self) -> int:
        """The highest id that is used. Others submit too: it is looked for above the last that is known; where none is, everywhere."""
        if not self.highest:
            await self._probe(0, HIGHEST)
        while True:
            before = self.highest
            await self.among(range(before + 1, before + 1 + REQUESTS * TOGETHER))
            if self.highest == before and not await self._probe(before, before + FARTHEST, stop=True):
                return before

    async def _probe(self, low: int, high: int, *, stop: bool = False) -> bool:
        """Some ids in each stretch of them, 40 stretches at a time: whether one is used. With `stop`, until one is."""
        before, step = self.highest, STRIDE * REQUESTS * PROBES
        for start in range(low, min(high, HIGHEST), step):
            firsts = range(start + STRIDE, start + step + 1, STRIDE)
            await self.among({first + offset for first in firsts for offset in range(TOGETHER // PROBES)})
            if stop and self.highest > before:
                return True
        return self.highest > before

    async def portion(self, known: Collection[int], live: bool) -> tuple[set[int], set[int]]:
        """Where there are many jobs: ids that were looked for and are not there, and some that are and are not `known`. Those that came since the last portion, and older ones, until all were."""
        left = {job_id for job_id in self._left if job_id not in known}
        if left:
            return set(), left
        top = await self.newest()
        if self._cursor is None or top < self._covered:
            self._cursor, self._covered = max(top, self.highest), top
        low, top = max(0, self._cursor - PORTION), min(top, self._covered + PORTION)
        looked = {*range(self._covered + 1, top + 1), *range(low + 1, self._cursor + 1)}
        present, wanted = await asyncio.to_thread(_ids_of, await self.among(looked), live)
        self._covered, self._cursor = top, low
        self._left = wanted.difference(known)
        return looked - present, set(self._left)


def _ids_of(statuses: Sequence[JobStatus], live: bool) -> tuple[set[int], set[int]]:
    """Of jobs that are no arrays: all, and those that are asked for."""
    single = [status for status in statuses if "_" not in status.label]
    present = {status.job_id for status in single}
    return present, {status.job_id for status in single if not status.is_finished} if live else present
