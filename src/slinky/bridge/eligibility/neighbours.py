"""Whom a pod must be near and whom it must not: affinity and anti-affinity between pods, both ways.

Comes in: a pod, the pods that have a node, the namespaces. Goes out: a judge of nodes, or None where there is nothing to judge. What must stay true, as kube-scheduler has it: one pod must match all affinity terms to count, and each term's
domain of the node must have such a pod; the first of a group that wants itself near may go anywhere its topology labels are; a node without the topology label satisfies no affinity and violates no anti-affinity; anti-affinity of
pods that are there holds against the newcomer too; a pod that is being deleted still counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from slinky.bridge.eligibility.residents import LabelOf, Residents
from slinky.bridge.eligibility.selectors import SelectorError
from slinky.bridge.eligibility.terms import Clause, Query, Reach, Term, affinity_terms, anti_affinity_terms
from slinky.kube.objects import Node, Pod

__all__ = ["Judge", "Namespaces", "ReachOf", "neighbour_judge", "query_of"]

Judge = Callable[[Node], str]
Namespaces = Mapping[str, Mapping[str, str]]  # name → labels
ReachOf = Callable[[Term], Reach]  # which namespaces a term means: `reach_of`, remembered until a namespace changes


def neighbour_judge(pod: Pod, residents: Residents, namespaces: Namespaces, label_of: LabelOf, reach: ReachOf) -> Judge | None:
    try:
        near, apart = affinity_terms(pod), anti_affinity_terms(pod)
    except SelectorError as error:
        return _unreadable(error)
    meta = pod.metadata
    judges: list[Judge] = []
    against: dict[str, dict[str, Term]] = {}  # topology key → domain → a term that forbids it
    for term, tally in residents.forbidding(meta.namespace, meta.labels, namespaces.get(meta.namespace, {})):
        domains_of_key = against.setdefault(term.topology_key, {})
        for domain in tally.domains(term.topology_key, label_of):
            domains_of_key.setdefault(domain, term)
    judges += [_against(key, found) for key, found in against.items()]
    for term in apart:
        tally = residents.tally(query_of((term,), reach))
        if tally.on_node:
            judges.append(_apart(term, tally.domains(term.topology_key, label_of)))
    if near:
        query = query_of(near, reach)
        tally = residents.tally(query)
        domains = [(term, tally.domains(term.topology_key, label_of)) for term in near]
        itself = all(clause.matches(meta.namespace, meta.labels) for clause in query.clauses)
        judges.append(_near(domains, is_first=itself and not any(found for _, found in domains)))
    return _first(judges) if judges else None


def query_of(terms: Sequence[Term], reach: ReachOf) -> Query:
    """The pods that all of the terms mean."""
    return Query(tuple(Clause(reach(term), term.selector) for term in terms))


def _first(judges: Iterable[Judge]) -> Judge:
    every = tuple(judges)

    def judge(node: Node) -> str:
        for one in every:
            if refusal := one(node):
                return refusal
        return ""

    return judge


def _near(domains: list[tuple[Term, Mapping[str, int]]], *, is_first: bool) -> Judge:
    wanted = [(term.topology_key, found, str(term)) for term, found in domains]

    def judge(node: Node) -> str:
        name, labels = node.metadata.name, node.metadata.labels
        for key, found, meant in wanted:
            value = labels.get(key)
            if value is None:
                return f"node {name} has no label {key}, by which the pod wants to be near others"
            if value not in found and not is_first:
                return f"node {name} ({key}={value}) has none of the {meant} that the pod must be near"
        return ""

    return judge


def _apart(term: Term, found: Mapping[str, int]) -> Judge:
    key, meant = term.topology_key, str(term.selector)

    def judge(node: Node) -> str:
        value = node.metadata.labels.get(key)
        number = found.get(value) if value is not None else None
        if number is None:
            return ""
        there = f"{number} {'pod has' if number == 1 else 'pods have'} {meant}"
        return f"node {node.metadata.name} ({key}={value}) is where {there}, from which the pod must stay apart"

    return judge


def _against(key: str, found: Mapping[str, Term]) -> Judge:
    """One judge for all terms of a topology key: there may be thousands of them."""
    texts: dict[Term, str] = {}

    def judge(node: Node) -> str:
        value = node.metadata.labels.get(key)
        term = found.get(value) if value is not None else None
        if term is None:
            return ""
        meant = texts.get(term)
        if meant is None:
            meant = texts[term] = str(term.selector)
        return f"node {node.metadata.name} ({key}={value}) is where a pod runs whose anti-affinity keeps pods with {meant} away"

    return judge


def _unreadable(error: SelectorError) -> Judge:
    return lambda node: f"node {node.metadata.name} cannot be judged: the pod's affinity is malformed: {error}"
