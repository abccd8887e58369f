"""Which pods make up which workload, kept as pods and Jobs come and go.

Comes in: the caches of pods and Jobs. Goes out: for a workload its pods, for a pod its workload, and the keys that a change touches. What must stay true: the answer is the same
as if it were worked out anew from the caches; a pod of a Job that is not known yet is part of no workload until it is.
"""

from collections.abc import Callable

from slinky.bridge.workload import WorkloadKey, key_of
from slinky.kube import Cache, Change, Job, Key, Pod

__all__ = ["Membership"]


class Membership:
    def __init__(self, pods: Cache[Pod], jobs: Cache[Job], touched: Callable[[WorkloadKey], None]) -> None:
        self._pods = pods
        self._jobs = jobs
        self._touched = touched
        self._of_pod: dict[Key, tuple[str, WorkloadKey]] = {}
        self._pods_of: dict[WorkloadKey, set[Key]] = {}
        pods.add_index("job", lambda pod: [owner.uid] if (owner := pod.metadata.controller) and owner.kind == "Job" else [])
        pods.subscribe(self._pod_changed)
        jobs.subscribe(self._job_changed)

    def pods(self, key: WorkloadKey) -> list[Pod]:
        found = (self._pods.by_key(name) for name in self._pods_of.get(key, ()))
        return [pod for pod in found if pod is not None]

    def keys(self) -> list[WorkloadKey]:
        return list(self._pods_of)

    def job_of(self, pod: Pod) -> Job | None:
        owner = pod.metadata.controller
        if owner is None or owner.kind != "Job":
            return None
        job = self._jobs.by_key(Key(pod.metadata.namespace, owner.name))
        return job if job is not None and job.metadata.uid == owner.uid else None

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is None:
            self._drop(change.key)
        else:
            self._keep(change.new)

    def _job_changed(self, change: Change[Job]) -> None:
        known = change.new or change.old
        if known is not None:
            for pod in self._pods.by_index("job", known.metadata.uid):
                self._keep(pod)

    def _keep(self, pod: Pod) -> None:
        owner = pod.metadata.controller
        job = self.job_of(pod)
        if owner is not None and owner.kind == "Job" and job is None and pod.key not in self._of_pod:
            return
        before = self._of_pod.get(pod.key)
        if before is not None and before[0] == pod.metadata.uid:
            key = before[1]  # a pod belongs to one workload for its whole life
        else:
            self._drop(pod.key)
            key = key_of(pod, {(job.metadata.namespace, job.metadata.name): job} if job else {})
            self._of_pod[pod.key] = (pod.metadata.uid, key)
            self._pods_of.setdefault(key, set()).add(pod.key)
        self._touched(key)

    def _drop(self, name: Key) -> None:
        found = self._of_pod.pop(name, None)
        if found is None:
            return
        members = self._pods_of[found[1]]
        members.discard(name)
        if not members:
            del self._pods_of[found[1]]
        self._touched(found[1])
