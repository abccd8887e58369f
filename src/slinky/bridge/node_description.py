"""What Slurm should know of a Kubernetes node: pure, no questions asked.

Comes in: a Node and the settings. Goes out: the description under which it is registered as an external node; or why it cannot be; or that it is none of this module's business. What must
stay true: what Slurm is told is never more than Kubernetes can give (CPUs and memory are rounded down, what is kept back is taken off); no text that slurmctld would choke on is passed on: a node
called `all` ends slurmctld 26.05, and one whose address does not resolve makes it stall.
"""

import re
from fractions import Fraction

import msgspec

from slinky.bridge.keys import EXTERNAL_NODE, EXTERNAL_NODE_PARTITIONS, TOPOLOGY
from slinky.bridge.label_features import features_from
from slinky.bridge.node_names import label_of
from slinky.bridge.node_settings import NodeSettings
from slinky.bridge.settings import Settings
from slinky.bridge.sink import address_of
from slinky.kube import Node
from slinky.kube.quantities import QuantityError, quantity
from slinky.slurm import NodeDescription, NodeGres

__all__ = ["Hybrid", "Unregistrable", "Wanted", "Wish", "wish_of"]

ADDRESSES = ("InternalIP", "ExternalIP", "Hostname")
RESERVED = frozenset({"all", "default"})  # the first ends slurmctld, the second changes what it assumes of all nodes
MOST_CPUS = 65535  # of a socket, to Slurm
MOST_GRES = 1024  # of one name on one node, to Slurm
MEBIBYTE = 1048576

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_FEATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/=+-]*")  # none of what has a meaning in `--constraint`
_TOPOLOGY = re.compile(r"[A-Za-z0-9_.:,/+-]+")


class Wanted(msgspec.Struct, frozen=True):
    """It should be registered like this."""

    description: NodeDescription


class Unregistrable(msgspec.Struct, frozen=True):
    """It should be registered, and cannot be; `why` is a sentence for people."""

    why: str


class Hybrid(msgspec.Struct, frozen=True):
    """It has a slurmd of its own, under this name: its registration is left alone."""

    name: str


Wish = Wanted | Unregistrable | Hybrid | None


class _CannotError(ValueError):
    pass


def wish_of(node: Node | None, settings: Settings) -> Wish:
    """None where nobody asks for the node to be registered, or there is no such node."""
    if node is None:
        return None
    if (called := label_of(node)) is not None:
        return Hybrid(called)
    if EXTERNAL_NODE not in node.metadata.labels:
        return None
    try:
        return Wanted(_description(node, settings))
    except (_CannotError, QuantityError) as error:
        return Unregistrable(f"Node {node.metadata.name} cannot be registered in Slurm: {error}")


def _description(node: Node, settings: Settings) -> NodeDescription:
    cpus = int(_allocatable(node, "cpu")) - settings.nodes.reserved_cpus
    memory = int(_allocatable(node, "memory") / MEBIBYTE) - settings.nodes.reserved_memory_mib
    if not 1 <= cpus <= MOST_CPUS:
        raise _CannotError(_too_little("CPUs", cpus, settings.nodes.reserved_cpus, "nodes.reservedCpus"))
    if memory < 1:
        raise _CannotError(_too_little("MiB of memory", memory, settings.nodes.reserved_memory_mib, "nodes.reservedMemoryMib"))
    sockets, cores, threads = _layout(node, cpus, settings.nodes)
    sink = address_of(settings.nodes.sink) if settings.nodes.sink else None
    return NodeDescription(
        name=_name(node),
        address=sink[0] if sink else _address(node),
        port=sink[1] if sink else None,
        cpus=sockets * cores * threads,
        boards=1,
        sockets_per_board=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
        real_memory=memory,
        features=_features(node, settings),
        gres=_gres(node, settings),
        topology=_topology(node, settings.nodes),
    )


