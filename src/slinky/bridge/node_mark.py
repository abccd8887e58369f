"""How the bridge knows the nodes that it registered in Slurm: after a restart of its own or of slurmctld, and among everyone else's.

The mark is a node's `extra`: one JSON object with the Kubernetes cluster's ID. slurmctld takes no `extra` with a new node, so a node is born with a `reason` that says the same and lasts until
the first change of the node, which is the mark. What must stay true: whoever was created by us is known as ours at every moment, also where this process ended between the two; a node that says
anything else is somebody else's.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from slinky.slurm import Node

__all__ = ["Owner", "birth_reason", "gres_of", "is_ungrouped", "mark_for", "owner_of", "registrar_of", "topology_of"]

VERSION = 1

Owner = Literal["ours", "born", "nobody", "other"]  # `born`: ours, and not marked yet


class _Mark(msgspec.Struct, omit_defaults=True):
    """`topology` is what was asked for: Slurm tells it back in words of its own. `gres` are the names of the GRES that were asked for: what Slurm does not know it leaves out, without a word. `ungrouped`: its features were changed, and Slurm has not yet reckoned anew which partitions it is in."""

    slinky: int = 0
    cluster: str = ""
    topology: str = ""
    gres: tuple[str, ...] = ()
    ungrouped: bool = False


def mark_for(cluster: str, topology: str = "", gres: Iterable[str] = (), *, ungrouped: bool = False) -> str:
    mark = _Mark(slinky=VERSION, cluster=cluster, topology=topology, gres=tuple(sorted(set(gres))), ungrouped=ungrouped)
    return msgspec.json.encode(mark).decode()


def birth_reason(cluster: str) -> str:
    said = "".join(letter if letter.isprintable() and letter != '"' else "?" for letter in cluster)
    return f"slurm-bridge: registered by Kubernetes cluster {said}"


def owner_of(node: Node, cluster: str) -> Owner:
    if node.extra:
        mark = _read(node.extra)
        return "ours" if mark is not None and mark.cluster == cluster else "other"
    if node.reason == birth_reason(cluster):
        return "born"
    return "other" if node.reason.startswith(birth_reason("")) else "nobody"


def registrar_of(node: Node) -> str:
    """The cluster whose bridge registered it; "" where none did."""
    if node.extra:
        mark = _read(node.extra)
        return mark.cluster if mark else ""
    return node.reason.removeprefix(birth_reason("")) if node.reason.startswith(birth_reason("")) else ""


def topology_of(node: Node) -> str:
    """What was asked for when it was marked."""
    mark = _read(node.extra)
    return mark.topology if mark else ""


def gres_of(node: Node) -> frozenset[str]:
    """The names of the GRES that were asked for when it was marked."""
    mark = _read(node.extra)
    return frozenset(mark.gres) if mark else frozenset()


def is_ungrouped(node: Node) -> bool:
    mark = _read(node.extra)
    return mark is not None and mark.ungrouped


def _read(text: str) -> _Mark | None:
    try:
        mark = msgspec.json.decode(text, type=_Mark)
    except msgspec.DecodeError:
        return None
    return mark if mark.slinky == VERSION else None
