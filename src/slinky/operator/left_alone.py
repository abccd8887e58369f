"""Leaves clusters of the original that run several slurmctld alone, and says so on each object.

`left_alone` is pure: it decides from a Controller as it was written and the StatefulSet that stands
under slurmctld's name. `Originals` is the edge, which asks Kubernetes for that StatefulSet while it
is not the operator's own.

*Invariants:*

- Of such a cluster nothing is written but the status of its custom resources: no finalizer, no
  child, no worker, no node in Slurm.
- A cluster that the operator has taken over is never left alone afterwards: its workers need care.
- A Controller that one of these is recorded by keeps its Accounting from being taken over too.
"""

from collections.abc import Callable, Iterable

from slinky.kube import Client, NotFoundError
from slinky.operator import names
from slinky.operator.children import STATEFUL_SETS, Workload, is_managed
from slinky.operator.departing import FINALIZER
from slinky.operator.kinds import Written
from slinky.operator.nodesets import marks
from slinky.operator.relations import MEMBERS, accounting_of, controller_of
from slinky.operator.trouble import Trouble
from slinky.operator.watching import Watches

__all__ = ["REASON", "Originals", "has_several", "left_alone"]

REASON = "NotTakenOver"
# Between two looks at a StatefulSet that is not the operator's: no watch tells of it.
AGAIN_SECONDS = 5.0
HELD = frozenset({FINALIZER, marks.FINALIZER})


def has_several(controller: Written) -> bool:
    """Whether it asks for several slurmctld."""
    ha = controller.spec.get("ha")
    return isinstance(ha, dict) and ha.get("enabled") is True and controller.spec.get("external") is not True


def left_alone(controller: Written, there: Workload | None) -> str:
    """Why the cluster is left alone, and what to do; empty where it is not.

    `there`: the StatefulSet under slurmctld's name, whoever made it.
    """
    name = controller.metadata.name
    workload = names.controller(name)
    if there is not None and is_managed(there.metadata):
        return ""
    how = (
        "to come over with one slurmctld, set ha.enabled: false while the original operator still runs, and wait until "
        f"StatefulSet {workload} has one pod; or have the original operator go on with this namespace, and limit this one by `namespaces`"
    )
    if has_several(controller):
        return (
            f"Controller {name} has ha.enabled: true, and several slurmctld are not supported yet, so nothing of this cluster is changed "
            f"(slurmctld, slurmdbd, slurmrestd, logins, workers): {how}"
        )
    pods = max(there.spec.replicas, there.status.replicas) if there is not None else 0
    if pods > 1:
        return (
            f"StatefulSet {workload} of Controller {name} still has {pods} pods, each a slurmctld; two at once on one state would damage "
            "it, so nothing of this cluster is changed yet (slurmctld, slurmdbd, slurmrestd, logins, workers): "
            f"kubectl -n {controller.metadata.namespace} scale statefulset {workload} --replicas=1, with the original operator stopped"
        )
    return ""


class Originals:
    """`await originals.check("NodeSet", found, again)` raises Trouble where its cluster is left alone."""

    def __init__(self, kube: Client, watches: Watches) -> None:
        self._kube, self._watches = kube, watches

    async def check(self, kind: str, found: Written, again: Callable[[float], None]) -> None:
        """Raises Trouble, KubeError. `again(seconds)`: have it looked at again then."""
        if found.metadata.deletion_timestamp is not None and HELD & set(found.metadata.finalizers):
            return  # this operator holds it, and has to let it go
        if kind == "Accounting" and self._is_ours(names.accounting(found.metadata.name), found.metadata.namespace):
            return
        for controller in _controllers(kind, found, self._all):
            if why := left_alone(controller, await self._slurmctld(controller)):
                if not has_several(controller):
                    again(AGAIN_SECONDS)
                raise Trouble(REASON, why, lasting=True)

    def _all(self, kind: str, namespace: str) -> Iterable[Written]:
        return self._watches.kinds[kind].list(namespace)

    def _is_ours(self, workload: str, namespace: str) -> bool:
        return self._watches.stateful_sets.get(workload, namespace) is not None

    async def _slurmctld(self, controller: Written) -> Workload | None:
        """Asked for only while it can matter: the caches hold what is the operator's own."""
        meta = controller.metadata
        name = names.controller(meta.name)
        ours: Workload | None = self._watches.stateful_sets.get(name, meta.namespace)
        if ours is not None or has_several(controller) or FINALIZER in meta.finalizers or controller.spec.get("external") is True:
            return ours
        try:
            return await self._kube.get(STATEFUL_SETS, name, meta.namespace)
        except NotFoundError:
            return None


def _controllers(kind: str, found: Written, others: Callable[[str, str], Iterable[Written]]) -> list[Written]:
    """Those whose clusters it is a part of."""
    if kind == "Controller":
        return [found]
    every = others("Controller", found.metadata.namespace)
    if kind == "Accounting":
        return [each for each in every if accounting_of(each) == found.metadata.name]
    if kind in MEMBERS:
        return [each for each in every if each.metadata.name == controller_of(found)]
    return []
