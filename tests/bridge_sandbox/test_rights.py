"""The bridge with the rights of examples/bridge-rbac.yaml and no more: as ServiceAccounts, with their tokens."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slinky.bridge.keys import NODE_CONDITION, SLURM_NODE_NAME
from slinky.bridge.volumes.stock import SELECTED_NODE
from slinky.kube import NODES, PODS, Client, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge, bridge_settings
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobState, NodeDescription
from tests.bridge_sandbox.conftest import Team, open_team
from tests.bridge_sandbox.test_volumes import DRIVER, Storage
from tests.conftest import CHECKOUT, Partition

pytestmark = pytest.mark.sandbox


async def kubectl(sandbox: Sandbox, *words: str) -> None:
    process = await asyncio.create_subprocess_exec(str(sandbox.folder / "bin/kubectl"), *words, env=os.environ | sandbox.exports())
    assert await process.wait() == 0


async def kubeconfig_of(kube: Client, sandbox: Sandbox, account: str, folder: Path, namespace: str = "slinky") -> Path:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = msgspec.json.decode(await kube.raw("POST", path, body={"spec": {"expirationSeconds": 3600}}))
    known: dict[str, Any] = yaml.safe_load(sandbox.kubeconfig.read_text())
    known["users"] = [{"name": account, "user": {"token": answer["status"]["token"]}}]
    known["contexts"] = [{"name": account, "context": {"cluster": known["clusters"][0]["name"], "user": account}}]
    known["current-context"] = account
    found = folder / f"{account}.kubeconfig"
    found.write_text(yaml.safe_dump(known))
    found.chmod(0o600)
    claims = msgspec.json.decode(base64.urlsafe_b64decode(answer["status"]["token"].split(".")[1] + "=="))
    assert claims["sub"] == f"system:serviceaccount:{namespace}:{account}"
    return found


async def with_volumes(team: Team) -> None:
    """One that is there, and one that is made; and one that is given up."""
    async with Storage(team).running() as storage:
        local, made = await storage.storage_class("local"), await storage.storage_class("made", DRIVER)
        for node in team.partition.nodes:
            await storage.volume(f"on-{node}", local, node)
        await storage.claim("there", local)
        await storage.claim("made", made)
        await storage.claim("never", made)
        async with storage.provisioner(lambda claim, _: claim.metadata.name == "made" or None):
            await team.create(storage.pod("both", "there", "made"), storage.pod("never", "never"))
            await team.until_running("both")
            await storage.until_claim("never", "named a node", lambda claim: SELECTED_NODE in claim.metadata.annotations)
            await team.kube.delete(PODS, "never", team.namespace)
            await storage.until_claim("never", "named no node", lambda claim: SELECTED_NODE not in claim.metadata.annotations)


async def with_a_node_that_slurm_drains(team: Team) -> None:
    """Of one with a slurmd, so that no node of the sandbox's own is touched."""
    name = "rights-1"
    theirs = NodeDescription(name=name, external=False, address="10.201.9.9", cpus=2, real_memory=100, other={"State": "CLOUD"})
    await team.slurm.nodes.create(theirs)
    await team.kube.create(NODES.untyped, {"metadata": {"name": name, "labels": {SLURM_NODE_NAME: name}}})
    await team.slurm.nodes.drain(name, "fan")

    async def shown() -> bool:
        node = await team.kube.get(NODES, name)
        return node.spec.unschedulable and node.condition(NODE_CONDITION) is not None

    await team.until(f"Node {name} was cordoned", shown)
    await team.kube.delete(NODES, name)
    await team.slurm.nodes.delete(name)


async def test_the_rights_of_the_example_are_enough(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    manifest = str(CHECKOUT / "examples/bridge-rbac.yaml")
    await kubectl(sandbox, "apply", "-f", manifest)
    settings = await asyncio.to_thread(
        bridge_settings,
        sandbox,
        name="rights",
        namespace="slinky",
        managedNamespaceSelector={"matchLabels": {"bridge": "rights"}},
        nodes={"register": True},
        admission={"bridgeUsers": ["system:serviceaccount:slinky:slurm-bridge"]},
        status={"seconds": 1},
    )
    bridge = SandboxBridge(sandbox, settings, tmp_path)
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
        bridge.kubeconfigs = {
            part: await kubeconfig_of(kube, sandbox, account, tmp_path)
            for part, account in (("run", "slurm-bridge"), ("admission", "slurm-bridge-admission"))
        }
    try:
        await kubectl(sandbox, "auth", "can-i", "create", "pods", "--subresource=exec", "--as=system:serviceaccount:slinky:slurm-bridge")
        for part in ("admission", "run"):
            await bridge.start(part)
        async with open_team(sandbox, partition, label="rights") as team:
            group = {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": "pair", "annotations": team.said()},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
            }
            members = [team.pod(f"pair-{index}", gpus=8) for index in range(2)]
            for member in members:
                member["spec"]["schedulingGroup"] = {"podGroupName": "pair"}
            await team.create(group, *members)
            await team.create(team.pod("ends", run_for="1s"), team.pod("waits", said={"priority": "0"}), team.pod("cancelled"))
            pods = await team.until_running("pair-0", "pair-1", "cancelled")
            assert (
                pods[0].metadata.labels["scheduler.slinky.slurm.net/slurm-jobid"]
                == pods[1].metadata.labels["scheduler.slinky.slurm.net/slurm-jobid"]
            )
            assert pods[0].spec.node_name != pods[1].spec.node_name
            await team.until_job((await team.job_of("ends")).job_id, JobState.COMPLETED)
            await team.until_condition("waits", "JobHeldUser")
            await team.head("scancel", str((await team.job_of("cancelled")).job_id))
            await team.until_gone("cancelled")
            await with_volumes(team)
            await with_a_node_that_slurm_drains(team)
        for part in ("run", "admission"):
            assert "orbidden" not in bridge.log(part)
    finally:
        await bridge.end()
        await kubectl(sandbox, "delete", "-f", manifest, "--wait=false")
