"""Which pod goes to which node, with which devices.

Comes in: the pods of a workload in rank order, what each needs, and the allocation that Slurm gave the job, node by node in Slurm's order. Goes out: one `Placement` a pod. Pure.
What must stay true: no node gets more pods than its share of the allocation holds; every device is given to one pod at most; rank 0 is on the first node and neighbours in rank are
neighbours in place; every node of the allocation is used where there are pods enough.
"""

from collections.abc import Sequence

import msgspec

from slinky.slurm import Allocation, NodeAllocation

__all__ = ["PerTask", "Placement", "PlacementError", "place"]


class PerTask(msgspec.Struct, frozen=True, kw_only=True):
    """What each pod of the workload was translated to. `memory` is what Slurm counts for it, in MiB; 0 where it was asked for by node."""

    memory: int = 0
    gres: dict[str, int] = {}


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """`rank` is the task's number in the job, `local_rank` on its node; `devices` are Slurm's indices by GRES name."""

    uid: str
    node: str
    rank: int
    local_rank: int
    devices: dict[str, tuple[int, ...]] = {}


class PlacementError(Exception):
    """The allocation does not hold the workload: something changed between them."""


def place(uids: Sequence[str], task: PerTask, allocation: Allocation) -> list[Placement]:
    """Raises PlacementError where the allocation has too little room."""
    room = [_room(node, task, len(uids)) for node in allocation.nodes]
    if sum(room) < len(uids):
        raise PlacementError(f"job {allocation.job_id} has room for {sum(room)} of {len(uids)} pods on {len(room)} nodes")
    placed: list[Placement] = []
    for position, node in enumerate(allocation.nodes):
        count = _share(len(uids) - len(placed), room[position:])
        devices = {name: _indices(node, name) for name in task.gres}
        for local in range(count):
            own = {name: devices[name][local * each : (local + 1) * each] for name, each in task.gres.items()}
            rank = len(placed)
            placed.append(Placement(uid=uids[rank], node=node.node, rank=rank, local_rank=local, devices=own))
    return placed


def _room(node: NodeAllocation, task: PerTask, most: int) -> int:
    """How many pods this node's share holds. Slurm counts memory by task exactly; CPUs it may round up to whole cores."""
    room = node.memory // task.memory if task.memory else most
    for name, each in task.gres.items():
        room = min(room, sum(gres.count for gres in node.gres if gres.name == name) // each)
    return min(room, most)


def _share(remaining: int, room: Sequence[int]) -> int:
    """Evenly over the nodes that are left, but never so few here that the rest would not fit there."""
    even = -(-remaining // len(room))
    return min(room[0], max(even, remaining - sum(room[1:])))


def _indices(node: NodeAllocation, name: str) -> tuple[int, ...]:
    """`0-1,4` → 0, 1, 4, over all entries of that GRES in their order. Empty where Slurm tells counts only."""
    found: list[int] = []
    for gres in node.gres:
        if gres.name == name and gres.index:
            for part in gres.index.split(","):
                low, _, high = part.partition("-")
                found.extend(range(int(low), int(high or low) + 1))
    return tuple(found)
