"""JobSets, as far as they are read: which of a set's pods start together, how many of them are still to come, and in what order they stand. Pure.

Comes in: a JobSet, its child Jobs as they are now, a pod's labels. Goes out: the part that a pod is of, and for a part its size, whether more pods will come, and the ranks of each Job's pods. What must stay true: a
part is what can exist at one time, so that waiting for all of it ends; a Job of an earlier try says nothing of this one.

- Without an order, all replicated jobs are one part. With in-order start-up each is a part of its own; with `dependsOn` those are that wait for the same.
- With exclusive topology the JobSet's webhook lets a Job's other pods be made only when its first one is on a node, and sends them to where that is: then each Job has two parts, `leader` and `workers`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from slinky.kube.objects import Condition, Job, JobSpec, KubeObject, Pod, Record
from slinky.kube.objects.cluster import TemplateMeta

__all__ = [
    "EXCLUSIVE",
    "JOBSET_GROUP",
    "JOBSET_NAME",
    "JOBSET_UID",
    "JOB_GLOBAL_INDEX",
    "REPLICATED_JOB",
    "JobSet",
    "Ranks",
    "expected",
    "first_ranks",
    "is_awaited",
    "is_completed",
    "is_whole",
    "job_is_over",
    "largest_part",
    "makes_more",
    "part_of",
    "roles_of",
    "still_to_come",
    "succeeded_of",
    "the_only_job",
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
    metadata: TemplateMeta = TemplateMeta()
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


class Ranks(Mapping[str, tuple[int, int]]):
    """By the name of a Job: the rank of its first pod, and how many ranks are its own. Reckoned when asked for: a replicated job may have any number of replicas."""

    __slots__ = ("_first", "_jobset", "_only", "_roles")

    def __init__(self, jobset: str, roles: Iterable[ReplicatedJob], first: int = 0, only: str = "") -> None:
        """`only` is the one Job that counts, if it is not all of them."""
        self._jobset, self._only, self._first = jobset, only, first
        self._roles: dict[str, tuple[int, int, int]] = {}  # first rank, pods of each Job, Jobs
        for role in roles:
            width, replicas = width_of(role.template.spec), max(role.replicas, 0)
            self._roles[role.name] = (first, width, replicas)
            first += width * replicas

    @property
    def pods(self) -> int:
        """Of all the Jobs, at one time."""
        if self._only:
            return self[self._only][1] if self._only in self else 0
        return sum(width * replicas for _, width, replicas in self._roles.values())

    def __getitem__(self, job: str) -> tuple[int, int]:
        name, _, index = job.removeprefix(f"{self._jobset}-").rpartition("-")
        first, width, replicas = self._roles.get(name, (0, 0, 0))
        if not (index.isascii() and index.isdigit() and len(index) < 11 and int(index) < replicas) or (self._only and job != self._only):
            raise KeyError(job)
        return (self._first if self._only else first + int(index) * width), width

    def __iter__(self) -> Iterator[str]:
        if self._only:
            return iter([self._only] if self._only in self else [])
        return (f"{self._jobset}-{name}-{index}" for name, (_, _, replicas) in self._roles.items() for index in range(replicas))

    def __len__(self) -> int:
        return (self._only in self) if self._only else sum(replicas for _, _, replicas in self._roles.values())


class _Parts(NamedTuple):
    """How the replicated jobs of a set come together. `part` is by the name of a replicated job; `roles` by the part, without exclusive ones, which have parts of their own by Job."""

    part: dict[str, str]
    roles: dict[str, list[ReplicatedJob]]
    exclusive: dict[str, ReplicatedJob]


# A set is asked about for each of its pods, and may have thousands of replicated jobs. What is remembered holds the objects too, so that their ids stay theirs.
MOST_REMEMBERED = 256
_REMEMBERED: dict[tuple[int, int], tuple[object, _Parts]] = {}


def _parts(jobset: JobSet) -> _Parts:
    spec, annotations = jobset.spec, jobset.metadata.annotations
    name = (id(spec), id(annotations))
    known = _REMEMBERED.get(name)
    if known is None:
        if len(_REMEMBERED) >= MOST_REMEMBERED:
            _REMEMBERED.clear()
        known = _REMEMBERED[name] = ((spec, annotations), _read_parts(jobset))
    return known[1]


def _read_parts(jobset: JobSet) -> _Parts:
    found = _Parts({}, {}, {})
    in_order = jobset.spec.startup_policy is not None and jobset.spec.startup_policy.startup_policy_order == "InOrder"
    first: dict[tuple[DependsOn, ...], str] = {}
    for role in jobset.spec.replicated_jobs:
        part = role.name if in_order else first.setdefault(role.depends_on, role.name)
        found.part.setdefault(role.name, part)
        roles = found.roles.setdefault(part, [])
        if is_exclusive(jobset, role):
            found.exclusive[role.name] = role
        else:
            roles.append(role)
    return found


def part_of(jobset: JobSet, replicated: str, job: str = "", index: int | None = None) -> str:
    """Which part the pods of this replicated job are of: called by the first replicated job of those that start together, or with exclusive topology by the Job, and by what the pod is there."""
    known = _parts(jobset)
    if replicated in known.exclusive and job and index is not None:
        return f"{job}/{WORKERS if index else LEADER}"
    return known.part.get(replicated, replicated)


def is_whole(jobset: JobSet) -> bool:
    """Whether all of it is one part."""
    known = _parts(jobset)
    return len(known.roles) == 1 and not any(role.replicas > 0 for role in known.exclusive.values())


def largest_part(jobset: JobSet) -> int:
    """How many pods the largest of its parts has at one time."""
    known = _parts(jobset)
    together = (sum(max(role.replicas, 0) * width_of(role.template.spec) for role in roles) for roles in known.roles.values())
    alone = (width_of(role.template.spec) - 1 for role in known.exclusive.values() if role.replicas > 0)
    return max(1, *together, *alone, 1)


def is_exclusive(jobset: JobSet, replicated: ReplicatedJob) -> bool:
    root, own = jobset.metadata.annotations, replicated.template.metadata.annotations
    return (EXCLUSIVE in root or EXCLUSIVE in own) and NODE_SELECTOR not in root and NODE_SELECTOR not in own


def expected(jobset: JobSet, part: str, jobs: Iterable[Job], succeeded: Mapping[str, int]) -> int:
    """How many pods of this part are to be there before it starts: all that it can have at one time, less those that are complete. `succeeded` is by a Job's UID what is known beyond its status."""
    role, ranks = part.partition("/")[2], first_ranks(jobset, part)
    total = ranks.pods
    for name, job in _current(jobset, jobs).items():
        _, width = ranks.get(name, (0, 0))
        if name not in ranks:
            continue
        if job_is_over(job):
            failed = _has(job, "Failed") or _has(job, "FailureTarget")
            total -= 0 if failed and jobset.spec.failure_policy is not None else width  # as the policy may make it anew
        else:
            total += still_to_come(job, succeeded) - width
    if role == LEADER:
        return min(total, 1) if not sum(succeeded.values()) else 0
    return max(total - 1, 0) if role == WORKERS else total


