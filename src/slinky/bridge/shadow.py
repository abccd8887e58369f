"""Shadow mode: everything but binding. Pods run as they do, under their own scheduler; their jobs go through Slurm as if the bridge had taken them in; and what Slurm would have done is told.

Comes in: what the bridge needs anyway. Goes out: the parts that act otherwise in shadow mode: a client that only reads, an executor whose acts towards Kubernetes are played on a `ShadowCluster`, and a teller that keeps the record instead of writing on pods.
What must stay true: nothing is written to Kubernetes but the report (and the Lease); shadow jobs are known by a cluster name of their own, so that neither a real bridge nor a shadow ever takes the other's for its own.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import msgspec

from slinky.bridge.adoption import Found
from slinky.bridge.executor import Executor
from slinky.bridge.job_ends import Manner
from slinky.bridge.keys import job_id_of
from slinky.bridge.plan import Snapshot
from slinky.bridge.settings import StatusSettings
from slinky.bridge.shadow_cluster import ShadowCluster
from slinky.bridge.shadow_metrics import ShadowMetrics
from slinky.bridge.shadow_record import MOST_CASES, ShadowRecord
from slinky.bridge.shadow_store import recall_report, write_report
from slinky.bridge.standing import Standing
from slinky.bridge.submission import Submission
from slinky.bridge.telling import Teller
from slinky.bridge.translate import Site
from slinky.bridge.whereabouts import Whereabouts
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Client, KubeError, Pod
from slinky.slurm import JobCompletion, SlurmClient, SlurmError

__all__ = ["ReadingClient", "Shadow", "ShadowExecutor", "ShadowTeller", "shadow_cluster_name", "shadow_site"]

log = logging.getLogger(__name__)

SUFFIX = "-shadow"


def shadow_cluster_name(cluster: str) -> str:
    """The cluster's name in the markers of shadow jobs."""
    return cluster + SUFFIX


def shadow_site(site: Site) -> Site:
    """Its jobs are of a cluster of their own; the nodes are registered as ever."""
    return msgspec.structs.replace(site, cluster=shadow_cluster_name(site.cluster), nodes_cluster=site.cluster)


class ReadingClient(Client):
    """Refuses to write, whoever asks: what shadow mode promises does not rest on everyone's remembering it."""

    async def raw(self, method: str, path: str, **more: Any) -> bytes:
        if method != "GET":
            raise KubeError(f"shadow mode writes nothing: {method} {path} was not sent")
        return await super().raw(method, path, **more)


class Shadow:
    """What one leader's time in shadow mode shares: the cluster as it would be, and the record, once `recall` has found the last one."""

    def __init__(self, cluster: ShadowCluster, kube: Client, namespace: str, metrics: ShadowMetrics) -> None:
        """`kube` may write the report."""
        self.cluster = cluster
        self.record = ShadowRecord(time.time)
        self._kube = kube
        self._namespace = namespace
        self._metrics = metrics

    async def recall(self) -> None:
        self.record = ShadowRecord(time.time, await recall_report(self._kube, self._namespace))
        self._metrics.record = self.record
        self.cluster.begin(self.record, set(self.record.evicted_uids))

    async def write(self, reasons: Mapping[WorkloadKey, str]) -> None:
        await write_report(self._kube, self._namespace, self.record.report(reasons))


