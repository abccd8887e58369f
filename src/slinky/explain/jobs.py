"""Why a job of Slurm's waits, or how it ended: judged from its record, its partition, that partition's nodes, and reservations.

Pure. What must stay true: what keeps the job from ever starting comes before what only takes time; Slurm's own words are always told, whatever is made of them.
"""

import datetime as dt
import re
from collections.abc import Iterator, Sequence

from slinky.bridge.standing import MEANINGS, expected_start, is_endless, rests_on_endless
from slinky.explain.catalogue import entry
from slinky.explain.facts import Facts, SlurmFacts
from slinky.explain.findings import Finding
from slinky.slurm import Job, JobState, Node, Reservation, compress, expand

__all__ = ["job_findings", "job_lines", "moment"]

SHOWN = 3  # of several nodes
ADVICE = {
    JobState.TIMEOUT: "ask for a longer time limit",
    JobState.PREEMPTED: "nothing, whoever made the pod makes it anew; a QoS that is not preempted avoids it",
    JobState.NODE_FAIL: "sinfo -R tells what was wrong with its nodes",
    JobState.OUT_OF_MEMORY: "ask for more memory",
    JobState.DEADLINE: "a later deadline, or a shorter time limit",
    JobState.CANCELLED: "sacct -j {job} -o state tells who cancelled it",
}


def moment(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M} UTC"


def job_lines(parts: Sequence[Job], now: dt.datetime, queue: Sequence[Job] | None = ()) -> Iterator[str]:
    """What Slurm says, as it says it.

    An expected start is left out if it depends on the end of a job of the `queue` without a time limit.
    """
    for job in parts:
        reason = f", reason {job.state_reason}" if job.state_reason not in ("", "None") else ""
        where = f" on {job.nodes}" if job.nodes and not job.is_pending else ""
        yield f"job {job.job_id} ({job.name or 'without a name'}) is {'+'.join(job.states)} in partition {job.partition}{where}{reason}"
        if job.state_description:
            yield f"job {job.job_id}: {job.state_description}"
        said = [f"user {job.user_name}", f"account {job.account}", f"QoS {job.qos}"]
        if isinstance(job.priority, int):
            said.append(f"priority {job.priority}")
        if job.tres_alloc_str and not job.is_pending and not job.is_finished:
            said.append(f"has {job.tres_alloc_str}")
        elif job.tres_req_str:
            said.append(f"asks for {job.tres_req_str}")
        yield f"job {job.job_id}: {', '.join(said)}"
        if (start := expected_start(job, now.timestamp())) and not rests_on_endless(start, queue or ()):
            yield f"job {job.job_id} is expected to start at {moment(start)}"


def job_findings(facts: Facts, end: str = "") -> list[Finding]:
    """`end` is how to end it, where it is not by `scancel`."""
    slurm = facts.slurm
    if not slurm.jobs:
        if not slurm.asked or not slurm.knows("job"):
            return []
        return [entry("job-not-found").found(f"job {slurm.asked}", f"Slurm has no job {slurm.asked}", job=slurm.asked)]
    leader = slurm.jobs[0]
    about = f"job {leader.job_id}"
    if leader.is_finished:
        return [_ended(leader, about)]
    if leader.is_suspended:
        return [entry("job-suspended").found(about, "it is suspended", job=leader.job_id)]
    if leader.is_running:
        limit = None if is_endless(leader) else leader.end_time
        ends = f", until {moment(limit)} at the latest" if isinstance(limit, int) and limit else ", without a time limit"
        return [entry("job-running").found(about, f"it runs on {leader.nodes}{ends}")]
    found: dict[str, Finding] = {}
    for job in slurm.jobs:
        for each in (*_around(job, slurm, facts.now), *_reason(job, slurm, end)):
            found.setdefault(each.code, each)
    only = {"job-priority", "job-resources", "job-waits"}
    if any(each.severity != "note" for each in found.values()):
        found = {code: each for code, each in found.items() if code not in only}  # a cause was found: "others go first" adds nothing
    return list(found.values())


def _ended(job: Job, about: str) -> Finding:
    code = job.exit_code
    status = f", exit code {code.code}" if code and code.code else ""
    signal = f", signal {code.signal.name or code.signal.number}" if code and code.signal and code.signal.number else ""
    seen = f"it ended as {job.state}{status}{signal}" + (f" ({job.comment})" if job.comment else "")
    if job.state is JobState.COMPLETED:
        return entry("job-over").found(about, seen)
    advice = ADVICE.get(job.state, "kubectl logs of its pods, or the job's output file, tell more").format(job=job.job_id)
    return entry("job-failed").found(about, seen, advice=advice)


