"""What to do next about one node: the place where the registration's correctness lives.

Comes in: what Kubernetes wants of the node and what Slurm has under its name, at one moment. Goes out: the one action to be taken now, or None where all is as it should be. Pure: it asks
nobody and remembers nothing, so it can be run again at any time, after a restart too, and leads to the same end.

What must stay true, whatever happened before:
- A node that is not marked as ours, or is not external, is never changed or removed. One that nobody marked is made ours only where it is exactly what would be registered.
- A node is removed only when it takes no jobs and has none, and when no live job names it (Slurm would refuse every change of that job).
- Only our own drain is undone.
- A node that something is against (`hold`) takes no job between its making and its drain.
"""

import re
from typing import Literal

import msgspec

from slinky.bridge.node_description import Hybrid, Unregistrable, Wanted, Wish
from slinky.bridge.node_mark import Owner, gres_of, is_ungrouped, mark_for, owner_of, topology_of
from slinky.bridge.node_reasons import LEAVING, OURS, RENEWING, is_held_for, kind_of, takes_no_jobs
from slinky.slurm import Node, NodeChange, NodeDescription

__all__ = [
    "Create",
    "Delete",
    "Down",
    "Drain",
    "Mark",
    "NodeAction",
    "NodeSnapshot",
    "Refuse",
    "Resume",
    "Undrain",
    "Update",
    "Wait",
    "has_same_shape",
    "plan_node",
]

_GRES = re.compile(r"([^:,()]+)(?::([^:,()]+))?:(\d+)([KMGTP]?)(?:\([^)]*\))?")


class NodeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`may_renew`: it may be drained now to be registered anew. `named`: some live job names it, to be used or to be left out. `hold`: the reason for which it must be drained before it takes its first job. `lost`: Kubernetes has had no such Node for a while."""

    name: str
    wish: Wish
    found: Node | None
    cluster: str
    may_renew: bool = True
    named: bool = False
    hold: str = ""
    lost: bool = False


class Create(msgspec.Struct, frozen=True):
    description: NodeDescription


class Mark(msgspec.Struct, frozen=True):
    """Write the mark: on a node that was just born, or on one that is taken over."""

    mark: str


class Update(msgspec.Struct, frozen=True):
    change: NodeChange


class Regroup(msgspec.Struct, frozen=True):
    """Have Slurm reckon anew which partitions have it, as its features are others; then write the mark."""

    mark: str


class Drain(msgspec.Struct, frozen=True):
    reason: str


class Undrain(msgspec.Struct, frozen=True):
    pass


class Down(msgspec.Struct, frozen=True):
    """Its jobs end, or go on without it."""

    reason: str


class Resume(msgspec.Struct, frozen=True):
    """From down as well as from drained."""


class Delete(msgspec.Struct, frozen=True):
    """`again`: it is registered anew right after."""

    again: bool


class Refuse(msgspec.Struct, frozen=True):
    """Nothing can be done, and people should know."""

    why: str


class Wait(msgspec.Struct, frozen=True):
    """Nothing can be done yet. `until`: its jobs have ended; a place among those that are renewed is free; whoever drained it resumes it."""

    until: Literal["free", "room", "resumed"]
    why: str


NodeAction = Create | Mark | Update | Regroup | Drain | Undrain | Down | Resume | Delete | Refuse | Wait


def plan_node(now: NodeSnapshot) -> NodeAction | None:
    found, wish = now.found, now.wish
    if isinstance(wish, Hybrid):
        return None
    if found is None:
        return Create(_at_birth(wish.description, now.hold)) if isinstance(wish, Wanted) else _said(wish)
    owner = owner_of(found, now.cluster)
    if not found.is_external or owner in ("other", "nobody"):
        return _of_others(now, found, wish, owner) if isinstance(wish, Wanted) else _said(wish)
    if owner == "born":  # before anything else: any change takes the reason away by which we know it
        return Mark(_mark(now.cluster, wish.description) if isinstance(wish, Wanted) else mark_for(now.cluster))
    if isinstance(wish, Wanted):
        return _keep(now, found, wish.description)
    if wish is None or is_held_for(found, LEAVING):
        return _leave(now, found)
    return _said(wish)  # as it is registered, it stays


def _at_birth(description: NodeDescription, hold: str) -> NodeDescription:
    """Slurm makes no node drained. One that must not take a job is made without features, and so outside every partition, and gets them when it is drained."""
    return msgspec.structs.replace(description, features=[]) if hold else description


def _said(wish: Unregistrable | None) -> Refuse | None:
    return Refuse(wish.why) if wish else None


def _of_others(now: NodeSnapshot, found: Node, wish: Wanted, owner: Owner) -> NodeAction:
    """Somebody else's node has the name."""
    if not found.is_external:
        return Refuse(
            f"Slurm has a node {now.name} with a slurmd: it is left as it is (a node with a kubelet and a slurmd needs no registration)"
        )
    if owner == "other":
        return Refuse(f"Slurm's external node {now.name} is another's ({(found.extra or found.reason)[:200]}): it is left as it is")
    differing = _differences(found, wish.description)
    if not differing:
        return Mark(_mark(now.cluster, wish.description))
    return Refuse(
        f"Slurm's external node {now.name} was not registered by this bridge and has other {' and '.join(differing)}: it is left as it is; once it is deleted it is registered anew"
    )


