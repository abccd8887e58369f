"""What is written on pods, nodes and Slurm nodes, by us and for us. The names are the original's; other tools read and write them."""

__all__ = [
    "CAUSE",
    "COMMON_NAME",
    "CORDON",
    "DEADLINE",
    "DELETION_COST",
    "FEATURES",
    "FINALIZER",
    "HOSTNAME",
    "HOSTNAME_OVERRIDE",
    "INDEX",
    "INSTANCE",
    "NODE_REASON",
    "OURS",
    "PROTECT",
    "REVISION",
    "SCALING_MODE",
    "SINCE",
    "SLURMD",
    "TOPOLOGY",
    "is_ours",
]

CORDON = "nodeset.slinky.slurm.net/pod-cordon"  # annotation: "true" drains the Slurm node, whoever writes it
CAUSE = "nodeset.slinky.slurm.net/pod-cordon-cause"  # annotation: why we cordoned it; without it, somebody else did
SINCE = "nodeset.slinky.slurm.net/pod-cordon-since"  # annotation: since when it is to go
DELETION_COST = "nodeset.slinky.slurm.net/pod-deletion-cost"
DEADLINE = "nodeset.slinky.slurm.net/pod-deadline"
NODE_REASON = "nodeset.slinky.slurm.net/node-cordon-reason"  # annotation of a Kubernetes node
HOSTNAME_OVERRIDE = "nodeset.slinky.slurm.net/hostname-override"  # annotation of a Kubernetes node
TOPOLOGY = "topology.slinky.slurm.net/spec"  # annotation of a Kubernetes node, and of its pod
FEATURES = "features.slinky.slurm.net/spec"  # annotation of a Kubernetes node

PROTECT = "nodeset.slinky.slurm.net/pod-protect"
INDEX = "nodeset.slinky.slurm.net/pod-index"
HOSTNAME = "nodeset.slinky.slurm.net/pod-hostname"
SCALING_MODE = "nodeset.slinky.slurm.net/scaling-mode"
REVISION = "controller-revision-hash"
COMMON_NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"

FINALIZER = "nodeset.slinky.slurm.net/workers"
SLURMD = "slurmd"  # the container that jobs run in
OURS = "slurm-operator: "  # a drain's reason that begins so is ours to undo


def is_ours(reason: str) -> bool:
    return reason.startswith(OURS)
