"""Slurm's state of a node, as conditions of its pod: `SlurmNodeStateIdle` and so on, the reason as the message.

In: a snapshot. Out: for each pod whose conditions say something else, what they are to say.
What must stay true: the names are the original's, for tools read them; what Slurm no longer says is taken away; of a node that Slurm does not know, nothing is said; while Slurm does not answer, nothing is changed.
"""

from collections.abc import Iterator

from slinky.operator.nodesets.acts import SetConditions
from slinky.operator.nodesets.choice import live
from slinky.operator.nodesets.snapshot import Snapshot
from slinky.slurm import Node as SlurmNode

__all__ = ["PREFIX", "conditions_of", "pod_conditions"]

PREFIX = "SlurmNodeState"
BASES = ("ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN")
FLAGS = {
    "COMPLETING": "Completing",
    "DRAIN": "Drain",
    "FAIL": "Fail",
    "INVALID": "Invalid",
    "INVALID_REG": "InvalidReg",
    "MAINTENANCE": "Maintenance",
    "NOT_RESPONDING": "NotResponding",
    "UNDRAIN": "Undrain",
}
NAMES = {base: PREFIX + base.capitalize() for base in BASES} | {flag: PREFIX + name for flag, name in FLAGS.items()}


def conditions_of(node: SlurmNode) -> dict[str, tuple[str, str, str]]:
    """Type to status, reason and message."""
    return {NAMES[word]: ("True", "", node.reason) for word in node.states if word in NAMES}


def pod_conditions(snapshot: Snapshot) -> Iterator[SetConditions]:
    if not snapshot.slurm.is_current:
        return
    for worker in live(snapshot):
        if not worker.is_assigned:
            continue
        wanted = {} if worker.slurm is None else conditions_of(worker.slurm)
        held = {one.type: (one.status, one.reason, one.message) for one in worker.pod.status.conditions if one.type.startswith(PREFIX)}
        if held != wanted:
            changed = {kind: said for kind, said in wanted.items() if held.get(kind) != said}
            yield SetConditions(worker.name, worker.uid, changed, gone=tuple(kind for kind in held if kind not in wanted))
