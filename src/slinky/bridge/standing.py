"""Where a workload stands, in words for its owner: the pod condition `slinky.slurm.net/Slurm`, and `PodScheduled` as other tools read it. Pure.

What must stay true: `PodScheduled` has reason `Unschedulable` only where Slurm waits for resources or no node could hold the pod, so that autoscalers buy no nodes for a wait for priority.
"""

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from slinky.bridge.keys import CONDITION
from slinky.kube import Pod
from slinky.slurm import Job

__all__ = ["Standing", "conditions_for", "expected_start", "is_endless", "rests_on_endless", "standing_of"]

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_PRIORITY = re.compile(r", priority (\d+)")
NO_NEWS = 0.1  # of a priority
UNSCHEDULABLE = "Unschedulable"
MOST_MESSAGE = 1024
# Slurm plans as if a job without a time limit ended a year after its start.
# So a start far away mostly means "not known".
KNOWN_SECONDS = 30 * 86400
YEAR_SECONDS = 365 * 86400
SLACK = 60  # seconds by which Slurm may round a planned start

# What Slurm's words mean to someone who does not know them.
MEANINGS = {
    "Priority": "others go first",
    "Resources": "not enough is free yet",
    "BeginTime": "its begin time has not come",
    "Dependency": "it waits for another job",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "its owner holds it",
    "Licenses": "licenses are in use",
    "Reservation": "its reservation has not begun",
    "ReqNodeNotAvail": "nodes it needs are down, drained or reserved",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionTimeLimit": "its time limit is above the partition's",
    "AssocGrpCpuLimit": "the account's limit on CPUs is reached",
    "AssocGrpGRES": "the account's limit on GPUs is reached",
    "BadConstraints": "no node has the features it asks for",
}


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """`holds`: its job has started, and it is or is being bound. `scheduled` is the reason for `PodScheduled=False`. `lasting`: nothing but a step of its own changes it, so that nobody need look again until then."""

    reason: str
    message: str
    holds: bool = False
    scheduled: str = "WaitingForSlurm"
    lasting: bool = False


def standing_of(parts: Sequence[Job], now: dt.datetime, ahead: float = 0.0) -> Standing:
    """`ahead`: by how many seconds Slurm's clock is ahead of the one that shows `now`, by which an expected start is told. Of a job that has not started. Of a hetjob's parts, which have a reason each, or none (yet), the first that has one speaks for the whole; that something is missing, which Slurm says of all as long as one waits, only where no other says anything else."""
    leader = parts[0]
    job = min(parts, key=lambda part: 2 if part.state_reason in ("", "None") else part.state_reason in ("Resources", "Priority"))
    reason = job.state_reason if job.state_reason and job.state_reason != "None" else "Pending"
    meaning = MEANINGS.get(reason)
    if meaning is None and reason.startswith(("QOS", "Assoc", "Max")):
        meaning = "a limit is reached"
    words = [f"Slurm job {leader.job_id} waits in partition {job.partition}: {reason}{f' ({meaning})' if meaning else ''}"]
    if job.state_description and job.state_description != reason:
        words.append(job.state_description)
    if start := expected_start(job, now.timestamp() + ahead):
        moment = start - round(ahead / 60) * 60  # by whole minutes, so that it does not come and go with a second
        words.append(f"expected start {dt.datetime.fromtimestamp(moment, dt.UTC):%Y-%m-%d %H:%M} UTC")
    if isinstance(leader.priority, int) and leader.priority:
        words.append(f"priority {leader.priority}")
    resources = reason == "Resources"
    word = reason if _REASON.fullmatch(reason) else "Pending"
    return Standing(reason=word, message=", ".join(words), scheduled=UNSCHEDULABLE if resources else "WaitingForSlurm")


def expected_start(job: Job, now: float) -> int:
    """When Slurm expects to start a job that waits, in seconds since 1970; 0 where it does not know.

    A held job has no expected start, whatever its record says. Behind jobs without a time limit Slurm
    only guesses, up to a year ahead.
    """
    start = job.start_time
    if not job.is_pending or job.is_held or not isinstance(start, int):
        return 0
    return start if now < start < now + KNOWN_SECONDS else 0


def is_endless(job: Job) -> bool:
    """Whether a running job has no time limit.

    Slurm's main scheduler leaves its limit infinite. Its backfill scheduler writes 365 days.
    """
    return not isinstance(job.time_limit, int) or job.time_limit * 60 >= YEAR_SECONDS


def rests_on_endless(start: float, queue: Iterable[Job]) -> bool:
    """Whether a planned start waits for the assumed end of a job without a time limit."""
    ends = (job.end_time for job in queue if job.is_running and is_endless(job))
    return any(isinstance(end, int) and 0 < end <= start + SLACK for end in ends)


def conditions_for(pod: Pod, standing: Standing, now: dt.datetime) -> list[dict[str, Any]]:
    """Those to be written; none where the pod says so already, or where it started before anything had to be said."""
    status, message = "True" if standing.holds else "False", standing.message[:MOST_MESSAGE]
    before = pod.condition(CONDITION)
    if before is None and standing.holds:
        return []
    found = []
    if before is None or (before.status, before.reason) != (status, standing.reason) or not _say_the_same(before.message, message):
        found.append(_condition(CONDITION, status, standing.reason, message, before.status if before else "", now))
    if not standing.holds and not pod.spec.node_name:
        then = pod.condition("PodScheduled")
        if then is None or then.reason != standing.scheduled or not _say_the_same(then.message, message):
            found.append(_condition("PodScheduled", "False", standing.scheduled, message, then.status if then else "", now))
    return found


def _say_the_same(before: str, now: str) -> bool:
    """A priority that grows with age is no news; one that somebody changed is, or that has grown by a good part."""
    then, told = _PRIORITY.search(before), _PRIORITY.search(now)
    if not then or not told:
        return before == now
    was, is_now = int(then[1]), int(told[1])
    return abs(is_now - was) <= was * NO_NEWS and _PRIORITY.sub("", before) == _PRIORITY.sub("", now)


def _condition(kind: str, status: str, reason: str, message: str, before: str, now: dt.datetime) -> dict[str, Any]:
    written = {"type": kind, "status": status, "reason": reason, "message": message}
    return written if status == before else written | {"lastTransitionTime": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
