"""JobSets, as far as they are read: which of a set's pods start together, how many of them are still to come, and in what order they stand. Pure.

Comes in: a JobSet, its child Jobs as they are now, a pod's labels. Goes out: the part that a pod is of, and for a part its size, whether more pods will come, and the ranks of each Job's pods. What must stay true: a
part is what can exist at one time, so that waiting for all of it ends; a Job of an earlier try says nothing of this one.

- Without an order, all replicated jobs are one part. With in-order start-up each is a part of its own; with `dependsOn` those are that wait for the same.
- With exclusive topology the JobSet's webhook lets a Job's other pods be made only when its first one is on a node, and sends them to where that is: then each Job has two parts, `leader` and `workers`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from slinky.kube.objects import Condition, Job, JobSpec, KubeObject, Meta, Pod, Record

__all__ = [
    "EXCLUSIVE",
    "JOBSET_GROUP",
    "JOBSET_NAME",
    "JOBSET_UID",
    "JOB_GLOBAL_INDEX",
    "REPLICATED_JOB",
    "JobSet",
    "expected",
    "first_ranks",
    "is_awaited",
    "is_completed",
    "job_is_over",
    "makes_more",
    "most_pods",
    "part_of",
    "parts",
    "still_to_come",
    "succeeded_of",
    "time_limit",
    "width_of",
]

JOBSET_GROUP = "jobset.x-k8s.io"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_GLOBAL_INDEX = "jobset.sigs.k8s.io/job-global-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
LEADER, WORKERS = "leader", "workers"
OVER = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")


class DependsOn(Record, frozen=True):
    name: str = ""
    status: str = ""


class JobTemplate(Record, frozen=True):
    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()


class ReplicatedJob(Record, frozen=True):
    name: str = ""
    replicas: int = 1
    depends_on: tuple[DependsOn, ...] = ()
    template: JobTemplate = JobTemplate()


class StartupPolicy(Record, frozen=True):
    startup_policy_order: str = ""


class FailurePolicy(Record, frozen=True):
    max_restarts: int = 0


class JobSetSpec(Record, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    startup_policy: StartupPolicy | None = None
    failure_policy: FailurePolicy | None = None
    suspend: bool = False


class JobSetStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()
    terminal_state: str = ""
    restarts: int = 0


class JobSet(KubeObject, frozen=True):
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


class Child(msgspec.Struct, frozen=True):
    """A Job that the set has, or will have."""

    name: str
    width: int  # pods at one time
    replicated: ReplicatedJob


def part_of(jobset: JobSet, replicated: str, job: str = "", index: int | None = None) -> str:
    """Which part the pods of this replicated job are of: called by the first replicated job of those that start together, or with exclusive topology by the Job, and by what the pod is there."""
    found = next((each for each in jobset.spec.replicated_jobs if each.name == replicated), None)
    if found is not None and is_exclusive(jobset, found) and job and index is not None:
        return f"{job}/{WORKERS if index else LEADER}"
    together = next((names for names in _together(jobset) if replicated in names), (replicated,))
    return together[0]


def parts(jobset: JobSet) -> list[str]:
    """All parts that it can have."""
    found = [names[0] for names in _together(jobset)]
    for child in _children(jobset):
        if is_exclusive(jobset, child.replicated):
            found += [f"{child.name}/{role}" for role in (LEADER, WORKERS)]
    return found


def most_pods(jobset: JobSet) -> int:
    """How many it can have at one time; a Job without any counts as one."""
    return sum(max(each.replicas, 0) * max(width_of(each.template.spec), 1) for each in jobset.spec.replicated_jobs)


def is_exclusive(jobset: JobSet, replicated: ReplicatedJob) -> bool:
    said = {**jobset.metadata.annotations, **replicated.template.metadata.annotations}
    return EXCLUSIVE in said and NODE_SELECTOR not in said


def expected(jobset: JobSet, part: str, jobs: Iterable[Job], succeeded: Mapping[str, int]) -> int:
    """How many pods of this part are to be there before it starts: all that it can have at one time, less those that are complete. `succeeded` is by a Job's UID what is known beyond its status."""
    current = _current(jobset, jobs)
    role = part.partition("/")[2]
    total = 0
    for child in _children_of(jobset, part):
        job = current.get(child.name)
        if job is not None and job_is_over(job):
            failed = _has(job, "Failed") or _has(job, "FailureTarget")
            total += child.width if failed and jobset.spec.failure_policy is not None else 0  # as the policy may make it anew
        else:
            total += still_to_come(job, succeeded) if job is not None else child.width
    if role == LEADER:
        return min(total, 1) if not sum(succeeded.values()) else 0
    return max(total - 1, 0) if role == WORKERS else total


