"""Ending the bridge's own Deployments, before everything that it holds is let go.

Comes in: names of Deployments in the bridge's namespace. Goes out: none of their pods is left. What must stay true: one that is not there is ended; waiting has an end, which names what still runs.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from slinky.kube import Client, KubeError, NotFoundError, Resource

__all__ = ["stop_deployments"]

POLL_SECONDS = 0.5
DEPLOYMENTS: Resource[dict[str, Any]] = Resource("apps", "v1", "deployments", dict)


async def stop_deployments(kube: Client, namespace: str, names: Sequence[str], seconds: float) -> list[str]:
    """Those that there were, scaled to nothing. Raises KubeError where pods of one are still there after that time."""
    found = [name for name in names if await _scaled_down(kube, namespace, name)]
    try:
        async with asyncio.timeout(seconds):
            while any([await _pods(kube, namespace, name) for name in found]):  # noqa: ASYNC110 - the API server is asked
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        left = [name for name in found if await _pods(kube, namespace, name)]
        raise KubeError(
            f"Deployment {', '.join(left)} in namespace {namespace} was scaled to 0, and still has pods after {seconds:g} s; look why they do not end, and run this again"
        ) from None
    return found


async def _scaled_down(kube: Client, namespace: str, name: str) -> bool:
    try:
        await kube.patch(DEPLOYMENTS, name, {"spec": {"replicas": 0}}, namespace, subresource="scale")
    except NotFoundError:
        return False
    return True


async def _pods(kube: Client, namespace: str, name: str) -> int:
    """By the Deployment's own count, once it has heard of the change."""
    try:
        found = await kube.get(DEPLOYMENTS, name, namespace)
    except NotFoundError:
        return 0
    status = found.get("status") or {}
    if status.get("observedGeneration", 0) < found["metadata"]["generation"]:
        return 1
    return int(status.get("replicas", 0))
