"""Carrying out what was planned: the thin edge towards Kubernetes and Slurm. Each act says what it is about and may be repeated."""

import logging
from collections.abc import Mapping

import msgspec

from slinky.bridge.admission import TASK_ENVIRONMENT
from slinky.bridge.keys import DEVICES, FINALIZER, JOB_ID, SLURM_NODE, TASK
from slinky.bridge.marker import marker_for
from slinky.bridge.placement import Placement
from slinky.bridge.translate import Site, translate
from slinky.bridge.workload import Workload
from slinky.kube import PODS, Client, ConflictError, NotFoundError, PatchKind, Pod
from slinky.slurm import AlreadyDoneError, JobDescription, SlurmClient
from slinky.slurm import NotFoundError as NoSuchJobError

__all__ = ["Executor", "Submission"]

log = logging.getLogger(__name__)


class Submission(msgspec.Struct, frozen=True):
    """A job that was submitted, and what it was described as."""

    job_id: int
    description: JobDescription


class Executor:
    def __init__(self, kube: Client, slurm: SlurmClient, site: Site) -> None:
        self._kube = kube
        self._slurm = slurm
        self._site = site

    def describe(self, workload: Workload) -> JobDescription:
        return translate(workload, self._site)

    async def submit(self, workload: Workload) -> Submission:
        """Once: where an answer was lost, or this process is not the first, the job that carries the marker is found instead."""
        description = self.describe(workload)
        marker = marker_for(self._site.cluster, str(workload.key), workload.uids)
        answer = await self._slurm.jobs.submit_external(description, marker=marker, marker_in="admin_comment", once=True)
        log.info("%s is Slurm job %d (%s)", workload.key, answer.job_id, description.name)
        return Submission(answer.job_id, description)

    async def label(self, pod: Pod, job_id: int) -> None:
        """With the pod's UID in the patch, the API server refuses it for another pod of that name."""
        change = {"metadata": {"uid": pod.metadata.uid, "labels": {JOB_ID: str(job_id) if job_id else None}}}
        await self._kube.patch(PODS, pod.metadata.name, change, pod.metadata.namespace)

    async def bind(self, pod: Pod, placement: Placement, annotations: Mapping[str, str]) -> None:
        try:
            await self._kube.bind(pod.metadata.name, pod.metadata.namespace, placement.node, uid=pod.metadata.uid, annotations=annotations)
        except ConflictError as error:
            log.info("pod %s is bound already, or is another one now: %s", pod.key, error)

    async def evict(self, pod: Pod, why: str) -> None:
        log.info("pod %s is evicted: %s", pod.key, why)
        try:
            await self._kube.evict(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except (NotFoundError, ConflictError):
            log.debug("pod %s is gone already", pod.key)

    async def release(self, pod: Pod) -> None:
        """Only our own finalizer, found by its value, so that nobody else's is taken off."""
        try:
            index = pod.metadata.finalizers.index(FINALIZER)
        except ValueError:
            return
        path = f"/metadata/finalizers/{index}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": path, "value": FINALIZER},
            {"op": "remove", "path": path},
        ]
        try:
            await self._kube.patch(PODS, pod.metadata.name, patch, pod.metadata.namespace, kind=PatchKind.JSON)
        except NotFoundError:
            log.debug("pod %s is gone already", pod.key)

    async def end_job(self, job_id: int, why: str) -> None:
        try:
            await self._slurm.jobs.update(job_id, JobDescription(comment=why[:1000]))
        except (NoSuchJobError, AlreadyDoneError):
            return
        try:
            await self._slurm.jobs.cancel(job_id)
        except (NoSuchJobError, AlreadyDoneError):
            log.debug("job %d is over already", job_id)


def task_annotations(description: JobDescription, placement: Placement, nodes: list[str], total: int) -> dict[str, str]:
    """What the pod's environment is made of, by the downward API; and what people and tools look for."""
    values = {
        "procid": placement.rank,
        "localid": placement.local_rank,
        "nodeid": nodes.index(placement.node),
        "ntasks": total,
        "nnodes": len(nodes),
        "nodelist": ",".join(nodes),
        "nodename": placement.node,
        "cpus-per-task": description.cpus_per_task or 1,
        "job-name": description.name or "",
        "partition": description.partition or "",
        "account": description.account or "",
        "qos": description.qos or "",
        "gpus": ",".join(str(index) for index in placement.devices.get("gpu", ())),
    }
    assert set(TASK_ENVIRONMENT.values()) <= set(values)
    found = {TASK + key: str(value) for key, value in values.items()}
    found[SLURM_NODE] = placement.node
    if placement.devices:
        found[DEVICES] = msgspec.json.encode(placement.devices).decode()
    return found
