"""A workload: the unit that Slurm schedules, one job's worth of pods.

Comes in: a pod, and the groups that it may belong to. Goes out: the key of the workload that it is part of, and for the pods of one key a `Workload` with its pods in rank
order. What must stay true: a pod belongs to one workload for its whole life; a key names its namespace, so two groups of one name in two
namespaces are two; pods that are over are no longer part of what is to be scheduled.

A gang is submitted with all the pods that exist at that moment, at least `size` (less those of it that have ended, where what is left of it needs another job): with a minimum of 4 and 6 pods there, it is a job of 6 tasks; and with room for those that can only come when the first ones run
(`coming`). A pod that comes after the submit takes a slot that is free. Where none is and none will be, because a PodGroup has more pods than its job was submitted for, it is set apart (annotation `APART`): from then on it is a workload
of its own, as kube-scheduler too schedules by themselves those that come after a group's minimum. In a Job, JobSet or LeaderWorkerSet, which make one pod for another, it waits for a slot to be free.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, get_args

import msgspec

from slinky.bridge.annotations import AnnotationError, JobSettings, read_settings
from slinky.bridge.jobsets import JOB_GLOBAL_INDEX, JOBSET_GROUP, JOBSET_NAME, JOBSET_UID, still_to_come, succeeded_of, width_of
from slinky.bridge.keys import APART, GANG
from slinky.bridge.leaderworkersets import LWS_NAME, place_in_group
from slinky.kube.objects import Job, Meta, Pod

__all__ = [
    "COSCHEDULING_LABEL",
    "Coming",
    "NotLeadingError",
    "PodGroup",
    "Workload",
    "WorkloadError",
    "WorkloadKey",
    "asks_for_gang",
    "completion_index",
    "group_of",
    "key_of",
    "key_of_job",
    "lineage_of",
    "rank_of",
    "workload_of",
]

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOB_NAME = "batch.kubernetes.io/job-name"

Kind = Literal["Pod", "PodGroup", "Workload", "CoschedulingPodGroup", "Job", "JobSet", "LeaderWorkerSet"]
MOST_SAID = 1024  # characters that are looked at where true or false is to be said
PART, BY_JOB = "/", "#"  # neither can stand in the name of an object


class NotLeadingError(Exception):
    """Another process leads now: this one must not act."""


class WorkloadKey(msgspec.Struct, frozen=True, order=True):
    """`name` is the group's; for a pod on its own its UID, so that a new pod of an old name is another workload.

    Kind `Workload` is that of Kubernetes 1.35, which has its groups within: `WORKLOAD/GROUP`, and `WORKLOAD/GROUP/REPLICA` where the pods name a replica. Of a JobSet and a
    LeaderWorkerSet it is the part (`jobsets`, `leaderworkersets`): `JOBSET/REPLICATEDJOB`, `LWS/GROUPINDEX`, and where leader and workers are two, `…/leader` and `…/workers`. A name that ends with `#ID` is of pods that were found with the label of a Slurm job, while the group or Job that they name was not there any more.
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
        """Of a `Workload` the group within, of a JobSet or LeaderWorkerSet the part."""
        _, *rest = self.name.partition(BY_JOB)[0].split(PART)
        return (rest[0] if self.kind == "Workload" else PART.join(rest)) if rest else ""


class Coming(msgspec.Struct, frozen=True):
    """Pods that are yet to be made from one template: `pod` stands for each of them, without a UID. `numbers` are those that they will have, but for `there`; one is called `name` and its number."""

    pod: Pod
    numbers: range
    name: str
    there: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.numbers) - len(self.there)

    def left(self) -> Iterator[int]:
        return (number for number in self.numbers if number not in self.there)


class PodGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of pods, whichever API said so. A gang starts together; the pods of one that is none (the policy `basic`) are scheduled each on its own.

    `overriding` are the annotations of the Workload that the group was made from: they go before those of the Job, and those before the group's own.

    A part of a JobSet or LeaderWorkerSet is one too. Of those it is known what they will do: `coming` are pods that are made only when others run; `awaited` that pods will come in the stead of those that are gone; `completed` that it is
    over, and well; `first_ranks` by the name of a Job the first rank that is its pods', and how many are; `whole` that it has no other parts. `elastic`: more pods than the least may come, each of which can start by itself.
    """

    metadata: Meta
    min_count: int
    builtin: bool
    gang: bool = True
    annotations: Mapping[str, str] = {}
    overriding: Mapping[str, str] = {}
    coming: Coming | None = None
    awaited: bool = False
    completed: bool = False
    elastic: bool = True
    whole: bool = True
    first_ranks: Mapping[str, tuple[int, int]] = {}
    time_limit: int | None = None
    refusal: str = ""  # why the bridge cannot do what the group asks for
    same_domain: str = ""  # the node label of which all pods must have one value
    priority_class: str = ""


class WorkloadError(AnnotationError):
    """The group asks for what the bridge cannot do: its pods that wait are told so."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """`pods` in rank order. `size` is how many must be there before it may be submitted: those that can exist now. `coming` do not exist yet, but the job must have room for them.

    Whatever sizes or describes the job goes by `everyone`, whatever acts on pods by `pods`.
    """

    key: WorkloadKey
    name: str
    pods: tuple[Pod, ...]
    size: int
    settings: JobSettings
    time_limit: int | None = None
    coming: Coming | None = None
    first_ranks: Mapping[str, tuple[int, int]] = {}
    same_domain: str = ""  # the node label of which all pods must have one value, by their group
    priority_class: str = ""  # of the group; else that of the first pod counts

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
    def uids(self) -> tuple[str, ...]:
        return tuple(pod.metadata.uid for pod in self.pods)

    @property
    def count(self) -> int:
        """How many pods its job must have room for."""
        return len(self.pods) + (len(self.coming) if self.coming else 0)

    @property
    def everyone(self) -> tuple[Pod, ...]:
        """Whom its job must have room for, in rank order. Those that are coming are one object, as often as there are of them."""
        return tuple(pod for pod, _ in self._in_order) if self.coming else self.pods

    def name_at(self, rank: int) -> str:
        """What the pod at this place among `everyone` is called, or will be."""
        if not self.coming:
            return self.pods[rank].metadata.name
        pod, number = self._in_order[rank]
        return pod.metadata.name if number is None else f"{self.coming.name}{number}"

    @cached_property
    def _in_order(self) -> list[tuple[Pod, int | None]]:
        """With its number for one that is coming."""
        coming = self.coming
        found = [(rank_of(pod)[:2], pod, None) for pod in self.pods]
        found += [((0, number), coming.pod, number) for number in coming.left()] if coming else []  # type: ignore[misc]
        found.sort(key=lambda each: each[0])  # two runs that are in order: linear
        return [(pod, number) for _, pod, number in found]

    @property
    def wished_ranks(self) -> dict[str, int]:
        """By UID, where pods have an index of their own: a pod that comes in another's stead has that one's. Of a Job with more completions than pods at one time, the later ones have those of the first again."""
        return {pod.metadata.uid: rank for pod in self.pods if (rank := self._wished(pod)) is not None} if self.is_gang else {}

    def _wished(self, pod: Pod) -> int | None:
        if place := place_in_group(pod):
            return place.worker - self.key.name.endswith("/workers")
        index, owner = completion_index(pod), pod.metadata.controller
        first, width = self.first_ranks.get(owner.name if owner else "", (0, 0))
        return index if index is None or not width else max(first + index % width, 0)


def group_of(pod: Pod) -> WorkloadKey | None:
    """The group that this pod names, without a replica or part. The built-in one goes before the coscheduling label, and both before the set that its labels tell of."""
    namespace, spec, labels = pod.metadata.namespace, pod.spec, pod.metadata.labels
    if spec.scheduling_group and spec.scheduling_group.pod_group_name:
        return WorkloadKey("PodGroup", namespace, spec.scheduling_group.pod_group_name)
    if spec.workload_ref and spec.workload_ref.name:
        return WorkloadKey("Workload", namespace, f"{spec.workload_ref.name}{PART}{spec.workload_ref.pod_group}")
    if group := labels.get(COSCHEDULING_LABEL):
        return WorkloadKey("CoschedulingPodGroup", namespace, group)
    if place_in_group(pod):
        return WorkloadKey("LeaderWorkerSet", namespace, labels[LWS_NAME])
    if (jobset := labels.get(JOBSET_NAME)) and _owned_by_job(pod):
        return WorkloadKey("JobSet", namespace, jobset)
    return None


def key_of(pod: Pod, jobs: Mapping[tuple[str, str], Job], group: PodGroup | None = None, part: str = "") -> WorkloadKey:
    """Which workload this pod is part of. A group goes before a Job that asks for a gang. `group` is what the pod names, where it is known: unless it is no gang, the pod is part of it. `part` is which part of a JobSet or
    LeaderWorkerSet.
    """
    namespace = pod.metadata.namespace
    alone, owner = WorkloadKey("Pod", namespace, pod.metadata.uid), pod.metadata.controller
    if APART in pod.metadata.annotations:
        return alone
    job = jobs.get((namespace, owner.name)) if owner and _owned_by_job(pod) else None
    job = job if job and owner and job.metadata.uid == owner.uid else None
    named = group_of(pod)
    if named and named.kind == "JobSet" and ((job and not of_jobset(job, named)) or (group is not None and not group.gang)):
        named = None
    if named:
        if group is not None and not group.gang:
            return alone
        if named.kind == "Workload" and pod.spec.workload_ref:
            part = pod.spec.workload_ref.pod_group_replica_key
        return WorkloadKey(named.kind, namespace, f"{named.name}{PART}{part}") if part else named
    return WorkloadKey("Job", namespace, owner.name) if job and owner and asks_for_gang(job.metadata) else alone


def of_jobset(job: Job, named: WorkloadKey) -> bool:
    """Labels can be written by anyone; who owns the Job cannot."""
    owner = job.metadata.controller
    return owner is not None and owner.kind == "JobSet" and owner.name == named.object_name and owner.api_version.startswith(JOBSET_GROUP)


def _owned_by_job(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/")


def lineage_of(pod: Pod, key: WorkloadKey) -> str:
    """The UID of the object that the pod was made for, where the pod tells: another Job or JobSet of the same name makes other pods."""
    if key.kind == "JobSet":
        return pod.metadata.labels.get(JOBSET_UID, "")
    return _owner(pod) if key.kind == "Job" else ""


def key_of_job(pod: Pod, job_id: int) -> WorkloadKey:
    """For a pod that has a Slurm job, but whose group or Job is gone: together with the others of that job, be they many or none."""
    named, owner = group_of(pod), pod.metadata.controller
    kind, name = (named.kind, named.name) if named else ("Job", owner.name if owner else "")
    return WorkloadKey(kind, pod.metadata.namespace, f"{name}{BY_JOB}{job_id}")


def asks_for_gang(meta: Meta, default: bool = False) -> bool:
    """What its annotation says; `default` where it says nothing."""
    said = meta.annotations.get(GANG, "")[:MOST_SAID].strip().lower()
    return said == "true" if said else default


def workload_of(
    key: WorkloadKey, pods: Iterable[Pod], group: PodGroup | None = None, job: Job | None = None, *, in_rank_order: bool = False
) -> Workload | None:
    """The workload, or None where nothing of it is left to schedule, or its group is not known (yet).

    `job` is the Job that owns the pods, gang or not: what its annotations say holds for each of its pods that says nothing else, and for a built-in group of which it owns all pods. `group` is for a pod on its own the one that it names,
    though it is no part of it: its annotations hold where the Job's say nothing else. `in_rank_order`: the pods are.

    Raises WorkloadError where the group asks for what the bridge cannot do and pods still wait. Raises AnnotationError where the annotations on its root are wrong, which admission refuses, but which may have been there before it.
    """
    pods = tuple(pods)
    alive = [pod for pod in pods if not pod.is_over and pod.metadata.deletion_timestamp is None]
    if not in_rank_order:
        alive.sort(key=rank_of)
    if not alive:
        return None
    first = alive[0]
    if group is not None and any(not pod.spec.node_name for pod in alive):
        if group.refusal:
            raise WorkloadError([group.refusal])
        if key.kind == "Pod" and group.same_domain:
            raise WorkloadError(
                [
                    f"PodGroup {group.metadata.key} requires one {group.same_domain} for all pods, and its Slurm job is full, "
                    f"so pod {first.key} cannot join. Create all pods before the job is submitted"
                ]
            )
    if key.kind == "Pod":
        above = {**group.annotations, **group.overriding} if group else {}
        settings = read_settings({**above, **(job.metadata.annotations if job else {}), **first.metadata.annotations})
        limit = _minutes(first.spec.active_deadline_seconds or (job.spec.active_deadline_seconds if job else None))
        return Workload(key=key, name=first.metadata.name, pods=(first,), size=1, settings=settings, time_limit=limit)
    if key.kind == "Job":
        if job is None:
            return None
        width = job.spec.parallelism if job.spec.parallelism is not None else 1
        return Workload(
            key=key,
            name=key.object_name,
            pods=tuple(alive),
            size=max(still_to_come(job, succeeded_of(pods)), 1),  # its status may count them a moment later
            settings=read_settings(job.metadata.annotations),
            time_limit=_minutes(job.spec.active_deadline_seconds),
            first_ranks={job.metadata.name: (0, width)},
        )
    if group is None:
        return None
    maker = job if job and all(_owner(pod) == job.metadata.uid for pod in alive) else None
    owner = maker if group.builtin else None
    said = {**group.annotations, **(owner.metadata.annotations if owner else {}), **group.overriding}
    name = key.object_name if group.whole and key.kind == "JobSet" else key.name.partition(BY_JOB)[0].replace(PART, "-")
    coming = group.coming
    if coming is not None:
        there = frozenset(number for pod in alive if (number := rank_of(pod)[1]) in coming.numbers)
        coming = msgspec.structs.replace(coming, there=there) if len(there) < len(coming.numbers) else None
    return Workload(
        key=key,
        name=name,
        pods=tuple(alive),
        size=_size(key, max(group.min_count, 1), pods, alive, maker),
        settings=read_settings(said),
        time_limit=group.time_limit,
        coming=coming,
        first_ranks=group.first_ranks,
        same_domain=group.same_domain,
        priority_class=group.priority_class,
    )


def _size(key: WorkloadKey, minimum: int, pods: Sequence[Pod], alive: Sequence[Pod], job: Job | None) -> int:
    """How many of a group have to be there before they are submitted. Those that have ended, and in whose stead nobody will come, had their time: who is left of a gang whose job was lost or given back would wait for them for ever."""
    if key.kind in ("JobSet", "LeaderWorkerSet"):
        return minimum  # of what is still to come, as it is
    if job is not None:
        return minimum - max(min(minimum, width_of(job.spec)) - max(still_to_come(job, succeeded_of(pods)), 1), 0)
    # A gang's job is submitted when all of it are there: who was on a node before the first of those that wait came was of another.
    first = min((pod.metadata.born for pod in alive if not pod.spec.node_name), default=float("inf"))
    return max(minimum - sum(pod.is_over and pod.metadata.controller is None and pod.bound_at >= first for pod in pods), 1)


def _owner(pod: Pod) -> str:
    return owner.uid if (owner := pod.metadata.controller) else ""


def rank_of(pod: Pod) -> tuple[int, int, str, str]:
    """Where a pod stands among its workload's: by its number in its group; by its Job's number in the set, and its own index; else by its name, numbers in it by their value."""
    meta = pod.metadata
    if place := place_in_group(pod):
        return (0, place.worker, meta.name, meta.uid)
    index = completion_index(pod)
    if index is None:
        index = _number(meta.name.rpartition("-")[2]) or 0
    return (_number(meta.labels.get(JOB_GLOBAL_INDEX, "")) or 0, index, meta.name, meta.uid)


def completion_index(pod: Pod) -> int | None:
    for key in (COMPLETION_INDEX, POD_INDEX):
        if (index := _number(pod.metadata.annotations.get(key) or pod.metadata.labels.get(key) or "")) is not None:
            return index
    return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _minutes(seconds: int | None) -> int | None:
    return None if not seconds else -(-seconds // 60)
