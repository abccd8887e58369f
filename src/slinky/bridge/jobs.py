"""A workload's job, as it is known to be: from the poller where that is enough, from its own record where an act rests on it.

Comes in: what is remembered of a workload, its pods' labels, the poller's states. Goes out: a `JobView` for the plan. What must stay true: a job is taken for a workload's own only if it carries our marker and names that workload
(job ids are used again after Slurm lost its state); it counts as over only when its own record says so, in Slurm or in accounting; as lost only when an answering Slurm has not known it for a while; until then it is absent, and
nothing is done. Nor is anything settled about jobs with pods on nodes while many of them are absent at once (`holds_back`). A hetjob runs when all of its components do, and is over as soon as one is, unless it is us who end
them one by one.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from slinky.bridge.marker import Marking, read_comment
from slinky.bridge.memory import SETTLE_SECONDS, Known
from slinky.bridge.plan import JobView
from slinky.bridge.poller import JobPoller
from slinky.bridge.submission import submission_from
from slinky.bridge.views import ending_view, job_view, speaks_for_all
from slinky.bridge.workload import WorkloadKey
from slinky.slurm import AccountedJob, Job, JobState, JobStates, JobStatus, NotFoundError, SlurmClient, SlurmError, UnsupportedError

__all__ = ["Jobs", "is_for"]

log = logging.getLogger(__name__)


class Jobs:
    def __init__(self, slurm: SlurmClient, poller: JobPoller, cluster: str) -> None:
        self._slurm = slurm
        self._poller = poller
        self._cluster = cluster
        self.foreign: set[WorkloadKey] = set()  # whose job's id is another job's now
        self.holds_back: Callable[[], bool] = lambda: False

    async def view(self, key: WorkloadKey, known: Known, pods: Collection[str] = ()) -> JobView | None:
        """None where it has none. Costs a question where the job is new to this process, after an outage, and when it is over. `pods` are the names of its pods."""
        if not known.job_id:
            return None
        if known.lost and known.verified == self._poller.epoch:
            return JobView(job_id=known.job_id, state="lost", why=f"Slurm does not know job {known.job_id}")
        if known.over:
            return JobView(job_id=known.job_id, state="over", why=known.why, reason=known.reason)
        status = self._status(known)
        if status is not None and known.submission and known.verified == self._poller.epoch and not status.is_finished:
            known.missing_since = 0.0
            return ending_view(job_view(status, known.job_id, _slots_of(known)), known.end)
        if status is None and known.submission and known.verified == self._poller.epoch and self._is_new(known):
            return JobView(job_id=known.job_id, state="pending", tasks=known.submission.tasks)  # the poller has not looked since
        if known.job_id in self._poller.gone and (known.missing_since or self.holds_back()):  # thousands need not be asked about one by one
            known.missing_since = known.missing_since or asyncio.get_running_loop().time()
            if not self._is_settled(known):
                return self._absent(known)
        return await self._asked(key, known, pods)

    def runs(self, known: Known) -> bool:
        """By the last look, which may be younger than a view: who has waited for something else meanwhile asks again before pods are bound. True where the poller does not know."""
        status = self._status(known)
        return status is None or job_view(status, known.job_id, _slots_of(known)).state == "running"

    def _status(self, known: Known) -> JobStatus | None:
        """None where the poller does not know all of it."""
        if known.submission is None or not known.submission.components or known.ending_since:
            return self._poller.states.get(known.job_id)
        found = [status for job_id in known.job_ids if (status := self._poller.states.get(job_id))]
        return speaks_for_all(found) if len(found) == len(known.job_ids) else None

    def _is_new(self, known: Known) -> bool:
        """We submitted it, and the poller will tell of it at its next look, be it there or not."""
        return known.submitted_at > 0 and any(map(self._poller.has_yet_to_see, known.job_ids))

    async def _asked(self, key: WorkloadKey, known: Known, pods: Collection[str]) -> JobView:
        epoch = self._poller.epoch
        try:
            parts = await self._slurm.jobs.parts(known.job_id)
        except NotFoundError:
            return await self._missing(key, known, pods, epoch)
        if not all(self.is_own(part, key, pods) for part in parts):
            log.warning("%s: job %d is not (any more) the one that was submitted for it", key, known.job_id)
            self.foreign.add(key)
            return await self._missing(key, known, pods, epoch) if known.holds else await self._lost(key, known, epoch)
        self.foreign.discard(key)
        known.lost = known.given_up = False
        known.missing_since = 0.0
        known.verified = epoch
        if known.submission is None:
            known.submission = submission_from(parts, self._cluster)
            known.recall(known.submission)
        if len(parts) < len(parts[0].hetjob_ids):
            view = self._incomplete(key, known)
        else:
            view = self._seen(key, parts[0] if known.ending_since else speaks_for_all(parts), known)
        if known.over:
            known.rest = tuple(part.job_id for part in parts if not part.is_finished)
        return view

    def is_own(self, job: Job, key: WorkloadKey, pods: Collection[str] = ()) -> bool:
        return job.is_external and is_for(read_comment(job.admin_comment, self._cluster), job.hetjob_id or job.job_id, key, pods)

    async def _missing(self, key: WorkloadKey, known: Known, pods: Collection[str], epoch: int) -> JobView:
        """Slurm does not know it: accounting may. Believed only after a while, as slurmctld may be coming up, or the job may be on its way."""
        known.missing_since = known.missing_since or asyncio.get_running_loop().time()
        if not self._is_settled(known):
            return self._absent(known)
        try:
            past = await self._slurm.accounting.job(known.job_id)
        except (NotFoundError, UnsupportedError):
            past = None
        except SlurmError as error:
            log.info("%s: accounting cannot be asked about job %d: %s", key, known.job_id, error)
            return self._absent(known)
        if past is not None and self._ended(past, key, known, pods):
            return self._seen(key, past, known)
        return await self._lost(key, known, epoch)

    def _is_settled(self, known: Known) -> bool:
        waited = asyncio.get_running_loop().time() - known.missing_since
        return waited > SETTLE_SECONDS and (known.given_up or not known.holds or not self.holds_back())

    @staticmethod
    def _absent(known: Known) -> JobView:
        return JobView(job_id=known.job_id, state="absent", why=f"Slurm does not know job {known.job_id}")

    def _ended(self, past: AccountedJob, key: WorkloadKey, known: Known, pods: Collection[str]) -> bool:
        """By accounting's word. That its nodes failed is not enough for pods that run: they contradict it."""
        said = past.is_finished and not (known.holds and past.state is JobState.NODE_FAIL)
        return said and is_for(read_comment(past.comment.administrator, self._cluster), known.job_id, key, pods)

    def _seen(self, key: WorkloadKey, job: JobStates, known: Known) -> JobView:
        view = job_view(job, known.job_id, _slots_of(known))
        known.over, known.why, known.reason, known.missing_since = view.state == "over", view.why, view.reason, 0.0
        if known.over:
            self._forget(key, known)
        return ending_view(view, known.end)

    def _incomplete(self, key: WorkloadKey, known: Known) -> JobView:
        """A part of it ended so long ago that Slurm has forgotten it."""
        known.over, known.why, known.reason = True, f"a part of Slurm job {known.job_id} is gone", "SlurmJobEnded"
        self._forget(key, known)
        return JobView(job_id=known.job_id, state="over", why=known.why, reason=known.reason)

    async def _lost(self, key: WorkloadKey, known: Known, epoch: int) -> JobView:
        """Until the next outage: whoever restores Slurm's state then may bring it back."""
        known.lost, known.verified = True, epoch
        await self._slurm.jobs.distrust_markers()  # of what was read of jobs, something is no longer so
        self._forget(key, known)
        return JobView(job_id=known.job_id, state="lost", why=f"Slurm does not know job {known.job_id}")

    def _forget(self, key: WorkloadKey, known: Known) -> None:
        self.foreign.discard(key)
        self._poller.forget(known.job_ids, key)


def _slots_of(known: Known) -> int:
    """How many pods its job has room for: those that it was submitted for, less what it gave back."""
    return known.submission.tasks - known.given_back if known.submission else 1


def is_for(marking: Marking | None, job_id: int, key: WorkloadKey, pods: Collection[str]) -> bool:
    """Whether a job's comment names this workload. Where the pods are known by their job's label alone, what they were part of when it was submitted is gone: it must be of their namespace, and name one of them, or have too many to name."""
    named = WorkloadKey.parse(marking.workload) if marking else None
    if marking is None or named is None:
        return False
    if marking.workload == str(key):
        return True
    if key.job_id != job_id or named.namespace != key.namespace:
        return False
    alike = named.kind == key.kind and named.object_name == key.object_name
    return alike or len(marking.pods) < marking.count or any(f"{key.namespace}/{name}" in marking.pods for name in pods)
