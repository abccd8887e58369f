"""Workers of two namespaces for one slurmctld elsewhere: under one host name they would be one Slurm node, and each NodeSet would mark and drain the other's.

In: a NodeSet's pods, and those that other namespaces lend to the same head. Out: the names that are not for this NodeSet, and which NodeSet has each.
What must stay true: the pod that came first has the name; a NodeSet neither makes a second pod of that name nor changes the record in Slurm.
"""

from collections.abc import Iterable

from slinky.kube import Pod
from slinky.operator.kinds import Written
from slinky.operator.nodesets.snapshot import slurm_name

__all__ = ["external_head", "held_elsewhere"]


def external_head(controller: Written | None) -> tuple[str, int] | None:
    """Where the slurmctld elsewhere listens; None for a head of the operator's own."""
    spec = controller.spec if controller is not None else {}
    where = spec.get("externalConfig")
    if not spec.get("external") or not isinstance(where, dict) or not where.get("host"):
        return None
    return str(where["host"]).lower().rstrip("."), int(where.get("port") or 0)


def held_elsewhere(mine: Iterable[Pod], others: Iterable[Pod]) -> dict[str, str]:
    own = {slurm_name(pod): pod for pod in mine}
    found: dict[str, str] = {}
    for pod in others:
        name, owner = slurm_name(pod), pod.metadata.controller
        if owner is not None and owner.kind == "NodeSet" and (name not in own or _came(pod) < _came(own[name])):
            found[name] = f"{owner.name} of namespace {pod.metadata.namespace}"
    return found


def _came(pod: Pod) -> tuple[str, str]:
    return str(pod.metadata.creation_timestamp), pod.metadata.namespace
