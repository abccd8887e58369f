"""What Kubernetes has against a node, told to Slurm: the place where the correctness of drains lives.

Comes in: what Kubernetes says of a node, what Slurm says of it, and what of earlier acts is remembered. Goes out: the one act towards Slurm that is due now, or None. Pure. `node_mirror` is the other direction.

What must stay true, whatever people do on both sides:
- Only a drain or a down of the bridge's own is taken back; what somebody else drained is left as it is.
- Whoever resumes in Slurm what the bridge drained has the last word: it is not drained again until what was against it is over (`Overruled`).
- A cordon that the bridge made for Slurm is nothing against a node, or the two sides would hold each other for ever.
- DOWN ends jobs: never for a node that is merely not ready.
"""

import msgspec

from slinky.bridge.keys import CORDONED_FOR_SLURM
from slinky.bridge.node_plan import Down, Drain, Resume, Undrain
from slinky.bridge.node_reasons import (
    CORDONED,
    FLAPPING,
    GONE,
    LEAVING,
    NOT_READY,
    OCCUPIED,
    OUT_OF_SERVICE,
    RENEWING,
    kind_of,
    takes_no_jobs,
)
from slinky.kube import Node as KubeNode
from slinky.slurm import Node

__all__ = ["Cause", "Overruled", "StateAction", "StateSnapshot", "Trouble", "cause_of", "is_ready", "plan_state"]

SHUT_DOWN = "node.kubernetes.io/out-of-service"


class Cause(msgspec.Struct, frozen=True):
    """What is against the node: `kind` is how the reason begins. `down`: its jobs cannot go on."""

    kind: str
    text: str
    down: bool = False

    @property
    def reason(self) -> str:
        return self.kind + self.text


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What the Node object alone does not tell. `not_ready`: for as long as is allowed. `flapping`: it was not ready too often. `occupied`: by pods of ours whose jobs Slurm has lost. `deserted`: it is not ready, and the pods of its jobs are gone."""

    not_ready: bool = False
    flapping: bool = False
    occupied: bool = False
    deserted: bool = False


class StateSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`overruled`: somebody resumed it, and has the last word. `was_ours`: when it was last seen, it was drained or down for us. `registering`: the registration is about to remove it or to make it anew. `hybrid`: it has a slurmd, and jobs of Slurm's own."""

    found: Node
    cause: Cause | None
    overruled: bool = False
    was_ours: bool = False
    registering: bool = False
    hybrid: bool = False


class Overruled(msgspec.Struct, frozen=True):
    """Somebody resumed what the bridge drained: to be written down."""


StateAction = Drain | Down | Undrain | Resume | Overruled


def is_ready(node: KubeNode) -> bool:
    ready = node.condition("Ready")
    return ready is not None and ready.status == "True"


def cause_of(node: KubeNode, trouble: Trouble) -> Cause | None:
    """The first that holds. That it is occupied goes before a cordon: it is remembered in Slurm's reason alone."""
    if any(taint.key == SHUT_DOWN for taint in node.spec.taints):
        return Cause(OUT_OF_SERVICE, " in Kubernetes", down=True)
    if trouble.deserted:
        return Cause(GONE, ": not ready in Kubernetes, and its pods are gone", down=True)
    if trouble.occupied:
        return Cause(OCCUPIED, ": pods run here whose jobs this Slurm does not know")
    if node.spec.unschedulable and CORDONED_FOR_SLURM not in node.metadata.annotations:
        return Cause(CORDONED, " in Kubernetes")
    if trouble.flapping:
        return Cause(FLAPPING, ": ready and not ready in Kubernetes by turns")
    return Cause(NOT_READY, " in Kubernetes") if trouble.not_ready else None


def plan_state(now: StateSnapshot) -> StateAction | None:
    found, cause, kind = now.found, now.cause, kind_of(now.found)
    if now.registering and kind in (LEAVING, RENEWING):
        return None
    if cause is None:
        if not kind:
            return None
        return Resume() if found.is_down and not now.hybrid else Undrain()
    if not takes_no_jobs(found):
        if now.overruled:
            return None
        return Overruled() if now.was_ours else _hold(cause, now.hybrid)
    if not kind or found.is_down:
        return None
    return _hold(cause, now.hybrid) if kind != cause.kind else None


def _hold(cause: Cause, hybrid: bool) -> Drain | Down:
    """Of a node with a slurmd Slurm finds out by itself that it is down."""
    return Down(cause.reason) if cause.down and not hybrid else Drain(cause.reason)
