"""May a NodeSet's worker be on a Kubernetes node? As Kubernetes' own DaemonSets judge it.

In: what the NodeSet's template says about nodes, and a node. Out: whether a worker may be made there, and whether one that is there may stay.
What must stay true: a selector and an affinity both have to match; taints that a daemon bears are borne (a node that is cordoned, not ready or out of something keeps its worker); NoSchedule keeps new workers out and lets those there stay; what cannot be read matches no node.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from slinky.kube import Node
from slinky.kube.objects import Affinity, NodeSelectorTerm, SelectorRequirement, Taint, Toleration
from slinky.operator.kinds import NodeSet

__all__ = ["Placing", "placing_of"]

WORKER = "nodeset.slinky.slurm.net/worker"
ILL = "node.kubernetes.io/"
BORNE = (
    Toleration(key=WORKER, operator="Exists", effect="NoExecute"),
    *(Toleration(key=ILL + name, operator="Exists", effect="NoExecute") for name in ("not-ready", "unreachable")),
    *(
        Toleration(key=ILL + name, operator="Exists", effect="NoSchedule")
        for name in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
BORNE_ON_HOST_NETWORK = Toleration(key=ILL + "network-unavailable", operator="Exists", effect="NoSchedule")


class Placing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a pod's spec that says where it may be."""

    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_network: bool = False

    def takes(self, node: Node) -> bool:
        """Whether a new worker may be made there."""
        return self._matches(node) and self._bears(node, ("NoSchedule", "NoExecute"))

    def keeps(self, node: Node) -> bool:
        """Whether one that is there may stay."""
        return self._matches(node) and self._bears(node, ("NoExecute",))

    def _matches(self, node: Node) -> bool:
        labels, name = node.metadata.labels, node.metadata.name
        if self.node_name and self.node_name != name:
            return False
        if any(labels.get(key) != value for key, value in self.node_selector.items()):
            return False
        required = self.affinity and self.affinity.node_affinity and self.affinity.node_affinity.required
        return not required or any(_term(term, labels, name) for term in required.node_selector_terms)

    def _bears(self, node: Node, effects: tuple[str, ...]) -> bool:
        borne = (*self.tolerations, *BORNE, *((BORNE_ON_HOST_NETWORK,) if self.host_network else ()))
        return all(any(_tolerates(one, taint) for one in borne) for taint in node.spec.taints if taint.effect in effects)


def placing_of(nodeset: NodeSet) -> Placing | None:
    """None where the template's words cannot be read: then no node is right, and none is wrong either."""
    try:
        return msgspec.convert(nodeset.spec.template.spec, Placing)
    except msgspec.ValidationError:
        return None


def _term(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """An empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    return _all(term.match_expressions, labels) and _all(term.match_fields, {"metadata.name": name})


def _all(requirements: Iterable[SelectorRequirement], labels: Mapping[str, str]) -> bool:
    return all(_OPERATORS.get(one.operator, _nothing)(labels.get(one.key), one.values) for one in requirements)


def _compared(value: str | None, values: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and len(values) == 1 and holds(int(value), int(values[0]))
    except ValueError:
        return False


def _nothing(_value: str | None, _values: tuple[str, ...]) -> bool:
    return False


_OPERATORS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values, lambda left, right: left > right),
    "Lt": lambda value, values: _compared(value, values, lambda left, right: left < right),
}


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value
