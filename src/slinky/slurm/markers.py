"""Finding a job again when the answer to its submit was lost.

A marker is a text of the caller's, unique to one job, put into the job's `extra`, `comment` or `admin_comment`. `Markers` remembers which jobs carry which: one
streamed full list at the first use, then the ids that this client submitted itself, and on a search those jobs alone that appeared since (states first, then
each new job). `freshen` does the same before a submit, where the last look is too long ago, so that others' jobs are seen and those that Slurm forgot are forgotten.

A client that is the only one to submit its markers says so (`alone`): then it never reads other people's jobs before a submit. A search reads the jobs that it has not
read, the newest first, and stops at those that were submitted before the job in question can have been (`newest`).

What must stay true: a job that Slurm had when a search began is found by it; a look into memory does not depend on how many jobs there are; memory is bounded by
the jobs that Slurm has, those submitted since the last look (some thousand) and a few KB for each.
"""

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Literal
from weakref import WeakValueDictionary

import msgspec

from slinky.slurm.connection import Connection
from slinky.slurm.descriptions import JobDescription
from slinky.slurm.errors import BadAnswerError, ConfigurationError, NotFoundError, UnavailableError
from slinky.slurm.job_ids import JobIds
from slinky.slurm.lanes import Lane
from slinky.slurm.models.jobs import Job, JobList, StatusList
from slinky.slurm.numbers import Envelope
from slinky.slurm.streams import stream

__all__ = ["MarkerField", "Markers", "carries", "with_marker"]

MarkerField = Literal["extra", "comment", "admin_comment"]

REMEMBERED = 4096  # characters of a field, and
REMEMBERED_WORDS = 64  # words of it; a marker stands within both
ALONE_WORDS = 8  # and within these, of a client that submits its markers alone
FIRST_LOOK, SLOWEST_LOOK = 0.1, 1.0
AT_ONCE = 16
MANY = 500  # new jobs, and a tenth of all; from there on one streamed list is cheaper than looking at each
FRESH_SECONDS = 30.0  # how long what is known is good enough for a submit
RELOAD_SECONDS = 10.0  # between two full lists, where what is known is not to be trusted
FRESH_SUBMITS = 5000  # and how many submits of our own
OLDER_IN_A_ROW = 50  # jobs submitted too early, after which no younger one is expected: administrators may choose ids
CLOCK_SECONDS = 5.0  # by which Slurm's times may be off, once the difference of the clocks is taken into account
FORGET_AT_ONCE = 2_000  # jobs that are looked at to see whether Slurm still knows them
MOST_OWN = 20_000  # own submits that are remembered between two looks

_WORD = re.compile(r"[\w-]+")


class Marked(msgspec.Struct, gc=False):
    """The fields of a job in which a marker can be."""

    job_id: int
    extra: str = ""
    comment: str = ""
    admin_comment: str = ""
    submitted: int = 0  # seconds since 1970, by Slurm's clock; 0 where it is not known


class MarkedList(Envelope, kw_only=True):
    jobs: list[Marked] | None = None


_MARKED = msgspec.json.Decoder(MarkedList)
_STATES = msgspec.json.Decoder(StatusList)
_JOBS = msgspec.json.Decoder(JobList)


def carries(text: str, marker: str) -> bool:
    """Does the text hold the marker, as a word of its own? `job-1` is not in `job-10`."""
    at = text.find(marker)
    while at >= 0:
        end = at + len(marker)
        if not _is_word(text[at - 1 : at]) and not _is_word(text[end : end + 1]):
            return True
        at = text.find(marker, at + 1)
    return False


def _is_word(character: str) -> bool:
    """As `[\\w-]` in a regular expression; compiling one for each marker took 3 % of the bridge's CPU."""
    return character.isalnum() or character in ("_", "-")


def remembered(text: str, words: int = REMEMBERED_WORDS) -> str:
    """As much of a field as is kept."""
    if len(text) < 2 * words:
        return text
    text = text[:REMEMBERED]
    last = next(itertools.islice(_WORD.finditer(text), words - 1, None), None)
    return text[: last.end()] if last else text


def with_marker(job: JobDescription, marker: str, field: MarkerField) -> JobDescription:
    """The description with the marker in it: alone in an empty field, or already part of what the caller wrote there."""
    text = getattr(job, field)
    if text is None:
        return msgspec.structs.replace(job, **{field: marker})
    if not carries(remembered(text), marker):
        raise ConfigurationError(
            f"the job's {field} is taken by a text without the marker {marker!r} at its beginning; put the marker into it, or choose another field"
        )
    return job


