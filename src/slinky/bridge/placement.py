"""Which pod goes to which node, with which devices.

Comes in: what each task of a job needs, the allocation that Slurm gave the job, node by node in Slurm's order, and the pods, some of which may run there already. Goes out: the job's slots, one a task,
and one `Placement` a pod. A hetjob has an allocation for each component; its slots are one row all the same, in the order of the ranks that the components were submitted for. Pure. What must stay true: no node gets more pods than its share of the allocation holds; every device is given to one pod at most; rank 0 is on the first node and neighbours in
rank are neighbours in place; every node of the allocation is used where there are pods enough; a pod keeps its slot, and one that comes in another's stead takes the slot that is free, of its own kind in a hetjob.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

import msgspec

from slinky.bridge.task import PerTask
from slinky.slurm import Allocation, Gres, NodeAllocation

__all__ = ["Placement", "PlacementError", "Slot", "assign", "hetjob_slots", "slots_of"]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A task's place in the job: its number in the job, its number on its node (by Slurm's name), and Slurm's indices of its devices by GRES name. `component` is the number of its component in a hetjob. `alone`: the job has the node to itself."""

    node: str
    rank: int
    local_rank: int
    devices: dict[str, tuple[int, ...]] = {}
    component: int = 0
    alone: bool = False


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A pod in its slot. `host` is the Kubernetes Node that the slot's node is, where that is another name; "" where there is none."""

    uid: str
    slot: Slot
    host: str | None = None

    @property
    def node(self) -> str:
        """In Kubernetes."""
        return self.slot.node if self.host is None else self.host


class PlacementError(Exception):
    """The allocation does not hold the workload: something changed between them."""


def slots_of(tasks: int, task: PerTask, allocation: Allocation) -> list[Slot]:
    """One a task, in rank order. Raises PlacementError where the allocation has too little room."""
    room = _rooms(tasks, task, allocation.nodes)
    if sum(room) < tasks:
        raise PlacementError(f"job {allocation.job_id} has room for {sum(room)} of {tasks} pods on {len(room)} nodes")
    found: list[Slot] = []
    nodes_left, room_left = len(room), sum(room)
    for here, node in zip(room, allocation.nodes, strict=True):
        count = _share(tasks - len(found), here, nodes_left, room_left - here)
        nodes_left, room_left = nodes_left - 1, room_left - here
        devices = {kind: _indices(node, kind) for kind in task.kinds}
        for local in range(count):
            own: dict[str, tuple[int, ...]] = {}
            for kind, each in task.kinds.items():
                name = kind.partition(":")[0]
                own[name] = own.get(name, ()) + devices[kind][local * each : (local + 1) * each]
            found.append(Slot(node=node.node, rank=len(found), local_rank=local, devices=own, alone=node.is_whole))
    return found


def hetjob_slots(components: Sequence[tuple[Sequence[int], PerTask, Allocation]]) -> list[Slot]:
    """The same for a hetjob: of each component the ranks that are its own, what a task of it needs, and its allocation. Where components share a node, local ranks go on from one to the next."""
    found: list[Slot] = []
    for number, (ranks, task, allocation) in enumerate(components):
        own = slots_of(len(ranks), task, allocation)
        found += [msgspec.structs.replace(slot, rank=rank, component=number) for rank, slot in zip(ranks, own, strict=True)]
    found.sort(key=lambda slot: slot.rank)
    on_node: Counter[str] = Counter()
    for index, slot in enumerate(found):
        found[index] = msgspec.structs.replace(slot, local_rank=on_node[slot.node])
        on_node[slot.node] += 1
    return found


def assign(
    slots: Sequence[Slot],
    held: Mapping[str, int],
    starting: Sequence[str],
    wished: Mapping[str, int] | None = None,
    components: Mapping[str, int] | None = None,
) -> list[Placement]:
    """Pods that start into the slots that are free: each into the one it wishes for (its index) where that is free, else in order. Those for whom there is none are left out.

    `held` is the rank of each pod that has a slot already, by UID; `components` is, for a hetjob, the one that each pod that starts is for.
    """
    taken = set(held.values())
    free = {slot.rank: slot for slot in slots if slot.rank not in taken}
    placed = [Placement(uid=uid, slot=slots[rank]) for uid, rank in held.items() if 0 <= rank < len(slots)]
    own = components or {}
    later: list[str] = []
    for uid in starting:
        wish = (wished or {}).get(uid)
        if wish is not None and wish in free and free[wish].component == own.get(uid, 0):
            placed.append(Placement(uid=uid, slot=free.pop(wish)))
        else:
            later.append(uid)
    rest: dict[int, deque[Slot]] = {}
    for slot in free.values():
        rest.setdefault(slot.component, deque()).append(slot)
    placed += [Placement(uid=uid, slot=left.popleft()) for uid in later if (left := rest.get(own.get(uid, 0)))]
    return placed


def _rooms(tasks: int, task: PerTask, nodes: Sequence[NodeAllocation]) -> list[int]:
    """How many pods each node's share holds. Slurm tells cores and not how many CPUs each has: as many as it takes, and where that does not come out even, cores do not count."""
    cores = sum(len(node.cores) for node in nodes)
    threads = -(-tasks * task.cpus // cores) if cores else 0
    room = [_room(node, task, tasks, threads) for node in nodes]
    return room if sum(room) >= tasks else [_room(node, task, tasks) for node in nodes]


def _room(node: NodeAllocation, task: PerTask, most: int, threads: int = 0) -> int:
    """Slurm counts memory by task exactly; CPUs it may round up to whole cores. Without `threads`, or where the node's cores are not told, these do not count."""
    room = node.memory // task.memory if task.memory else most
    room = min(room, task.tasks_per_node or most)
    if threads and (cores := len(node.cores)):
        room = min(room, cores * threads // task.cpus)
    for kind, each in task.kinds.items():
        room = min(room, sum(gres.count for gres in node.gres if _is(gres, kind)) // each)
    return min(room, most)


def _share(remaining: int, here: int, nodes: int, elsewhere: int) -> int:
    """Evenly over the nodes that are left (this one included), but never so few here that the rest would not fit `elsewhere`."""
    even = -(-remaining // nodes)
    return min(here, max(even, remaining - elsewhere))


def _is(gres: Gres, kind: str) -> bool:
    """`gpu` is any of them, `gpu:h100` those of that type (or of none that Slurm tells)."""
    name, _, type_ = kind.partition(":")
    return gres.name == name and (not type_ or not gres.type or gres.type == type_)


def _indices(node: NodeAllocation, kind: str) -> tuple[int, ...]:
    """`0-1,4` → 0, 1, 4, over all entries of that GRES in their order. Empty where Slurm tells counts only."""
    found: list[int] = []
    for gres in node.gres:
        if _is(gres, kind) and gres.index:
            for part in gres.index.split(","):
                low, _, high = part.partition("-")
                found.extend(range(int(low), int(high or low) + 1))
    return tuple(found)
