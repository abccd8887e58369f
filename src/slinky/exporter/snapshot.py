"""What one look at Slurm sees, and the look itself.

Comes in: a client. Goes out: a `Snapshot`, each part of which may be missing with a reason (a slurmrestd without accounting, a user who may not see something). What must stay true: one request at a time; where Slurm itself
does not answer, the look ends there with that error, and slurmctld is not asked for the rest.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from slinky.exporter.marked import PodsOfJob, read_marker
from slinky.slurm import (
    AuthenticationError,
    Diagnostics,
    Job,
    JobState,
    License,
    Node,
    Partition,
    Reservation,
    Share,
    SlurmClient,
    SlurmError,
    UnavailableError,
)
from slinky.slurm.tres import Resources, read_gres, read_tres

__all__ = ["PARTS", "JobFacts", "Snapshot", "facts_of", "take"]

PARTS = ("partitions", "nodes", "jobs", "diagnostics", "licenses", "reservations", "shares")
_HELD = frozenset({JobState.RUNNING, JobState.SUSPENDED})


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Of a job what is counted. `resources` are those it has, or asks for while it waits; none once it is over."""

    job_id: int
    state: JobState
    flags: frozenset[str] = frozenset()
    is_held: bool = False
    hold: bool = False
    partition: str = ""
    account: str = ""
    user: str = ""
    user_id: int = 0
    qos: str = ""
    reason: str = ""
    eligible_at: float = 0.0
    node_count: int = 0
    resources: Resources = Resources()
    pods: PodsOfJob | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """None for a part that could not be had; `problems` says why. `taken_at` in seconds since 1970."""

    taken_at: float
    jobs: Sequence[JobFacts] | None = None
    nodes: Sequence[Node] | None = None
    partitions: Sequence[Partition] | None = None
    reservations: Sequence[Reservation] | None = None
    licenses: Sequence[License] | None = None
    shares: Sequence[Share] | None = None
    diagnostics: Diagnostics | None = None
    problems: Mapping[str, str] = {}


def facts_of(job: Job) -> JobFacts:
    """Pure. A job's record is kilobytes, and there may be 100,000 of them: only this is kept."""
    state = job.state
    count = job.node_count
    return JobFacts(
        job_id=job.job_id,
        state=state,
        flags=frozenset(map(str, job.state_flags)),
        is_held=job.is_held,
        hold=job.hold,
        partition=sys.intern(job.partition),
        account=sys.intern(job.account),
        user=sys.intern(job.user_name or (str(job.user_id) if job.user_id else "")),
        user_id=job.user_id,
        qos=sys.intern(job.qos),
        reason=sys.intern(job.state_reason) if state is JobState.PENDING else "",
        eligible_at=_seconds(job.eligible_time) or _seconds(job.submit_time),
        node_count=count if isinstance(count, int) else 0,
        resources=_resources(job, state),
        pods=read_marker(job.admin_comment),
    )


def _resources(job: Job, state: JobState) -> Resources:
    if state is JobState.PENDING:
        return read_tres(job.tres_req_str)
    if state not in _HELD:
        return Resources()
    held = read_tres(job.tres_alloc_str)
    gres: dict[str, float] = {}
    for detail in job.gres_detail:  # a GRES that accounting does not track is told here only
        for kind, number in read_gres(detail).items():
            gres[kind.name] = gres.get(kind.name, 0.0) + number
    return held._replace(gres={**gres, **held.gres})


def _seconds(moment: Any) -> float:
    return float(moment) if isinstance(moment, int | float) else 0.0


async def take(slurm: SlurmClient) -> Snapshot:
    """Raises UnavailableError or AuthenticationError where Slurm does not answer us at all."""

    async def jobs() -> list[JobFacts]:
        return [facts_of(job) async for job in slurm.jobs.stream()]

    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "partitions": slurm.partitions.all,
        "nodes": slurm.nodes.all,
        "jobs": jobs,
        "diagnostics": slurm.diag,
        "licenses": slurm.licenses,
        "reservations": slurm.reservations.all,
        "shares": slurm.shares,
    }
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for part in PARTS:
        try:
            found[part] = await calls[part]()
        except (UnavailableError, AuthenticationError):
            raise
        except SlurmError as error:
            problems[part] = str(error)
    if not found:
        raise UnavailableError(f"nothing could be read: {problems['nodes']}", request="snapshot")
    return Snapshot(taken_at=time.time(), problems=problems, **found)