def is_awaited(jobset: JobSet) -> bool:
    """Whether it will make more pods, if any are missing: not when it is over, suspended or being deleted."""
    over = jobset.status.terminal_state or any(c.type in ("Completed", "Failed") and c.status == "True" for c in jobset.status.conditions)
    return not (over or jobset.spec.suspend or jobset.metadata.deletion_timestamp)


def is_completed(jobset: JobSet) -> bool:
    return any(c.type == "Completed" and c.status == "True" for c in jobset.status.conditions)


def first_ranks(jobset: JobSet, part: str) -> Ranks:
    """Of this part, in the order of the spec."""
    name, _, role = part.partition("/")
    known = _parts(jobset)
    if not role:
        return Ranks(jobset.metadata.name, known.roles.get(name, ()))
    own = known.exclusive.get(name.removeprefix(f"{jobset.metadata.name}-").rpartition("-")[0])
    # The leader has rank 0 of a job of its own.
    return Ranks(jobset.metadata.name, [own] if own is not None else (), -1 if role == WORKERS else 0, only=name)


def roles_of(jobset: JobSet, part: str) -> list[str]:
    """The replicated jobs of which a part has all Jobs."""
    return [role.name for role in _parts(jobset).roles.get(part, ())]


def the_only_job(part: str) -> str:
    """The name of the Job that the part is of; empty where it is of whole replicated jobs."""
    name, separator, _ = part.partition("/")
    return name if separator else ""


def time_limit(jobset: JobSet, part: str) -> int | None:
    """In minutes: the longest of its Jobs', where each has one."""
    name, _, role = part.partition("/")
    known = _parts(jobset)
    if role:
        own = name.removeprefix(f"{jobset.metadata.name}-").rpartition("-")[0]
        roles = [known.exclusive[own]] if own in known.exclusive else []
    else:
        roles = [each for each in known.roles.get(name, ()) if each.replicas > 0]
    seconds = [each.template.spec.active_deadline_seconds for each in roles]
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
