"""Pods in flight: their job is in Slurm, and their node is not known yet.

A pod that would be refused next to one of them, wherever that one goes, must wait: Slurm knows nothing of anti-affinity,
topology spread and host ports, and would put both on one node. Slurm packs small jobs onto few nodes, so that would be the
rule and not the exception.

*Invariants:* what is refused here is only ever a wait. A pod for which one node is left is counted on that node alone.
"""

from collections.abc import Callable, Mapping

from slinky.bridge.eligibility.neighbours import Namespaces, ReachOf, query_of
from slinky.bridge.eligibility.ports import PortsInUse, host_ports
from slinky.bridge.eligibility.residents import LabelOf, Resident, Residents, Tally
from slinky.bridge.eligibility.selectors import SelectorError
from slinky.bridge.eligibility.spread import Constraint, constraints_of, spread_query
from slinky.bridge.eligibility.terms import Query, Term, affinity_terms, anti_affinity_terms, forbidden_terms
from slinky.kube.objects import Pod

__all__ = ["InFlight", "interacts", "interference", "pinned_to"]

SOMEWHERE = ""  # no node has this name: where a pod is counted that may go to several
HOSTNAME, NAME = "kubernetes.io/hostname", "metadata.name"
EVERYWHERE = "*"  # and a second count of all their ports

Numbers = Callable[[Pod, Constraint, tuple[str, ...]], Mapping[str, int]]  # matching pods by domain, zero included


class InFlight:
    """The pods in flight of one scope."""

    def __init__(self, label_of: LabelOf) -> None:
        self.pods = Residents(label_of)
        self.ports = PortsInUse()
        self.label_of = label_of

    def __len__(self) -> int:
        return len(self.pods)

    def add(self, uid: str, pod: Pod, node: str = SOMEWHERE) -> None:
        """`node`: the only one that it asks for, if there is one. `uid` is for `remove`."""
        self.remove(uid)
        meta, ports = pod.metadata, host_ports(pod)
        self.pods.put(Resident(uid, node, meta.namespace, meta.labels, False, ports, forbidden_terms(pod), meta.name))
        for each in (node, EVERYWHERE):
            self.ports.add(each, ports, str(meta.key))

    def remove(self, uid: str) -> None:
        if resident := self.pods.remove(uid):
            for each in (resident.node, EVERYWHERE):
                self.ports.remove(each, resident.ports, f"{resident.namespace}/{resident.name}")

    def count(self, query: Query) -> int:
        return sum(self.pods.tally(query).on_node.values())


def interacts(pod: Pod) -> bool:
    """Whether it asks for something that a pod in flight can spoil."""
    affinity = pod.spec.affinity
    return bool(
        (affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.required)
        or (affinity and affinity.pod_affinity and affinity.pod_affinity.required)
        or any(said.when_unsatisfiable in ("", "DoNotSchedule") for said in pod.spec.topology_spread_constraints)
        or host_ports(pod)
    )


def pinned_to(pod: Pod) -> str:
    """The only node that a pod asks for, by its name; empty where it asks for several, or does not name it."""
    if (said := pod.spec.node_selector.get(HOSTNAME)) is not None:
        return said
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    terms = required.node_selector_terms if required else ()
    if len(terms) != 1:
        return ""
    [term] = terms
    named = [wish for wish in term.match_expressions if wish.key == HOSTNAME]
    named += [wish for wish in term.match_fields if wish.key == NAME]
    return next((wish.values[0] for wish in named if wish.operator == "In" and len(wish.values) == 1), "")


def interference(
    pod: Pod,
    node: str,
    others: InFlight,
    residents: Residents,
    namespaces: Namespaces,
    numbers: Numbers,
    reach: ReachOf,
) -> str:
    """Why the pod must wait until pods in flight have their nodes; empty where it need not.

    `node` is the only one that is left for the pod, if there is one. `residents` are the pods that have a node.
    """
    if not others:
        return ""
    try:
        near, apart, spreads = affinity_terms(pod), anti_affinity_terms(pod), constraints_of(pod)
    except SelectorError:
        return ""  # no node takes it, which is told elsewhere
    meta = pod.metadata
    if ports := host_ports(pod):
        places = (SOMEWHERE, node) if node else (EVERYWHERE,)
        if taken := next((found for place in places if (found := others.ports.taken(place, ports))), None):
            return f"pod {taken[1]} also asks for host port {taken[0]} and has no node yet"
    for term, tally in others.pods.forbidding(meta.namespace, meta.labels, namespaces.get(meta.namespace, {})):
        if _meets(term, tally, node, others.label_of):
            return f"a pod with anti-affinity ({term.topology_key}) to pods with {term.selector} has no node yet"
    for term in apart:
        if _meets(term, others.pods.tally(query_of((term,), reach)), node, others.label_of):
            return f"this pod has anti-affinity ({term.topology_key}) to pods with {term.selector}, and one of them has no node yet"
    if near:
        query = query_of(near, reach)
        if not residents.tally(query).on_node and others.count(query):
            return f"this pod has affinity ({near[0].topology_key}) to pods with {near[0].selector}, and the first of them has no node yet"
    keys = tuple(sorted({constraint.topology_key for constraint in spreads}))
    for constraint in spreads:
        if coming := _coming(pod, constraint, others):
            counts = numbers(pod, constraint, keys)
            if _may_tip(constraint, counts, int(constraint.selector.matches(meta.labels)), coming):
                return (
                    f"{coming} {'pod' if coming == 1 else 'pods'} with {constraint.selector} "
                    f"{'has' if coming == 1 else 'have'} no node yet, and the pod's topology spread over "
                    f"{constraint.topology_key} has maxSkew {constraint.most}"
                )
    return ""


def _meets(term: Term, tally: Tally, node: str, label_of: LabelOf) -> bool:
    """Whether one that is counted there may come into the same domain as the pod."""
    if not tally.on_node:
        return False
    if not node or SOMEWHERE in tally.on_node:
        return True
    value = label_of(node, term.topology_key)
    return value is not None and value in tally.domains(term.topology_key, label_of)


def _coming(pod: Pod, constraint: Constraint, others: InFlight) -> int:
    if constraint.selector.is_everything:
        return 0
    return others.count(spread_query(pod.metadata.namespace, constraint))


def _may_tip(constraint: Constraint, numbers: Mapping[str, int], itself: int, coming: int) -> bool:
    """Whether a domain that would take the pod now would not, if all that are coming went there."""
    least = 0 if len(numbers) < constraint.least_domains else min(numbers.values(), default=0)
    return any(there + itself - least <= constraint.most < there + itself + coming - least for there in numbers.values())
