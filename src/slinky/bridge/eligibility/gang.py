"""What the members of a gang ask of one another, and whether Slurm can be told.

Comes in: the pods of a gang, also ones that were not created yet. Goes out: `GangRules`. What must stay true: members that may not share a node get one each; members that must be together by a label are to get nodes of one value of it;
what Slurm cannot be told (one member a zone, together by two labels at once) is refused, in words. Sound, not complete: a gang of which only some must be apart gets a node for each. What members ask of other pods is not looked at here: that is a
matter of each pod and its node.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slinky.bridge.eligibility.indexes import narrowest
from slinky.bridge.eligibility.ports import PortsInUse, host_ports
from slinky.bridge.eligibility.selectors import Requirement, Selector, SelectorError
from slinky.bridge.eligibility.spread import constraints_of
from slinky.bridge.eligibility.terms import Term, affinity_terms, anti_affinity_terms, with_label_keys
from slinky.kube.objects import Pod, PodAffinityTerm

__all__ = ["HOSTNAME", "UNMAPPED", "GangRules", "within_gang"]

HOSTNAME = "kubernetes.io/hostname"
LEAST_COMPARISONS = 10_000
MOST_COMPARISONS = 10  # for each pod of the gang

UNMAPPED = "the pods of this gang are to be on nodes of one {label}, which Slurm can be told only where that label is a feature: map it with nodes.featureLabels"


@dataclass(frozen=True, slots=True)
class GangRules:
    """`one_per_node`: no two members on one node. `same_domain`: all members on nodes with the same value of this label. `refusal`: why it cannot be done at all, empty where it can."""

    one_per_node: bool = False
    same_domain: str | None = None
    refusal: str = ""

    def also_in(self, label: str) -> "GangRules":
        """And on nodes of one value of this label, as their group asks; empty: it does not."""
        if not label or self.refusal or label == self.same_domain:
            return self
        if self.same_domain:
            return GangRules(
                refusal=f"the gang must be on nodes of one {self.same_domain} and of one {label}; the bridge supports only one of these"
            )
        if self.one_per_node and label == HOSTNAME:
            return GangRules(refusal=f"the gang's pods must all be on one node ({HOSTNAME}), but may not share a node")
        return GangRules(self.one_per_node, label)


def within_gang(pods: Sequence[Pod], namespace_labels: Mapping[str, str] | None = None) -> GangRules:
    """All pods are of one namespace; where its labels are not known, a namespace selector is taken to mean it."""
    if len(pods) < 2:
        return GangRules()
    try:
        return _rules(pods, namespace_labels)
    except SelectorError as error:
        return GangRules(refusal=f"the pods' affinity or topology spread is malformed: {error}")
    except _TooVariedError:
        return GangRules(
            refusal="the gang's pods have too many different affinity terms or topology spread constraints. "
            "Use one pod template, or select label values with the operator In"
        )


def _rules(pods: Sequence[Pod], namespace_labels: Mapping[str, str] | None) -> GangRules:
    members = _Members(pods, namespace_labels)
    apart = _apart(members) | _spread(members)
    together = _together(members)
    one_per_node = HOSTNAME in apart or _ports_clash(pods)
    if wide := sorted(apart - {HOSTNAME}):
        return GangRules(
            refusal=f"the pods of this gang are to be kept apart by {wide[0]}, which Slurm cannot be told; by {HOSTNAME} it can, "
            f"and single pods can be kept apart by any label"
        )
    if HOSTNAME in together:
        together = {HOSTNAME}  # one node is one of everything
    if len(together) > 1:
        named = " and ".join(sorted(together))
        return GangRules(refusal=f"the pods of this gang are to be together by {named} at once; Slurm can be told of one label only")
    if one_per_node and together == {HOSTNAME}:
        return GangRules(
            refusal="the pods of this gang are to share one node, and are kept apart on it by their host ports or anti-affinity"
        )
    return GangRules(one_per_node, next(iter(together), None))


class _Members:
    """The pods of a gang, found by their labels: a gang of n pods with n different terms costs far less than n² comparisons.

    Raises `_TooVariedError` where that does not help, as no term names values: what one gang says never takes more than `MOST_COMPARISONS` a pod.
    """

    def __init__(self, pods: Sequence[Pod], namespace_labels: Mapping[str, str] | None) -> None:
        self.pods = pods
        self._namespace_labels = namespace_labels
        self._by_label: dict[str, dict[str, list[int]]] = {}
        self._left = LEAST_COMPARISONS + MOST_COMPARISONS * len(pods)

    def meant_by(self, terms: Sequence[Term]) -> Iterator[int]:
        """The pods that all of these terms mean, by their place in the gang."""
        if any(term.selector.requirements is None for term in terms):
            return  # it means no pod
        for index in self._candidates(requirement for term in terms for requirement in term.selector.requirements or ()):
            if all(_means(term, self.pods[index], self._namespace_labels) for term in terms):
                yield index

    def selected_by(self, selector: Selector) -> Iterator[int]:
        if selector.requirements is None:
            return
        for index in self._candidates(selector.requirements):
            if selector.matches(self.pods[index].metadata.labels):
                yield index

    def _candidates(self, requirements: Iterable[Requirement]) -> Iterator[int]:
        narrow = narrowest(requirements)
        found: Iterable[int] = range(len(self.pods))
        if narrow is not None:
            having = self._having(narrow.key)
            found = itertools.chain.from_iterable(having.get(value, ()) for value in narrow.values)
        for index in found:
            self._left -= 1
            if self._left < 0:
                raise _TooVariedError
            yield index

    def _having(self, key: str) -> Mapping[str, list[int]]:
        found = self._by_label.get(key)
        if found is None:
            found = self._by_label[key] = {}
            for index, pod in enumerate(self.pods):
                if (value := pod.metadata.labels.get(key)) is not None:
                    found.setdefault(value, []).append(index)
        return found


class _TooVariedError(Exception):
    """The pods say too many different things about one another."""


def _means(term: Term, pod: Pod, namespace_labels: Mapping[str, str] | None) -> bool:
    meta = pod.metadata
    if namespace_labels is None:
        known = meta.namespace in term.namespaces or term.namespace_selector.requirements is not None
        return known and term.selector.matches(meta.labels)
    return term.means(meta.namespace, meta.labels, namespace_labels)


def _apart(members: _Members) -> set[str]:
    """Labels by which some member keeps away from another."""
    owners: dict[tuple[Term, ...], set[int]] = {}
    for index, pod in enumerate(members.pods):
        for term in _created(pod, anti_affinity_terms, lambda pod: _required(pod)[1]):
            owners.setdefault((term,), set()).add(index)
    return {terms[0].topology_key for terms, own in owners.items() if _means_another(terms, own, members)}


def _means_another(terms: tuple[Term, ...], owners: set[int], members: _Members) -> bool:
    return any(len(owners) > 1 or index not in owners for index in members.meant_by(terms))


def _together(members: _Members) -> set[str]:
    """Labels by which some member wants to be where another is. One pod must match all terms of the other, or none counts."""
    owners: dict[tuple[Term, ...], set[int]] = {}
    for index, pod in enumerate(members.pods):
        if terms := _created(pod, affinity_terms, lambda pod: _required(pod)[0]):
            owners.setdefault(terms, set()).add(index)
    return {term.topology_key for terms, own in owners.items() if _means_another(terms, own, members) for term in terms}


def _created(pod: Pod, read: Callable[[Pod], tuple[Term, ...]], said: Callable[[Pod], Sequence[PodAffinityTerm]]) -> tuple[Term, ...]:
    """The terms as they are once the API server has created the pod."""
    return tuple(with_label_keys(term, one, pod.metadata.labels) for term, one in zip(read(pod), said(pod), strict=True))


def _required(pod: Pod) -> tuple[Sequence[PodAffinityTerm], Sequence[PodAffinityTerm]]:
    affinity = pod.spec.affinity
    near = affinity.pod_affinity.required if affinity and affinity.pod_affinity else ()
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
    return near, apart


def _spread(members: _Members) -> set[str]:
    """Labels over which more members are to be spread than may be in one place. One a node is a spread by node, whatever its skew."""
    keys: set[str] = set()
    for constraint in {constraint for pod in members.pods for constraint in constraints_of(pod)}:
        if constraint.selector.is_everything:
            continue
        more_than_may = next(itertools.islice(members.selected_by(constraint.selector), max(constraint.most, 0), None), None)
        if more_than_may is not None:
            keys.add(constraint.topology_key)
    return keys


def _ports_clash(pods: Sequence[Pod]) -> bool:
    taken = PortsInUse()
    for pod in pods:
        if wanted := host_ports(pod):
            if taken.taken("", wanted):
                return True
            taken.add("", wanted, pod.metadata.name)
    return False
