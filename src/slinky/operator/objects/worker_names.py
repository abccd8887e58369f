"""What a worker is called: its pod, and the Slurm node it is. Pure; a pod's name depends on which worker it is and on nothing that can change.

In mode DaemonSet a pod's name has 32 bits of a hash of its Kubernetes node's name. Of 5,000 nodes two have the same 32 bits in 3 of 1,000 clusters
(5000² / 2 / 2³²); so a name that the pod of another node has is passed over for the next one (`free_name`).
"""

import hashlib
from collections.abc import Mapping
from itertools import count

from slinky.kube.objects import Node
from slinky.operator import labels
from slinky.operator.kinds import NodeSet

__all__ = ["free_name", "host_name", "padded", "pod_name"]


def padded(nodeset: NodeSet, ordinal: int) -> str:
    return str(ordinal).zfill(nodeset.spec.ordinal_padding)


def pod_name(nodeset: NodeSet, ordinal: int | None, node: Node | None) -> str:
    """By its number; in mode DaemonSet by its Kubernetes node, whose name may be too long or too similar to another's to stand in it."""
    name = nodeset.metadata.name
    if nodeset.spec.is_daemon_set:
        if node is None:
            raise ValueError(f"NodeSet {name}: a worker in mode DaemonSet is of a Kubernetes node, and none is given")
        return _hashed(name, node.metadata.name)
    if ordinal is None:
        raise ValueError(f"NodeSet {name}: a worker in mode StatefulSet has a number, and none is given")
    return f"{name}-{padded(nodeset, ordinal)}"


def _hashed(name: str, node: str, tries: int = 0) -> str:
    text = f"{node}\0{tries}" if tries else node
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def free_name(nodeset: NodeSet, node: Node, held: Mapping[str, str]) -> str:
    """In mode DaemonSet: the first name that no other node's pod has. `held`: pods' names, and the nodes they are for."""
    target = node.metadata.name
    names = (_hashed(nodeset.metadata.name, target, tries) for tries in count())
    return next(name for name in names if held.get(name, target) == target)


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
