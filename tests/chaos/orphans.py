"""Pods whose owner is no more, and that Kubernetes has yet to collect, by the API server's own word.

Comes in: pods that wait without a job. Goes out: for each whose controller, or that one's, is not there by its UID, which that is. What must stay true: only a clear answer counts; who could not be asked is there.

Kubernetes may never collect such pods: where an owner is deleted and another of the same name is made while the controller manager is cut off from the API server, its cache sees one object change and not one go, and the old one stays in the garbage
collector's graph (1.36; docs/operations.md). They have nobody to run for, and so the bridge gives them no job.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from slinky.kube import Client, KubeError, NotFoundError
from tests.chaos.history import PodSeen
from tests.chaos.users import PLURALS

__all__ = ["orphans"]


async def orphans(kube: Client, pods: Iterable[PodSeen]) -> dict[str, str]:
    """By a pod's UID, the owner that is gone."""
    found = {}
    for pod in pods:
        if pod.owner and not pod.node and not pod.job_id and (gone := await _gone_owner(kube, pod)):
            found[pod.uid] = gone
    return found


async def _gone_owner(kube: Client, pod: PodSeen) -> str:
    try:
        below = await _get(kube, f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        while owner := next((each for each in below["metadata"].get("ownerReferences", []) if each.get("controller")), None):
            said = f"{owner['kind']} {owner['name']} ({owner['uid']})"
            path = f"/apis/{owner['apiVersion']}/namespaces/{pod.namespace}/{PLURALS[owner['kind']]}/{owner['name']}"
            try:
                below = await _get(kube, path)
            except NotFoundError:
                return said
            if below["metadata"]["uid"] != owner["uid"]:
                return said
    except KubeError:
        return ""
    return ""


async def _get(kube: Client, path: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(await kube.raw("GET", path, seconds=10))
    return found
