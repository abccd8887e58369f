"""Extended resources as GRES: several on one node and in one pod, typed ones among them, as docs/guides/gpu-sharing.md has them; and what no GRES stands for, which Kubernetes counts."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slinky.bridge.keys import DEVICES, EXTERNAL_NODE, JOB_ID
from slinky.kube import EVENTS, NAMESPACES, NODES, PODS, Client, Pod, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import NotFoundError, SlurmClient
from tests.conftest import CHECKOUT, Starter

pytestmark = pytest.mark.sandbox

GRES = {
    "nvidia.com/gpu": "gpu:h100",
    "nvidia.com/mig-1g.10gb": "mig:1g.10gb",
    "nvidia.com/mig-3g.40gb": "mig:3g.40gb",
    "rdma/hca": "hca",
    "example.com/fpga": "fpga",  # which slurm.conf does not know
}
HAS = {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb": "2", "rdma/hca": "8"}


class Site:
    def __init__(self, sandbox: Sandbox, kube: Client, slurm: SlurmClient, node: str) -> None:
        self.sandbox, self.kube, self.slurm, self.node = sandbox, kube, slurm, node

    async def create(self, name: str, **asked: str) -> None:
        amounts = {"cpu": "1", "memory": "64Mi", **asked}
        box = {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
        body: dict[str, Any] = {
            "metadata": {"name": name},
            "spec": {"containers": [box], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0},
        }
        await self.kube.create(PODS.untyped, body, "lab")

    async def until_bound(self, name: str) -> Pod:
        async def bound() -> bool:
            return bool((await self.kube.get(PODS, name, "lab")).spec.node_name)

        await self.sandbox.until("slurmctld", f"pod {name} was bound", bound)
        return await self.kube.get(PODS, name, "lab")

    async def until_reason(self, name: str, reason: str) -> None:
        async def said() -> bool:
            pod = await self.kube.get(PODS, name, "lab")
            return JOB_ID in pod.metadata.labels and (await self.slurm.jobs.get(int(pod.metadata.labels[JOB_ID]))).state_reason == reason

        await self.sandbox.until("slurmctld", f"the job of pod {name} waited for {reason}", said)


@pytest.fixture(scope="module")
def place(start_sandbox: Starter) -> Sandbox:
    return start_sandbox("gres", Shape(nodes=2, register=False))


@pytest.fixture
async def site(place: Sandbox, tmp_path: Path) -> AsyncIterator[Site]:
    settings: dict[str, Any] = {"gres": GRES, "nodes": {"register": True, "settleSeconds": 1}, "managedNamespaces": ["lab"]}
    async with Client(from_kubeconfig(place.kubeconfig)) as kube, place.slurm_client() as slurm:
        node = (await kube.list(NODES)).items[0].metadata.name
        await kube.create(NAMESPACES.untyped, {"metadata": {"name": "lab"}})
        await give(kube, node, HAS)
        await kube.patch(NODES, node, {"metadata": {"labels": {EXTERNAL_NODE: ""}}})
        bridge: SandboxBridge
        async with sandbox_bridge(place, tmp_path, **settings) as bridge:
            assert bridge
            found = Site(place, kube, slurm, node)
            await until_registered(found, "gpu:h100:4,hca:8,mig:1g.10gb:7,mig:3g.40gb:2")
            yield found


async def give(kube: Client, node: str, amounts: dict[str, str]) -> None:
    await kube.patch(NODES, node, {"status": {"allocatable": amounts, "capacity": amounts}}, subresource="status")


async def until_registered(site: Site, gres: str) -> None:
    async def registered() -> bool:
        try:
            found = await site.slurm.nodes.get(site.node)
        except NotFoundError:
            return False
        return set(found.gres.split(",")) == set(gres.split(",")) and "DRAIN" not in found.states

    await site.sandbox.until("slurmctld", f"node {site.node} had {gres}", registered)


async def test_a_pod_has_several_gres_at_once_and_slurm_queues_for_each_of_them(site: Site) -> None:
    several = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-3g.40gb": "1", "rdma/hca": "1"}
    await site.create("several", **several)
    pod = await site.until_bound("several")
    devices = msgspec.json.decode(pod.metadata.annotations[DEVICES])
    assert devices == {"gpu": [0], "hca": [0], "mig": [0, 1, 7]}, "two of the small ones, and one of the large, which come after those"
    job = await site.slurm.jobs.get(int(pod.metadata.labels[JOB_ID]))
    assert set(job.tres_per_task.split(",")) == {"gres/gpu:h100:1", "gres/hca:1", "gres/mig:1g.10gb:2", "gres/mig:3g.40gb:1"}

    await site.create("both", **{"nvidia.com/mig-3g.40gb": "2"})
    await site.until_reason("both", "Resources")
    await site.create("small", **{"nvidia.com/mig-1g.10gb": "5"})
    await site.until_bound("small")
    await site.kube.delete(PODS, "several", "lab", grace_seconds=0)
    both = await site.until_bound("both")
    assert msgspec.json.decode(both.metadata.annotations[DEVICES]) == {"mig": [7, 8]}

    await leaves_out_what_slurm_does_not_know(site)


async def leaves_out_what_slurm_does_not_know(site: Site) -> None:
    """It is said once, and the node is not drained again and again for it."""
    await site.kube.raw("DELETE", "/api/v1/namespaces/lab/pods", body={"gracePeriodSeconds": 0})
    await give(site.kube, site.node, {"example.com/fpga": "2", "rdma/hca": "4"})
    await until_registered(site, "gpu:h100:4,hca:4,mig:1g.10gb:7,mig:3g.40gb:2")

    async def told() -> bool:
        notes = [event.note for event in (await site.kube.list(EVENTS, "default")).items if event.regarding.name == site.node]
        return any("registered without fpga" in note and "GresTypes" in note for note in notes)

    await site.sandbox.until("kube-apiserver", "an Event told of GresTypes", told)
    await site.create("after")
    await site.until_bound("after")


async def test_shared_gpus_are_counted_as_the_guide_says(place: Sandbox, tmp_path: Path) -> None:
    """With the values and the pods of docs/guides/gpu-sharing.md, on a node that has what its device plugin would tell."""
    guides = CHECKOUT / "examples/guides"
    gres = yaml.safe_load((guides / "gpu-sharing-bridge.yaml").read_text())["config"]["gres"]
    settings: dict[str, Any] = {"gres": gres, "nodes": {"register": True, "settleSeconds": 1}, "managedNamespaces": ["team"]}
    has = {"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb": "2", "nvidia.com/gpu.shared": "8"}
    wanted = {"notebook": "gres/mig:1g.10gb:1", "tune": "gres/mig:3g.40gb:2", "lesson": "gres/slice:1"}
    async with Client(from_kubeconfig(place.kubeconfig)) as kube, place.slurm_client() as slurm:
        node = (await kube.list(NODES)).items[1].metadata.name
        await kube.create(NAMESPACES.untyped, {"metadata": {"name": "team"}})
        await give(kube, node, has)
        await kube.patch(NODES, node, {"metadata": {"labels": {EXTERNAL_NODE: ""}}})
        async with sandbox_bridge(place, tmp_path, **settings):
            site = Site(place, kube, slurm, node)
            await until_registered(site, "gpu:8,mig:1g.10gb:7,mig:3g.40gb:2,slice:8")  # the whole ones are kwok's own
            for pod in yaml.safe_load_all((guides / "gpu-sharing.yaml").read_text()):
                await kube.create(PODS.untyped, pod, "team")
            for name, tres in wanted.items():

                async def bound(name: str = name) -> bool:
                    return bool((await kube.get(PODS, name, "team")).spec.node_name)  # the first node has parts too

                await place.until("slurmctld", f"pod {name} was bound", bound)
                pod = await kube.get(PODS, name, "team")
                assert (await slurm.jobs.get(int(pod.metadata.labels[JOB_ID]))).tres_per_task == tres
