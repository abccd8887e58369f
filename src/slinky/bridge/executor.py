"""Carrying out what was planned: the thin edge towards Kubernetes and Slurm. Each act says what it is about and may be repeated; none is done by a process that does not lead."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Unpack

import msgspec

from slinky.bridge.adoption import Found
from slinky.bridge.comment_locks import CommentLocks
from slinky.bridge.disruption import delete_past_budgets, evict_within_budgets, say
from slinky.bridge.hetjobs import Hetjobs
from slinky.bridge.job_ends import JobEnds, Manner
from slinky.bridge.keys import APART, DISRUPTION_TARGET, FINALIZER, JOB_ID
from slinky.bridge.marker import Failure, marker_for, read_comment, with_claim, with_failures
from slinky.bridge.submission import Submission, submission_from, submission_of
from slinky.bridge.translate import Site, components
from slinky.bridge.views import DEFAULT_GRACE
from slinky.bridge.whereabouts import Whereabouts, noted, put_on_all
from slinky.bridge.workload import NotLeadingError, Workload, WorkloadKey
from slinky.kube import PODS, ApiError, Client, ConflictError, ConnectionFailedError, InvalidError, KubeError, NotFoundError, PatchKind, Pod
from slinky.kube import OutcomeUnknownError as OutcomeLostError
from slinky.slurm import (
    AlreadyDoneError,
    ForbiddenError,
    Job,
    JobCompletion,
    JobDescription,
    OutcomeUnknownError,
    RefusedError,
    SlurmClient,
    SlurmError,
    UnsupportedError,
)
from slinky.slurm import NotFoundError as NoSuchJobError

__all__ = ["EXPECTED", "Executor", "HetjobsRefusedError", "is_refused"]

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 20
SUBMIT_SECONDS = 60.0  # then its outcome is unknown: the job is looked for when Slurm answers, and meanwhile its pods may go


class HetjobsRefusedError(SlurmError):
    """Slurm has no hetjobs, as it turned out: what was to be one must be described anew, as one job."""


def is_refused(error: BaseException) -> bool:
    """Whether a write to Kubernetes was certainly not done: it was not sent, or the server said no. A server's own trouble (5xx) is no such word, and nor is silence."""
    return isinstance(error, NotLeadingError | ConnectionFailedError) or (isinstance(error, ApiError) and error.code < 500)


EXPECTED = (SlurmError, NotLeadingError)  # besides Kubernetes': what may happen to an act, and passes


