"""Which nodes a pod asks for by their labels and names: `nodeSelector` and required node affinity.

Comes in: a pod, and a node. Goes out: `Rules`, a choice of conjunctions, and whether a node follows them. What must stay true: a term that says nothing, or that kube-scheduler cannot parse, matches no node; terms are a choice, what stands in
one term must all hold; a pod that names no label has no rules (None), one whose rules nobody can follow has an empty choice.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slinky.bridge.eligibility.bounds import MOST_RULES
from slinky.bridge.eligibility.selectors import BARE, NUMBERS, SETS, Requirement, SelectorError, meets, requirement_of
from slinky.kube.objects import Node, NodeSelector, NodeSelectorTerm, Pod, SelectorRequirement

__all__ = ["Alternative", "Rules", "follows", "label_refusal", "label_rules", "required_nodes", "rules_of", "said"]

NAME = "metadata.name"
MOST_TOLD, MOST_WORDS = 3, 300  # terms, and characters, of what a pod asks for


@dataclass(frozen=True, slots=True)
class Alternative:
    """All of it must hold. `names` are conditions on the node's name, with In and NotIn of one value each."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()


Rules = tuple[Alternative, ...]


def label_rules(pod: Pod) -> Rules | None:
    """One of these must hold of a node; None where any node will do."""
    return rules_of(pod.spec.node_selector, required_nodes(pod))


def required_nodes(pod: Pod) -> NodeSelector | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return affinity.required if affinity else None


def is_too_long(required: NodeSelector) -> bool:
    terms = required.node_selector_terms
    return len(terms) > MOST_RULES or sum(len(term.match_expressions) + len(term.match_fields) for term in terms) > MOST_RULES


def rules_of(selector: Mapping[str, str], required: NodeSelector | None) -> Rules | None:
    plain = tuple(Requirement(key, "In", (value,)) for key, value in sorted(selector.items()))
    if required is None:
        return (Alternative(plain),) if plain else None
    if is_too_long(required):
        return ()  # judged for every node, it would cost more than a pod may
    found = (_alternative(term) for term in required.node_selector_terms)
    return tuple(Alternative(_merged(plain, one.labels), one.names) for one in found if one is not None)


def _merged(plain: tuple[Requirement, ...], more: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    return plain + tuple(requirement for requirement in more if requirement not in plain)


def _alternative(term: NodeSelectorTerm) -> Alternative | None:
    if not term.match_expressions and not term.match_fields:
        return None
    try:
        labels = tuple(requirement_of(requirement, SETS + BARE + NUMBERS) for requirement in term.match_expressions)
        names = tuple(map(_name_requirement, term.match_fields))
    except SelectorError:
        return None
    return Alternative(labels, names)


def _name_requirement(said: SelectorRequirement) -> Requirement:
    if said.operator not in SETS or len(said.values) != 1:
        raise SelectorError(f"{said.key} {said.operator}: a field takes In or NotIn with one value")
    return Requirement(said.key, said.operator, said.values)


def follows(node: Node, rules: Rules | None) -> bool:
    if rules is None:
        return True
    labels, fields = node.metadata.labels, {NAME: node.metadata.name}
    for one in rules:
        for requirement in one.labels:
            if not meets(labels, requirement):
                break
        else:
            if not one.names or all(_field(fields, requirement) for requirement in one.names):
                return True
    return False


def _field(fields: dict[str, str], requirement: Requirement) -> bool:
    """A field that nodes do not have is empty, not missing."""
    return (fields.get(requirement.key, "") in requirement.values) == (requirement.operator == "In")


def label_refusal(node: Node, rules: Rules | None) -> str:
    if follows(node, rules):
        return ""
    if not rules:
        return f"node {node.metadata.name} cannot be chosen: no node can match the pod's node affinity"
    if len(rules) == 1:
        labels = node.metadata.labels
        missed = next((requirement for requirement in rules[0].labels if not meets(labels, requirement)), None)
        if missed is not None:
            has = labels.get(missed.key)
            it = "has no such label" if has is None else f"has {missed.key}={has}"
            return f"node {node.metadata.name} {it}; the pod asks for {missed}"
    return f"node {node.metadata.name} is not among those that the pod asks for: {said(rules)}"


def said(rules: Rules) -> str:
    """For people: `zone=a and gpu > 4, or metadata.name=kn1`; the beginning, where it is long: it is kept for each node."""
    told = ", or ".join(" and ".join(map(str, (one.labels + one.names)[:MOST_TOLD])) for one in rules[:MOST_TOLD])
    more = f", or {len(rules) - MOST_TOLD} more terms" if len(rules) > MOST_TOLD else ""
    return (told if len(told) <= MOST_WORDS else f"{told[:MOST_WORDS]} …") + more
