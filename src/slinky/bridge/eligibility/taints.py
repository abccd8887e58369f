"""Taints and cordons, and what a pod tolerates.

Comes in: a pod's tolerations, a node. Goes out: the first taint that keeps the pod away. What must stay true: only NoSchedule and NoExecute keep a pod away; a toleration without an effect is for all effects, one without a key for all keys;
a cordoned node takes only who tolerates the taint that cordoned nodes have, whether it is there or not, but for a cordon that the bridge made because Slurm drained the node: that would take jobs back which wait for it in Slurm. The comparing operators Lt and Gt count only where the servers have them switched on.
"""

import re
from collections.abc import Sequence

from slinky.bridge.eligibility.selectors import integer
from slinky.bridge.keys import CORDONED_FOR_SLURM
from slinky.kube.objects import Node, Taint, Toleration

__all__ = ["is_cordoned_for_slurm", "taint_refusal", "taints_of", "tolerates", "untolerated", "written"]

DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
KEEPING_AWAY = ("NoSchedule", "NoExecute")
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def tolerates(toleration: Toleration, taint: Taint, *, comparing: bool = False) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" if comparing:
            return _compares(taint.value, toleration.operator, toleration.value)
        case _:
            return False


def _compares(value: str, operator: str, bound: str) -> bool:
    number, limit = (integer(text) if DECIMAL.fullmatch(text) else None for text in (value, bound))
    if number is None or limit is None:
        return False
    return number < limit if operator == "Lt" else number > limit


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration], *, comparing: bool = False) -> Taint | None:
    """The first that keeps the pod away."""
    for taint in taints:
        if taint.effect in KEEPING_AWAY and not any(tolerates(one, taint, comparing=comparing) for one in tolerations):
            return taint
    return None


def is_cordoned_for_slurm(node: Node) -> bool:
    """Slurm knows by itself that it gives no jobs to it; what it has started there goes on."""
    return CORDONED_FOR_SLURM in node.metadata.annotations


def taints_of(node: Node) -> Sequence[Taint]:
    """Those that count: the one of a cordon that the bridge made for Slurm does not."""
    return [taint for taint in node.spec.taints if taint.key != CORDON.key] if is_cordoned_for_slurm(node) else node.spec.taints


def taint_refusal(tolerations: Sequence[Toleration], node: Node, *, comparing: bool = False) -> str:
    cordoned = node.spec.unschedulable and not is_cordoned_for_slurm(node)
    if cordoned and untolerated((CORDON,), tolerations, comparing=comparing):
        return f"node {node.metadata.name} is cordoned (unschedulable)"
    taint = untolerated(taints_of(node), tolerations, comparing=comparing)
    if taint is None:
        return ""
    return f"node {node.metadata.name} has the taint {written(taint)}, which the pod does not tolerate"


def written(taint: Taint) -> str:
    """As kubectl writes it."""
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