def _around(job: Job, slurm: SlurmFacts, now: dt.datetime) -> Iterator[Finding]:
    """What its partition, the nodes there and reservations have to do with it."""
    about, names = f"job {job.job_id}", [name for name in job.partition.split(",") if name]
    known = [found for name in names if (found := slurm.partition(name))]
    if known and len(known) == len(names) and not any(partition.is_up for partition in known):
        states = "+".join(known[0].states)
        yield entry("job-partition-down").found(about, f"partition {known[0].name} is {states}", partition=known[0].name)
    nodes = [node for name in names for node in slurm.nodes_of(name)]
    out = [node for node in nodes if not node.takes_jobs and not _is_only_reserved(node)]
    if out and len(out) == len(nodes):
        yield entry("job-nodes-unavailable").found(about, _outage(out, len(nodes)), nodes=compress(node.name for node in out))
    elif out:
        yield entry("job-some-nodes-unavailable").found(about, _outage(out, len(nodes)))
    takes = {node.name for node in nodes} - {node.name for node in out}
    for reservation in _in_the_way(job, slurm.reservations, takes, now):
        begins = moment(reservation.start_time) if isinstance(reservation.start_time, int) else "unknown"
        until = f" until {moment(reservation.end_time)}" if isinstance(reservation.end_time, int) else ""
        seen = f"reservation {reservation.name} has {reservation.node_list} from {begins}{until}"
        yield entry("job-reservation-in-the-way").found(about, seen, begins=begins, reservation=reservation.name)


def _is_only_reserved(node: Node) -> bool:
    """Nothing is wrong with it but a reservation for maintenance, which is told as such."""
    return "MAINTENANCE" in node.states and {"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING"}.isdisjoint(node.states)


def _outage(out: Sequence[Node], total: int) -> str:
    named = [f"{node.name} is {'+'.join(node.states)}{f' ({node.reason})' if node.reason else ''}" for node in out[:SHOWN]]
    more = f" and {len(out) - SHOWN} more" if len(out) > SHOWN else ""
    return f"{len(out)} of {total} nodes take no jobs: {'; '.join(named)}{more}"


def _in_the_way(job: Job, reservations: Sequence[Reservation], nodes: set[str], now: dt.datetime) -> Iterator[Reservation]:
    """Those of others that leave it too few of the partition's nodes before it could end."""
    limit = job.time_limit * 60 if isinstance(job.time_limit, int) else float("inf")
    wanted = job.node_count if isinstance(job.node_count, int) and job.node_count else 1
    for reservation in reservations:
        begins = reservation.start_time if isinstance(reservation.start_time, int) else 0
        if reservation.name == job.resv_name or begins > now.timestamp() + limit:
            continue
        taken = set(expand(reservation.node_list)) if reservation.node_list else set()
        if taken & nodes and len(nodes - taken) < wanted:
            yield reservation


HELD = {"JobHeldAdmin": "job-held-admin", "JobHeldUser": "job-held-user"}


def _reason(job: Job, slurm: SlurmFacts, end: str) -> Iterator[Finding]:
    """What Slurm's own reason means."""
    about, reason = f"job {job.job_id}", job.state_reason if job.state_reason not in ("", "None") else ""
    seen = (
        f"Slurm says {reason}" + (f" ({meaning})" if (meaning := MEANINGS.get(reason)) else "") if reason else "Slurm gives no reason yet"
    )
    if job.state_description and job.state_description != reason:
        seen += f": {job.state_description}"
    names: dict[str, object] = {
        "job": job.job_id,
        "dependency": job.dependency or "its dependency",
        "end": end or f"scancel {job.job_id}",
        "partition": job.partition,
        "reservation": job.resv_name or "…",
        "qos": job.qos or "…",
        "account": job.account or "…",
        "features": job.features or "none by name",
    }
    code = _code(job, reason)
    if code == "job-priority" and (ahead := _ahead(job, slurm)):
        seen += f": {ahead} {'job goes' if ahead == 1 else 'jobs go'} first in partition {job.partition}"
    if code == "job-dependency" and job.dependency:
        seen += f": {job.dependency}"
    if code:
        yield entry(code).found(about, seen, **names)


def _code(job: Job, reason: str) -> str:
    if reason in HELD:
        return HELD[reason]
    if job.is_held:
        return "job-held-admin"
    if reason.startswith("DependencyNever"):
        return "job-dependency-never"
    if reason.startswith(("QOS", "QoS")) and "Invalid" not in reason:
        return "job-qos-limit"
    if reason.startswith("Invalid"):
        return "job-account-invalid"
    if reason.startswith(("Assoc", "MaxTRES", "MaxJobs", "MaxSubmit", "Max")):
        return "job-account-limit"
    if reason.startswith("Partition"):
        return "job-partition-limit" if re.search("Limit", reason) else "job-partition-down"
    return {
        "Dependency": "job-dependency",
        "BeginTime": "job-begin-time",
        "Reservation": "job-reservation-not-begun",
        "Licenses": "job-licenses",
        "BadConstraints": "job-constraints",
        "Resources": "job-resources",
        "Priority": "job-priority",
    }.get(reason, "job-waits")


def _ahead(job: Job, slurm: SlurmFacts) -> int:
    """How many waiting jobs Slurm looks at first: those of a higher priority, and of equal ones those with a smaller id.

    0 where that is not known. Held jobs are in nobody's way.
    """
    if slurm.queue is None or not isinstance(job.priority, int):
        return 0
    own = (-job.priority, job.job_id)
    return sum(
        (-other.priority, other.job_id) < own
        for other in slurm.queue
        if other.is_pending and not other.is_held and other.partition == job.partition and isinstance(other.priority, int)
    )
