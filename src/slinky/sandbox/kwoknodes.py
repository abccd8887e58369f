"""The nodes whose kubelet kwok plays: made in Kubernetes, waited for, and told to Slurm as external nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from slinky.sandbox.client import Kube
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kubernetes import kwok_nodes
from slinky.sandbox.sink import ADDRESS
from slinky.sandbox.slurm import external_node

__all__ = ["all_ready", "make", "register", "side_by_side"]


async def make(sandbox: Sandbox, kube: Kube) -> None:
    await side_by_side(24, (kube.post("/api/v1/nodes", node) for node in kwok_nodes(sandbox.record.shape)))


async def all_ready(kube: Kube, wanted: int, say: Callable[[str], None]) -> bool:
    listed = await kube.get("/api/v1/nodes?labelSelector=type%3Dkwok")
    ready = sum(_is_ready(node) for node in listed["items"])
    say(f"{ready} of {wanted} ready")
    return bool(ready == wanted)


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
    keys = {taint["key"] for taint in node["spec"].get("taints", [])}
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in keys


async def register(sandbox: Sandbox) -> None:
    """Tell Slurm of them as external nodes, one call a node: with GPUs Slurm 26.05 takes no more at once."""
    async with sandbox.slurm_client() as client:

        def tell(node: dict[str, Any]) -> Awaitable[Any]:
            address = ADDRESS if sandbox.record.shape.sink else node["status"]["addresses"][0]["address"]
            return client.nodes.create(external_node(node["metadata"]["name"], address, sandbox.record.shape))

        await side_by_side(8, (tell(node) for node in kwok_nodes(sandbox.record.shape)))


async def side_by_side(places: int, work: Iterable[Awaitable[Any]]) -> None:
    """Everything in `work`, at most `places` at once; the first error ends it."""
    queue = iter(work)

    async def worker() -> None:
        for item in queue:
            await item

    await asyncio.gather(*(worker() for _ in range(places)))
