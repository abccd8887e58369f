"""What is known of each workload at one moment: its pods, its job, and the snapshot that is planned from.

Comes in: the caches of Kubernetes, the poller's word on Slurm's jobs, what is remembered. Goes out: views and snapshots; whose job an id is. What must stay true: an id is one workload's at a time; what is told here was not asked of
anybody but for a job that is new, suspect or over.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from slinky.bridge.annotations import UNREADABLE, AnnotationError, in_short
from slinky.bridge.directions import one_of_each
from slinky.bridge.eligibility.bounds import spec_problems
from slinky.bridge.executor import Executor
from slinky.bridge.hetjobs import components_for
from slinky.bridge.jobs import Jobs
from slinky.bridge.looks import INCOMPLETE_SECONDS, is_broken
from slinky.bridge.membership import Membership
from slinky.bridge.memory import Known, Workloads
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.needs import needs_of
from slinky.bridge.plan import JobView, PodView, Snapshot, outcomes
from slinky.bridge.poller import JobPoller
from slinky.bridge.submitting import Submitter
from slinky.bridge.succession import NOTHING_MORE, Succession
from slinky.bridge.views import needs_job
from slinky.bridge.volumes.patience import wait_for, wait_no_more
from slinky.bridge.workload import PodGroup, Workload, WorkloadKey, workload_of
from slinky.kube import Pod
from slinky.kube.quantities import QuantityError

__all__ = ["Groups", "Hold", "Knowledge"]

Groups = Callable[[WorkloadKey], PodGroup | None]
Hold = Callable[[WorkloadKey, Sequence[Pod]], str]


class TooLargeError(ValueError):
    """A gang has more pods than one may have, or a pod's spec has longer lists than one may have."""


def _check(workload: Workload, most: int) -> None:
    """Before anything is made that is as long as the gang is large, and before a pod is judged for each node.

    Raises TooLargeError, or QuantityError for pods that are to be made from a malformed template.
    """
    count = max(workload.size, workload.count)
    if workload.is_gang and count > most:
        raise TooLargeError(
            f"{workload.key} is a gang of {count:,} pods, above the limit of {most:,} (gangs.maxPods): use a smaller gang, or several gangs"
        )
    coming = (workload.coming.pod,) if workload.coming is not None else ()
    # A workload that runs is not judged again.
    waits = coming or any(not pod.spec.node_name for pod in workload.pods)
    for pod in one_of_each((*workload.pods, *coming)) if waits else ():
        if problems := spec_problems(pod.spec):
            raise TooLargeError(f"pod {pod.key}: {in_short(problems)}")
    for pod in coming:
        needs_of(pod)


