"""Jobs: submit, look, change, end. The states of many cost one small request; a full list is streamed where it may be large."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterable, Sequence

import msgspec

from slinky.slurm.connection import Connection
from slinky.slurm.descriptions import JobDescription
from slinky.slurm.errors import BadAnswerError, ForbiddenError, NotFoundError, OutcomeUnknownError, SlurmError, UnavailableError, refusal
from slinky.slurm.lanes import Lane
from slinky.slurm.markers import MarkerField, Markers, with_marker
from slinky.slurm.models.jobs import (
    Allocation,
    CancelResult,
    CancelResults,
    FoundAgain,
    Job,
    JobList,
    JobStatus,
    Layout,
    Requeued,
    RequeuedMany,
    StatusList,
    Submitted,
    Update,
    Updates,
)
from slinky.slurm.pace import Pace
from slinky.slurm.streams import stream_jobs
from slinky.slurm.watch import JobTransition, watch_jobs

__all__ = ["Jobs"]

log = logging.getLogger(__name__)

_SUBMITTED = msgspec.json.Decoder(Submitted)
_JOBS = msgspec.json.Decoder(JobList)
_STATES = msgspec.json.Decoder(StatusList)
_LAYOUT = msgspec.json.Decoder(Layout)
_CANCELLED = msgspec.json.Decoder(CancelResults)
_UPDATED = msgspec.json.Decoder(Updates)
_REQUEUED = msgspec.json.Decoder(Requeued)
_REQUEUED_MANY = msgspec.json.Decoder(RequeuedMany)

TOGETHER = 500  # ids in one request: slurmrestd takes 8 µs for each, and more for each of thousands
REQUESTS = 4  # of those at a time
ALREADY_OVER = 2021
ROUNDS = 8  # submits of one job with `once` before giving up


class Jobs:
    """`client.jobs`."""

    def __init__(self, connection: Connection, markers: Markers) -> None:
        self._connection = connection
        self._markers = markers

    async def submit(
        self, job: JobDescription, *, marker: str = "", marker_in: MarkerField = "extra", once: bool = False, settle: float = 15.0
    ) -> Submitted:
        """Submit a batch job.

        With a `marker` (a text of yours, unique to the job, kept in the field `marker_in`), the job can be found again when an answer was lost. `once` asks for
        that: a job that carries the marker already is returned instead of a second one being made, and after an unknown outcome the job is looked for, and
        submitted again only if it has not appeared `settle` seconds after Slurm answers again. Without `once`, an unknown outcome raises OutcomeUnknownError.

        What `once` promises: of jobs submitted through this client, at once; of jobs that others submitted, as this client saw them within the last 30 seconds
        (two clients that submit one marker at the same time make two jobs); and for as long as slurmctld knows the job (MinJobAge after its end).
        """
        return await self._submit(job.to_submit(), None, marker, marker_in, once, settle)

    async def submit_external(
        self, job: JobDescription, *, marker: str = "", marker_in: MarkerField = "extra", once: bool = False, settle: float = 15.0
    ) -> Submitted:
        """Submit a job whose work runs elsewhere: Slurm gives it resources and starts nothing. See `submit` for the rest."""
        return await self._submit(job.to_submit(external=True), None, marker, marker_in, once, settle)

    async def submit_hetjob(
        self,
        parts: Sequence[JobDescription],
        *,
        external: bool = False,
        marker: str = "",
        marker_in: MarkerField = "extra",
        once: bool = False,
        settle: float = 15.0,
    ) -> Submitted:
        """Submit a heterogeneous job: one allocation of several shapes, which starts as a whole. The id is the leader's, that of the first part; `parts` tells the others'. All carry the marker; see `submit` for the rest."""
        if not parts:
            raise ValueError("a hetjob has at least one part")
        first, *others = (part.to_submit(external=external) for part in parts)
        answer = await self._submit(first, others, marker, marker_in, once, settle)
        if answer.found:
            answer.job_id = (await self.get(answer.job_id)).hetjob_id or answer.job_id
        return answer

    async def get(self, job_id: int) -> Job:
        """One job, in full. NotFoundError where Slurm does not know it (any more)."""
        return (await self._record(job_id))[0]

    async def _record(self, job_id: int, *, brief: bool = False) -> list[Job]:
        params = {"flags": ["ALL"]} if brief else None  # where no flag is named, slurmrestd asks for details
        jobs = (await self._connection.read(f"slurm/job/{job_id:d}", _JOBS, params)).jobs
        if not jobs:
            raise NotFoundError(f"there is no job {job_id}", request=f"job/{job_id}")
        return jobs

    async def parts(self, job_id: int, *, brief: bool = False) -> list[Job]:
        """The parts of a hetjob, its leader first, whichever of them is named; any other job alone. `brief`: without the cores of each node, which are more than half of a record."""
        found = await self._record(job_id, brief=brief)
        leader = found[0].hetjob_id
        if leader and leader != found[0].job_id:
            try:
                return await self._record(leader, brief=brief)  # tells of all parts, and any other of itself alone
            except NotFoundError:
                return found
        return found

    async def all(self) -> list[Job]:
        """All jobs, in full: 8 to 27 KB each. For thousands of them use `stream` or `states`."""
        return (await self._connection.read("slurm/jobs/", _JOBS, lane=Lane.BULK)).jobs or []

    async def stream(self) -> AsyncIterator[Job]:
        """All jobs, in full, one by one: a list of up to 64 MB is decoded as a whole, a longer one as it arrives, so that memory stays bounded here. Not so in slurmrestd, which held 5.4 GB after two lists of 20,000 jobs: for tens of thousands use `unread` and `records`."""
        async for job in stream_jobs(self._connection):
            yield job

    async def states(self, job_ids: Iterable[int] | None = None) -> list[JobStatus]:
        """The states of these jobs, or of all: small requests, whose cost goes by the jobs asked for and not by those that there are. Jobs that Slurm does not know are left out."""
        wanted = None if job_ids is None else sorted(set(job_ids))
        if wanted is None:
            return await self._states(None)
        parts = [wanted[start : start + TOGETHER] for start in range(0, len(wanted), TOGETHER)]
        if len(parts) == 1:
            return await self._states(parts[0])
        found: list[JobStatus] = []
        for start in range(0, len(parts), REQUESTS):
            for answer in await asyncio.gather(*map(self._states, parts[start : start + REQUESTS])):
                found += answer
        return found

    async def _states(self, job_ids: list[int] | None) -> list[JobStatus]:
        params = {"job_id": job_ids} if job_ids is not None else None
        return (await self._connection.read("slurm/jobs/state/", _STATES, params, lane=Lane.URGENT)).jobs or []

    async def update(self, job_id: int, changes: JobDescription) -> list[Update]:
        """Change what `changes` names and nothing else. An array answers for each of its tasks."""
        answer = await self._connection.change("POST", f"slurm/job/{job_id:d}", _UPDATED, changes, repeatable=True)
        results = answer.results or []
        for result in results:
            if result.error_code:
                raise refusal(result.error_code)(
                    result.why or result.error, request=f"update of job {result.step_id or job_id}", number=result.error_code
                )
        return results

    async def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""
        await self.update(job_id, JobDescription(hold=True))

    async def release(self, job_id: int) -> None:
        """Let a held job start."""
        await self.update(job_id, JobDescription(hold=False))

    async def requeue(self, job_id: int, *, hold: bool = False) -> None:
        """Send a batch job back to the queue (Slurm 26.05 and later; external jobs cannot)."""
        await self._connection.require("job/requeue")
        params = {"Hold": "true"} if hold else None
        await self._connection.change("GET", f"slurm/job/{job_id:d}/requeue", _REQUEUED, params=params)

    async def requeue_many(self, job_ids: Iterable[int], *, hold: bool = False) -> None:
        """The same for several, in one request."""
        await self._connection.require("jobs/requeue")
        body = {"jobs": [str(job_id) for job_id in job_ids], "flags": ["HOLD"] if hold else []}
        await self._connection.change("POST", "slurm/jobs/requeue", _REQUEUED_MANY, body)

    async def cancel(self, job_id: int, signal: str = "KILL") -> None:
        """End a job (or send it a signal). One that is over already is fine; one that does not exist raises NotFoundError.

        A signal other than KILL to an external job makes slurmctld call the node: see the guide before using one.
        """
        for result in await self.cancel_many([job_id], signal):
            if result.error.code not in (0, ALREADY_OVER):
                error = result.error
                raise refusal(error.code)(error.message or error.string, request=f"cancel of job {job_id}", number=error.code)

    async def cancel_many(self, job_ids: Iterable[int], signal: str = "KILL") -> list[CancelResult]:
        """End many jobs in one request (1,000 in 50 ms). Returns what Slurm had to say about some of them; most need no word."""
        ids = sorted(set(job_ids))
        if not ids:
            return []
        await self._only_own(ids)
        body = {"jobs": [str(job_id) for job_id in ids], "signal": signal}
        answer = await self._connection.change("DELETE", "slurm/jobs/", _CANCELLED, body, repeatable=signal == "KILL")
        return answer.status or []

    async def allocation(self, job_id: int) -> Allocation:
        """What a running job has on each of its nodes: cores, memory, GRES (Slurm 25.11 and later)."""
        await self._connection.require("resources/")
        answer = await self._connection.read(f"slurm/resources/{job_id:d}", _LAYOUT)
        return Allocation(job_id, answer.nodes or [])

    async def find(self, marker: str, *, marker_in: MarkerField = "extra") -> Job | None:
        """The job that carries the marker, if Slurm has one. Costs the states, and those jobs alone that appeared since this client last looked."""
        found = await self._markers.find(marker, marker_in)
        return None if found is None else await self.get(found)

    async def find_all(self, marker: str | Sequence[str], *, marker_in: MarkerField = "extra", since: float = 0.0) -> list[int]:
        """The ids of all jobs that carry the marker, or one of several; more than one for the parts of a hetjob, and if a job was submitted without `once`. `since` (seconds since 1970): it was not submitted earlier, so that a client that submits `alone` reads fewer jobs."""
        return await self._markers.find_all(marker, marker_in, since)

    async def submits_alone(self, marker_in: MarkerField = "extra") -> None:
        """From now on no other client submits this client's markers, which begin this field: jobs that others submit are not read before a submit with `once`. Jobs that an earlier client submitted are found with `newest` and `unread`."""
        self._markers.alone(marker_in)

    async def last_id(self) -> int:
        """The highest job id that this client knows to have been used, from memory."""
        return self._markers.ids.highest

    async def ids_used(self, job_id: int) -> None:
        """Note that ids up to this one have been used: the search for newer ones begins there."""
        self._markers.ids.saw(job_id)

    async def live_ids(self) -> set[int]:
        """The ids of all jobs and arrays that are not over: one request, or, where Slurm has more than 20,000 jobs, one for each 500 ids, as a list of 100,000 takes slurmrestd half a minute. The first call then names every id up to the newest, which can take minutes; later ones name the newer ids and those that were live."""
        return await self._markers.ids.live()

    async def unread(self, *, live: bool = False) -> list[int]:
        """The ids of jobs that this client has neither submitted nor read so far, the oldest first, without arrays; with `live` without those that are over. Where Slurm has more than 20,000 jobs, a portion of them: the same ids until they were read, then others."""
        return await self._markers.unread(live=live)

    async def records(self, job_ids: Collection[int], *, learn: bool = False) -> list[Job]:
        """These jobs in full, one request each, 16 at a time: as quick as a list of all, and neither slurmrestd nor this client holds more than a few of them in memory. Jobs that Slurm does not know are left out; of a hetjob all parts come with its leader, of an array all tasks. With `learn` they count as read, for `unread` and `newest`."""
        return await (self._markers.read(job_ids) if learn else self._markers.records(job_ids))

    async def newest(self, since: float = 0.0) -> AsyncIterator[list[Job]]:
        """Groups of jobs that this client has neither submitted nor read so far, the newest first, down to those that were submitted before `since` (seconds since 1970 by this machine's clock)."""
        async for group in self._markers.newest(since):
            yield group

    async def distrust_markers(self) -> None:
        """Slurm is known to have lost jobs, and may give their ids to others: what is remembered of markers is read anew before it is used again."""
        self._markers.distrust()

    def watch(self, job_ids: Iterable[int] | None = None, pace: Pace | None = None) -> AsyncIterator[JobTransition]:
        """Transitions of these jobs (or of all), from now on; the first word on each job is its state at the start. See `slinky.slurm.watch`."""
        return watch_jobs(self._connection, self.states, job_ids, pace or Pace())

    async def _submit(
        self, first: JobDescription, others: list[JobDescription] | None, marker: str, marker_in: MarkerField, once: bool, settle: float
    ) -> Submitted:
        if once and not marker:
            raise ValueError("once=True needs a marker: without one a job cannot be told from another")
        if marker:
            first = with_marker(first, marker, marker_in)
            others = others and [with_marker(other, marker, marker_in) for other in others]
        body = {"job": first} if others is None else {"jobs": [first, *others]}
        if not once:
            return await self._send(body, first, once=False)
        async with self._markers.claim(marker, marker_in):
            return await self._submit_once(body, first, marker, marker_in, settle)

    async def _submit_once(self, body: object, first: JobDescription, marker: str, marker_in: MarkerField, settle: float) -> Submitted:
        began = time.time()
        await self._markers.prepare()
        problem: SlurmError | None = None
        try:
            await self._markers.freshen()
        except (UnavailableError, BadAnswerError) as error:
            problem = error
        found = self._markers.known(marker, marker_in)
        if found is None and problem:
            found = await self._settled(marker, marker_in, settle, problem, began)
        for rounds_left in reversed(range(ROUNDS)):
            if found is not None:
                return FoundAgain(job_id=found, message="found by its marker")
            try:
                return await self._send(body, first, once=True)
            except (OutcomeUnknownError, UnavailableError) as error:
                if not rounds_left and error.outcome_known:
                    raise
                found = await self._settled(marker, marker_in, settle, error, began)
                if found is None:
                    log.info("job with marker %s was not made (%s); %d more tries", marker, error, rounds_left)
        if found is not None:
            return FoundAgain(job_id=found, message="found by its marker")
        raise UnavailableError(f"{ROUNDS} submits in a row failed, and none of them made the job", request="submit")

    async def _send(self, body: object, first: JobDescription, *, once: bool) -> Submitted:
        answer = await self._connection.change("POST", "slurm/job/submit", _SUBMITTED, body, lane=Lane.BULK)
        self._markers.submitted(answer.job_id, first, once=once)
        return answer

    async def _settled(self, marker: str, marker_in: MarkerField, settle: float, error: SlurmError, since: float) -> int | None:
        """After a failed submit: the job's id once it appears, None once it will not; the error, if Slurm does not come back."""
        if error.outcome_known:
            settle = 0
        try:
            async with asyncio.timeout(settle + 60):
                return await self._markers.appears(marker, marker_in, settle, since)
        except TimeoutError:
            raise error from None

    async def _only_own(self, job_ids: Sequence[int]) -> None:
        """Where there is no accounting, a cancel that Slurm refuses leaves slurmctld 26.05 deadlocked: refuse it here."""
        user = self._connection.transport.credentials.asks_as()
        if user in ("", "root", "slurm") or (await self._connection.server()).has_accounting:
            return
        for job_id in job_ids:
            owner = (await self.get(job_id)).user_name
            if owner != user:
                raise ForbiddenError(
                    f"job {job_id} belongs to {owner}, and {user} asks to cancel it", request=f"cancel of job {job_id}", number=2002
                )
