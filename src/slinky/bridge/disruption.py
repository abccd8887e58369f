"""One pod's eviction: through the Eviction API, which asks the disruption budgets, or past them. Either way the pod says why, by condition `DisruptionTarget`.

Comes in: a pod, a reason for machines and one for people. Goes out: the pod is being deleted, with its own grace period; or the words of the budget that is in the way. What must stay true: only that very pod, by its UID; the API server writes
the condition itself when it evicts, in words of its own, so ours goes after it; a deletion writes none, so ours goes before it. A kubelet that had not seen ours yet writes back what it knew: `say` is there for that.
"""

import datetime as dt
import logging
from typing import Any

from slinky.bridge.keys import DISRUPTION_TARGET
from slinky.kube import (
    PODS,
    Client,
    ConflictError,
    InvalidError,
    KubeError,
    NotFoundError,
    PatchKind,
    Pod,
    TooManyRequestsError,
    UnavailableError,
)

__all__ = ["delete_past_budgets", "evict_within_budgets", "say"]

log = logging.getLogger(__name__)

MOST_MESSAGE = 1024
SEVERAL = "more than one PodDisruptionBudget"  # the API server's words for what it cannot judge, as an internal error


async def evict_within_budgets(kube: Client, pod: Pod, reason: str, why: str) -> str:
    """Empty where it is done; else what the budget says. Raises NotFoundError or ConflictError: it is gone, or another has its name, or nothing but the moment was wrong."""
    try:
        await kube.evict(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
    except TooManyRequestsError as error:
        budgets = [cause.message for cause in error.causes if cause.reason == "DisruptionBudget"]
        if not budgets and "disruption budget" not in error.message:
            raise  # the server is busy, no more
        return " ".join([error.message, *budgets])
    except UnavailableError as error:
        if SEVERAL not in error.message:
            raise
        return error.message
    await say(kube, pod, reason, why)
    return ""


async def delete_past_budgets(kube: Client, pod: Pod, reason: str, why: str) -> None:
    """Raises as `evict_within_budgets` does."""
    await say(kube, pod, reason, why)
    await kube.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)


async def say(kube: Client, pod: Pod, reason: str, why: str) -> None:
    """Not worth the eviction: where it cannot be written, the Event tells the same."""
    condition: dict[str, Any] = {"type": DISRUPTION_TARGET, "status": "True", "reason": reason, "message": why[:MOST_MESSAGE]}
    condition["lastTransitionTime"] = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    change = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    try:
        await kube.patch(PODS, pod.metadata.name, change, pod.metadata.namespace, kind=PatchKind.STRATEGIC, subresource="status")
    except (NotFoundError, ConflictError, InvalidError):
        log.debug("pod %s is gone already, or is another one now", pod.key)
    except KubeError as error:
        log.warning("pod %s does not say why it is evicted (%s): %s", pod.key, why, error)
