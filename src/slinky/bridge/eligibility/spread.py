"""Topology spread, as far as it forbids (`DoNotSchedule`).

Comes in: a pod, the pods that have a node, the nodes. Goes out: a judge of nodes, or None where there is nothing to judge. What must stay true, as kube-scheduler has it: only nodes count that have the topology labels of all constraints and
that the constraint's policies let count (node affinity by default, taints only where it says so); a domain without matching pods counts as zero; with fewer domains than `minDomains` the least is zero;
pods that are being deleted do not count, nor those of other namespaces; a selector without requirements counts nobody.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from slinky.bridge.eligibility.neighbours import Judge
from slinky.bridge.eligibility.residents import Residents, Spread
from slinky.bridge.eligibility.selectors import Requirement, Selector, SelectorError, selector_of
from slinky.bridge.eligibility.terms import Clause, Query
from slinky.kube.objects import Node, Pod, TopologySpreadConstraint

__all__ = ["Constraint", "Counting", "constraints_of", "domains_of", "numbers_of", "spread_judge", "spread_query"]


@dataclass(frozen=True, slots=True)
class Constraint:
    topology_key: str
    most: int  # maxSkew
    selector: Selector
    least_domains: int = 1
    by_affinity: bool = True
    by_taints: bool = False


Domains = Mapping[str, str]  # node that counts → its domain
Counting = Callable[[Constraint, tuple[str, ...]], Domains]  # given the labels that a node must have


# Pods of one template share their constraints, which are read once for all whose labels in `matchLabelKeys` are the
# same. What is remembered holds the constraints too, so that their id stays theirs.
MOST_REMEMBERED = 1024
_REMEMBERED: dict[Hashable, tuple[object, tuple[Constraint, ...]]] = {}


def constraints_of(pod: Pod) -> tuple[Constraint, ...]:
    """Those that forbid. Raises SelectorError where kube-scheduler could not parse one."""
    said = pod.spec.topology_spread_constraints
    if not said:
        return ()
    labels = pod.metadata.labels
    matched = tuple(labels.get(key) for each in said for key in each.match_label_keys)
    known = _REMEMBERED.get((id(said), matched))
    if known is None:
        if len(_REMEMBERED) >= MOST_REMEMBERED:
            _REMEMBERED.clear()
        found = tuple(_constraint(each, labels) for each in said if each.when_unsatisfiable in ("", "DoNotSchedule"))
        known = _REMEMBERED[id(said), matched] = (said, found)
    return known[1]


def _constraint(said: TopologySpreadConstraint, labels: Mapping[str, str]) -> Constraint:
    same = [Requirement(key, "In", (labels[key],)) for key in said.match_label_keys if key in labels]
    return Constraint(
        said.topology_key,
        said.max_skew,
        selector_of(said.label_selector).narrowed(same),
        said.min_domains or 1,
        said.node_affinity_policy != "Ignore",
        said.node_taints_policy == "Honor",
    )


def domains_of(constraint: Constraint, keys: Iterable[str], nodes: Iterable[Node], counts: Callable[[Node], bool]) -> dict[str, str]:
    """Nodes that count for a constraint, with their domains; `counts` speaks for the policies, `keys` are the topology labels of all constraints."""
    wanted = tuple(keys)
    return {
        node.metadata.name: node.metadata.labels[constraint.topology_key]
        for node in nodes
        if all(key in node.metadata.labels for key in wanted) and counts(node)
    }


def spread_judge(pod: Pod, residents: Residents, counting: Counting) -> Judge | None:
    try:
        constraints = constraints_of(pod)
    except SelectorError as error:
        return _unreadable(error)
    if not constraints:
        return None
    keys = tuple(sorted({constraint.topology_key for constraint in constraints}))
    judged = []
    for constraint in constraints:
        spread = _spread(pod, constraint, residents, counting(constraint, keys))
        numbers = spread.numbers
        least = 0 if len(numbers) < constraint.least_domains else spread.least
        itself = int(constraint.selector.matches(pod.metadata.labels))
        judged.append((constraint, numbers, least, itself))

    def judge(node: Node) -> str:
        name, labels = node.metadata.name, node.metadata.labels
        for constraint, numbers, least, itself in judged:
            value = labels.get(constraint.topology_key)
            if value is None:
                return f"node {name} has no label {constraint.topology_key}, by which the pod's kind is to be spread"
            there = numbers.get(value, 0)
            if there + itself - least > constraint.most:
                return (
                    f"node {name} ({constraint.topology_key}={value}) has {there} pods with {constraint.selector} already, the emptiest {least}: "
                    f"the pod's topology spread allows a difference of {constraint.most}"
                )
        return ""

    return judge


def numbers_of(pod: Pod, constraint: Constraint, residents: Residents, domains: Domains) -> Mapping[str, int]:
    """Domain → matching pods, zero included. Live: to be read at once."""
    return _spread(pod, constraint, residents, domains).numbers


def _spread(pod: Pod, constraint: Constraint, residents: Residents, domains: Domains) -> Spread:
    if constraint.selector.is_everything:
        return residents.none.spread(domains)
    return residents.tally(spread_query(pod.metadata.namespace, constraint)).spread(domains)


def spread_query(namespace: str, constraint: Constraint) -> Query:
    """The pods that count for a constraint of a pod of that namespace."""
    return Query((Clause(frozenset((namespace,)), constraint.selector),), living=True)


def _unreadable(error: SelectorError) -> Judge:
    return lambda node: f"node {node.metadata.name} cannot be judged: the pod's topology spread is malformed: {error}"
