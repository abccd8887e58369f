"""Required affinity and anti-affinity between pods, read once and kept in a form that can be compared.

Comes in: a pod's terms. Goes out: `Term`s (whom they mean, and within which part of the cluster), and `Query`s, which choose among pods that have a node. What must stay true: a term without namespaces means the namespace of its pod; an
empty namespace selector means every namespace. Of its own terms a pod may be told two things: up to Kubernetes 1.36 kube-scheduler takes a namespace selector that also matches a namespace without labels (`NotIn`,
`DoesNotExist`) for one of every namespace; from 1.37 on it does not. Anti-affinity of pods that are placed is not concerned by that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from slinky.bridge.eligibility.bounds import MOST_TERMS, is_large_term
from slinky.bridge.eligibility.selectors import Requirement, Selector, SelectorError, selector_of
from slinky.kube.objects import Pod, PodAffinityTerm

__all__ = [
    "Clause",
    "Query",
    "Reach",
    "Term",
    "affinity_terms",
    "anti_affinity_terms",
    "forbidden_terms",
    "reach_of",
    "with_label_keys",
]

EXACT_NAMESPACES = (1, 37)
Reach = frozenset[str] | None  # names of namespaces; None: all of them


@dataclass(frozen=True, slots=True)
class Term:
    """Whom it means: pods that `selector` matches, in `namespaces` or in one whose labels `namespace_selector` matches."""

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str
    hashed: int = field(init=False, repr=False, compare=False)  # a term is looked up for each pod that waits

    def __post_init__(self) -> None:
        said = (self.namespaces, self.namespace_selector, self.selector, self.topology_key)
        object.__setattr__(self, "hashed", hash(said))

    def __hash__(self) -> int:
        return self.hashed

    def means(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        return (namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)) and self.selector.matches(labels)

    def __str__(self) -> str:
        return f"pods with {self.selector} in the same {self.topology_key}"


class Clause(NamedTuple):
    reach: Reach
    selector: Selector

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return (self.reach is None or namespace in self.reach) and self.selector.matches(labels)


class Query(NamedTuple):
    """Pods that all clauses match; `living` leaves out those that are being deleted."""

    clauses: tuple[Clause, ...]
    living: bool = False


# Pods of one template share their terms, which are read once for all of them. What is remembered holds the terms too, so that their id stays theirs.
MOST_REMEMBERED = 1024
_REMEMBERED: dict[tuple[int, str], tuple[object, tuple["Term", ...]]] = {}


def affinity_terms(pod: Pod) -> tuple[Term, ...]:
    """Raises SelectorError where kube-scheduler could not parse one."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_affinity is None or not affinity.pod_affinity.required:
        return ()
    return _terms(pod.metadata.namespace, affinity.pod_affinity.required)


def anti_affinity_terms(pod: Pod) -> tuple[Term, ...]:
    """Raises SelectorError where kube-scheduler could not parse one."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None or not affinity.pod_anti_affinity.required:
        return ()
    return _terms(pod.metadata.namespace, affinity.pod_anti_affinity.required)


def forbidden_terms(pod: Pod) -> tuple[Term, ...]:
    """The anti-affinity of a pod that has a node, as far as it is heeded.

    That is nothing which kube-scheduler could not parse, and no more than a pod of the bridge may have.
    """
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None or not affinity.pod_anti_affinity.required:
        return ()
    few = said = affinity.pod_anti_affinity.required
    if len(said) > MOST_TERMS or any(map(is_large_term, said)):
        few = tuple(each for each in said[:MOST_TERMS] if not is_large_term(each))
    try:
        return _terms(pod.metadata.namespace, few)
    except SelectorError:
        return ()


def _terms(namespace: str, required: Sequence[PodAffinityTerm]) -> tuple[Term, ...]:
    known = _REMEMBERED.get((id(required), namespace))
    if known is None:
        if len(_REMEMBERED) >= MOST_REMEMBERED:
            _REMEMBERED.clear()
        known = _REMEMBERED[id(required), namespace] = (required, tuple(_term(namespace, said) for said in required))
    return known[1]


def _term(namespace: str, said: PodAffinityTerm) -> Term:
    own = not said.namespaces and said.namespace_selector is None
    names = frozenset((namespace,)) if own else frozenset(said.namespaces)
    return Term(names, selector_of(said.namespace_selector), selector_of(said.label_selector), said.topology_key)


def with_label_keys(term: Term, said: PodAffinityTerm, labels: Mapping[str, str]) -> Term:
    """What the API server makes of `matchLabelKeys` and `mismatchLabelKeys` when a pod is created: for pods that were not created yet."""
    if not said.match_label_keys and not said.mismatch_label_keys:
        return term
    match = [Requirement(key, "In", (labels[key],)) for key in said.match_label_keys if key in labels]
    mismatch = [Requirement(key, "NotIn", (labels[key],)) for key in said.mismatch_label_keys if key in labels]
    return Term(term.namespaces, term.namespace_selector, term.selector.narrowed([*match, *mismatch]), term.topology_key)


def reach_of(term: Term, namespaces: Iterable[tuple[str, Mapping[str, str]]], release: tuple[int, int]) -> Reach:
    """The namespaces that a term of the pod in question means, among all that there are with their labels."""
    chosen = term.namespace_selector
    if chosen.requirements is None:
        return term.namespaces
    if chosen.is_everything or (release < EXACT_NAMESPACES and chosen.matches({})):
        return None
    return term.namespaces | {name for name, labels in namespaces if chosen.matches(labels)}
