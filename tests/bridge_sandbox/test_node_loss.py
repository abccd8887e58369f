"""Nodes that are gone: their pods are let go, and what they held in Slurm with them."""

import datetime as dt
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from slinky.bridge.keys import FINALIZER
from slinky.kube import NODES, PODS, NotFoundError, PatchKind
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kubernetes import kwok_nodes
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import own_bridge
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox


async def silence(team: Team, node: str) -> None:
    """Nobody plays its kubelet any more, and it has not been heard of for an hour."""
    await team.kube.patch(NODES, node, {"metadata": {"labels": {"type": None}}})
    long_ago = f"{dt.datetime.now(dt.UTC) - dt.timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "", "lastTransitionTime": long_ago}
    await team.kube.patch(NODES, node, {"status": {"conditions": [unknown]}}, kind=PatchKind.STRATEGIC, subresource="status")


async def test_issue_49_a_pod_on_a_node_that_is_gone_is_let_go_and_its_allocation_with_it(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    """Of four pods that are being deleted, one on a node that is silent, one on a node that was deleted, one on a node out of service, and one on a node that is merely slow: the last keeps what it has."""
    async with own_bridge(sandbox, partition, tmp_path, nodes={"register": False, "goneSeconds": 300}) as (_, team):
        names = ["a", "b", "c", "d"]
        await team.create(*(team.pod(name, cpus=40, annotations={"sandbox.slinky.slurm.net/stop-after": "20s"}) for name in names))
        pods = await team.until_running(*names)
        ids = await team.until_labelled(*names)
        silent, deleted, off, slow = (pod.spec.node_name for pod in pods)
        assert len({silent, deleted, off, slow}) == 4
        try:
            await silence(team, silent)
            await team.kube.patch(NODES, off, {"metadata": {"labels": {"type": None}}})
            await team.kube.delete(NODES, deleted)
            for name in ("a", "b", "d"):
                await team.kube.delete(PODS, name, team.namespace)
            taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
            await team.kube.patch(NODES, off, {"spec": {"taints": [taint]}}, kind=PatchKind.STRATEGIC)  # which deletes c
            for job_id in ids[:3]:
                await team.until_job(job_id, JobState.CANCELLED)

            async def let_go(name: str) -> bool:
                try:
                    return FINALIZER not in (await team.get(name)).metadata.finalizers
                except NotFoundError:
                    return True

            for name in ("a", "b", "c"):
                await team.until(f"pod {name} was let go", lambda name=name: let_go(name))  # type: ignore[misc]
            assert (await team.get("a")).metadata.deletion_timestamp, "it is not deleted by force: its node may come back"
            assert (await team.slurm.jobs.get(ids[3])).is_running, "its containers are not gone yet"
        finally:
            await restore(team, sandbox, silent, deleted, off)
        for name in ("a", "b", "c"):  # an administrator does, who knows
            with suppress(NotFoundError):
                await team.kube.delete(PODS, name, team.namespace, grace_seconds=0)
        await team.until_gone(*names)
        await team.until_job(ids[3], JobState.CANCELLED)


async def restore(team: Team, sandbox: Sandbox, silent: str, deleted: str, off: str) -> None:
    made: dict[str, Any] = {node["metadata"]["name"]: node for node in kwok_nodes(sandbox.record.shape)}
    await team.kube.create(NODES.untyped, made[deleted])
    await team.kube.patch(NODES, off, {"spec": {"taints": None}})
    for node in (silent, off):
        await team.kube.patch(NODES, node, {"metadata": {"labels": {"type": "kwok"}}})

    async def ready() -> bool:
        nodes = [await team.kube.get(NODES, name) for name in (silent, deleted, off)]
        return all((found := node.condition("Ready")) and found.status == "True" and not node.spec.taints for node in nodes)

    await team.until("the nodes were back", ready, 90)
