"""A workload into Slurm's queue: judged by the site's policy and by what nodes there are, and submitted; or parked, with the reason. And the label that ties its pods to the job.

Comes in: a workload that is complete and has no job. Goes out: its job in Slurm, or a reason why not and when to try again. What must stay true: what Slurm refuses, or no node could hold, is told to its owner and tried again, never lost
and never hammered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from slinky.bridge.annotations import JobSettings
from slinky.bridge.executor import Executor
from slinky.bridge.memory import Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.policy import Grant, PolicyError
from slinky.bridge.poller import JobPoller
from slinky.bridge.slurm_nodes import FRESH_SECONDS, SlurmNodes
from slinky.bridge.telling import Teller
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Backoff, Pod
from slinky.slurm import AuthenticationError, RefusedError, SlurmError

__all__ = ["LABEL_SECONDS", "Submitter", "all_of"]

log = logging.getLogger(__name__)

PARKED = Backoff(first=60.0, most=600.0)
LABEL_SECONDS = 5.0


class Submitter:
    """`grants(namespace)` tells what a namespace may; None where that is not known yet."""

    def __init__(
        self,
        executor: Executor,
        slurm_nodes: SlurmNodes,
        poller: JobPoller,
        teller: Teller,
        metrics: BridgeMetrics,
        grants: Callable[[str], Grant | None],
    ) -> None:
        self._executor = executor
        self._slurm_nodes = slurm_nodes
        self._poller = poller
        self._teller = teller
        self._metrics = metrics
        self._grants = grants

    async def submit(self, workload: Workload, known: Known) -> bool:
        """Whether it has a job now; if not, it is parked."""
        said = workload.settings
        settled = self._settled(workload, known)
        if settled is None:
            return False
        workload = await self._on_known_nodes(settled)
        missing, sure = await self._slurm_nodes.shortfall(self._executor.describe(workload))
        if missing and not sure:
            known.parked_until = asyncio.get_running_loop().time() + FRESH_SECONDS
            return False
        if missing:
            self.park(workload.key, known, workload.pods, missing, too_large=True, said=said)
            return False
        try:
            submission = await self._executor.submit(workload)
        except SlurmError as error:
            # Not to be believed is nothing that is wrong with this job.
            if isinstance(error, RefusedError) and not isinstance(error, AuthenticationError):
                self.park(workload.key, known, workload.pods, f"Slurm refuses the job: {error.description or error}", said=said)
                return False
            if not error.outcome_known:
                known.unsettled = workload
            raise
        known.take(submission, self._poller.epoch)
        known.is_for(workload.uids)
        known.submitted_at = asyncio.get_running_loop().time()
        self._metrics.submitted(workload.pods)
        return True

    def _settled(self, workload: Workload, known: Known) -> Workload | None:
        """As the policy of its namespace has it; None where it is parked."""
        grant = self._grants(workload.namespace)
        if grant is None:
            known.parked_until = asyncio.get_running_loop().time() + FRESH_SECONDS
            return None
        try:
            return grant.settled(workload)
        except PolicyError as error:
            self.park(workload.key, known, workload.pods, str(error), said=workload.settings)
            return None

    async def _on_known_nodes(self, workload: Workload) -> Workload:
        """Nodes to be left out that Slurm does not know are not named to it: it would refuse the job."""
        if not workload.settings.exclude:
            return workload
        unknown = await self._slurm_nodes.unknown(workload.settings.exclude)
        if not unknown:
            return workload
        self._teller.unknown_nodes(workload.pods, unknown)
        rest = tuple(name for name in workload.settings.exclude if name not in unknown)
        return msgspec.structs.replace(workload, settings=msgspec.structs.replace(workload.settings, exclude=rest))

    async def settle(self, workload: Workload, known: Known) -> bool:
        """Whether a submit whose answer was lost made a job, which it has then, whatever became of its pods meanwhile."""
        found = await self._executor.find(workload)
        if found is None:
            known.unsettled = None
            return False
        known.take(found, self._poller.epoch)
        return True

    async def label_the_rest(self, pods: Iterable[Pod], known: Known) -> None:
        """The labels that have not gone along with a Binding, and will not for a while: where Slurm has not started the job within seconds, or its nodes are not free, or the API server does not take them so."""
        new = asyncio.get_running_loop().time() - known.submitted_at < LABEL_SECONDS
        if known.unwritten and not (new and self._executor.labels_go_along and not known.obstacle):
            rest = [pod for pod in pods if pod.metadata.uid in known.unwritten]
            await self.label(rest, known.job_id, known)

    async def label(self, pods: Sequence[Pod], job_id: int, known: Known) -> None:
        await all_of([self._label(pod, job_id, known) for pod in pods])

    async def _label(self, pod: Pod, job_id: int, known: Known) -> None:
        if job_id or pod.metadata.uid not in known.unwritten:
            await self._executor.label(pod, job_id)
        known.written.labels[pod.metadata.uid] = job_id
        known.unwritten.discard(pod.metadata.uid)

    def park(
        self, key: WorkloadKey, known: Known, pods: Sequence[Pod], why: str, *, too_large: bool = False, said: JobSettings | None = None
    ) -> None:
        """For a while, or until something else is `said`."""
        if why != known.parked:
            log.warning("%s is parked: %s", key, why)
            self._teller.parked(pods, why)
        known.parked, known.too_large, known.parked_for = why, too_large, said
        known.parkings += 1
        known.parked_until = asyncio.get_running_loop().time() + PARKED.seconds(known.parkings)


async def all_of(acts: Sequence[Awaitable[None]]) -> None:
    """All of them, also where one fails; then that failure."""
    if len(acts) == 1:  # as a rule: no task for it
        await acts[0]
        return
    results = await asyncio.gather(*acts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