class Markers:
    """Shared by all that use one client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[int, Marked] = {}
        self._words: dict[tuple[str, str], set[int]] = {}
        self._loaded = False
        self._lock = asyncio.Lock()
        self._refresh_began = float("-inf")
        self._distrusted = False
        self._reloaded_at = float("-inf")
        self._submits = 0  # since then
        self._claims: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._alone: MarkerField | None = None
        self.ids = JobIds(connection)
        self._ahead = 0.0  # Slurm's clock, of ours, in seconds

    def alone(self, field: MarkerField) -> None:
        """Nothing but this client submits its markers from now on, which stand at the beginning of this field. What was known before is forgotten."""
        self._alone = field
        self._forget(list(self._known))
        self.ids.begin_anew()
        self._submits = 0

    async def prepare(self) -> None:
        """Once: read which markers there are; and again where that is not to be trusted any more."""
        if self._alone:
            if self._distrusted:  # nothing is read for it: a search reads what is not known
                self._forget(list(self._known))
                self.ids.begin_anew()
                self._distrusted = False
            return
        now = asyncio.get_running_loop().time()
        if self._distrusted and now - self._reloaded_at >= RELOAD_SECONDS:
            self._distrusted, self._loaded, self._reloaded_at = False, False, now
        if self._loaded:
            return
        async with self._lock:
            if not self._loaded:
                await self._load()

    def distrust(self) -> None:
        """Slurm has lost jobs that it had: ids may mean others now. All are read again before the next search or submit, not more often than every ten seconds."""
        self._distrusted = True

    def claim(self, marker: str, field: MarkerField) -> asyncio.Lock:
        """To be held while a job of that marker is submitted: one at a time."""
        return self._claims.setdefault((field, marker), asyncio.Lock())

    async def freshen(self) -> None:
        """Look at what appeared and what is gone, if the last look is too long ago. Those who come while one looks wait for that one."""
        if not self._alone and not self._is_fresh():
            async with self._lock:
                if not self._is_fresh():
                    await self._look()

    def submitted(self, job_id: int, job: JobDescription, *, once: bool) -> None:
        """Slurm answered a submit of ours: nothing to look for. Those without `once` are left to the next look where many came since the last."""
        if self._alone:
            while len(self._known) >= MOST_OWN and self._submits >= MOST_OWN:
                self._forget([next(iter(self._known))])
                self._submits -= 1
        if self._alone or (self._loaded and (once or self._submits < FRESH_SUBMITS)):
            self._submits += 1
            at = int(time.time() + self._ahead)
            self._remember(Marked(job_id, job.extra or "", job.comment or "", job.admin_comment or "", at))

    def known(self, marker: str, field: MarkerField) -> int | None:
        """From memory, without asking."""
        return min(self._carriers(marker, field), default=None)

    async def find(self, marker: str, field: MarkerField, since: float = 0.0) -> int | None:
        return min(await self.find_all(marker, field, since), default=None)

    async def find_all(self, markers: str | Sequence[str], field: MarkerField, since: float = 0.0) -> list[int]:
        """Of jobs that carry one of these, the ids. `since`: by our clock, none was submitted earlier; used by a client that is `alone`."""
        await self.prepare()
        if self._alone:
            async for _ in self.newest(since):
                pass
        else:
            await self._refresh()
        wanted = [markers] if isinstance(markers, str) else markers
        return sorted({job_id for marker in wanted for job_id in self._carriers(marker, field)})

    async def unread(self, *, live: bool = False) -> list[int]:
        """Ids of jobs that this client has neither submitted nor read, in rising order, arrays left out: no external job is one. All of them, or, where Slurm has very many jobs, a portion: the same until they were read, then others. Those that Slurm does not know any more are forgotten."""
        await self.prepare()
        async with self._lock:
            if await self.ids.are_few():
                before = set(self._known)
                statuses = [status for status in await self.ids.all() if "_" not in status.label]
                self._forget(before - {status.job_id for status in statuses})
                self._submits = 0
                return sorted({status.job_id for status in statuses if not (live and status.is_finished)} - self._known.keys())
            gone, found = await self.ids.portion(self._known.keys(), live)
            self._forget(self._known.keys() & gone)
            await self._forget_some()
            return sorted(found)

    async def _forget_some(self) -> None:
        """Of those that were remembered first, what Slurm does not know any more; the others take their place at the end."""
        oldest = list(itertools.islice(self._known, FORGET_AT_ONCE))
        present = {status.job_id for status in await self.ids.among(oldest)}
        self._forget(set(oldest) - present)
        for job_id in oldest:
            if job_id in self._known:
                self._known[job_id] = self._known.pop(job_id)

    async def read(self, job_ids: Collection[int]) -> list[Job]:
        """The records of these jobs, which are known from then on."""
        found = await self.records(job_ids)
        for job in found:
            submitted = job.submit_time
            at = submitted if isinstance(submitted, int) else 0
            self._remember(Marked(job.job_id, job.extra, job.comment, job.admin_comment, at))
        self.ids.was_read(job_ids)
        return found

    async def records(self, job_ids: Collection[int]) -> list[Job]:
        """Those that Slurm does not know are left out; of a hetjob all parts come with its leader, of an array all tasks."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def look(job_id: int) -> Sequence[Job]:
            async with turns:
                try:
                    return (await self._connection.read(f"slurm/job/{job_id}", _JOBS)).jobs or ()
                except NotFoundError:
                    return ()

        results = await asyncio.gather(*map(look, job_ids), return_exceptions=True)
        found: dict[int, Job] = {}
        problem: BaseException | None = None
        for result in results:
            if isinstance(result, BaseException):
                problem = result
                continue
            for job in result:
                found[job.job_id] = job
        if problem:
            raise problem
        return list(found.values())

    async def newest(self, since: float = 0.0) -> AsyncIterator[list[Job]]:
        """Jobs that this client does not know, in groups, the newest first, until they were submitted before `since` (by our clock): job ids rise with the time of the submit, but for few."""
        await self.prepare()
        limit = 0.0
        if since:
            now = (await self.ids.diagnostics()).req_time
            self._ahead = now - time.time() if isinstance(now, int) else 0.0
            limit = since - CLOCK_SECONDS + self._ahead
        older = 0
        async for ids in self.ids.descending():
            for start in range(0, len(ids), OLDER_IN_A_ROW):
                some = ids[start : start + OLDER_IN_A_ROW]
                if found := await self.read([job_id for job_id in some if job_id not in self._known]):
                    yield sorted(found, key=lambda job: -job.job_id)
                for job_id in some:
                    known = self._known.get(job_id)
                    if known is not None:  # else it is gone
                        older = older + 1 if 0 < known.submitted < limit else 0
                if older >= OLDER_IN_A_ROW:
                    return

    async def appears(self, marker: str, field: MarkerField, settle: float, since: float = 0.0) -> int | None:
        """Look until it is there, or until Slurm has been answering for `settle` seconds without it. The caller sets the deadline."""
        loop = asyncio.get_running_loop()
        circuit = self._connection.transport.circuit
        answering_since: float | None = None
        pause = FIRST_LOOK
        while True:
            await circuit.closed()
            try:
                if (found := await self.find(marker, field, since)) is not None:
                    return found
                answering_since = loop.time() if answering_since is None else answering_since
                if loop.time() - answering_since >= settle:
                    return None
            except (UnavailableError, BadAnswerError):
                answering_since = None
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, SLOWEST_LOOK)

    def _is_fresh(self) -> bool:
        return self._submits < FRESH_SUBMITS and asyncio.get_running_loop().time() - self._refresh_began < FRESH_SECONDS

    async def _load(self) -> None:
        began = asyncio.get_running_loop().time()
        async for job in stream(self._connection, "slurm/jobs/", "jobs", Marked):
            self._remember(job)
        self._loaded = True
        self._refresh_began = began

    async def _refresh(self) -> None:
        """Look at what appeared. Those who come while one runs share the next one."""
        asked = asyncio.get_running_loop().time()
        async with self._lock:
            if self._refresh_began < asked:
                await self._look()

    async def _look(self) -> None:
        began = asyncio.get_running_loop().time()
        before, submits = set(self._known), self._submits
        answer = await self._connection.read("slurm/jobs/state/", _STATES, lane=Lane.URGENT)
        present = {status.job_id for status in answer.jobs or ()}
        appeared = present - self._known.keys()
        if len(appeared) > max(MANY, len(present) // 10):
            await self._load()
        else:
            await self._look_at(sorted(appeared))
        self._forget(before - present)
        self._refresh_began = began
        self._submits -= submits

    async def _look_at(self, job_ids: Iterable[int]) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def look(job_id: int) -> None:
            async with turns:
                try:
                    answer = await self._connection.read(f"slurm/job/{job_id}", _MARKED)
                except NotFoundError:
                    return
            for job in answer.jobs or ():
                self._remember(job)

        results = await asyncio.gather(*(look(job_id) for job_id in job_ids), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _remember(self, job: Marked) -> None:
        self.ids.saw(job.job_id)
        if job.job_id in self._known:
            self._forget([job.job_id])
        if self._alone:  # others' jobs may be many, and their texts long
            job = Marked(job.job_id, submitted=job.submitted, **{self._alone: remembered(getattr(job, self._alone), ALONE_WORDS)})
        else:
            job = Marked(job.job_id, remembered(job.extra), remembered(job.comment), remembered(job.admin_comment))
        self._known[job.job_id] = job
        for key in _keys(job):
            self._words.setdefault(key, set()).add(job.job_id)

    def _forget(self, job_ids: Iterable[int]) -> None:
        for job_id in job_ids:
            for key in _keys(self._known.pop(job_id)):
                ids = self._words[key]
                ids.discard(job_id)
                if not ids:
                    del self._words[key]

    def _carriers(self, marker: str, field: MarkerField) -> set[int]:
        """Those whose field has the marker's words, and among them the marker: by the word that the fewest have."""
        words = _WORD.findall(marker)
        if words == [marker]:
            return self._words.get((field, marker), set())
        nobody: set[int] = set()
        candidates = min((self._words.get((field, word), nobody) for word in words), key=len, default=self._known.keys())
        return {job_id for job_id in candidates if carries(getattr(self._known[job_id], field), marker)}


def _keys(job: Marked) -> set[tuple[str, str]]:
    return {
        (field, word) for field in ("extra", "comment", "admin_comment") if (text := getattr(job, field)) for word in _WORD.findall(text)
    }
