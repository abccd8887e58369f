"""A workload: the unit that Slurm schedules, one job's worth of pods.

Comes in: a pod, and the groups that it may belong to. Goes out: the key of the workload that it is part of, and for the pods of one key a `Workload` with its pods in rank
order. What must stay true: a pod belongs to one workload for its whole life; a key names its namespace, so two groups of one name in two
namespaces are two; pods that are over are no longer part of what is to be scheduled.

A gang is submitted with all the pods that exist at that moment, at least `size`: with a minimum of 4 and 6 pods there, it is a job of 6 tasks. A pod of
the group that comes after the submit is part of the workload, but has no place in that job. As the plan is now, it gets that job's label all the same: it is never bound, holds
up the binding of the others where they are not bound yet, and is evicted when the job is over.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import msgspec

from slinky.bridge.annotations import JobSettings, read_settings
from slinky.bridge.keys import GANG
from slinky.kube.objects import Job, Meta, Pod

__all__ = ["COSCHEDULING_LABEL", "PodGroup", "Workload", "WorkloadKey", "group_of", "key_of", "key_of_job", "rank_of", "workload_of"]

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOB_NAME = "batch.kubernetes.io/job-name"

Kind = Literal["Pod", "PodGroup", "Workload", "CoschedulingPodGroup", "Job"]
PART, BY_JOB = "/", "#"  # neither can stand in the name of an object


class WorkloadKey(msgspec.Struct, frozen=True, order=True):
    """`name` is the group's; for a pod on its own its UID, so that a new pod of an old name is another workload.

    Kind `Workload` is that of Kubernetes 1.35, which has its groups within: `WORKLOAD/GROUP`, and `WORKLOAD/GROUP/REPLICA` where the pods name a replica. A name that ends
    with `#ID` is of pods that were found with the label of a Slurm job, while the group or Job that they name was not there any more.
    """

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "WorkloadKey | None":
        """What `str` wrote; None for anything else."""
        kind, _, rest = text.partition(" ")
        namespace, _, name = rest.partition("/")
        return cls(kind, namespace, name) if kind in get_args(Kind) and namespace and name else None  # type: ignore[arg-type]

    @property
    def object_name(self) -> str:
        """The name of the Kubernetes object behind it; for a pod on its own its UID."""
        return self.name.partition(BY_JOB)[0].partition(PART)[0]

    @property
    def job_id(self) -> int:
        """The Slurm job whose label is all that its pods are known by; 0 for any other workload."""
        text = self.name.partition(BY_JOB)[2]
        return int(text) if text.isdigit() else 0

    @property
    def part(self) -> str:
        """Of a `Workload` the group within."""
        _, *rest = self.name.partition(BY_JOB)[0].split(PART)
        return rest[0] if rest else ""


class PodGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of pods, whichever API said so. A gang starts together; the pods of one that is none (the policy `basic`) are scheduled each on its own.

    `overriding` are the annotations of the Workload that the group was made from: they go before those of the Job, and those before the group's own.
    """

    metadata: Meta
    min_count: int
    builtin: bool
    gang: bool = True
    annotations: Mapping[str, str] = {}
    overriding: Mapping[str, str] = {}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """`pods` in rank order. `size` is how many must be there before it may be submitted: those that can exist now."""

    key: WorkloadKey
    name: str
    pods: tuple[Pod, ...]
    size: int
    settings: JobSettings
    time_limit: int | None = None

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def is_gang(self) -> bool:
        return self.key.kind != "Pod"

    @property
    def is_complete(self) -> bool:
        return len(self.pods) >= self.size

    @property
    def everyone(self) -> tuple[Pod, ...]:
        """Whom its job must have room for, in rank order."""
        return self.pods

    @property
    def uids(self) -> tuple[str, ...]:
        return tuple(pod.metadata.uid for pod in self.pods)

    @property
    def wished_ranks(self) -> dict[str, int]:
        """By UID, where pods have an index of their own: a pod that comes in another's stead has that one's."""
        return {pod.metadata.uid: index for pod in self.pods if (index := _index(pod)) is not None} if self.is_gang else {}


def group_of(pod: Pod) -> WorkloadKey | None:
    """The group that this pod names, without a replica. The built-in one goes before the coscheduling label."""
    namespace, spec = pod.metadata.namespace, pod.spec
    if spec.scheduling_group and spec.scheduling_group.pod_group_name:
        return WorkloadKey("PodGroup", namespace, spec.scheduling_group.pod_group_name)
    if spec.workload_ref and spec.workload_ref.name:
        return WorkloadKey("Workload", namespace, f"{spec.workload_ref.name}{PART}{spec.workload_ref.pod_group}")
    if group := pod.metadata.labels.get(COSCHEDULING_LABEL):
        return WorkloadKey("CoschedulingPodGroup", namespace, group)
    return None


