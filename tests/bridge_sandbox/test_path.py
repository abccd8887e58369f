"""A pod's way through Slurm on the real servers: it waits in Slurm's queue, is bound where Slurm says, and its job ends when it ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from slinky.bridge.admission import admit_pod
from slinky.bridge.executor import Executor
from slinky.bridge.keys import JOB_ID, SETTINGS
from slinky.bridge.membership import Membership
from slinky.bridge.reconciler import Reconciler
from slinky.bridge.settings import Settings
from slinky.bridge.translate import Site
from slinky.bridge.workload import PodGroup, WorkloadKey
from slinky.kube import JOBS, PODS, Client, Meta, Pod, Reflector, WorkQueue, from_kubeconfig
from slinky.kube import NotFoundError as NoSuchPodError
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobState, Pace, SlurmClient
from tests.bridge.test_admission import applied
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox

SETTINGS_HERE = Settings()


class Running:
    """A bridge at work, and what a test needs to watch it."""

    def __init__(self, sandbox: Sandbox, kube: Client, slurm: SlurmClient, namespace: str, groups: dict[str, int]) -> None:
        self.sandbox, self.kube, self.slurm, self.namespace, self.groups = sandbox, kube, slurm, namespace, groups

    async def create(
        self, name: str, cpus: int = 1, gpus: int = 0, annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None
    ) -> None:
        resources = {"cpu": str(cpus), "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        container = {"name": "c", "image": "none", "resources": {"requests": resources, "limits": resources}}
        meta = {"name": name, "namespace": self.namespace, "annotations": annotations or {}, "labels": labels or {}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], "restartPolicy": "Never"}}
        admitted = applied(pod, admit_pod(pod, SETTINGS_HERE, managed=True).patches)
        await self.kube.create(PODS.untyped, admitted, self.namespace)

    async def pod(self, name: str) -> Pod:
        return await self.kube.get(PODS, name, self.namespace)

    async def until(self, what: str, probe: Any) -> None:
        await self.sandbox.until("slurmctld", what, probe)

    async def until_running(self, name: str) -> Pod:
        async def runs() -> bool:
            return (await self.pod(name)).status.phase == "Running"

        await self.until(f"pod {name} ran", runs)
        return await self.pod(name)

    async def until_gone(self, name: str) -> None:
        async def gone() -> bool:
            try:
                await self.pod(name)
            except NoSuchPodError:
                return True
            return False

        await self.until(f"pod {name} was gone", gone)

    async def until_job(self, job_id: int, state: JobState) -> None:
        async def reached() -> bool:
            return (await self.slurm.jobs.get(job_id)).state is state

        await self.until(f"job {job_id} was {state}", reached)


@pytest.fixture
async def bridge(sandbox: Sandbox, namespace: str, partition: Partition) -> AsyncIterator[Running]:
    groups: dict[str, int] = {}

    def group_of(key: WorkloadKey) -> PodGroup | None:
        count = groups.get(key.name)
        return PodGroup(metadata=Meta(name=key.name, namespace=key.namespace), min_count=count, builtin=False) if count else None

    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube, sandbox.slurm_client() as slurm:
        pods, jobs = Reflector(kube, PODS, namespace=namespace), Reflector(kube, JOBS, namespace=namespace)
        queue: WorkQueue[WorkloadKey] = WorkQueue()
        membership = Membership(pods.cache, jobs.cache, queue.add)
        executor = Executor(kube, slurm, Site(cluster="test", partition=partition.name))
        reconciler = Reconciler(executor, slurm, membership, queue, group_of)
        async with jobs.running() as known_jobs, pods.running() as known_pods:
            await known_jobs.wait_synced()
            await known_pods.wait_synced()
            tasks = [
                asyncio.create_task(reconciler.follow_jobs(Pace(fastest=0.05, slowest=0.5))),
                asyncio.create_task(queue.serve(reconciler.reconcile, workers=16)),
            ]
            yield Running(sandbox, kube, slurm, namespace, groups)
            for name in [pod.metadata.name for pod in known_pods.list()]:
                await kube.delete(PODS, name, namespace)
            await sandbox.until("kwok", "all pods were gone", lambda: _empty(known_pods))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _empty(cache: Any) -> bool:
    return not cache.list()


async def test_a_pod_waits_is_bound_where_slurm_says_and_ends_its_job(bridge: Running) -> None:
    await bridge.create("p", cpus=2, gpus=1, annotations={"sandbox.slinky.slurm.net/run-for": "2s"})
    pod = await bridge.until_running("p")
    job = await bridge.slurm.jobs.get(int(pod.metadata.labels[JOB_ID]))
    assert job.name == f"{bridge.namespace}/p"
    assert job.nodes == pod.spec.node_name == pod.metadata.annotations["slinky.slurm.net/slurm-node"]
    assert pod.metadata.annotations["task.slinky.slurm.net/gpus"] in set("01234567")
    await bridge.until_job(job.job_id, JobState.CANCELLED)
    assert (await bridge.slurm.jobs.get(job.job_id)).comment == "all pods have ended"

    async def released() -> bool:
        return not (await bridge.pod("p")).metadata.finalizers

    await bridge.until("the finalizer was gone", released)


async def test_scancel_evicts_the_pod(bridge: Running) -> None:
    await bridge.create("p")
    pod = await bridge.until_running("p")
    await bridge.slurm.jobs.cancel(int(pod.metadata.labels[JOB_ID]))
    await bridge.until_gone("p")


async def test_a_pod_deleted_while_it_waits_takes_its_job_along(bridge: Running) -> None:
    await bridge.create("big", cpus=64, annotations={SETTINGS + "priority": "0"})

    async def labelled() -> bool:
        return JOB_ID in (await bridge.pod("big")).metadata.labels

    await bridge.until("the pod had its job", labelled)
    job_id = int((await bridge.pod("big")).metadata.labels[JOB_ID])
    assert (await bridge.slurm.jobs.get(job_id)).is_pending
    await bridge.kube.delete(PODS, "big", bridge.namespace)
    await bridge.until_gone("big")
    await bridge.until_job(job_id, JobState.CANCELLED)


async def test_a_gang_is_packed_in_rank_order(bridge: Running) -> None:
    """16 pods with a GPU each fill two nodes of eight."""
    bridge.groups["ring"] = 16
    labels = {"scheduling.x-k8s.io/pod-group": "ring"}
    for index in reversed(range(16)):
        await bridge.create(f"r-{index}", cpus=2, gpus=1, labels=labels)
    pods = [await bridge.until_running(f"r-{index}") for index in range(16)]
    assert len({pod.metadata.labels[JOB_ID] for pod in pods}) == 1
    nodes = [pod.spec.node_name for pod in pods]
    job = int(pods[0].metadata.labels[JOB_ID])
    order = [node.node for node in (await bridge.slurm.jobs.allocation(job)).nodes]
    assert nodes == [order[0]] * 8 + [order[1]] * 8
    assert [pod.metadata.annotations["task.slinky.slurm.net/procid"] for pod in pods] == [str(rank) for rank in range(16)]
    for node in set(nodes):
        devices = [pod.metadata.annotations["task.slinky.slurm.net/gpus"] for pod in pods if pod.spec.node_name == node]
        assert sorted(devices) == list("01234567")


async def test_what_slurm_refuses_is_parked_and_said(bridge: Running, caplog: pytest.LogCaptureFixture) -> None:
    await bridge.create("poor", annotations={SETTINGS + "account": "nosuch"})

    async def parked() -> bool:
        return "is parked for" in caplog.text

    await bridge.until("it was parked", parked)
    assert "nvalid account" in caplog.text
    assert JOB_ID not in (await bridge.pod("poor")).metadata.labels
