"""What must always be true, held against what was seen. Pure: a history comes in; for each invariant, how often it was looked at and every place where it does not hold go out.

What must stay true: an invariant is judged by what the servers themselves said, and where their clocks are coarse (Slurm and Kubernetes tell whole seconds, cut) in favour of the bridge by that much and no more.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from tests.chaos.history import FORGOTTEN, History, JobRecord, PodSeen
from tests.chaos.lives import OVER, Life, awaits_collection, fate, first_failures, jobs_by_id, lives
from tests.chaos.occupation import double_booked, shared_with_slurm

__all__ = ["INVARIANTS", "LATENCY", "SETTLE_SECONDS", "Checked", "Finding", "check", "checked"]

SECOND = 1.0  # clocks that tell whole seconds
# A job that Slurm ends is seen to be over at the next look, a second later at most; a Binding that was sent before arrives after that, with as much delay as this run's faults give a request. More would be a Binding on old news.
LATENCY = 5.0
SETTLE_SECONDS = 60.0
SLOW_ANSWER = 15.0  # of a slurmctld that is asked for all its jobs

Finding = tuple[str, str]  # what it is about, and what is wrong


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    looked_at: int
    violations: tuple[str, ...] = ()


def check(history: History) -> list[Checked]:
    """All invariants, in order."""
    found = lives(history.pods)
    return [checked(name, look(history, found)) for name, look in INVARIANTS.items()]


def checked(name: str, findings: Iterable[Finding]) -> Checked:
    """`findings` has an entry for everything that was looked at; the text is empty where all is well."""
    all_of_them = list(findings)
    return Checked(name=name, looked_at=len(all_of_them), violations=tuple(f"{subject}: {text}" for subject, text in all_of_them if text))


# 1


def bound_by_a_running_job(history: History, found: Sequence[Life]) -> Iterator[Finding]:
    jobs = jobs_by_id(history.jobs, history.cluster)
    for life in found:
        if life.bound is not None and (
            life.job_id in jobs or life.bound.at <= history.settled_at
        ):  # who came later may not be in accounting yet
            yield f"pod {life.key} ({life.uid})", _binding_problem(life, life.bound, jobs)


def _binding_problem(life: Life, bound: PodSeen, jobs: Mapping[int, Sequence[JobRecord]]) -> str:
    if not life.job_id:
        return f"on node {bound.node} without the label of a job"
    records = jobs.get(life.job_id)
    if not records:
        return f"on node {bound.node} by job {life.job_id}, which accounting does not have as ours"
    problems = [_record_problem(life, bound, record) for record in records]
    return "" if "" in problems else problems[-1]


def _record_problem(life: Life, bound: PodSeen, job: JobRecord) -> str:
    when = bound.scheduled or bound.at
    who = f"job {job.job_id} ({job.state})"
    if not names(job, life):
        return f"bound by {who}, which is that of {job.workload}"
    if not job.start or job.start > when + SECOND:
        return f"bound at {when:.0f}, but {who} started {f'at {job.start:.0f}' if job.start else 'never'}"
    if job.end and job.end + SECOND + LATENCY < when:
        return f"bound at {when:.0f}, but {who} had ended at {job.end:.0f}"
    if job.nodes and bound.node not in job.nodes:
        return f"bound to {bound.node}, but {who} has {', '.join(job.nodes)}"
    return ""


def names(job: JobRecord, life: Life) -> bool:
    """By the pod's name, or as one that came in the stead of another of its group."""
    kind, _, name = job.workload.partition(" ")
    if kind == "Pod":
        return name == f"{life.last.namespace}/{life.uid}"
    return life.key in job.pods or (life.last.group != "" and name.partition("#")[0].partition("/")[2].startswith(life.last.group))


# 2


def nothing_given_to_two(history: History, _: Sequence[Life]) -> Iterator[Finding]:
    yield from double_booked(history)
    yield from shared_with_slurm(history)


# 3


