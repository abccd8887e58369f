"""Nodes as samples: how many in which state, and their CPUs, memory and GRES: allocated, idle, or other (of no use to a job now).

Pure. What must stay true: a node is in one state; allocated, idle and other together are all that there is. A node of several partitions counts in each of them, so the cluster's own sums stand in metrics without a partition.
"""

from collections.abc import Iterator, Sequence

from slinky.exporter.families import Family, gauge
from slinky.exporter.labels import Sums, add, clean, top, weights, within
from slinky.exporter.settings import Limits
from slinky.slurm import Node, Partition
from slinky.slurm.tres import MIB, read_gres

__all__ = ["DESCRIBED", "node_families", "node_state"]

NODES = gauge("slurm_cluster_nodes", "Nodes by state; each node is in one", "state")
FLAGGED = gauge("slurm_cluster_nodes_flagged", "Nodes with a flag of Slurm's besides their state", "flag")
CPUS = gauge("slurm_cluster_cpus", "CPUs of all nodes: allocated, idle, or other (of no use to a job now)", "state")
MEMORY = gauge("slurm_cluster_memory_bytes", "Memory of all nodes, as CPUs", "state")
GRES = gauge("slurm_cluster_gres", "Generic resources (GPUs and others) of all nodes, as CPUs", "gres", "type", "state")
PARTITION_UP = gauge("slurm_partition_up", "1 where the partition takes and starts jobs", "partition")
PARTITION_NODES = gauge("slurm_partition_capacity_nodes", "Nodes of a partition by state", "partition", "state")
PARTITION_CPUS = gauge("slurm_partition_capacity_cpus", "CPUs of a partition's nodes, as slurm_cluster_cpus", "partition", "state")
PARTITION_MEMORY = gauge(
    "slurm_partition_capacity_memory_bytes", "Memory of a partition's nodes, as slurm_cluster_cpus", "partition", "state"
)
PARTITION_GRES = gauge(
    "slurm_partition_capacity_gres", "Generic resources of a partition's nodes, as slurm_cluster_cpus", "partition", "gres", "type", "state"
)
NODE_STATE = gauge("slurm_node_state", "Always 1: the state that the node is in", "node", "state")
NODE_CPUS = gauge("slurm_node_capacity_cpus", "CPUs of a node, as slurm_cluster_cpus", "node", "state")
NODE_MEMORY = gauge("slurm_node_capacity_memory_bytes", "Memory of a node, as slurm_cluster_cpus", "node", "state")
NODE_GRES = gauge("slurm_node_capacity_gres", "Generic resources of a node, as slurm_cluster_cpus", "node", "gres", "type", "state")

CLUSTER = (NODES, FLAGGED, CPUS, MEMORY, GRES)
PER_PARTITION = (PARTITION_UP, PARTITION_NODES, PARTITION_CPUS, PARTITION_MEMORY, PARTITION_GRES)
PER_NODE = (NODE_STATE, NODE_CPUS, NODE_MEMORY, NODE_GRES)
DESCRIBED = (*CLUSTER, *PER_PARTITION, *PER_NODE)

# In this order: the first that is true is the node's state.
_FLAGS = {
    "POWERED_DOWN": "powered_down",
    "POWERING_DOWN": "powering_down",
    "POWERING_UP": "powering_up",
    "MAINTENANCE": "maintenance",
    "FAIL": "failing",
    "NOT_RESPONDING": "not_responding",
    "INVALID_REG": "invalid",
    "BLOCKED": "blocked",
}
STATES = (
    "allocated",
    "mixed",
    "idle",
    "completing",
    "planned",
    "reserved",
    "drained",
    "draining",
    "down",
    "error",
    "future",
    "unknown",
    *_FLAGS.values(),
)


def node_state(node: Node) -> str:
    """One word, that which says most about what the node is good for."""
    words = set(node.states)
    for base in ("DOWN", "ERROR", "FUTURE"):
        if base in words:
            return base.lower()
    if "DRAIN" in words:
        return "draining" if node.is_busy else "drained"
    for flag, word in _FLAGS.items():
        if flag in words:
            return word
    for base in ("ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "RESERVED", "IDLE"):
        if base in words:
            return base.lower()
    return "unknown"


def node_families(nodes: Sequence[Node], partitions: Sequence[Partition] | None, limits: Limits) -> Iterator[Family]:
    cluster: tuple[Sums, ...] = ({(state,): 0.0 for state in STATES}, {}, {}, {}, {})
    by_partition: tuple[Sums, ...] = ({}, {}, {}, {})
    by_node: tuple[Sums, ...] = ({}, {}, {}, {})
    told = top({node.name: 0.0 for node in nodes}, limits.nodes)
    sizes: dict[str, float] = {partition.name: 0.0 for partition in partitions or ()}
    for node in nodes:
        for flag in node.state_flags:
            add(cluster[1], (flag.lower(),), 1)
        for name in node.partitions:
            sizes[name] = sizes.get(name, 0.0) + node.cpus
        own = clean(node.name) if node.name in told else "other"
        for place, sums in enumerate(_of(node)):
            for labels, value in sums.items():
                add(cluster[place if place == 0 else place + 1], labels, value)
                add(by_node[place], (own, *labels), value)
                for name in node.partitions:
                    add(by_partition[place], (clean(name), *labels), value)
    kinds = tuple(top(weights(cluster[4], place), limits.others) for place in (0, 1))
    kept = frozenset(map(clean, top(sizes, limits.partitions)))
    for metric, sums in zip(CLUSTER, cluster, strict=True):
        yield Family(metric, _kinds(sums, kinds, 0) if metric is GRES else sums)
    yield Family(PARTITION_UP, {(clean(one.name),): float(one.is_up) for one in partitions or () if clean(one.name) in kept})
    for metric, sums in zip(PER_PARTITION[1:], by_partition, strict=True):
        found = within(sums, 0, kept)
        yield Family(metric, _kinds(found, kinds, 1) if metric is PARTITION_GRES else found)
    if limits.nodes:
        for metric, sums in zip(PER_NODE, by_node, strict=True):
            yield Family(metric, _kinds(sums, kinds, 1) if metric is NODE_GRES else sums)


def _kinds(sums: Sums, kept: Sequence[frozenset[str]], place: int) -> Sums:
    """GRES and types from `place` on, as few as are told apart."""
    return within(within(sums, place, kept[0]), place + 1, kept[1])


def _of(node: Node) -> tuple[Sums, Sums, Sums, Sums]:
    """Its state, CPUs, memory and GRES."""
    useful = node.takes_jobs
    gres: Sums = {}
    used = read_gres(node.gres_used)
    for kind, total in read_gres(node.gres).items():
        for (state,), value in _split(total, used.get(kind, 0.0), total, useful).items():
            gres[(clean(kind.name), clean(kind.type), state)] = value
    usable = node.real_memory - node.specialized_memory
    memory = {labels: value * MIB for labels, value in _split(node.real_memory, node.alloc_memory, usable, useful).items()}
    return {(node_state(node),): 1.0}, _split(node.cpus, node.alloc_cpus, node.effective_cpus or node.cpus, useful), memory, gres


def _split(total: float, allocated: float, effective: float, useful: bool) -> Sums:
    """What Slurm keeps for itself (`effective` is less than `total` then) is other."""
    idle = max(0.0, effective - allocated) if useful else 0.0
    return {("allocated",): float(allocated), ("idle",): idle, ("other",): max(0.0, total - allocated - idle)}