def _keep(now: NodeSnapshot, found: Node, wanted: NodeDescription) -> NodeAction | None:
    if not has_same_shape(found, wanted):
        return _renew(now, found, wanted)
    if now.hold and not found.features and not takes_no_jobs(found):
        return Drain(now.hold)
    change = _change(found, wanted, now.cluster)
    if change is not None:
        return Update(change)
    if is_ungrouped(found):
        return Regroup(mark_for(now.cluster, topology_of(found), gres_of(found)))
    if is_held_for(found, LEAVING, RENEWING):
        if now.hold:
            return Drain(now.hold)
        return Resume() if found.is_down else Undrain()
    if missing := sorted(_left_out(found) & {gres.name for gres in wanted.gres}):
        return Refuse(
            f"node {now.name} is registered without {' and '.join(missing)}, which Slurm does not know: name it in GresTypes of slurm.conf, restart slurmctld, and take the node's label off and on again"
        )
    return None


def _mark(cluster: str, wanted: NodeDescription) -> str:
    return mark_for(cluster, wanted.topology, (gres.name for gres in wanted.gres))


def _left_out(found: Node) -> frozenset[str]:
    """GRES that were asked for and that Slurm left out when it made the node, as it does not know them: to ask again would give no more."""
    return gres_of(found) - {name for name, _ in _gres_found(found)}


def _renew(now: NodeSnapshot, found: Node, wanted: NodeDescription) -> NodeAction:
    """CPUs, memory and GRES of a node cannot be changed: it is removed and made again when its jobs have ended.

    A drain that is not ours would be lost with the node, so it is waited for. A node that only grew is not drained while it has jobs: what is registered is there.
    """
    if takes_no_jobs(found):
        if not found.reason.startswith(OURS):
            return Wait("resumed", f"it was drained or put down by somebody else ({found.reason or 'no reason given'})")
        return _wait_to_delete(now, found) or Delete(again=True)
    if found.is_busy and _only_grew(found, wanted):
        return Wait("free", "it has grown, and its jobs have not ended")
    if not now.may_renew:
        return Wait("room", "as many nodes as may be are being registered anew, or its resources have only just changed")
    return Drain(f"{RENEWING} its resources in Kubernetes have changed")


def _leave(now: NodeSnapshot, found: Node) -> NodeAction:
    held_otherwise = kind_of(found) not in ("", LEAVING) and not found.is_down  # for what may be over before its jobs have ended
    if held_otherwise or not takes_no_jobs(found):
        return Drain(f"{LEAVING} no Kubernetes node asks for it any more")
    if now.lost and found.is_busy and not found.is_down:
        return Down(f"{LEAVING} its Kubernetes node is gone")
    return _wait_to_delete(now, found) or Delete(again=False)


def _wait_to_delete(now: NodeSnapshot, found: Node) -> Wait | None:
    """Also where it is made again right after: in between the job could not be changed, and Slurm may refuse the new one."""
    if found.is_busy:
        return Wait("free", "its jobs have not ended")
    return Wait("free", "a live job names it, and could not be changed any more without it") if now.named else None


def has_same_shape(found: Node, wanted: NodeDescription) -> bool:
    left_out = _left_out(found)
    gres = {kind: count for kind, count in _gres_wanted(wanted).items() if kind[0] not in left_out}
    if wanted.port is not None and found.port != wanted.port:
        return False  # the sink's, which cannot be changed either
    same_cores = found.threads in (0, wanted.threads_per_core or 1) and (wanted.sockets_per_board or 1) in (1, found.sockets)
    return same_cores and (found.cpus, found.real_memory, _gres_found(found)) == (wanted.cpus, wanted.real_memory, gres)


def _only_grew(found: Node, wanted: NodeDescription) -> bool:
    gres = _gres_wanted(wanted)
    grew = all(gres.get(kind, 0) >= count for kind, count in _gres_found(found).items())
    return grew and (wanted.cpus or 0) >= found.cpus and (wanted.real_memory or 0) >= found.real_memory


def _differences(found: Node, wanted: NodeDescription) -> list[str]:
    pairs = {
        "CPUs": (found.cpus, wanted.cpus),
        "memory": (found.real_memory, wanted.real_memory),
        "GRES": (_gres_found(found), _gres_wanted(wanted)),
        "features": (set(found.features), set(wanted.features)),
        "address": (found.address, wanted.address),
    }
    return [what for what, (is_so, should_be) in pairs.items() if is_so != should_be]


def _change(found: Node, wanted: NodeDescription, cluster: str) -> NodeChange | None:
    """What can be changed in place. Active features go along: without them Slurm refuses the change as soon as they were ever set by themselves."""
    change = NodeChange()
    ungrouped = set(found.features) != set(wanted.features)
    if ungrouped:
        change.features = change.features_act = wanted.features
    if found.address != wanted.address:
        change.address = [wanted.address]
    if topology_of(found) != wanted.topology:
        change.topology_str = wanted.topology
    if ungrouped or change.topology_str is not None:
        change.extra = mark_for(cluster, wanted.topology, gres_of(found), ungrouped=ungrouped or is_ungrouped(found))
    return None if change == NodeChange() else change


def _gres_wanted(wanted: NodeDescription) -> dict[tuple[str, str], int]:
    return {(gres.name, gres.type): gres.count for gres in wanted.gres}


def _gres_found(found: Node) -> dict[tuple[str, str], int]:
    """`gpu:h100:8(S:0-1),nic:2`; thousands may be written as `4K`."""
    powers = {letter: 1024**power for power, letter in enumerate(("", "K", "M", "G", "T", "P"))}
    return {(name, kind or ""): int(count) * powers[power] for name, kind, count, power in _GRES.findall(found.gres)}