def jobs_and_pods_agree(history: History, found: Sequence[Life]) -> Iterator[Finding]:
    """At the last look, which is not later than a minute after the last fault. Who was in the middle of ending just then, and has ended a moment later, is in order; and so is a gang that was just being made anew, and had its new pods a moment later."""
    waited = history.settled_at - history.last_fault
    yield "the last look", f"was taken {waited:.0f} s after the last fault" if waited > SETTLE_SECONDS + SLOW_ANSWER else ""
    soon = history.settled_at + LATENCY
    then = [(life, life.when(history.settled_at)) for life in found if life.versions[0].at <= history.settled_at]
    left = [(life, pod) for life, pod in then if not pod.gone]
    for life, pod in left:
        if pod.phase in OVER and pod.held:
            later = life.when(soon)
            yield f"pod {pod.key}", "is over and still has the bridge's finalizer" if later.held and not later.gone else ""
    there = [(life, pod) for life, pod in left if pod.phase not in OVER]
    live = {job.job_id: job for job in history.live if job.cluster == history.cluster}
    ended = {job.job_id for job in history.jobs if job.cluster == history.cluster and job.end and job.end <= soon}
    forgotten = {job.job_id for job in history.jobs if job.state == FORGOTTEN}  # their pods run on, and Slurm knows nothing of them
    anew = {
        seen.job_id
        for life in found
        for seen in life.versions
        if history.settled_at < seen.at <= soon and not seen.gone and seen.phase not in OVER
    }
    labels, keys = {pod.job_id for _, pod in there} | anew, {pod.key for _, pod in there}
    for job in live.values():
        own = job.job_id in labels or not keys.isdisjoint(job.pods) or job.job_id in ended
        yield f"job {job.job_id} ({job.workload})", "" if own else f"is {job.state} and has no pod"
    named = {key for job in live.values() for key in job.pods}
    for life, pod in there:
        later = life.when(soon)
        has_job = pod.job_id in live if pod.job_id else pod.key in named
        gathers = not pod.job_id and pod.group != "" and life.bound is not None  # its gang was not complete then, and was later
        ends = later.gone or later.deleting or later.phase in OVER or awaits_collection(life, history)
        passes = ends or gathers or life.job_id in forgotten
        none = f" ({pod.job_id} is none)" if pod.job_id else ""
        yield f"pod {pod.key}", "" if has_job or passes else f"is {pod.phase} and has no job{none}"


# 4


def no_pod_lost(history: History, found: Sequence[Life]) -> Iterator[Finding]:
    jobs, failed = jobs_by_id(history.jobs, history.cluster), first_failures(found)
    for life in found:
        decided = fate(life, history, jobs, failed)
        yield f"pod {life.key} ({life.uid})", "" if decided else _lost(life, jobs)
    seen = {life.key for life in found}
    for act in history.acts:
        if act.kind == "created":
            yield f"pod {act.subject}", "" if act.subject in seen else "was created and never seen"


def _lost(life: Life, jobs: Mapping[int, Sequence[JobRecord]]) -> str:
    records = "; ".join(f"job {job.job_id} {job.state} {job.start:.0f}-{job.end:.0f}" for job in jobs.get(life.job_id, ()))
    if life.deleted:
        return f"was deleted at {life.deleted.at:.0f}, and nobody says why ({records or f'job {life.job_id} unknown'})"
    return f"is {life.last.phase} at the end, {'on ' + life.last.node if life.last.node else 'without a node'} ({records or 'no job'})"


# 5


def bound_once(history: History, found: Sequence[Life]) -> Iterator[Finding]:
    bindings: dict[str, int] = {}
    for act in history.acts:
        if act.kind == "binding" and act.detail == "201":
            bindings[act.subject] = bindings.get(act.subject, 0) + 1
    for life in found:
        nodes = list(dict.fromkeys(seen.node for seen in life.versions if seen.node))
        times = bindings.get(life.uid, 0)
        text = f"was on {' and then on '.join(nodes)}" if len(nodes) > 1 else f"was bound {times} times" if times > 1 else ""
        yield f"pod {life.key} ({life.uid})", text
    yield from _one_job_at_a_time(history, found)


def _one_job_at_a_time(history: History, found: Sequence[Life]) -> Iterator[Finding]:
    """Of one workload no two jobs bound pods while both ran."""
    that_bound = {life.job_id for life in found if life.bound}
    by_workload: dict[str, list[JobRecord]] = {}
    for job in history.jobs:
        if job.cluster == history.cluster and job.job_id in that_bound and job.start:
            by_workload.setdefault(job.workload, []).append(job)
    for workload, jobs in by_workload.items():
        jobs.sort(key=lambda job: job.start)
        pairs = [(a, b) for a, b in itertools.pairwise(jobs) if (a.job_id, a.submit) != (b.job_id, b.submit)]
        both = next(((a, b) for a, b in pairs if not a.end or b.start + SECOND < a.end), None)
        yield workload, f"jobs {both[0].job_id} and {both[1].job_id} ran at once, and both bound pods" if both else ""


INVARIANTS: Mapping[str, Callable[[History, Sequence[Life]], Iterator[Finding]]] = {
    "no pod bound without a running job of its own": bound_by_a_running_job,
    "no core, GPU or byte given to two at once": nothing_given_to_two,
    "no job of ours without a pod, no pod of ours without a job": jobs_and_pods_agree,
    "no pod lost": no_pod_lost,
    "nothing bound twice": bound_once,
}