def key_of(pod: Pod, jobs: Mapping[tuple[str, str], Job], group: PodGroup | None = None) -> WorkloadKey:
    """Which workload this pod is part of. A group goes before a Job that asks for a gang. `group` is what the pod names, where it is known: unless it is no gang, the pod is part of it."""
    namespace = pod.metadata.namespace
    if named := group_of(pod):
        if group is not None and not group.gang:
            return WorkloadKey("Pod", namespace, pod.metadata.uid)
        replica = pod.spec.workload_ref.pod_group_replica_key if named.kind == "Workload" and pod.spec.workload_ref else ""
        return WorkloadKey(named.kind, namespace, f"{named.name}{PART}{replica}") if replica else named
    owner = pod.metadata.controller
    if owner and owner.kind == "Job" and owner.api_version.startswith("batch/"):
        job = jobs.get((namespace, owner.name))
        if job and job.metadata.uid == owner.uid and _is_gang(job):
            return WorkloadKey("Job", namespace, owner.name)
    return WorkloadKey("Pod", namespace, pod.metadata.uid)


def key_of_job(pod: Pod, job_id: int) -> WorkloadKey:
    """For a pod that has a Slurm job, but whose group or Job is gone: together with the others of that job, be they many or none."""
    named, owner = group_of(pod), pod.metadata.controller
    kind, name = (named.kind, named.name) if named else ("Job", owner.name if owner else pod.metadata.name)
    return WorkloadKey(kind, pod.metadata.namespace, f"{name}{BY_JOB}{job_id}")


def _is_gang(job: Job) -> bool:
    return job.metadata.annotations.get(GANG, "").strip().lower() == "true"


def workload_of(key: WorkloadKey, pods: Iterable[Pod], group: PodGroup | None = None, job: Job | None = None) -> Workload | None:
    """The workload, or None where nothing of it is left to schedule, or its group is not known (yet).

    `job` is the Job that owns the pods, gang or not: what its annotations say holds for each of its pods that says nothing else, and for a built-in group of which it owns all pods.

    Raises AnnotationError where the annotations on its root are wrong, which admission refuses, but which may have been there before it.
    """
    alive = sorted((pod for pod in pods if not pod.is_over and pod.metadata.deletion_timestamp is None), key=rank_of)
    if not alive:
        return None
    first = alive[0]
    if key.kind == "Pod":
        said = {**job.metadata.annotations, **first.metadata.annotations} if job else first.metadata.annotations
        settings = read_settings(said)
        limit = _minutes(first.spec.active_deadline_seconds or (job.spec.active_deadline_seconds if job else None))
        return Workload(key=key, name=first.metadata.name, pods=(first,), size=1, settings=settings, time_limit=limit)
    if key.kind == "Job":
        if job is None:
            return None
        size = min(job.spec.parallelism if job.spec.parallelism is not None else 1, _remaining(job))
        return Workload(
            key=key,
            name=key.object_name,
            pods=tuple(alive),
            size=max(size, 1),
            settings=read_settings(job.metadata.annotations),
            time_limit=_minutes(job.spec.active_deadline_seconds),
        )
    if group is None:
        return None
    owner = job if group.builtin and job and all(_owner(pod) == job.metadata.uid for pod in alive) else None
    said = {**group.annotations, **(owner.metadata.annotations if owner else {}), **group.overriding}
    name = key.name.partition(BY_JOB)[0].replace(PART, "-")
    return Workload(key=key, name=name, pods=tuple(alive), size=group.min_count, settings=read_settings(said))


def _owner(pod: Pod) -> str:
    return owner.uid if (owner := pod.metadata.controller) else ""


def _remaining(job: Job) -> int:
    """Completions that are still to come: towards its end a Job makes fewer pods than its parallelism."""
    if job.spec.completions is None:
        return job.spec.parallelism if job.spec.parallelism is not None else 1
    return max(job.spec.completions - job.status.succeeded, 0)


def rank_of(pod: Pod) -> tuple[int, str, str]:
    """Where a pod stands among its workload's: by its index where it has one, else by its name, numbers in it by their value."""
    index = _index(pod)
    if index is None:
        digits = pod.metadata.name.rpartition("-")[2]
        index = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
    return (index, pod.metadata.name, pod.metadata.uid)


def _index(pod: Pod) -> int | None:
    for key in (COMPLETION_INDEX, POD_INDEX):
        text = pod.metadata.annotations.get(key) or pod.metadata.labels.get(key) or ""
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
    return None


def _minutes(seconds: int | None) -> int | None:
    return None if not seconds else -(-seconds // 60)