def _layout(node: Node, cpus: int, settings: NodeSettings) -> tuple[int, int, int]:
    """Sockets, cores of each, threads of each. Kubernetes itself does not know: it is told by labels that the site names, or each CPU is a core of one thread, for Slurm gives away whole cores.

    CPUs that are no whole core are kept back; sockets that do not divide the cores are not told.
    """
    threads = _number(node, settings.threads_label, cpus)
    cores = cpus // threads
    sockets = _number(node, settings.sockets_label, cores)
    return (sockets, cores // sockets, threads) if cores % sockets == 0 else (1, cores, threads)


def _number(node: Node, label: str, most: int) -> int:
    text = node.metadata.labels.get(label, "1") if label else "1"
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise _CannotError(f"its label {label} is {text!r}, which is no number from 1 to {most}")
    return int(text)


def _name(node: Node) -> str:
    name = node.metadata.name
    if name.lower() in RESERVED:
        raise _CannotError(f"Slurm keeps the name {name} for itself; the node needs another one")
    if not _NAME.fullmatch(name):
        raise _CannotError(f"Slurm's names hold letters, digits, dots, hyphens and underscores only, and {name!r} does not")
    return name


def _address(node: Node) -> str:
    for kind in ADDRESSES:
        for found in node.status.addresses:
            if found.type == kind and found.address:
                return found.address
    raise _CannotError(f"its status has no address ({', '.join(ADDRESSES)}), and slurmctld stalls on a node without one")


def _allocatable(node: Node, resource: str) -> Fraction:
    return quantity(node.status.allocatable.get(resource, "0"))


def _too_little(what: str, number: int, reserved: int, setting: str) -> str:
    less = f" once {setting} ({reserved}) is taken off" if reserved else ""
    return f"its allocatable leaves {number} {what}{less}; it must be at least 1" + (f" and at most {MOST_CPUS}" if what == "CPUs" else "")


def _gres(node: Node, settings: Settings) -> list[NodeGres]:
    """Several resources may be one GRES: their numbers are added up. Of one name there may be several types; of what is more than Slurm can count, it is told as much as it can."""
    counts: dict[tuple[str, str], int] = {}
    for resource, gres in settings.gres.items():
        count = int(_allocatable(node, resource))
        if count > 0:
            name, _, kind = gres.partition(":")
            counts[name, kind] = counts.get((name, kind), 0) + count
    room: dict[str, int] = {}
    found: list[NodeGres] = []
    for (name, kind), count in sorted(counts.items()):
        if kind and (name, "") in counts:
            raise _CannotError(
                f"its GRES {name} would be some with a type ({kind}) and some without, which Slurm refuses; give each resource of `gres` that stands for {name} a type"
            )
        told = min(count, room.setdefault(name, MOST_GRES))
        if told:
            room[name] -= told
            found.append(NodeGres(name=name, type=kind, count=told))
    return found


def _features(node: Node, settings: Settings) -> list[str]:
    asked = (word.strip() for word in node.metadata.annotations.get(EXTERNAL_NODE_PARTITIONS, "").split(","))
    features = list(dict.fromkeys(word for word in asked if word)) or settings.nodes.features or [settings.partition]
    for feature in features:
        if not _FEATURE.fullmatch(feature):
            raise _CannotError(
                f"{feature!r} (annotation {EXTERNAL_NODE_PARTITIONS}) cannot be a feature in Slurm: letters, digits and _.:/=+- only"
            )
    return list(dict.fromkeys([*features, *features_from(node.metadata.labels, settings.nodes.feature_labels)]))


def _topology(node: Node, settings: NodeSettings) -> str:
    """By annotation, else by the labels that the site names."""
    labels = node.metadata.labels
    by_labels = ",".join(f"{name}:{labels[label]}" for label, name in settings.topology_labels.items() if labels.get(label))
    text = node.metadata.annotations.get(TOPOLOGY, "").strip() or by_labels
    if text and not _TOPOLOGY.fullmatch(text):
        raise _CannotError(f"{text!r} (annotation {TOPOLOGY}) is no topology such as topo-switch:s1,topo-block:b1")
    return text