def is_awaited(jobset: JobSet) -> bool:
    """Whether it will make more pods, if any are missing: not when it is over, suspended or being deleted."""
    over = jobset.status.terminal_state or any(c.type in ("Completed", "Failed") and c.status == "True" for c in jobset.status.conditions)
    return not (over or jobset.spec.suspend or jobset.metadata.deletion_timestamp)


def is_completed(jobset: JobSet) -> bool:
    return any(c.type == "Completed" and c.status == "True" for c in jobset.status.conditions)


def first_ranks(jobset: JobSet, part: str) -> dict[str, tuple[int, int]]:
    """By the name of a Job: the rank of its first pod in this part, and how many ranks are its own. In the order of the spec."""
    found: dict[str, tuple[int, int]] = {}
    rank = -1 if part.endswith(f"/{WORKERS}") else 0  # the leader has rank 0 of a job of its own
    for child in _children_of(jobset, part):
        found[child.name] = (rank, child.width)
        rank += child.width
    return found


def time_limit(jobset: JobSet, part: str) -> int | None:
    """In minutes: the longest of its Jobs', where each has one."""
    seconds = [child.replicated.template.spec.active_deadline_seconds for child in _children_of(jobset, part)]
    return -(-max(each or 0 for each in seconds) // 60) if seconds and all(seconds) else None


def job_is_over(job: Job) -> bool:
    """Nothing more will come of it."""
    return any(_has(job, kind) for kind in OVER)


def makes_more(job: Job, pods: Iterable[Pod] = ()) -> bool:
    """Whether a Job will make pods in the stead of those that are gone. What its own pods show counts before its status does, which is a moment behind."""
    ends = job_is_over(job) or job.spec.suspend or job.metadata.deletion_timestamp is not None
    return not ends and still_to_come(job, succeeded_of(pods)) > 0


def succeeded_of(pods: Iterable[Pod]) -> Counter[str]:
    """By the UID of the Job that owns them."""
    return Counter(owner.uid for pod in pods if pod.status.phase == "Succeeded" and (owner := pod.metadata.controller))


def still_to_come(job: Job, succeeded: Mapping[str, int]) -> int:
    """Pods that a Job has or makes at one time, until it is complete; towards its end they are fewer than its parallelism. `succeeded` as in `expected`."""
    done = max(job.status.succeeded, succeeded.get(job.metadata.uid, 0))
    parallelism = job.spec.parallelism if job.spec.parallelism is not None else 1
    if job.spec.completions is None:  # a work queue: after the first success nothing new is made
        return 0 if done else parallelism
    return min(parallelism, max(job.spec.completions - done, 0))


def width_of(spec: JobSpec) -> int:
    """Pods that it has at one time when it begins."""
    parallelism = spec.parallelism if spec.parallelism is not None else 1
    return parallelism if spec.completions is None else min(parallelism, spec.completions)


def _together(jobset: JobSet) -> list[tuple[str, ...]]:
    """The names of replicated jobs that start together, in the order of the spec."""
    jobs = jobset.spec.replicated_jobs
    order = jobset.spec.startup_policy.startup_policy_order if jobset.spec.startup_policy else ""
    if order == "InOrder":
        return [(each.name,) for each in jobs]
    found: dict[tuple[DependsOn, ...], list[str]] = {}
    for each in jobs:
        found.setdefault(each.depends_on, []).append(each.name)
    return [tuple(names) for names in found.values()]


def _children(jobset: JobSet) -> list[Child]:
    return [
        Child(f"{jobset.metadata.name}-{each.name}-{index}", width_of(each.template.spec), each)
        for each in jobset.spec.replicated_jobs
        for index in range(each.replicas)
    ]


def _children_of(jobset: JobSet, part: str) -> list[Child]:
    name, _, role = part.partition("/")
    if role:
        return [child for child in _children(jobset) if child.name == name]
    together = next((names for names in _together(jobset) if names[0] == name), ())
    return [child for child in _children(jobset) if child.replicated.name in together and not is_exclusive(jobset, child.replicated)]


def _current(jobset: JobSet, jobs: Iterable[Job]) -> dict[str, Job]:
    """Its child Jobs of this try."""
    found = {}
    for job in jobs:
        attempt = job.metadata.labels.get(RESTART_ATTEMPT, "0")
        if attempt == str(jobset.status.restarts) and job.metadata.deletion_timestamp is None:
            found[job.metadata.name] = job
    return found


def _has(job: Job, kind: str) -> bool:
    return any(condition.type == kind and condition.status == "True" for condition in job.status.conditions)
