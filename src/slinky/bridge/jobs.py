"""A workload's job, as it is known to be: from the poller where that is enough, from its own record where an act rests on it.

Comes in: what is remembered of a workload, its pods' labels, the poller's states. Goes out: a `JobView` for the plan. What must stay true: a job is taken for a workload's own only if it carries our marker and names that workload
(job ids are used again after Slurm lost its state); it counts as over only when its own record says so, in Slurm or in accounting; as lost only when an answering Slurm has not known it for a while. A hetjob runs when all of its
components do, and is over as soon as one is, unless it is us who end them one by one.
"""

import asyncio
import logging

from slinky.bridge.marker import Marking, read_comment
from slinky.bridge.memory import Known
from slinky.bridge.plan import JobView
from slinky.bridge.poller import JobPoller
from slinky.bridge.submission import submission_from
from slinky.bridge.views import ending_view, job_view, speaks_for_all
from slinky.bridge.workload import WorkloadKey
from slinky.slurm import Job, JobStates, JobStatus, NotFoundError, SlurmClient, SlurmError, UnsupportedError

__all__ = ["Jobs"]

log = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0  # how long a job must be unknown to an answering Slurm before it counts as lost


class Jobs:
    def __init__(self, slurm: SlurmClient, poller: JobPoller, cluster: str) -> None:
        self._slurm = slurm
        self._poller = poller
        self._cluster = cluster

    async def view(self, key: WorkloadKey, known: Known) -> JobView | None:
        """None where it has none. Costs a question where the job is new to this process, after an outage, and when it is over."""
        if not known.job_id:
            return None
        if known.lost:
            return JobView(job_id=known.job_id, state="lost", why=f"Slurm does not know job {known.job_id}")
        if known.over:
            return JobView(job_id=known.job_id, state="over", why=known.why, reason=known.reason)
        status = self._status(known)
        if status is not None and known.submission and known.verified == self._poller.epoch and not status.is_finished:
            return ending_view(job_view(status, known.job_id, known.submission.tasks - known.given_back), known.end)
        if status is None and known.submission and known.verified == self._poller.epoch and self._is_new(known):
            return JobView(job_id=known.job_id, state="pending", tasks=known.submission.tasks)  # the poller has not looked since
        return await self._asked(key, known)

    def _status(self, known: Known) -> JobStatus | None:
        """None where the poller does not know all of it."""
        if known.submission is None or not known.submission.components or known.ending_since:
            return self._poller.states.get(known.job_id)
        found = [status for job_id in known.job_ids if (status := self._poller.states.get(job_id))]
        return speaks_for_all(found) if len(found) == len(known.job_ids) else None

    def _is_new(self, known: Known) -> bool:
        """We submitted it, and the poller will tell of it at its next look, be it there or not."""
        return known.submitted_at > 0 and any(map(self._poller.has_yet_to_see, known.job_ids))

    async def _asked(self, key: WorkloadKey, known: Known) -> JobView:
        epoch = self._poller.epoch
        try:
            parts = await self._slurm.jobs.parts(known.job_id)
        except NotFoundError:
            return await self._missing(key, known)
        if not all(self.is_own(part, key) for part in parts):
            log.warning("%s: job %d is not (any more) the one that was submitted for it", key, known.job_id)
            return self._lost(known)
        known.missing_since = 0.0
        known.verified = epoch
        known.submission = known.submission or submission_from(parts, self._cluster)
        if len(parts) < len(parts[0].hetjob_ids):
            view = self._incomplete(known)
        else:
            view = self._seen(parts[0] if known.ending_since else speaks_for_all(parts), known)
        if known.over:
            known.rest = tuple(part.job_id for part in parts if not part.is_finished)
        return view

    def is_own(self, job: Job, key: WorkloadKey) -> bool:
        return job.is_external and self._names(read_comment(job.admin_comment, self._cluster), job.hetjob_id or job.job_id, key)

    @staticmethod
    def _names(marking: Marking | None, job_id: int, key: WorkloadKey) -> bool:
        """Where the pods are known by their job's label alone, what they were part of when it was submitted is gone: their namespace must do."""
        if marking is None:
            return False
        named = WorkloadKey.parse(marking.workload)
        return marking.workload == str(key) or (key.job_id == job_id and named is not None and named.namespace == key.namespace)

    async def _missing(self, key: WorkloadKey, known: Known) -> JobView:
        """Slurm does not know it: accounting may. Believed only after a while, as slurmctld may be coming up, or the job may be on its way."""
        now = asyncio.get_running_loop().time()
        known.missing_since = known.missing_since or now
        settled = now - known.missing_since > SETTLE_SECONDS
        try:
            past = await self._slurm.accounting.job(known.job_id)
        except (NotFoundError, UnsupportedError):
            past = None
        except SlurmError as error:
            log.info("%s: accounting cannot be asked about job %d: %s", key, known.job_id, error)
            past, settled = None, False
        tasks = known.submission.tasks if known.submission else 1
        if (
            past is not None
            and past.is_finished
            and self._names(read_comment(past.comment.administrator, self._cluster), known.job_id, key)
        ):
            return self._seen(past, known)
        if settled:
            return self._lost(known)
        return JobView(job_id=known.job_id, state="pending", tasks=tasks)

    def _seen(self, job: JobStates, known: Known) -> JobView:
        view = job_view(job, known.job_id, known.submission.tasks if known.submission else 1)
        known.over, known.why, known.reason = view.state == "over", view.why, view.reason
        if known.over:
            self._poller.forget(known.job_ids)
        return ending_view(view, known.end)

    def _incomplete(self, known: Known) -> JobView:
        """A part of it ended so long ago that Slurm has forgotten it."""
        known.over, known.why, known.reason = True, f"a part of Slurm job {known.job_id} is gone", "SlurmJobEnded"
        self._poller.forget(known.job_ids)
        return JobView(job_id=known.job_id, state="over", why=known.why, reason=known.reason)

    def _lost(self, known: Known) -> JobView:
        known.lost = True
        self._poller.forget(known.job_ids)
        return JobView(job_id=known.job_id, state="lost", why=f"Slurm does not know job {known.job_id}")
