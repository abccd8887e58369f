"""A workload into Slurm's queue: judged by the site's policy and by what nodes there are, and submitted; or parked, with the reason. And the label that ties its pods to the job.

Comes in: a workload that is complete and has no job. Goes out: its job in Slurm, or a reason why not and when to try again. What must stay true: what Slurm refuses, or no node could hold, is told to its owner and tried again, never lost
and never hammered.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from slinky.bridge.annotations import JobSettings
from slinky.bridge.directions import Directions, one_of_each
from slinky.bridge.executor import Executor, HetjobsRefusedError, is_refused
from slinky.bridge.lines import Siblings, SubmitLimits, scope_of
from slinky.bridge.memory import Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.pacing import Pace, all_of
from slinky.bridge.policy import Grant, PolicyError
from slinky.bridge.poller import JobPoller
from slinky.bridge.slurm_nodes import FITS, FRESH_SECONDS, Shortfall, SlurmNodes
from slinky.bridge.telling import Teller
from slinky.bridge.translate import components, members, one_for_all
from slinky.bridge.whereabouts import EVERYWHERE, put_on_all
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Backoff, Pod
from slinky.slurm import JobDescription, NotFoundError, RefusedError, SlurmError

__all__ = ["ANY_NODE", "LABEL_SECONDS", "Submitter"]

log = logging.getLogger(__name__)

PARKED = Backoff(first=60.0, most=600.0)
LABEL_SECONDS = 5.0
MOST_REQUEUES = 5
INVALID_NODE_NAME, INVALID_FEATURE = 2018, 2029
MAX_JOB_COUNT, ACCOUNTING_POLICY = 2007, 2050
SUBMIT_LIMITS = {
    MAX_JOB_COUNT: "Slurm's job table is full (MaxJobCount)",
    ACCOUNTING_POLICY: "MaxSubmitJobs, GrpSubmitJobs or a size limit of the account, user or QoS (error 2050)",
}
ANY_NODE = ""  # in place of a node's name: the job is given back, and no node is to be avoided
NO_SUCH_NODE = 2014  # there is none that could ever take the job; said also for moments after nodes were made or drained


class Submitter:
    """`grants(namespace)` tells what a namespace may; None where that is not known yet."""

    def __init__(
        self,
        executor: Executor,
        slurm_nodes: SlurmNodes,
        directions: Directions,
        poller: JobPoller,
        teller: Teller,
        metrics: BridgeMetrics,
        grants: Callable[[str], Grant | None],
        limits: SubmitLimits,
        siblings: Siblings,
    ) -> None:
        self.limits = limits
        self.siblings = siblings
        self._executor = executor
        self._directions = directions
        self._slurm_nodes = slurm_nodes
        self._poller = poller
        self._teller = teller
        self._metrics = metrics
        self._grants = grants

    async def submit(self, workload: Workload, known: Known) -> bool:
        """Whether it has a job now; if not, it is parked."""
        said, said_first = workload.settings, workload
        settled = self._settled(workload, known)
        if settled is None:
            return False
        now, scope = asyncio.get_running_loop().time(), scope_of(settled.namespace, settled.settings)
        if not self.limits.may_try(settled.key, scope, known.arrived, now) or not self.siblings.enter(
            settled.key, scope, one_of_each(settled.everyone), known.arrived, now
        ):
            known.parked, known.parked_for, known.too_large = "", None, False  # what it waits for is the line
            return False
        known.names_version = self._directions.names_version
        workload, unknown = await self._directions.known_only(settled)
        if unknown and unknown != known.unknown_nodes:
            self._teller.unknown_nodes(workload.pods, unknown)
        known.unknown_nodes = unknown
        site = await self._executor.site_for(workload)
        if workload.is_gang and (workload.settings.memory_per_node or workload.settings.gres):
            site = msgspec.structs.replace(
                site, even_share=await self._slurm_nodes.even_share(workload.settings.partition or site.partition)
            )
        pace, jobs = Pace(), components(workload, site)
        await pace.step()
        directed = await self._directions.directed(jobs, members(workload, site), known.avoided, workload.same_domain)
        whereabouts = directed.where
        await pace.step()
        if len(jobs) > 1 and (why := await self._slurm_nodes.too_few(put_on_all(jobs, whereabouts))):
            site = msgspec.structs.replace(site, no_hetjobs=why)
            jobs = components(workload, site)
            directed = await self._directions.directed(jobs, members(workload, site), known.avoided, workload.same_domain)
            whereabouts = directed.where
        known.was_directed(directed)
        known.depends_on_pods = self._directions.depend_on_pods(workload.everyone)
        if nowhere := next((found.nowhere for found in whereabouts if found.nowhere), ""):
            self.park(workload.key, known, workload.pods, nowhere, too_large=True, said=said)
            return False
        missing, sure = await self._shortfall(put_on_all(jobs, whereabouts))
        if missing and not sure:
            known.parked_until = asyncio.get_running_loop().time() + FRESH_SECONDS
            return False
        if missing:
            self.park(workload.key, known, workload.pods, missing, too_large=True, said=said)
            return False
        known.sent_at = time.time()
        try:
            submission = await self._executor.submit(workload, whereabouts, site)
        except SlurmError as error:
            if isinstance(error, HetjobsRefusedError):
                return await self.submit(said_first, known)  # as one job, from now on
            told = any(found != EVERYWHERE for found in whereabouts)
            no_node = error.number == NO_SUCH_NODE
            if not known.doubts and (no_node or (told and error.number in (INVALID_NODE_NAME, INVALID_FEATURE))):
                self._slurm_nodes.outdate()  # a node that was to be left out may be gone, or the last one with a feature
                known.doubts += 1
                known.parked_until = asyncio.get_running_loop().time() + FRESH_SECONDS
                return False
            if isinstance(error, RefusedError):
                if no_node:
                    self._slurm_nodes.refused()
                if (limit := SUBMIT_LIMITS.get(error.number or 0)) and not known.too_much:
                    now = asyncio.get_running_loop().time()
                    if self.limits.refused(workload.key, scope, known.arrived, limit, now):
                        log.info("%s waits in line: %s", workload.key, limit)
                        known.parked, known.parked_for, known.too_large = "", None, False
                        return False
                    known.too_much = True
                why = f"Slurm refuses the job: {error.description or error}"
                self.park(workload.key, known, workload.pods, why, too_large=no_node, said=said)
                return False
            if not error.outcome_known:
                known.unsettled = workload
            raise
        known.take(submission, self._poller.epoch)
        known.was_directed(directed)
        known.scope = scope
        self.limits.passed(workload.key, asyncio.get_running_loop().time())
        known.is_for(workload.uids)
        known.submitted_at = asyncio.get_running_loop().time()
        if (
            workload.is_gang
            and not submission.components
            and (why := one_for_all(workload, site) or one_for_all(workload, await self._executor.site_for(workload)))
        ):
            self._teller.one_for_all(workload.pods[:1], why)
        self._metrics.submitted(workload.pods)
        if known.has_place():
            await self._catch_up(workload.key, known)
        return True

    async def reject(self, key: WorkloadKey, known: Known, refused: Mapping[str, str], pods: Sequence[Pod], why: str = "") -> bool:
        """Kubernetes does not take the pods on nodes that Slurm chose, or they have no places there: whether the job is to be given back, for another without those nodes. After some times in a row it is parked, and tried more and more rarely."""
        why = why or "; ".join(refused.values())
        nodes = [name for name in refused if name != ANY_NODE]
        try:
            priority = (await self._executor.record(known.job_id)).priority
        except NotFoundError:
            return False  # it is over, as will be seen
        known.keep_place(priority)
        self.siblings.rejected(key, known.arrived)
        known.requeues += 1
        known.avoided |= {node: self._directions.avoid(node, refused[node]) for node in nodes}
        known.rejected = why
        known.where = known.basis = None  # nodes that are avoided now were not then
        if known.requeues > MOST_REQUEUES:
            self.park(key, known, pods, f"cancelled and submitted again {known.requeues} times in a row: {why}", too_large=True)
            return True
        log.warning(
            "%s: cancelling job %d and submitting a new one without nodes %s: %s", key, known.job_id, ", ".join(nodes) or "none", why
        )
        self._teller.requeued(pods, why)
        return True

    async def _catch_up(self, key: WorkloadKey, known: Known) -> None:
        try:
            for job_id in known.job_ids:
                await self._executor.catch_up(job_id, known.priority)
        except SlurmError as error:
            log.warning("%s: job %d could not be given the priority of the one before it: %s", key, known.job_id, error)
        known.priority = 0

    async def _shortfall(self, jobs: Sequence[JobDescription]) -> Shortfall:
        """Of a hetjob each component must fit."""
        found = FITS
        for job in jobs:
            found = await self._slurm_nodes.shortfall(job)
            if found.missing:
                break
        return found

    def must_wait(self, key: WorkloadKey) -> bool:
        """It stands in a line, and it is not its turn."""
        now = asyncio.get_running_loop().time()
        return self.limits.waits(key, now) or self.siblings.waits(key, now)

    def turn_of(self, key: WorkloadKey) -> float:
        """When it is to be looked at again, if nothing happens before; 0 where nothing but a call can help."""
        return max(self.limits.due(key), self.siblings.due(key))

    def leave_lines(self, key: WorkloadKey) -> None:
        """It is not to be submitted now, or has its nodes."""
        self.limits.left(key, asyncio.get_running_loop().time())
        self.siblings.leave(key)

    def stands_in_line(self, key: WorkloadKey) -> bool:
        return key in self.limits or key in self.siblings

    def inherit(self, workload: Workload, known: Known) -> None:
        """An earlier leader submitted its job, which counts for the limits of its scope, and is in flight until it is seen to be placed."""
        if (settled := self.settled(workload)) is not None:
            known.scope = scope_of(settled.namespace, settled.settings)
            if not known.started_at:
                self.siblings.keep(workload.key, known.scope, one_of_each(workload.everyone), asyncio.get_running_loop().time())

    def job_ended(self, known: Known) -> None:
        """A job of this workload is over: the first of those that a submit limit keeps waiting is tried."""
        if len(self.limits):
            self.limits.job_ended(known.scope, asyncio.get_running_loop().time())
        known.scope = None

    def settled(self, workload: Workload) -> Workload | None:
        """As the policy of its namespace has it; None where it has something against it (any more), or is not known yet."""
        grant = self._grants(workload.namespace)
        try:
            return grant.settled(workload) if grant is not None else None
        except PolicyError:
            return None

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

    async def settle(self, workload: Workload, known: Known) -> bool:
        """Whether a submit whose answer was lost made a job, which it has then, whatever became of its pods meanwhile."""
        found = await self._executor.find(workload, known.sent_at)
        if found is None:
            known.unsettled = None
            return False
        known.take(found, self._poller.epoch)
        known.is_for(workload.uids)
        if known.has_place():
            await self._catch_up(workload.key, known)
        return True

    async def label_the_rest(self, pods: Iterable[Pod], known: Known) -> None:
        """The labels that have not gone along with a Binding, and will not for a while: where Slurm has not started the job within seconds, or its nodes are not free, or the API server does not take them so."""
        new = asyncio.get_running_loop().time() - known.submitted_at < LABEL_SECONDS
        known.unwritten &= {pod.metadata.uid for pod in pods}
        if known.unwritten and not (new and self._executor.labels_go_along and not known.obstacle):
            rest = [pod for pod in pods if pod.metadata.uid in known.unwritten]
            await self.label(rest, known.job_id, known)

    async def label_all(self, pods: Iterable[Pod], known: Known) -> None:
        """All that are of the job and that the watch has not shown with its label. Before the first of a gang is evicted: whoever leads next can tell by nothing else that the others are to go too."""
        own = {uid for uid, job_id in known.written.labels.items() if job_id == known.job_id} - known.written.seen
        await self.label([pod for pod in pods if pod.metadata.uid in own], known.job_id, known)

    async def label(self, pods: Sequence[Pod], job_id: int, known: Known) -> None:
        await all_of([self._label(pod, job_id, known) for pod in pods])

    async def _label(self, pod: Pod, job_id: int, known: Known) -> None:
        uid = pod.metadata.uid
        try:
            if job_id or uid not in known.unwritten:
                await self._executor.label(pod, job_id)
        except BaseException as error:
            if not is_refused(error):  # it may be there
                known.unwritten.discard(uid)
            raise
        known.written.label(uid, job_id)
        known.unwritten.discard(uid)

    def park(
        self, key: WorkloadKey, known: Known, pods: Sequence[Pod], why: str, *, too_large: bool = False, said: JobSettings | None = None
    ) -> None:
        """For a while, or until something else is `said`."""
        self.leave_lines(key)
        if why != known.parked:
            log.warning("%s is parked: %s", key, why)
            self._teller.parked(pods, why)
        known.parked, known.too_large, known.parked_for = why, too_large, said
        known.parkings += 1
        known.parked_until = asyncio.get_running_loop().time() + PARKED.seconds(known.parkings)
