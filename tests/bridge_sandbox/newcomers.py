"""Nodes that a test brings along and takes away again, in Kubernetes and in Slurm; and commands as an admin runs them."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from slinky.bridge.keys import EXTERNAL_NODE, EXTERNAL_NODE_PARTITIONS
from slinky.kube import NODES, Client, NotFoundError, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from slinky.slurm import NotFoundError as NotInSlurmError
from slinky.slurm import SlurmClient, SlurmError

__all__ = ["a_node", "brought_along", "command", "gone_from_slurm", "slinky"]

CPUS, MEMORY_MIB = 8, 16384
COMMAND_SECONDS = 120.0


def a_node(name: str, address: str, feature: str) -> dict[str, Any]:
    """As an admin labels it for either bridge; kwok plays its kubelet."""
    resources = {"cpu": str(CPUS), "memory": f"{MEMORY_MIB}Mi", "pods": "110", "ephemeral-storage": "100Gi"}
    return {
        "metadata": {
            "name": name,
            "labels": {"type": "kwok", "kubernetes.io/hostname": name, EXTERNAL_NODE: ""},
            "annotations": {"kwok.x-k8s.io/node": "fake", EXTERNAL_NODE_PARTITIONS: feature},
        },
        "status": {"capacity": resources, "allocatable": resources, "addresses": [{"type": "InternalIP", "address": address}]},
    }


@asynccontextmanager
async def brought_along(sandbox: Sandbox, prefix: str, count: int, partition: str) -> AsyncIterator[list[str]]:
    """Kubernetes nodes of the test's own. At the end they are gone from both sides, and so is the partition, if there is one."""
    names = [f"{prefix}-{index}" for index in range(count)]
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube, sandbox.slurm_client() as slurm:
        for index, name in enumerate(names):
            await kube.create(NODES.untyped, a_node(name, f"10.209.{ord(prefix[0])}.{index + 1}", partition))
        try:
            yield names
        finally:
            for name in names:
                with suppress(NotFoundError):
                    await kube.delete(NODES, name)
            with suppress(Exception):  # where the test did not come to make it
                await sandbox.link.run("head", "scontrol", "delete", f"PartitionName={partition}")
            for name in names:
                with suppress(SlurmError):
                    await slurm.nodes.delete(name)


async def gone_from_slurm(slurm: SlurmClient, name: str) -> bool:
    try:
        await slurm.nodes.get(name)
    except NotInSlurmError:
        return True
    return False


def command(bridge: SandboxBridge, sandbox: Sandbox, *words: str) -> list[str]:
    return [sys.executable, "-m", "slinky", *words, "--config", str(bridge.config), "--kubeconfig", str(sandbox.kubeconfig)]


async def slinky(bridge: SandboxBridge, sandbox: Sandbox, *words: str) -> tuple[int, str]:
    """The exit code, and what it printed on both streams."""
    process = await asyncio.create_subprocess_exec(
        *command(bridge, sandbox, *words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    return process.returncode or 0, output.decode()