class Knowledge:
    """`max_pods` is how many a gang may have. `look(key)` asks for another look at a workload. `hold` says why pods that wait cannot run anywhere yet, and wakes their workload when that may have changed."""

    def __init__(
        self,
        executor: Executor,
        membership: Membership,
        groups: Groups,
        jobs: Jobs,
        poller: JobPoller,
        submitter: Submitter,
        metrics: BridgeMetrics,
        succession: Succession,
        look: Callable[[WorkloadKey], None],
        hold: Hold,
        max_pods: int,
    ) -> None:
        self._executor = executor
        self._membership = membership
        self._groups = groups
        self._jobs = jobs
        self._poller = poller
        self._submitter = submitter
        self._metrics = metrics
        self._look = look
        self._hold = hold
        self._max_pods = max_pods
        self.succession = succession
        self.known = Workloads()
        self.owners: dict[int, WorkloadKey] = {}

    # Whose job it is

    def own_job(self, job_id: int, key: WorkloadKey) -> None:
        before = self.owners.get(job_id)
        if before is not None and before != key:  # Slurm gives ids out again: it has lost its state
            self._poller.distrust()
            self._look(before)
        self.owners[job_id] = key
        self._poller.follow(job_id, key)

    def owner_of(self, job_id: int) -> WorkloadKey | None:
        return self.owners.get(job_id)

    def is_signalled(self, job_id: int) -> bool:
        """Slurm is sending it a signal right now, or a part of it."""
        key = self.owners.get(job_id)
        known = self.known.get(key) if key is not None else None
        return any(map(self._poller.is_signalled, known.job_ids if known else (job_id,)))

    def submitted(self, key: WorkloadKey, workload: Workload, known: Known) -> None:
        """It has its job; of a hetjob it is remembered who is for which component."""
        self.own_job(known.job_id, key)
        if known.submission and known.submission.components:
            known.components = dict(components_for(workload, self._executor.site, known.submission))

    def drop_job(self, key: WorkloadKey, known: Known) -> None:
        self._poller.forget(known.job_ids, key)
        for job_id in known.job_ids:
            if self.owners.get(job_id) == key:
                del self.owners[job_id]
        known.drop_job()

    # What there is

    def waiting(self) -> Iterable[tuple[WorkloadKey, Known]]:
        """Those whose job has not started, or that have none for want of a node."""
        return ((key, known) for key, known in self.known.items() if (not known.started_at if known.job_id else known.too_large))

    def lookup(self, key: WorkloadKey) -> tuple[Workload, Known] | None:
        """As it would be submitted now."""
        known = self.known.get(key)
        said = self.workload(key, self.pods(key), known) if known is not None else None
        workload = self._submitter.settled(said) if said is not None else None
        return (workload, known) if workload is not None and known is not None else None

    def pods(self, key: WorkloadKey) -> list[Pod]:
        return self._membership.in_rank_order(key)

    def workload(self, key: WorkloadKey, pods: Sequence[Pod], known: Known) -> Workload | None:
        job = self._membership.named_job(key) or (self._membership.job_of(pods[0]) if pods else None)
        named = self._membership.named_group(pods[0]) if pods and key.kind == "Pod" else key
        try:
            workload = workload_of(key, pods, self._groups(named) if named else None, job, in_rank_order=True)
            if workload is not None:
                _check(workload, self._max_pods)
        except (AnnotationError, QuantityError, TooLargeError) as error:
            self._submitter.park(key, known, pods, str(error), said=UNREADABLE)
            return None
        if workload is not None and known.parked_for is not None and workload.settings != known.parked_for:
            known.parked, known.parked_for, known.parked_until = "", None, 0.0  # it says something else now
        if workload is not None and workload.settings != known.said:
            known.said, known.asked = workload.settings, None  # what it was directed by is not what it asks for now
        return workload

    async def job(self, key: WorkloadKey, pods: Sequence[Pod], views: Sequence[PodView], known: Known) -> JobView | None:
        """The workload's job: the one this process submitted or adopted, else the one that its pods' labels name."""
        labels = {view.job_id for view in views if needs_job(view)} - {0}
        if not known.job_id and labels:
            known.job_id = max(labels)
            if known.job_id not in self.owners:  # else it is another's by now, as its record will say
                self.own_job(known.job_id, key)
        view = await self._jobs.view(key, known, [pod.metadata.name for pod in pods] if key.job_id else ())
        if view is None:
            return None
        if known.submission and view.state not in ("over", "absent", "lost"):
            for job_id in known.job_ids:
                if self.owners.get(job_id) != key:
                    self.own_job(job_id, key)
                else:
                    self._poller.follow(job_id, key)  # one that was lost is not followed, and may be back
        if known.rest:
            await self._executor.end_rest(known.rest, view.why)
            known.rest = ()
        on_nodes = known.submission is not None and any(pod.state == "bound" for pod in views)  # whoever changed the label meanwhile
        if view.state in ("over", "lost") and view.job_id not in labels and pods and not on_nodes:
            self.drop_job(key, known)  # nobody is left of those it was for: what waits now is for another job
            return None
        if view.state == "running" and not known.started_at:
            known.started_at = asyncio.get_running_loop().time()
            self._metrics.started(known)
        return view

    def snapshot(
        self,
        key: WorkloadKey,
        pods: Sequence[Pod],
        views: Sequence[PodView],
        workload: Workload | None,
        job: JobView | None,
        known: Known,
        *,
        awaits: bool = True,
    ) -> Snapshot:
        """`awaits`: nobody has come yet for whom the job is not."""
        now = asyncio.get_running_loop().time()
        size = workload.size if workload else 1
        prospects = self.succession.prospects(key, known) if job is not None else NOTHING_MORE
        known.outcomes = outcomes(known.outcomes, views, job.job_id) if job is not None and key.kind != "Pod" else {}
        return Snapshot(
            pods=views,
            size=size,
            job=job,
            submit_unknown=known.unsettled is not None,
            parked=known.parked_until > now,
            gated=workload is None or any(pod.spec.scheduling_gates for pod in pods) or self._is_held(workload.key, pods, job, known),
            broken=is_broken(views, size, job, known, now, self.succession.seconds if prospects.awaited else INCOMPLETE_SECONDS),
            awaited=prospects.awaited and awaits and self.succession.is_kept(views, known, now),
            completed=prospects.completed,
            elastic=prospects.elastic and known.submission is not None,
            outcomes=known.outcomes,
            remembered=known.remembered,
            rejected=known.rejected,
        )

    def _is_held(self, key: WorkloadKey, pods: Sequence[Pod], job: JobView | None, known: Known) -> bool:
        """Before it has a job: whether what its pods need, wherever they run, is not there yet."""
        if job is not None:
            return False
        waiting = [pod for pod in pods if not pod.spec.node_name and not pod.is_over and pod.metadata.deletion_timestamp is None]
        if why := self._hold(key, waiting):
            wait_for(known, why, asyncio.get_running_loop().time())
        else:
            wait_no_more(known)
        return bool(why)

    def components(self, workload: Workload | None, job: JobView | None, known: Known) -> Mapping[str, int]:
        """Of a hetjob that runs, the one that each pod is for; as it was when it was submitted, where what the pods are of is gone."""
        if job is None or job.state != "running" or known.submission is None:
            return {}
        return components_for(workload, self._executor.site, known.submission) if workload is not None else known.components
