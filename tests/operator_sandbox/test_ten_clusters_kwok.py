"""Ten clusters in ten namespaces on one operator: all become ready, and one whose Slurm is dead and one whose Slurm hangs keep none of the others waiting."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from slinky.kube import NAMESPACES, PODS, Client, KubeError, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.operator import install_crds
from slinky.sandbox.played_cluster import NODESETS, PlayedCluster, played_workers
from slinky.sandbox.processes import Processes, free_port
from slinky.slurm import SlurmError
from tests.faults.proxy import Fault, FaultProxy

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

WORKERS = 3
SECONDS = 120.0
_numbers = itertools.count()


class Ten:
    def __init__(self, sandbox: Sandbox, operator: Processes, clusters: list[PlayedCluster]) -> None:
        self.sandbox, self.operator, self.clusters = sandbox, operator, clusters

    async def until(self, what: str, probe: Callable[[], Awaitable[object]]) -> None:
        try:
            await self.sandbox.until("slurmctld", what, probe, SECONDS)
        except Exception as error:
            raise AssertionError(f"{what}: not so. {self.operator.log('run')[-6000:]}") from error

    async def until_ready(self, cluster: PlayedCluster, count: int) -> None:
        name = nodeset_of(cluster)

        async def ready() -> bool:
            found = await cluster.kube.get(NODESETS, name, cluster.namespace)
            status = found.get("status", {})
            said = {one["type"]: one["status"] for one in status.get("conditions", [])}
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            return seen and status.get("readyReplicas") == status.get("replicas") == count and said.get("Progressing") == "False"

        await self.until(f"NodeSet {name} had {count} workers and rested", ready)

    async def until_silent(self, cluster: PlayedCluster) -> None:
        async def silent() -> bool:
            found = await cluster.kube.get(NODESETS, nodeset_of(cluster), cluster.namespace)
            status = found.get("status", {})
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            return seen and any(one["reason"] == "SlurmNotAnswering" for one in status.get("conditions", []))

        await self.until(f"NodeSet {nodeset_of(cluster)} said that its Slurm does not answer", silent)

    async def workers(self, cluster: PlayedCluster) -> int:
        listed = await cluster.kube.list(PODS, cluster.namespace, labels="app.kubernetes.io/name=slurmd")
        return sum(pod.metadata.deletion_timestamp is None for pod in listed.items)


def nodeset_of(cluster: PlayedCluster) -> str:
    """They share one Slurm: each has names of its own there."""
    return f"{cluster.namespace}w"


@contextlib.asynccontextmanager
async def ten(sandbox: Sandbox, folder: Path, ports: list[int]) -> AsyncIterator[Ten]:
    """`ports`: where each cluster's slurmrestd is."""
    number = next(_numbers)
    operator = Processes("operator", folder)
    slurm = {
        "address": "http://127.0.0.1:{port}",
        "fastestPoll": 0.5,
        "slowestPoll": 2.0,
        "currentSeconds": 8.0,
        "requestSeconds": 5.0,
    }
    names = [f"ten{number}-{index}" for index in range(len(ports))]
    settings = {"namespaces": names, "namespace": names[0], "leader": {"elect": False}, "slurm": slurm}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    await install_crds(sandbox)
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube, sandbox.slurm_client() as client:
        for name in names:
            await kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        clusters = [PlayedCluster(sandbox, kube, name) for name in names]
        await operator.start_part("run", "--config", str(folder / "config.yaml"), "--kubeconfig", str(sandbox.kubeconfig))
        try:
            for cluster, port in zip(clusters, ports, strict=True):
                await cluster.create_head(port)
            async with played_workers(kube, client):
                yield Ten(sandbox, operator, clusters)
        finally:
            await operator.stop_all()
            for cluster in clusters:
                with contextlib.suppress(KubeError):
                    await kube.patch(NODESETS, nodeset_of(cluster), {"metadata": {"finalizers": None}}, cluster.namespace)
                await kube.delete(NAMESPACES, cluster.namespace)
            with contextlib.suppress(SlurmError):
                await client.nodes.delete([node.name for node in await client.nodes.all() if node.name.startswith(f"ten{number}-")])


async def test_ten_become_ready_and_two_with_a_bad_slurm_keep_nobody_waiting(sandbox: Sandbox, tmp_path: Path) -> None:
    async with FaultProxy(sandbox.slurm_server) as good, FaultProxy(sandbox.slurm_server, lambda _: Fault.STALL) as hanging:
        ports = [free_port(), port_of(hanging), *[port_of(good)] * 8]
        async with ten(sandbox, tmp_path, ports) as site:
            dead, hangs, *others = site.clusters
            await asyncio.gather(*(each.nodeset(nodeset_of(each), replicas=WORKERS, oversubscribeNode=True) for each in site.clusters))
            await asyncio.gather(*(site.until_ready(each, WORKERS) for each in others))
            await asyncio.gather(*(each.change(nodeset_of(each), replicas=1) for each in site.clusters))
            await asyncio.gather(*(site.until_ready(each, 1) for each in others))
            for each in (dead, hangs):
                await site.until_silent(each)
                assert await site.workers(each) == WORKERS  # nobody has said that no job is there
            hanging.plan = lambda _: Fault.NONE
            await site.until_ready(hangs, 1)
            assert await site.workers(dead) == WORKERS


def port_of(proxy: FaultProxy) -> int:
    return urlsplit(proxy.url).port or 0
