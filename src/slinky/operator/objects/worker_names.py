"""What a worker is called: its pod, and the Slurm node it is. Pure; a pod's name depends on which worker it is and on nothing that can change."""

import hashlib

from slinky.kube.objects import Node
from slinky.operator import labels
from slinky.operator.kinds import NodeSet

__all__ = ["host_name", "padded", "pod_name"]


def padded(nodeset: NodeSet, ordinal: int) -> str:
    return str(ordinal).zfill(nodeset.spec.ordinal_padding)


def pod_name(nodeset: NodeSet, ordinal: int | None, node: Node | None) -> str:
    """By its number; in mode DaemonSet by its Kubernetes node, whose name may be too long or too similar to another's to stand in it."""
    name = nodeset.metadata.name
    if nodeset.spec.is_daemon_set:
        if node is None:
            raise ValueError(f"NodeSet {name}: a worker in mode DaemonSet is of a Kubernetes node, and none is given")
        return f"{name}-{hashlib.sha256(node.metadata.name.encode()).hexdigest()[:8]}"
    if ordinal is None:
        raise ValueError(f"NodeSet {name}: a worker in mode StatefulSet has a number, and none is given")
    return f"{name}-{padded(nodeset, ordinal)}"


def host_name(nodeset: NodeSet, ordinal: int | None, node: Node | None) -> str:
    """The Slurm node's name. On the host's own network it is the host's, whatever else is written: empty while that is not known."""
    if nodeset.spec.template.spec.get("hostNetwork"):
        return node.metadata.name.split(".", 1)[0] if node else ""
    if nodeset.spec.is_daemon_set and node is not None:
        return node.metadata.annotations.get(labels.HOSTNAME_OVERRIDE) or node.metadata.name.split(".", 1)[0]
    prefix = nodeset.spec.template.spec.get("hostname")
    if prefix and ordinal is not None:
        return f"{prefix}{padded(nodeset, ordinal)}"
    return pod_name(nodeset, ordinal, node)