class Executor:
    """`completion` where libslurm is at hand; `may_act` tells whether this process leads, and is asked before each act; without `hetjobs` a gang of pods that differ is one job."""

    def __init__(
        self,
        kube: Client,
        slurm: SlurmClient,
        site: Site,
        *,
        completion: JobCompletion | None = None,
        may_act: Callable[[], bool] = lambda: True,
        hetjobs: bool = True,
    ) -> None:
        self._hetjobs = Hetjobs(slurm, hetjobs)
        self._kube = kube
        self._slurm = slurm
        self.site = site
        self._ends = JobEnds(slurm, completion)
        self._may_act = may_act
        self.stamp: Callable[[], str | None] = lambda: None  # the claim of jobs that are submitted
        self.comments = CommentLocks()
        self.labels_go_along = True  # with a Binding, as long as nothing shows that they do not

    async def begin(self) -> None:
        """Of a leader's time, before anything else: nothing is to be done here."""

    def adopting(self, key: WorkloadKey, pods: Sequence[Pod], jobs: Sequence[Found]) -> None:
        """Before it is judged which of the jobs that name a workload is its own: the pods' labels tell."""

    async def site_for(self, workload: Workload) -> Site:
        """The site as it is for this workload: without hetjobs, where it would be one and the server has none."""
        if workload.is_gang and len(components(workload, self.site)) > 1 and (why := await self._hetjobs.lacking()):
            return msgspec.structs.replace(self.site, no_hetjobs=why)
        return self.site

    async def submit(self, workload: Workload, whereabouts: Sequence[Whereabouts] = (), site: Site | None = None) -> Submission:
        """Once: where an answer was lost, or this process is not the first, the job that carries the marker is found instead. One that is over already is followed by another. `site` is as `site_for` has it, unless something else is known."""
        try:
            async with asyncio.timeout(SUBMIT_SECONDS):
                return await self._submit(workload, whereabouts, site or await self.site_for(workload))
        except TimeoutError:
            raise OutcomeUnknownError(f"no answer within {SUBMIT_SECONDS:g} s", request="job/submit") from None

    async def _submit(self, workload: Workload, whereabouts: Sequence[Whereabouts], site: Site) -> Submission:
        for attempt in range(MOST_ATTEMPTS):
            marker = marker_for(site.cluster, str(workload.key), workload.uids, attempt)
            parts = [noted(part) for part in put_on_all(components(workload, site, attempt), whereabouts)]
            self._check()
            if claim := self.stamp():
                parts = [_stamped(part, claim) for part in parts]
            if len(parts) == 1:
                answer = await self._slurm.jobs.submit_external(parts[0], marker=marker, marker_in="admin_comment", once=True)
                if not answer.found:
                    log.info("%s is Slurm job %d (%s)", workload.key, answer.job_id, parts[0].name)
                    return submission_of(answer.job_id, parts[0])
            else:
                try:
                    answer = await self._slurm.jobs.submit_hetjob(parts, external=True, marker=marker, marker_in="admin_comment", once=True)
                except RefusedError as error:
                    if self._hetjobs.refused(error):
                        raise HetjobsRefusedError("the server has no hetjobs of external jobs", request="job/submit") from error
                    raise
            jobs = await self._parts(answer.job_id)
            if jobs and not self._carries(jobs[0], marker):
                await self._slurm.jobs.distrust_markers()
                raise OutcomeUnknownError("Slurm has given the job's id to another", request=f"job/{answer.job_id}")
            if not jobs and not answer.found:
                raise OutcomeUnknownError("Slurm took the hetjob and does not know it", request=f"job/{answer.job_id}")
            if jobs and not jobs[0].is_finished:
                found = submission_from(jobs, site.cluster)
                log.info("%s is Slurm job %s (%s)", workload.key, "+".join(map(str, found.job_ids)), found.name)
                return found
        raise UnsupportedError(f"{workload.key} had {MOST_ATTEMPTS} jobs that Slurm still remembers, all over; it is tried again later")

    async def find(self, workload: Workload, since: float = 0.0) -> Submission | None:
        """The job that was submitted for just these pods and is not over, if there is one. `since` (seconds since 1970): not earlier than this."""
        markers = [marker_for(self.site.cluster, str(workload.key), workload.uids, attempt) for attempt in range(MOST_ATTEMPTS)]
        for job_id in await self._slurm.jobs.find_all(markers, marker_in="admin_comment", since=since):
            jobs = await self._parts(job_id)
            if jobs and not jobs[0].is_finished and self._carries(jobs[0], *markers):
                return submission_from(jobs, self.site.cluster)
        return None

    def _carries(self, job: Job, *markers: str) -> bool:
        """One of them, by its record: an id may mean another job than it did when the marker was read."""
        said = read_comment(job.admin_comment, self.site.cluster)
        return said is not None and said.marker in markers

    async def record(self, job_id: int) -> Job:
        """Its record. Raises SlurmError."""
        return await self._slurm.jobs.get(job_id)

    async def update_waiting(self, job_id: int, change: JobDescription) -> None:
        """Of a job that waits; one that has started or is gone meanwhile is left as it is."""
        self._check()
        try:
            async with self.comments.of(job_id):
                await self._slurm.jobs.update(job_id, change)
        except (NoSuchJobError, AlreadyDoneError):
            log.debug("job %d does not wait any more", job_id)

    async def shrink(self, job_id: int, nodes: Sequence[str]) -> None:
        """Of its nodes a running job keeps these. Raises RefusedError."""
        self._check()
        try:
            await self._slurm.jobs.update(job_id, JobDescription(required_nodes=list(nodes)))
        except (NoSuchJobError, AlreadyDoneError):
            log.debug("job %d is over already", job_id)

    async def catch_up(self, job_id: int, priority: int) -> None:
        """A job that comes in another's stead does not begin at the end of the queue: it gets that one's priority, as a nice value, so that it goes on growing with age."""
        job = await self._slurm.jobs.get(job_id)
        now = job.priority
        if not job.is_pending or not isinstance(now, int) or not 0 < now < priority:
            return
        log.info("job %d goes on with the priority of the one before it: %d instead of %d", job_id, priority, now)
        await self.update_waiting(job_id, JobDescription(nice=job.nice - (priority - now)))

    async def _parts(self, job_id: int) -> list[Job]:
        """The job; of a hetjob, its parts. None where Slurm does not know it."""
        try:
            return await self._slurm.jobs.parts(job_id)
        except NoSuchJobError:
            return []

    async def label(self, pod: Pod, job_id: int) -> None:
        """With the pod's UID in the patch, the API server refuses it (as invalid) for another pod of that name. Taken off it is only of the pod as it was seen: one that is on a node by now has its job, and keeps the label."""
        self._check()
        seen = {} if job_id else {"resourceVersion": pod.metadata.resource_version}
        change = {"metadata": {"uid": pod.metadata.uid, **seen, "labels": {JOB_ID: str(job_id) if job_id else None}}}
        try:
            await self._kube.patch(PODS, pod.metadata.name, change, pod.metadata.namespace)
        except (NotFoundError, ConflictError, InvalidError) as error:
            await self._gone_or_raise(pod, error)

    async def set_apart(self, pod: Pod) -> None:
        """From now on it is a workload of its own."""
        self._check()
        change = {"metadata": {"uid": pod.metadata.uid, "annotations": {APART: "true"}}}
        try:
            await self._kube.patch(PODS, pod.metadata.name, change, pod.metadata.namespace)
        except (NotFoundError, ConflictError, InvalidError) as error:
            await self._gone_or_raise(pod, error)

    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str], job_id: int) -> bool:
        """Whether it is on that node now. Not so where it is gone, is being deleted, or is somewhere else. The job's id goes along as its label, if it is not there yet. What fails is raised; unless `is_refused`, it may have been done."""
        self._check()
        name, namespace, uid, labels = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid, {JOB_ID: str(job_id)}
        try:
            if FINALIZER not in pod.metadata.finalizers:
                await self._hold(pod)
            await self._kube.bind(name, namespace, node, uid=uid, annotations=annotations, labels=labels)
        except (ConflictError, NotFoundError, InvalidError) as error:
            try:
                there = await self._there(pod)
            except KubeError as lost:
                raise OutcomeLostError("POST", f"binding of {pod.key}", f"{error}; and then {lost}") from error
            if there is not None and not there.spec.node_name and there.metadata.deletion_timestamp is None:
                raise  # nothing stands against it: it is tried again
            log.info("pod %s is bound already, is being deleted, or is another one now: %s", pod.key, error)
            return there is not None and there.spec.node_name == node
        return True

    async def _hold(self, pod: Pod) -> None:
        """Give a pod the finalizer that admission did not give it.

        A pod on a node without it could be deleted by force, and would leave the count while its containers go on.
        """
        change = {"metadata": {"uid": pod.metadata.uid, "finalizers": [FINALIZER]}}
        name, namespace = pod.metadata.name, pod.metadata.namespace
        await self._kube.patch(PODS, name, change, namespace, kind=PatchKind.STRATEGIC)  # a merge would remove others'

    async def _there(self, pod: Pod) -> Pod | None:
        """As the server has it; None where it is gone, or another has its name."""
        try:
            found = await self._kube.get(PODS, pod.metadata.name, pod.metadata.namespace)
        except NotFoundError:
            return None
        return found if found.metadata.uid == pod.metadata.uid else None

    async def _gone_or_raise(self, pod: Pod, error: ApiError) -> None:
        """A write that was refused is done with if there is nobody to write on any more; else it is to be tried again."""
        if not isinstance(error, NotFoundError) and await self._there(pod) is not None:
            raise error
        log.debug("pod %s is gone, or is another one now", pod.key)

    async def evict(self, pod: Pod, reason: str, why: str) -> str:
        """Empty where it is done, else what the disruption budget in its way says."""
        self._check()
        log.info("pod %s is evicted: %s", pod.key, why)
        try:
            return await evict_within_budgets(self._kube, pod, reason, why)
        except (NotFoundError, ConflictError) as error:
            await self._gone_or_raise(pod, error)
            return ""

    async def say_again(self, pod: Pod, reason: str, why: str) -> None:
        """Why it was evicted, if it says something else now."""
        self._check()
        there = await self._there(pod)
        said = there.condition(DISRUPTION_TARGET) if there else None
        if there and (said is None or said.reason != reason):
            await say(self._kube, pod, reason, why)

    async def remove(self, pod: Pod, reason: str, why: str) -> None:
        """Without asking its budgets; with its own grace period."""
        self._check()
        log.info("pod %s is deleted: %s", pod.key, why)
        try:
            await delete_past_budgets(self._kube, pod, reason, why)
        except (NotFoundError, ConflictError) as error:
            await self._gone_or_raise(pod, error)

    async def shorten(self, pod: Pod) -> None:
        """Delete a pod that is being deleted once more, with its own grace period, which only ever becomes shorter by that."""
        self._check()
        grace = pod.spec.termination_grace_period_seconds
        log.info(
            "pod %s was deleted with a grace period longer than its terminationGracePeriodSeconds; deleting it again with its own", pod.key
        )
        try:
            await self._kube.delete(
                PODS,
                pod.metadata.name,
                pod.metadata.namespace,
                uid=pod.metadata.uid,
                grace_seconds=DEFAULT_GRACE if grace is None else grace,
            )
        except (NotFoundError, ConflictError) as error:
            await self._gone_or_raise(pod, error)

    async def release(self, pod: Pod) -> bool:
        """Only our own finalizer, found by its value, so that nobody else's is taken off. False where its finalizers are others by now: the watch will show them."""
        try:
            index = pod.metadata.finalizers.index(FINALIZER)
        except ValueError:
            return True
        path = f"/metadata/finalizers/{index}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": path, "value": FINALIZER},
            {"op": "remove", "path": path},
        ]
        self._check()
        try:
            await self._kube.patch(PODS, pod.metadata.name, patch, pod.metadata.namespace, kind=PatchKind.JSON)
        except NotFoundError:
            log.debug("pod %s is gone already", pod.key)
        except InvalidError:
            log.debug("pod %s has changed, or is another one now", pod.key)
            return False
        return True

    async def remember(self, job_id: int, failures: Iterable[Failure]) -> None:
        """With the job. Where Slurm refuses the change, pods are not held for it; a token without the right to make it is another matter, and passes."""
        self._check()
        try:
            async with self.comments.of(job_id):
                job = await self._slurm.jobs.get(job_id)
                await self._slurm.jobs.update(job_id, JobDescription(admin_comment=with_failures(job.admin_comment, failures)))
        except ForbiddenError:
            raise
        except RefusedError as error:
            log.warning("job %d: how its pods failed is not written there, and would be forgotten at a restart: %s", job_id, error)

    async def end_job(self, job_id: int, exit_code: int | None, why: str, **manner: Unpack[Manner]) -> None:
        """With its exit code where it ran and libslurm is at hand; else as cancelled."""
        self._check()
        await self._ends.end(job_id, exit_code, why, manner)

    async def end_rest(self, job_ids: Iterable[int], why: str) -> None:
        """Those components of a hetjob that are not over, where another is: what is left of it is of no use."""
        self._check()
        log.info("jobs %s are cancelled: %s", ", ".join(map(str, job_ids)), why)
        await self._slurm.jobs.cancel_many(job_ids)

    def _check(self) -> None:
        if not self._may_act():
            raise NotLeadingError("this process does not lead (any more)")


def _stamped(job: JobDescription, claim: str) -> JobDescription:
    return msgspec.structs.replace(job, admin_comment=with_claim(job.admin_comment or "", claim))
