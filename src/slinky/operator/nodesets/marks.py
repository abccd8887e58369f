"""What is written on pods, nodes and Slurm nodes, by us and for us, in the words that are used here. The names that others read and write too stand in `slinky.operator.labels`."""

from slinky.operator import labels

__all__ = [
    "BEFORE",
    "CAUSE",
    "CORDON",
    "DEADLINE",
    "DELETION_COST",
    "FEATURES",
    "FINALIZER",
    "HOSTNAME",
    "INDEX",
    "NODE_REASON",
    "ORIGINALS",
    "OURS",
    "PROTECT",
    "REVISION",
    "SCALING_MODE",
    "SINCE",
    "SLURMD",
    "TOPOLOGY",
    "is_ours",
    "said_before",
    "with_before",
    "without_before",
]

CORDON = labels.POD_CORDON  # annotation: "true" drains the Slurm node, whoever writes it
CAUSE = "nodeset.slinky.slurm.net/pod-cordon-cause"  # annotation: why we cordoned it; without it, somebody else did
SINCE = "nodeset.slinky.slurm.net/pod-cordon-since"  # annotation: since when
DELETION_COST = labels.POD_DELETION_COST
DEADLINE = labels.POD_DEADLINE
NODE_REASON = labels.NODE_CORDON_REASON
TOPOLOGY = labels.TOPOLOGY
FEATURES = labels.FEATURES

PROTECT = labels.POD_PROTECT
INDEX = labels.POD_INDEX
HOSTNAME = labels.POD_HOSTNAME
SCALING_MODE = labels.SCALING_MODE
REVISION = labels.REVISION

FINALIZER = "nodeset.slinky.slurm.net/workers"
ORIGINALS = "nodeset.slinky.slurm.net/reservation"  # the original's finalizer, which nobody but us takes away once it is gone
SLURMD = "slurmd"  # the container that jobs run in
OURS = "slurm-operator: "  # a drain's reason that begins so is ours to undo


BEFORE = "; before: "  # behind a reason of ours: what somebody else had said of the node, which is to come back
NOT_RESPONDING = "Not responding"  # slurmctld's own word, which says nothing that its state does not


def is_ours(reason: str) -> bool:
    return reason.startswith(OURS)


def said_before(reason: str) -> str:
    """What somebody else says, or said before us."""
    if is_ours(reason):
        return reason.partition(BEFORE)[2]
    return "" if reason.startswith(NOT_RESPONDING) else reason


def with_before(ours: str, before: str) -> str:
    return f"{ours}{BEFORE}{before}" if before else ours


def without_before(ours: str) -> str:
    return ours.partition(BEFORE)[0]
