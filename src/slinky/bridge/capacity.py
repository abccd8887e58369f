"""Could this job ever run? Slurm does not say: where nodes may be added at any time it lets a job wait for a node that does not exist. So we judge by the nodes that there are.

Comes in: a job's description and Slurm's nodes. Goes out: an empty text where the nodes of its partitions could hold it if they were all free, else what is missing, in words. Pure. What must stay true: what could run
is never kept back: where something cannot be judged (constraints, reservations, limits), it counts as fitting.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slinky.bridge.label_features import is_plain
from slinky.bridge.node_mark import registrar_of
from slinky.bridge.node_reasons import LEAVING, RENEWING, is_held_for
from slinky.bridge.task import PerTask, per_task
from slinky.slurm import JobDescription, Node, expand

__all__ = ["NodeRoom", "even_share", "holds_one", "room_of", "shortfall", "too_few_nodes"]

_COUNT = re.compile(r"(\d+)([kKmMgGtTpP]?)")
_TIMES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
NO_CONSUME = "no_consume"  # of such a GRES every job may have all
UNLIMITED = 1 << 62


class NodeRoom(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has in all, whoever uses it now. `gres` by name, and by name:type. `registrar` is the Kubernetes cluster whose bridge registered it, if one did. `departing`: that bridge has drained it to delete it, for good or to make it anew."""

    partitions: frozenset[str]
    cpus: int
    memory: int
    gres: Mapping[str, int]
    features: frozenset[str] = frozenset()
    has_slurmd: bool = False
    registrar: str = ""
    departing: bool = False


def room_of(node: Node) -> NodeRoom:
    registrar = registrar_of(node)
    gres: dict[str, int] = {}
    for word in filter(None, re.sub(r"\([^)]*\)", "", node.gres or "").split(",")):
        names, count = _parts(word)
        for name in {names[0], ":".join(names[:2])}:
            gres[name] = gres.get(name, 0) + count
    return NodeRoom(
        partitions=frozenset(node.partitions),
        cpus=node.effective_cpus or node.cpus,
        memory=node.real_memory,
        gres=gres,
        features=frozenset(node.active_features or node.features),
        has_slurmd=not node.is_external and not registrar,
        registrar=registrar,
        departing=bool(registrar) and is_held_for(node, LEAVING, RENEWING),
    )


def _parts(word: str) -> tuple[list[str], int]:
    """`gpu:h100:8` → [gpu, h100], 8: the name, its type where it has one, and the count, which is one where Slurm says none."""
    names, count = word.split(":"), 1
    if len(names) > 1 and (found := _COUNT.fullmatch(names[-1])):
        names, count = names[:-1], int(found[1]) * _TIMES[found[2].upper()]
    if NO_CONSUME in names:
        names, count = [name for name in names if name != NO_CONSUME], UNLIMITED
    return names, count


def shortfall(job: JobDescription, nodes: Iterable[NodeRoom]) -> str:
    """Empty where it could run, or where Slurm chooses the partition."""
    if not job.partition:
        return ""
    wanted = set(job.partition.split(","))
    rooms = [room for room in nodes if room.partitions & wanted]
    if not rooms:
        return f"partition {job.partition} has no nodes"
    task = per_task(job)
    counts = sorted((_tasks_on(room, task) for room in rooms), reverse=True)
    if not counts[0]:
        each, asked = task.tasks_per_node, _in_words(task)
        has = f"has room for {each} pods on each node ({asked} each)" if each > 1 else f"has {asked} for one pod"
        return f"no node of partition {job.partition} {has}; the largest has {_largest(rooms, task)}"
    tasks = job.tasks or 1
    most = job.maximum_nodes if isinstance(job.maximum_nodes, int) and job.maximum_nodes else len(counts)
    if sum(counts[:most]) < tasks:
        where = f"its {len(rooms)} nodes" if most >= len(counts) else f"any {most} of its {len(rooms)} nodes"
        return f"partition {job.partition} could hold {sum(counts[:most])} of {tasks} pods with {_in_words(task)} each on {where}"
    return ""


