"""What Slurm is told about a drain of ours. Pure.

What must stay true: every reason begins with `slurm-operator: `, is one line, and is the same for all workers that go for one cause, so that they are drained in one request.
"""

from slinky.kube import Node
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.choice import Cause
from slinky.operator.nodesets.snapshot import Snapshot

__all__ = ["by_hand", "of_cause", "of_node"]

LONGEST = 256


def of_cause(cause: Cause, snapshot: Snapshot) -> str:
    words = {
        Cause.SCALE_IN: "is scaled in",
        Cause.UPDATE: "is updated",
        Cause.DELETION: "is deleted",
        Cause.MODE: "has another scaling mode now",
        Cause.PLACE: "no longer has this worker on this Kubernetes node",
    }
    return f"{marks.OURS}NodeSet ({snapshot.key}) {words[cause]}"


def by_hand(snapshot: Snapshot) -> str:
    return f"{marks.OURS}Pod of NodeSet ({snapshot.key}) is cordoned"


def of_node(node: Node, snapshot: Snapshot) -> str:
    """What the node's annotation says; else those of its conditions that are to be passed on; else that it is cordoned."""
    said = node.metadata.annotations.get(marks.NODE_REASON, "")
    if not said:
        held = (node.condition(kind) for kind in snapshot.propagated)
        said = "; ".join(f"{one.type}: {one.message or one.reason}" for one in held if one is not None and one.status == "True")
    return marks.OURS + (_one_line(said) or f"Node ({node.metadata.name}) is cordoned")


def _one_line(said: str) -> str:
    return " ".join("".join(mark if mark.isprintable() else " " for mark in said).split())[:LONGEST]