class ShadowExecutor(Executor):
    """Towards Slurm as ever; towards Kubernetes played."""

    def __init__(
        self,
        shadow: Shadow,
        kube: Client,
        slurm: SlurmClient,
        site: Site,
        *,
        completion: JobCompletion | None = None,
        may_act: Callable[[], bool] = lambda: True,
        hetjobs: bool = True,
    ) -> None:
        super().__init__(kube, slurm, site, completion=completion, may_act=may_act, hetjobs=hetjobs)
        self._shadow = shadow
        self._started: set[int] = set()
        self._asking = asyncio.Lock()

    async def begin(self) -> None:
        await self._shadow.recall()

    def adopting(self, key: WorkloadKey, pods: Sequence[Pod], jobs: Sequence[Found]) -> None:
        """There are no labels to find: the marker of a job that is not over names its pods."""
        for job in sorted((job for job in jobs if not job.is_over), key=lambda job: job.submission.job_id):
            named = [pod for pod in pods if str(pod.key) in job.pods or len(job.pods) < job.count]
            for pod in named[: job.count]:
                self._shadow.cluster.label(pod.metadata.uid, pod.key, job.submission.job_id)
            if named:
                self._shadow.record.adopted(key, job.submission.job_id, job.submitted, job.started)

    async def submit(self, workload: Workload, whereabouts: Sequence[Whereabouts] = (), site: Site | None = None) -> Submission:
        submission = await super().submit(workload, whereabouts, site)
        self._shadow.record.submitted(workload.key, submission.job_id)
        return submission

    async def label(self, pod: Pod, job_id: int) -> None:
        self._check()
        self._shadow.cluster.label(pod.metadata.uid, pod.key, job_id)

    async def set_apart(self, pod: Pod) -> None:
        self._check()
        self._shadow.cluster.set_apart(pod.metadata.uid, pod.key)

    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str], job_id: int) -> bool:
        self._check()
        async with self._asking:  # once for all pods of a gang
            if job_id not in self._started:
                job = await self._slurm.jobs.get(job_id)
                self._started.add(job_id)
                self._shadow.record.started(job_id, _seconds(job.submit_time), _seconds(job.start_time))
        self._shadow.record.bound(pod.metadata.uid, node)
        return self._shadow.cluster.bind(pod.metadata.uid, pod.key, node, annotations, job_id)

    async def evict(self, pod: Pod, reason: str, why: str) -> str:  # noqa: ARG002
        self._check()
        log.info("pod %s would be evicted: %s", pod.key, why)
        self._started.discard(job_id_of(pod))
        self._shadow.record.evicted(pod, why)
        self._shadow.cluster.evict(pod.metadata.uid, pod.key)
        return ""

    async def say_again(self, pod: Pod, reason: str, why: str) -> None:
        pass

    async def remove(self, pod: Pod, reason: str, why: str) -> None:
        await self.evict(pod, reason, why)

    async def shorten(self, pod: Pod) -> None:
        """Pods are their own scheduler's."""

    async def release(self, pod: Pod) -> bool:  # noqa: ARG002 there is no finalizer
        return True

    async def end_job(self, job_id: int, exit_code: int | None, why: str, **manner: Unpack[Manner]) -> None:
        await super().end_job(job_id, exit_code, why, **manner)
        self._started.discard(job_id)


class ShadowTeller(Teller):
    """Nobody's pods are written on, and nobody gets an Event; what happens goes into the record, and that is written every so many `seconds`, and at the end."""

    def __init__(self, shadow: Shadow, slurm: SlurmClient, seconds: float, may_act: Callable[[], bool] = lambda: True) -> None:
        super().__init__(None, slurm, None, StatusSettings(), may_act)  # type: ignore[arg-type]
        self._shadow = shadow
        self._seconds = seconds

    def look(self, key: WorkloadKey, now: Snapshot, pods: Sequence[Pod]) -> None:
        self._shadow.record.looked(key, now, pods)

    def forget(self, key: WorkloadKey) -> None:
        self._shadow.record.forgotten(key)

    def parked(self, pods: Sequence[Pod], why: str) -> None:
        self._shadow.record.parked(pods, why)

    def _event(self, pods: Sequence[Pod], reason: str, note: str, *, warning: bool = False) -> None:
        """Nobody gets one."""

    async def run(self) -> None:
        """For ever."""
        try:
            while True:
                await self._write_report()
                await asyncio.sleep(self._seconds)
        finally:
            if self._may_act():
                await self._write_report()

    async def _write_report(self) -> None:
        try:
            await self._shadow.write(await self._reasons())
        except KubeError as error:
            log.warning("the report of shadow mode cannot be written (%s); again in %g s", error, self._seconds)
        except Exception:  # a report is never worth the end of what it tells of
            log.exception("the report of shadow mode cannot be made; again in %g s", self._seconds)

    async def _reasons(self) -> dict[WorkloadKey, str]:
        """Why those that wait longest do."""
        found: dict[WorkloadKey, str] = {}
        for key, _ in [*self._shadow.record.live("waiting"), *self._shadow.record.live("gathering")][:MOST_CASES]:
            said = next((said for _, said in self.standings(key)), None)
            if isinstance(said, int):
                try:
                    said = await self._asked(said)
                except SlurmError:
                    continue
            if isinstance(said, Standing):
                found[key] = said.message
        return found


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int) else 0.0
