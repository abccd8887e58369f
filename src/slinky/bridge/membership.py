"""Which pods make up which workload, kept as pods, Jobs and groups come and go.

Comes in: the caches of pods and Jobs, and the groups that are known. Goes out: for a workload its pods, for a pod its workload, and the keys that a change touches. What must stay true: a pod
belongs to one workload for its whole life, from the moment that its Job and its group are known.

- Its Job is not known yet: it is part of no workload until it is.
- Its group, JobSet or LeaderWorkerSet is not known yet: it waits in the group's workload, which cannot be submitted. When the group comes, a gang keeps it there; in a group that is no gang it becomes a workload of its own.
- It has a Slurm job already when it is first seen (the bridge started anew), and its Job or group is gone: nobody can say any more whether it was part of a gang, but the pods of one
  Slurm job are one workload, so it goes with those. So does one that names nobody any more (`kubectl delete job --cascade=orphan`), but was bound as one of several.

- It was set apart (annotation `APART`, before it had a Slurm job): it is a workload of its own from then on.

This needs Jobs and groups to be there before the pods that name them: whoever starts the caches waits for Jobs and groups before it follows pods.
"""

import logging
from collections.abc import Callable

import msgspec

from slinky.bridge.jobsets import job_is_over
from slinky.bridge.keys import APART, DISRUPTION_TARGET, FINALIZER, TASK, job_id_of
from slinky.bridge.workload import PART, PodGroup, WorkloadKey, asks_for_gang, group_of, key_of, key_of_job, of_jobset, rank_of
from slinky.kube import Cache, Change, Job, Key, Pod

__all__ = ["Membership"]

log = logging.getLogger(__name__)


class _Member(msgspec.Struct, frozen=True):
    """`settled`: for its whole life. Otherwise it waits there for its group. `rank` is the pod's, as `rank_of` has it."""

    uid: str
    workload: WorkloadKey
    settled: bool
    rank: tuple[int, int, str, str]


