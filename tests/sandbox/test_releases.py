"""Every Kubernetes release that is pinned comes up whole. Long: the others than the default are built here."""

import asyncio

import pytest

from slinky.sandbox.kubernetes import GANG_API
from slinky.sandbox.shape import WORKLOADS, Shape
from slinky.sandbox.versions import kubernetes_version, versions
from tests.conftest import Starter

pytestmark = [pytest.mark.sandbox, pytest.mark.long]


@pytest.mark.parametrize("release", versions().kubernetes.releases)
async def test_a_release_comes_up_with_its_gang_api_and_add_ons(start_sandbox: Starter, release: str) -> None:
    shape = Shape(nodes=4, real_nodes=1, addons=WORKLOADS, kubernetes=release)
    found = await asyncio.to_thread(start_sandbox, f"k{release.replace('.', '')}", shape)
    async with found.kube() as kube:
        assert (await kube.get("/version"))["gitVersion"] == f"v{kubernetes_version(release)}"
        for version in GANG_API[release]:
            served = {resource["name"] for resource in (await kube.get(f"/apis/{version}"))["resources"]}
            assert {"workloads"} <= served
        assert (await kube.get("/api/v1/nodes/node-0"))["status"]["nodeInfo"]["kubeletVersion"] == f"v{kubernetes_version(release)}"
