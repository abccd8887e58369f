"""What is done about a workload besides binding it and submitting it, and what is remembered of that, so that nothing is done twice before the watch shows it.

Comes in: a pod or a job, and what is known of its workload. Goes out: the act, through the executor. What must stay true: what failed is not remembered as done.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from slinky.bridge.evictions import Evictions
from slinky.bridge.executor import Executor
from slinky.bridge.keys import DISRUPTION_TARGET, job_id_of
from slinky.bridge.marker import Failure
from slinky.bridge.memory import Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.plan import JobView, Outcome, PodView, Snapshot
from slinky.bridge.poller import JobPoller
from slinky.bridge.submitting import Submitter
from slinky.bridge.views import exit_codes
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod

__all__ = ["Acts"]

log = logging.getLogger(__name__)

MOST_LOOKS = 5  # at what an evicted pod says of it


class Acts:
    def __init__(self, executor: Executor, submitter: Submitter, poller: JobPoller, metrics: BridgeMetrics, evictions: Evictions) -> None:
        self.evict, self.in_turn, self.ask_again = evictions.evict, evictions.in_turn, evictions.ask_again
        self._executor = executor
        self._submitter = submitter
        self._poller = poller
        self._metrics = metrics

    async def end(self, key: WorkloadKey, job_id: int, exit_code: int | None, why: str, now: Snapshot, known: Known) -> None:
        """Not while it is in doubt whose the job of that id is: it is looked at again then."""
        if not await self.is_still_own(known):
            return
        known.ending_since = known.ending_since or asyncio.get_running_loop().time()
        running = now.job is not None and now.job.state in ("running", "ending")
        components = exit_codes(now.pods, known.submission, now.outcomes) if known.submission else {}
        given_back = bool(now.rejected) or now.broken
        noted = given_back or (now.job is not None and now.job.state == "ending")
        said = f"cancelled by slurm-bridge: {why}" if given_back else why
        await self._executor.end_job(job_id, exit_code, said, running=running, components=components, noted=noted)
        known.over, known.why, known.reason = True, f"Slurm job {job_id} was ended: {why}", "SlurmJobEnded"
        self._metrics.ended(known)
        self._poller.forget(known.job_ids, key)
        self._poller.look_soon()

    async def is_still_own(self, known: Known) -> bool:
        """Whether its job is still known to be its own, as Slurm was not restarted since that was seen."""
        await self._poller.confirm()
        return known.verified == self._poller.epoch

    async def remember(self, job_id: int, failures: Mapping[int, Outcome], known: Known) -> bool:
        """False while it is in doubt whose the job of that id is: nothing of the plan that follows is to be done then, nor where Slurm does not answer."""
        if not await self.is_still_own(known):
            return False
        await self._executor.remember(job_id, [Failure(rank, said.uid, said.exit_code) for rank, said in failures.items()])
        known.remembered = dict(failures)
        return True

    async def release(self, pod: Pod, known: Known) -> None:
        if await self._executor.release(pod):
            known.written.released.add(pod.metadata.uid)

    async def shorten(self, pod: Pod) -> None:
        await self._executor.shorten(pod)

    async def set_apart(self, pod: Pod, known: Known) -> None:
        log.info("pod %s came too late for Slurm job %d of its group: it is scheduled by itself", pod.key, known.job_id)
        await self._executor.set_apart(pod)
        known.written.apart.add(pod.metadata.uid)

    async def check_labels(self, pods: Sequence[Pod], known: Known) -> None:
        """Pods that we bound and that have no label now: an API server that does not take labels with a Binding. From now on they go before it."""
        unseen = known.written.labels.keys() - known.written.seen
        bare = [pod for pod in pods if pod.spec.node_name and pod.metadata.uid in unseen and not job_id_of(pod)] if unseen else []
        if bare and known.job_id:
            if self._executor.labels_go_along:
                log.warning(
                    "the API server does not take labels with a Binding: they are written before it from now on, which costs a write a pod"
                )
            self._executor.labels_go_along = False
            await self._submitter.label(bare, known.job_id, known)

    async def restore_labels(self, pods: Sequence[Pod], known: Known) -> None:
        """Somebody else has changed or taken off the label of a pod: it is written again as it was. What it said meanwhile counted for nothing."""
        for pod in pods:
            uid = pod.metadata.uid
            if known.written.is_changed(uid, job_id_of(pod)):
                right = known.written.labels[uid]
                log.warning(
                    "pod %s: its label said Slurm job %d, which is not ours to say: it says %d again", pod.key, job_id_of(pod), right
                )
                await self._executor.label(pod, right)
                known.written.label(uid, right)

    async def restore_reasons(self, pods: Sequence[Pod], known: Known) -> None:
        """Of those that were evicted: a kubelet may have written back the API server's word for it, which it had seen before ours."""
        for pod in pods if known.evicted else ():
            evicted, said = known.evicted.get(pod.metadata.uid), pod.condition(DISRUPTION_TARGET)
            if evicted is None or said is None or said.reason == evicted.reason or pod.metadata.deletion_timestamp is None:
                continue
            if evicted.looks < MOST_LOOKS:
                evicted.looks += 1
                await self._executor.say_again(pod, evicted.reason, evicted.why)

    async def adopt_labels(self, pods: Sequence[Pod], views: Sequence[PodView], job: JobView | None, known: Known) -> list[PodView]:
        """Pods of a job that is known to be the workload's own: what they say is remembered. One that is on a node and says something else was changed while nobody looked: a workload has no second job while one has pods on nodes."""
        if job is None or job.state in ("absent", "lost") or not known.submission:
            return list(views)
        found = []
        for pod, view in zip(pods, views, strict=True):
            if view.state == "bound" and view.job_id != job.job_id and view.uid not in known.written.labels:
                log.warning("pod %s: its label says Slurm job %d, but it is of job %d: restored", pod.key, view.job_id, job.job_id)
                await self._executor.label(pod, job.job_id)
                known.written.label(view.uid, job.job_id)
                view = known.written.over(view)
            elif view.job_id == job.job_id:
                known.written.learn(view)
            found.append(view)
        return found
