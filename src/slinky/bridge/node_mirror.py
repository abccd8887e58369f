"""What Slurm says of a node, shown on the Kubernetes Node: a cordon, a condition, and the taint that keeps other schedulers away.

Comes in: the Node as it is, Slurm's node of it, and what is against it in Kubernetes. Goes out: the changes that the Node needs, or none. Pure. What must stay true, whatever people do on both sides:
- Only a cordon of the bridge's own is taken back, known by its annotation; a drain of the bridge's own never cordons.
- Whoever uncordons what the bridge cordoned has the last word: it is not cordoned again until Slurm uses the node again. That is written on the Node, so that a cordon which somebody makes later is known as his.
- A Node that is as it should be needs no write.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from slinky.bridge.keys import CORDONED_FOR_SLURM, MANAGED_NODE, NODE_CONDITION, OVERRULED
from slinky.bridge.node_reasons import FLAPPING, GONE, OCCUPIED, OUT_OF_SERVICE, is_by_others, is_held_for
from slinky.bridge.node_settings import TaintEffect
from slinky.kube import Node as KubeNode
from slinky.kube.objects import Taint
from slinky.slurm import Node

__all__ = ["RESUMED", "UNCORDONED", "Mirror", "MirrorSnapshot", "overruled_of", "plan_mirror"]

UNCORDONED, RESUMED = "uncordoned", "resumed"  # what annotation `overruled` may hold
TOLD = {"DOWN": "Down", "DRAIN": "Drained", "FAIL": "Failed", "NOT_RESPONDING": "NotResponding"}
MOST_WORDS = 500
UNTOUCHED = None


class MirrorSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`found`: Slurm's node, None where there is none whose state concerns this Node. `taint`: the effect it should have, `none` for none of ours, None where taints are not ours to judge. `troubled`: something in Kubernetes is against it. `resumed`: somebody has just resumed in Slurm what the bridge drained."""

    node: KubeNode
    found: Node | None
    scheduler: str
    taint: TaintEffect | None = UNTOUCHED
    troubled: bool = False
    resumed: bool = False


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """`cordon`: True or False where that changes. `condition`: (status, reason, message), empty to take it away. `said`: reason and note of an Event."""

    annotations: Mapping[str, str | None] = {}
    cordon: bool | None = None
    taints: tuple[Taint, ...] | None = None
    condition: tuple[str, str, str] | tuple[()] | None = None
    said: tuple[str, str] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """The merge patch of it all but the condition; empty where there is none."""
        spec: dict[str, Any] = {}
        if self.cordon is not None:
            spec["unschedulable"] = True if self.cordon else None
        if self.taints is not None:
            spec["taints"] = [_written(taint) for taint in self.taints] or None
        patch: dict[str, Any] = {"spec": spec} if spec else {}
        return patch | ({"metadata": {"annotations": dict(self.annotations)}} if self.annotations else {})


def overruled_of(node: KubeNode) -> frozenset[str]:
    return frozenset(word for word in node.metadata.annotations.get(OVERRULED, "").split(",") if word)


def plan_mirror(now: MirrorSnapshot) -> Mirror | None:
    annotations: dict[str, str | None] = {}
    cordon, said, overruled = _cordon(now, annotations)
    if overruled != overruled_of(now.node):
        annotations[OVERRULED] = ",".join(sorted(overruled)) or None
    mirror = Mirror(annotations=annotations, cordon=cordon, taints=_taints(now), condition=_condition(now), said=said)
    return None if mirror == Mirror() else mirror


def _cordon(now: MirrorSnapshot, annotations: dict[str, str | None]) -> tuple[bool | None, tuple[str, str] | None, frozenset[str]]:
    """Whether to cordon or uncordon, what to say of it, and what the bridge is overruled in."""
    node, found = now.node, now.found
    marked, cordoned, overruled = node.metadata.annotations.get(CORDONED_FOR_SLURM), node.spec.unschedulable, set(overruled_of(node))
    cordon: bool | None = None
    said: tuple[str, str] | None = None
    if now.resumed:
        overruled.add(RESUMED)
        said = (
            "Overruled",
            "somebody resumed it in Slurm, where the bridge had drained it: it is not drained again for what is against it now",
        )
    elif not now.troubled:
        overruled.discard(RESUMED)
    if found is not None and is_by_others(found):
        words = _words(found)
        if marked is None and not cordoned and UNCORDONED not in overruled:
            cordon, annotations[CORDONED_FOR_SLURM] = True, words
            said = ("CordonedForSlurm", f"Slurm gives no jobs to it: {words}")
        elif marked is not None and not cordoned:
            annotations[CORDONED_FOR_SLURM] = None
            overruled.add(UNCORDONED)
            said = (
                "Overruled",
                "somebody uncordoned it, where the bridge had cordoned it for Slurm: it is not cordoned again until Slurm uses it again",
            )
        elif marked is not None and marked != words:
            annotations[CORDONED_FOR_SLURM] = words
    else:
        overruled.discard(UNCORDONED)
        if marked is not None:
            annotations[CORDONED_FOR_SLURM] = None
            if cordoned:
                cordon, said = False, ("Uncordoned", "what it was cordoned for in Slurm is over")
    return cordon, said, frozenset(overruled)


def _taints(now: MirrorSnapshot) -> tuple[Taint, ...] | None:
    """The whole list, as it should be; None where it is."""
    if now.taint is UNTOUCHED:
        return None
    has = now.node.spec.taints
    others = tuple(taint for taint in has if (taint.key, taint.value) != (MANAGED_NODE, now.scheduler))
    ours = (Taint(key=MANAGED_NODE, value=now.scheduler, effect=now.taint),) if now.taint != "none" else ()
    effects = [taint.effect for taint in has if taint not in others]
    return None if effects == [taint.effect for taint in ours] else others + ours


def _written(taint: Taint) -> dict[str, str]:
    """Others' as they stand, with the time that Kubernetes notes on some."""
    added = {"timeAdded": taint.time_added} if taint.time_added else {}
    return {"key": taint.key, "value": taint.value, "effect": taint.effect, **added}


def _condition(now: MirrorSnapshot) -> tuple[str, str, str] | tuple[()] | None:
    """What it should be; None where nothing is to be written. A Node that Slurm always used has none; what the Node says by itself (cordoned, not ready) is not said again."""
    found, has = now.found, now.node.condition(NODE_CONDITION)
    if found is None:
        return () if has is not None else None
    word = next((word for word in TOLD if word in found.states), "")
    if found.takes_jobs:
        wanted = ("True", "InUse", "Slurm gives jobs to it")
    else:
        wanted = ("False", TOLD.get(word, "NotInUse"), f"Slurm gives no jobs to it: {_words(found)}")
    if has is not None:
        return None if (has.status, has.reason, has.message) == wanted else wanted
    worth_it = is_by_others(found) or not found.is_responding or is_held_for(found, OUT_OF_SERVICE, GONE, OCCUPIED, FLAPPING)
    return wanted if worth_it else None


def _words(found: Node) -> str:
    """`drained: broken fan (root)`."""
    states = "+".join(word for word in found.states if word in TOLD) or "+".join(found.states)
    by = f" ({found.reason_set_by_user})" if found.reason and found.reason_set_by_user else ""
    return f"{states}: {found.reason or 'no reason given'}{by}"[:MOST_WORDS]
