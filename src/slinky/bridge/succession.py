"""Who takes the place of whom in a job that exists: how long it is kept when its pods are gone, and which of those that come may have it. Decisions only, from memory.

Comes in: a workload's pods and job, and what is known of who made the pods. Goes out: whether others are awaited, and who is a stranger to the job. What must stay true: nobody gets a slot that has less than he needs, or that was given to
another object of the same name; who is no part of the job neither keeps it nor is held up by it for longer than those who are.
"""

from collections.abc import Callable, Sequence

import msgspec

from slinky.bridge.hetjobs import components_for
from slinky.bridge.jobsets import makes_more, still_to_come, succeeded_of
from slinky.bridge.membership import Membership
from slinky.bridge.memory import Known
from slinky.bridge.plan import JobView, PodView
from slinky.bridge.submission import Submission
from slinky.bridge.task import PerTask, per_task
from slinky.bridge.translate import Site, translate
from slinky.bridge.workload import PodGroup, Workload, WorkloadKey, lineage_of
from slinky.kube import Job, Pod

__all__ = ["NOTHING_MORE", "Prospects", "Succession", "fits", "without"]


class Prospects(msgspec.Struct, frozen=True):
    """What whoever made a workload's pods will do: make others in the stead of those that are gone; nothing, as all is done, and well; make any number, each of which can start by itself."""

    awaited: bool = False
    completed: bool = False
    elastic: bool = False


NOTHING_MORE = Prospects()


class Succession:
    """`seconds` is how long a job without pods is kept for others."""

    def __init__(
        self,
        membership: Membership,
        groups: Callable[[WorkloadKey], PodGroup | None],
        site: Site,
        seconds: float,
    ) -> None:
        self._membership = membership
        self._groups = groups
        self._site = site
        self.seconds = seconds

    def prospects(self, key: WorkloadKey, known: Known | None = None) -> Prospects:
        """Of another object of the same name than the one that the job was for, nothing is to be expected."""
        if job := self._membership.named_job(key):
            made_by, found = job.metadata.uid, Prospects(makes_more(job, self._membership.pods(key)), _has_completed(job))
        elif key.kind not in ("Pod", "Job") and (group := self._groups(key)):
            made_by, found = group.metadata.uid, Prospects(group.awaited, group.completed, group.elastic)
        else:
            return NOTHING_MORE
        return NOTHING_MORE if known is not None and known.lineage and known.lineage != made_by else found

    def may_come(self, key: WorkloadKey, pods: Sequence[Pod], known: Known) -> bool:
        """Whether others may come than those that are there. A Job says how many it has at one time; who of them fails later has a slot of its own to be followed in."""
        found = self.prospects(key, known)
        if job := self._membership.named_job(key):
            here = sum(not pod.is_over and pod.metadata.deletion_timestamp is None for pod in pods)
            return found.awaited and still_to_come(job, succeeded_of(self._membership.pods(key))) > here
        return found.awaited or (found.elastic and any(pod.metadata.controller for pod in pods))

    def is_kept(self, views: Sequence[PodView], known: Known, now: float) -> bool:
        """For a limited time, from when the last pod was gone."""
        if any(view.state == "bound" or (view.state == "waiting" and not view.deleting) for view in views):
            known.vacant_since = 0.0
            return True
        known.vacant_since = known.vacant_since or now
        return now - known.vacant_since < self.seconds

    def strangers(
        self, key: WorkloadKey, pods: Sequence[Pod], views: Sequence[PodView], workload: Workload | None, job: JobView | None, known: Known
    ) -> set[str]:
        """Pods that wait and for which the workload's job is not, and never will be: they are for the next, when this one is over."""
        apart = set(known.written.apart)
        if job is None or job.state in ("over", "lost") or key.kind == "Pod" or known.submission is None:
            return apart
        known.lineage = known.lineage or _lineage(key, pods, {view.uid for view in views if view.job_id == job.job_id})
        new = {view.uid for view in views if view.state == "waiting" and not view.deleting and view.job_id != job.job_id} - apart
        if not new:
            return apart
        made_by = _lineage(key, pods, new)
        if known.lineage and made_by and made_by != known.lineage:
            return apart | new
        if workload is None:
            return apart
        holds = self._holds(known.submission, workload, new) and not _too_few(workload, new, known.submission.tasks)
        return apart if holds else apart | new

    def _holds(self, job: Submission, workload: Workload, uids: set[str]) -> bool:
        if not job.components:
            return fits(per_task(translate(_only(workload, uids), self._site)), job.task)
        return all(component >= 0 for component in components_for(_only(workload, uids), self._site, job).values())


def _has_completed(job: Job) -> bool:
    return any(condition.type in ("Complete", "SuccessCriteriaMet") and condition.status == "True" for condition in job.status.conditions)


def _lineage(key: WorkloadKey, pods: Sequence[Pod], uids: set[str]) -> str:
    """The UID of the object that made these; empty where they do not tell, or there are none."""
    return next((found for pod in pods if pod.metadata.uid in uids and (found := lineage_of(pod, key))), "")


def fits(asked: PerTask, had: PerTask) -> bool:
    """Whether a slot of a job holds a pod: a template may have changed since the job was submitted."""
    gres = all(count <= had.count(kind) for kind, count in asked.kinds.items())
    return asked.cpus <= had.cpus and asked.least_memory <= had.least_memory and gres


def _too_few(workload: Workload, newcomers: set[str], tasks: int) -> bool:
    """Whether the job has fewer slots than the gang has members now, and none of those that it was for is left: as a set that was made larger, and whose pods all came anew."""
    members = {pod.metadata.uid for pod in workload.pods}
    return members <= newcomers and max(workload.size, workload.count) > tasks


def without(views: Sequence[PodView], strangers: set[str]) -> list[PodView]:
    return [view for view in views if view.uid not in strangers] if strangers else list(views)


def _only(workload: Workload, uids: set[str]) -> Workload:
    """As it would be if it had these pods alone."""
    return msgspec.structs.replace(workload, pods=tuple(pod for pod in workload.pods if pod.metadata.uid in uids), coming=None)