def even_share(rooms: Iterable[NodeRoom], task: PerTask, tasks: int, most: int) -> int:
    """How many tasks each node is to have, at most `most`, so that the fewest nodes hold them all, all with the same number.

    `most` where no number will do: what is missing `shortfall` tells.
    """
    counts = sorted((min(_tasks_on(room, task), most) for room in rooms), reverse=True)
    return next((count for number, count in enumerate(counts, 1) if number * count >= tasks), most)


def too_few_nodes(jobs: Sequence[JobDescription], nodes: Mapping[str, NodeRoom]) -> str:
    """For the components of a hetjob, which Slurm puts on nodes of their own: empty where there may be enough. By the fewest nodes that each could do with, so that none is judged too hard."""
    wanted, usable = 0, set[str]()
    chosen: dict[object, dict[str, NodeRoom]] = {}  # components that may have the same nodes, as most may
    for job in jobs:
        asked = (job.partition, job.constraints, *(job.excluded_nodes or ()))
        own = chosen.get(asked)
        if own is None:
            own = chosen[asked] = _usable(job, nodes)
            usable |= own.keys()
        wanted += _fewest(job, own.values())
    if wanted <= len(usable):
        return ""
    return f"as a hetjob they would need {wanted} nodes, as each of its {len(jobs)} components has nodes of its own, and there are {len(usable)}"


def _usable(job: JobDescription, nodes: Mapping[str, NodeRoom]) -> dict[str, NodeRoom]:
    partitions = set((job.partition or "").split(",")) - {""}
    excluded = {name for words in job.excluded_nodes or () if words for name in expand(words)}
    features = set(job.constraints.split("&")) if job.constraints and is_plain(job.constraints) else set[str]()
    return {
        name: room
        for name, room in nodes.items()
        if name not in excluded and features <= room.features and (not partitions or room.partitions & partitions)
    }


def _fewest(job: JobDescription, rooms: Iterable[NodeRoom]) -> int:
    """One where it does not fit at all: that is not for here to say."""
    task, left = per_task(job), job.tasks or 1
    counts = sorted((_tasks_on(room, task) for room in rooms), reverse=True)
    for number, count in enumerate(counts, 1):
        left -= min(count, job.tasks_per_node or count)
        if left <= 0:
            return number
    return 1


def holds_one(room: NodeRoom, task: PerTask) -> bool:
    """Whether the node, were it empty, could take one task, as Slurm counts: if not, Slurm never puts one there."""
    return _tasks_on(room, task) > 0


def _tasks_on(room: NodeRoom, task: PerTask) -> int:
    """Where the job says how many tasks a node is to have, a node has so many or none."""
    alone = msgspec.structs.replace(task, tasks_per_node=0)
    if task.tasks_per_node:
        return task.tasks_per_node if _tasks_on(room, alone) >= task.tasks_per_node else 0
    most = room.cpus // max(task.cpus, 1)
    memory = task.memory or task.node_memory
    if memory and room.memory:
        most = min(most, room.memory // memory if task.memory else (most if room.memory >= memory else 0))
    for name, count in task.typed_gres.items():
        most = min(most, room.gres.get(name, 0) // count)
    for name, count in task.node_gres.items():
        most = most if room.gres.get(name, 0) >= count else 0
    return most


def _in_words(task: PerTask) -> str:
    memory = task.memory or task.node_memory
    parts = [f"{task.cpus} CPUs", *([f"{memory} MiB"] if memory else [])]
    parts += [f"{count} {name}" for name, count in {**task.typed_gres, **task.node_gres}.items()]
    return ", ".join(parts)


def _largest(rooms: list[NodeRoom], task: PerTask) -> str:
    parts = [f"{max(room.cpus for room in rooms)} CPUs", f"{max(room.memory for room in rooms)} MiB"]
    parts += [f"{max(room.gres.get(name, 0) for room in rooms)} {name}" for name in {**task.typed_gres, **task.node_gres}]
    return ", ".join(parts)
