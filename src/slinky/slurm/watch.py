"""Watching jobs and nodes: an endless stream of transitions, from one cheap request per tick.

Comes in: a way to ask for all states. Goes out: what changed since the last answer, however long ago that was: across an outage the states are compared with the
last ones seen, so nothing is lost. What cannot be known is said: a transition has `gap` where Slurm could not be asked in between (it may have gone through
other states), and `after` None where the job or node is gone and nobody knows how it ended.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from slinky.slurm.connection import Connection
from slinky.slurm.errors import BadAnswerError, SlurmError, UnavailableError
from slinky.slurm.models.accounting import AccountedJobList
from slinky.slurm.models.jobs import JobStatus
from slinky.slurm.models.nodes import Node
from slinky.slurm.pace import Pace

__all__ = ["JobTransition", "NodeTransition", "changes", "watch_jobs", "watch_nodes"]

log = logging.getLogger(__name__)

_ACCOUNTED = msgspec.json.Decoder(AccountedJobList)


class JobTransition(msgspec.Struct, frozen=True, kw_only=True):
    """`before` None: the first word on this job. `after` None: Slurm forgot it before it was seen to end. `from_accounting`: slurmdbd told how it ended."""

    label: str
    before: JobStatus | None
    after: JobStatus | None
    gap: bool = False
    from_accounting: bool = False

    @property
    def job_id(self) -> int:
        status = self.after or self.before
        return status.job_id if status else int(self.label)

    @property
    def is_known(self) -> bool:
        return self.after is not None


class NodeTransition(msgspec.Struct, frozen=True, kw_only=True):
    """Of its states, or of the reason that is given for them. `before` None: a new node, or the first word on it. `after` None: it was deleted."""

    name: str
    before: Node | None
    after: Node | None
    gap: bool = False


class HasStates(Protocol):
    @property
    def states(self) -> Sequence[str]: ...


S = TypeVar("S", bound=HasStates)


def changes(
    before: Mapping[str, S], after: Mapping[str, S], told: Callable[[S], object] = lambda one: one.states
) -> list[tuple[str, S | None, S | None]]:
    """Who is new, who has other states (or whatever `told` gives), who is gone. In the order of `after`, the gone ones last."""
    found: list[tuple[str, S | None, S | None]] = []
    for key, now in after.items():
        then = before.get(key)
        if then is None or told(then) != told(now):
            found.append((key, then, now))
    if len(before) != len(after) or len(found):
        found += [(key, then, None) for key, then in before.items() if key not in after]
    return found


async def watch_jobs(
    connection: Connection, states: Callable[[Iterable[int] | None], Awaitable[list[JobStatus]]], job_ids: Iterable[int] | None, pace: Pace
) -> AsyncIterator[JobTransition]:
    """See `Jobs.watch`. With `job_ids`, ends when all of them are over and told."""
    wanted = None if job_ids is None else set(job_ids)
    missing = {str(job_id): JobStatus(str(job_id)) for job_id in wanted or ()}
    open_ids = None if wanted is None else set(wanted)

    async def look() -> dict[str, JobStatus]:
        return {status.label: status for status in await states(open_ids)}

    async for changed, after, gap in _looks(look, pace):
        for label, then, now in changed:
            missing.pop(label, None)
            if now is not None:
                yield JobTransition(label=label, before=then, after=now, gap=gap)
            elif then is not None and not then.is_finished:
                yield await _ending(connection, label, then, gap)
        for label, unseen in list(missing.items()):
            del missing[label]
            if not any(status.job_id == int(label) for status in after.values()):
                yield await _ending(connection, label, unseen, gap)
        if open_ids is not None and all(status.is_finished for status in after.values()):
            return


async def watch_nodes(look_at_nodes: Callable[[], Awaitable[list[Node] | None]], pace: Pace) -> AsyncIterator[NodeTransition]:
    """See `Nodes.watch`. `look_at_nodes` gives None where nothing changed since it was last called."""
    last: dict[str, Node] = {}

    async def look() -> dict[str, Node]:
        nonlocal last
        nodes = await look_at_nodes()
        if nodes is not None:
            last = {node.name: node for node in nodes}
        return last

    async for changed, _, gap in _looks(look, pace, lambda node: (node.states, node.reason)):
        for name, then, now in changed:
            yield NodeTransition(name=name, before=then, after=now, gap=gap)


Changes = list[tuple[str, S | None, S | None]]


async def _looks(
    look: Callable[[], Awaitable[dict[str, S]]], pace: Pace, told: Callable[[S], object] = lambda one: one.states
) -> AsyncIterator[tuple[Changes[S], dict[str, S], bool]]:
    """What changed, what is there now, and whether there was an outage; for ever. Outages are waited out."""
    before: dict[str, S] = {}
    pause, gap = pace.fastest, False
    while True:
        began = time.monotonic()
        try:
            after = await look()
        except (UnavailableError, BadAnswerError) as error:
            if not gap:
                log.warning("watching is interrupted (%s); it goes on when Slurm answers", error)
            gap = True
            await asyncio.sleep(pause)
            pause = pace.next(pause, changed=False)
            continue
        cost = time.monotonic() - began
        changed = [] if after is before else changes(before, after, told)
        yield changed, after, gap
        pause = pace.next(pause, bool(changed) or gap)
        before, gap = after, False
        await asyncio.sleep(pace.rest(pause, cost))


async def _ending(connection: Connection, label: str, before: JobStatus, gap: bool) -> JobTransition:
    """slurmctld forgot a job that was not seen to end: accounting may know."""
    known = before if before.states else None
    try:
        answer = await connection.read(f"slurmdb/job/{before.job_id}", _ACCOUNTED)
    except SlurmError as error:
        log.info("job %s is gone, and accounting cannot tell how it ended: %s", label, error)
        return JobTransition(label=label, before=known, after=None, gap=gap)
    for job in reversed(answer.jobs or ()):
        if job.is_finished:
            return JobTransition(label=label, before=known, after=JobStatus(label, job.states), gap=gap, from_accounting=True)
    return JobTransition(label=label, before=known, after=None, gap=gap)
