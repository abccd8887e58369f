"""A workload into Slurm's queue: judged, and submitted; or parked, with the reason. And the label that ties its pods to the job.

Comes in: a workload that is complete and has no job. Goes out: its job in Slurm, or a reason why not and when to try again. What must stay true: what Slurm refuses, or no node could hold, is told to its owner and tried again, never lost
and never hammered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from slinky.bridge.executor import Executor
from slinky.bridge.memory import Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.poller import JobPoller
from slinky.bridge.slurm_nodes import FRESH_SECONDS, SlurmNodes
from slinky.bridge.telling import Teller
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Pod
from slinky.slurm import AuthenticationError, RefusedError, SlurmError

__all__ = ["Submitter", "all_of"]

log = logging.getLogger(__name__)

PARKED_SECONDS = 60.0


class Submitter:
    def __init__(self, executor: Executor, slurm_nodes: SlurmNodes, poller: JobPoller, teller: Teller, metrics: BridgeMetrics) -> None:
        self._executor = executor
        self._slurm_nodes = slurm_nodes
        self._poller = poller
        self._teller = teller
        self._metrics = metrics

    async def submit(self, workload: Workload, known: Known) -> bool:
        """Whether it has a job now; if not, it is parked."""
        missing, sure = await self._slurm_nodes.shortfall(self._executor.describe(workload))
        if missing and not sure:
            known.parked_until = asyncio.get_running_loop().time() + FRESH_SECONDS
            return False
        if missing:
            self.park(workload.key, known, workload.pods, missing, too_large=True)
            return False
        try:
            submission = await self._executor.submit(workload)
        except SlurmError as error:
            if isinstance(error, RefusedError) and not isinstance(
                error, AuthenticationError
            ):  # that is nothing that is wrong with this job
                self.park(workload.key, known, workload.pods, f"Slurm refuses the job: {error.description or error}")
                return False
            if not error.outcome_known:
                known.unsettled = workload
            raise
        known.take(submission, self._poller.epoch)
        known.submitted_at = asyncio.get_running_loop().time()
        self._metrics.submitted(workload.pods)
        self._teller.submitted(workload.pods, submission)
        return True

    async def settle(self, workload: Workload, known: Known) -> bool:
        """Whether a submit whose answer was lost made a job, which it has then, whatever became of its pods meanwhile."""
        found = await self._executor.find(workload)
        if found is None:
            known.unsettled = None
            return False
        known.take(found, self._poller.epoch)
        return True

    async def label(self, pods: Sequence[Pod], job_id: int, known: Known) -> None:
        await all_of([self._label(pod, job_id, known) for pod in pods])

    async def _label(self, pod: Pod, job_id: int, known: Known) -> None:
        await self._executor.label(pod, job_id)
        known.written.labels[pod.metadata.uid] = job_id

    def park(self, key: WorkloadKey, known: Known, pods: Sequence[Pod], why: str, *, too_large: bool = False) -> None:
        if why != known.parked:
            log.warning("%s is parked: %s", key, why)
            self._teller.parked(pods, why)
        known.parked, known.too_large = why, too_large
        known.parked_until = asyncio.get_running_loop().time() + PARKED_SECONDS


async def all_of(acts: Sequence[Awaitable[None]]) -> None:
    """All of them, also where one fails; then that failure."""
    results = await asyncio.gather(*acts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
