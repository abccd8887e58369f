"""The reasons that stand in Slurm beside a node that the bridge drained or put down: by them its own acts are told from everyone else's, after a restart too. Pure.

What must stay true: every reason of the bridge's begins with `slurm-bridge:`, and then with the one word or two that say what for (the original's begin so too, and go on as they like: what it drained is taken over with its nodes); all nodes that are drained for the same have the same reason, so that many are drained in one call.
"""

from slinky.bridge.node_mark import birth_reason
from slinky.slurm import Node

__all__ = [
    "CORDONED",
    "FLAPPING",
    "GONE",
    "LEAVING",
    "NOT_READY",
    "OCCUPIED",
    "OURS",
    "OUT_OF_SERVICE",
    "RENEWING",
    "is_by_others",
    "is_held_for",
    "kind_of",
    "takes_no_jobs",
]

OURS = "slurm-bridge:"

# The registration's own.
LEAVING = f"{OURS} leaving:"
RENEWING = f"{OURS} renewing:"

# What Kubernetes has against a node.
OUT_OF_SERVICE = f"{OURS} out of service"
GONE = f"{OURS} gone"  # not ready, and its pods are gone
OCCUPIED = f"{OURS} occupied"  # by pods whose jobs Slurm has lost
CORDONED = f"{OURS} cordoned"
FLAPPING = f"{OURS} flapping"
NOT_READY = f"{OURS} not ready"

KINDS = (LEAVING, RENEWING, OUT_OF_SERVICE, GONE, OCCUPIED, CORDONED, FLAPPING, NOT_READY)


def takes_no_jobs(found: Node) -> bool:
    """Somebody, or Slurm itself, has said so: drained, down or failed."""
    return not {"DRAIN", "DOWN", "FAIL"}.isdisjoint(found.states)


def kind_of(found: Node) -> str:
    """For what the nodes' side of the bridge drained it or put it down; empty where it did not. `OURS` alone: the original did, for whatever."""
    if not takes_no_jobs(found) or _went_down(found) or found.reason.startswith(birth_reason("")):
        return ""
    return next((kind for kind in (*KINDS, OURS) if found.reason.startswith(kind)), "")


def is_held_for(found: Node, *kinds: str) -> bool:
    return kind_of(found) in kinds


def is_by_others(found: Node) -> bool:
    """It takes no jobs, and not for any part of the bridge."""
    return takes_no_jobs(found) and (not found.reason.startswith(OURS) or _went_down(found))


def _went_down(found: Node) -> bool:
    """By itself: a node with a slurmd is only ever drained by the bridge. When it goes down meanwhile, Slurm leaves the reason as it is, and so does whoever takes the drain back."""
    return not found.is_external and found.is_down and "DRAIN" not in found.states