class Membership:
    """`groups` tells what is known of the group that a pod names, `parts` which part of a set it is of; `group_changed` is to be called when that changes. Pods of the namespaces `never` are part of none, but for those that were taken in before their namespace was one of them."""

    def __init__(
        self,
        pods: Cache[Pod],
        jobs: Cache[Job],
        touched: Callable[[WorkloadKey], None],
        groups: Callable[[WorkloadKey], PodGroup | None] = lambda _: None,
        parts: Callable[[WorkloadKey, Pod], str] = lambda *_: "",
        never: frozenset[str] = frozenset(),
    ) -> None:
        self._pods = pods
        self._jobs = jobs
        self._touched = touched
        self._groups = groups
        self._parts = parts
        self._never = never
        self._of_pod: dict[Key, _Member] = {}
        self._pods_of: dict[WorkloadKey, set[Key]] = {}
        pods.add_index("job", lambda pod: [owner.uid] if (owner := pod.metadata.controller) and owner.kind == "Job" else [])
        pods.add_index("group", lambda pod: [str(group)] if (group := group_of(pod)) else [])
        pods.subscribe(self._pod_changed)
        jobs.subscribe(self._job_changed)

    def pods(self, key: WorkloadKey) -> list[Pod]:
        found = (self._pods.by_key(name) for name in self._pods_of.get(key, ()))
        return [pod for pod in found if pod is not None]

    def current(self, pod: Pod) -> Pod | None:
        """That pod as it is now; None if it is gone, or another pod has its name."""
        found = self._pods.by_key(pod.key)
        return found if found is not None and found.metadata.uid == pod.metadata.uid else None

    def in_rank_order(self, key: WorkloadKey) -> list[Pod]:
        """The same pods; their ranks are not worked out again for each look."""
        return [pod for name in sorted(self._pods_of.get(key, ()), key=self._rank) if (pod := self._pods.by_key(name)) is not None]

    def _rank(self, name: Key) -> tuple[int, int, str, str]:
        return self._of_pod[name].rank

    def keys(self) -> list[WorkloadKey]:
        return list(self._pods_of)

    def key_of(self, pod: Pod) -> WorkloadKey | None:
        """The workload that it is part of now; None for one that is not there, or waits for its Job."""
        found = self._of_pod.get(pod.key)
        return found.workload if found is not None and found.uid == pod.metadata.uid else None

    def job_of(self, pod: Pod) -> Job | None:
        owner = pod.metadata.controller
        if owner is None or owner.kind != "Job":
            return None
        job = self._jobs.by_key(Key(pod.metadata.namespace, owner.name))
        return job if job is not None and job.metadata.uid == owner.uid else None

    def named_job(self, key: WorkloadKey) -> Job | None:
        """The Job behind the key of a Job that is a gang, also where it has no pods."""
        return self._jobs.by_key(Key(key.namespace, key.object_name)) if key.kind == "Job" and not key.job_id else None

    def named_group(self, pod: Pod) -> WorkloadKey | None:
        """The group that it names, if it can be of that: a Job that no JobSet owns is of none, whatever its pods' labels say."""
        named, job = group_of(pod), self.job_of(pod)
        return None if named and named.kind == "JobSet" and job and not of_jobset(job, named) else named

    def group_changed(self, group: WorkloadKey) -> None:
        """A group came, went or changed: `group` as `group_of` gives it, so that all replicas of a group are meant."""
        for pod in self._pods.by_index("group", str(group)):
            self._keep(pod)

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.old is None and change.new is not None and self._is_left_alone(change.new):
            log.warning("pod %s names our scheduler in a namespace that can never be managed: it is left alone", change.key)
        if change.new is None:
            self._drop(change.key)
        elif change.old is not None and change.key in self._of_pod and not _matters(change.old, change.new):
            return  # readiness, restarts, conditions: a kubelet has much to say
        else:
            self._keep(change.new)

    def _job_changed(self, change: Change[Job]) -> None:
        """A Job of a thousand pods says a thousand times how far it is: only what a gang's next step depends on counts."""
        old, new = change.old, change.new
        known = new or old
        if known is None:
            return
        if old is None or new is None or (old.metadata.annotations, old.spec) != (new.metadata.annotations, new.spec):
            for pod in self._pods.by_index("job", known.metadata.uid):
                self._keep(pod)
        if old is None or new is None or _progress(old) != _progress(new):
            for key in self._gangs_of(known):
                self._touched(key)

    def _gangs_of(self, job: Job) -> set[WorkloadKey]:
        """The gangs whose next step may depend on how far this Job is, also where they have no pods (any more)."""
        if asks_for_gang(job.metadata):
            return {WorkloadKey("Job", job.metadata.namespace, job.metadata.name)}
        owner = job.metadata.controller
        if owner is None or owner.kind != "JobSet":
            return set()
        pods = self._pods.by_index("job", job.metadata.uid)
        named = {WorkloadKey("JobSet", job.metadata.namespace, f"{owner.name}{PART}{part}") for part in self._parts_of(job, owner.name)}
        return named | {
            member.workload for pod in pods if (member := self._of_pod.get(pod.key)) is not None and member.workload.kind == "JobSet"
        }

    def _parts_of(self, job: Job, jobset: str) -> list[str]:
        """Asked as one of its pods would be."""
        asks = Pod(metadata=msgspec.structs.replace(job.metadata, owner_references=()))
        part = self._parts(WorkloadKey("JobSet", job.metadata.namespace, jobset), asks)
        return [part] if part else []

    def _keep(self, pod: Pod) -> None:
        before = self._of_pod.get(pod.key)
        if before is None and self._is_left_alone(pod):
            return
        if before is not None and before.uid != pod.metadata.uid:
            self._drop(pod.key)
            before = None
        apart = APART in pod.metadata.annotations and before is not None and before.workload.kind != "Pod" and not before.workload.job_id
        if before is not None and before.settled and not apart:
            if (rank := rank_of(pod)) != before.rank:
                self._of_pod[pod.key] = msgspec.structs.replace(before, rank=rank)
            self._touched(before.workload)
            return
        now = self._place(pod, None if apart else before)
        if now is None:
            return
        if before is not None and before.workload != now.workload:
            self._drop(pod.key)
        self._of_pod[pod.key] = now
        self._pods_of.setdefault(now.workload, set()).add(pod.key)
        self._touched(now.workload)

    def _is_left_alone(self, pod: Pod) -> bool:
        """In a namespace that can never be managed. One that has our finalizer was taken in when it could: it is followed to its end."""
        return pod.metadata.namespace in self._never and FINALIZER not in pod.metadata.finalizers

    def _place(self, pod: Pod, before: _Member | None) -> _Member | None:
        """Where it belongs by what is known now; `before` is where it waits. Who has a Slurm job does not move any more."""
        rank = rank_of(pod)
        uid, owner, job, named = pod.metadata.uid, pod.metadata.controller, self.job_of(pod), self.named_group(pod)
        if APART in pod.metadata.annotations:
            return _Member(uid, key_of(pod, {}), True, rank)
        group = self._groups(named) if named else None
        orphan = owner is not None and owner.kind == "Job" and job is None
        if job_id := job_id_of(pod):
            if before is not None:
                return _Member(uid, before.workload, True, rank)
            if group is None if named else orphan or _left_behind(pod):
                return _Member(uid, key_of_job(pod, job_id), True, rank)
        if orphan and before is None and pod.metadata.deletion_timestamp is None:
            return None
        part = self._parts(named, pod) if named else ""
        key = key_of(pod, {(job.metadata.namespace, job.metadata.name): job} if job else {}, group, part)
        return _Member(uid, key, named is None or group is not None, rank)

    def _drop(self, name: Key) -> None:
        found = self._of_pod.pop(name, None)
        if found is None:
            return
        members = self._pods_of[found.workload]
        members.discard(name)
        if not members:
            del self._pods_of[found.workload]
        self._touched(found.workload)


def _left_behind(pod: Pod) -> bool:
    """It has no owner, and was bound as one of several."""
    tasks = pod.metadata.annotations.get(TASK + "ntasks", "")
    return pod.metadata.controller is None and bool(pod.spec.node_name) and tasks.isdecimal() and tasks != "1"


def _progress(job: Job) -> tuple[int, bool, bool, bool]:
    return job.status.succeeded, job_is_over(job), job.spec.suspend, job.metadata.deletion_timestamp is not None


def _matters(old: Pod, new: Pod) -> bool:
    """Whether anything changed that a workload's next step could depend on."""
    before, after = old.metadata, new.metadata
    return (
        old.spec.node_name != new.spec.node_name
        or old.is_over != new.is_over
        or before.deletion_timestamp != after.deletion_timestamp
        or before.finalizers != after.finalizers
        or old.spec.scheduling_gates != new.spec.scheduling_gates
        or old.spec.tolerations != new.spec.tolerations
        or before.labels != after.labels
        or before.annotations != after.annotations
        or before.uid != after.uid
        or (after.deletion_timestamp is not None and old.condition(DISRUPTION_TARGET) != new.condition(DISRUPTION_TARGET))
    )
