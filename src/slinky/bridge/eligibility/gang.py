"""What the members of a gang ask of one another, and whether Slurm can be told.

Comes in: the pods of a gang, also ones that were not created yet. Goes out: `GangRules`. What must stay true: members that may not share a node get one each; members that must be together by a label are to get nodes of one value of it;
what Slurm cannot be told (one member a zone, together by two labels at once) is refused, in words. Sound, not complete: a gang of which only some must be apart gets a node for each. What members ask of other pods is not looked at here: that is a
matter of each pod and its node.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slinky.bridge.eligibility.ports import HostPort, clash, host_ports
from slinky.bridge.eligibility.selectors import SelectorError
from slinky.bridge.eligibility.spread import constraints_of
from slinky.bridge.eligibility.terms import Term, affinity_terms, anti_affinity_terms, with_label_keys
from slinky.kube.objects import Pod, PodAffinityTerm

__all__ = ["HOSTNAME", "GangRules", "within_gang"]

HOSTNAME = "kubernetes.io/hostname"


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
                refusal=f"the pods of this gang are to be on nodes of one {self.same_domain} and of one {label}, and Slurm can be told one"
            )
        if self.one_per_node and label == HOSTNAME:
            return GangRules(refusal=f"the pods of this gang are to be on one node ({HOSTNAME}) and may not share a node")
        return GangRules(self.one_per_node, label)


def within_gang(pods: Sequence[Pod], namespace_labels: Mapping[str, str] | None = None) -> GangRules:
    """All pods are of one namespace; where its labels are not known, a namespace selector is taken to mean it."""
    if len(pods) < 2:
        return GangRules()
    try:
        return _rules(pods, namespace_labels)
    except SelectorError as error:
        return GangRules(refusal=f"the pods' affinity or topology spread is malformed: {error}")


def _rules(pods: Sequence[Pod], namespace_labels: Mapping[str, str] | None) -> GangRules:
    apart = _apart(pods, namespace_labels) | _spread(pods)
    together = _together(pods, namespace_labels)
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


def _means(term: Term, pod: Pod, namespace_labels: Mapping[str, str] | None) -> bool:
    meta = pod.metadata
    if namespace_labels is None:
        known = meta.namespace in term.namespaces or term.namespace_selector.requirements is not None
        return known and term.selector.matches(meta.labels)
    return term.means(meta.namespace, meta.labels, namespace_labels)


def _apart(pods: Sequence[Pod], namespace_labels: Mapping[str, str] | None) -> set[str]:
    """Labels by which some member keeps away from another."""
    owners: dict[Term, set[int]] = {}
    for index, pod in enumerate(pods):
        for term in _created(pod, anti_affinity_terms, lambda pod: _required(pod)[1]):
            owners.setdefault(term, set()).add(index)
    return {term.topology_key for term, own in owners.items() if _means_another(term, own, pods, namespace_labels)}


def _means_another(term: Term, owners: set[int], pods: Sequence[Pod], namespace_labels: Mapping[str, str] | None) -> bool:
    return any((len(owners) > 1 or index not in owners) and _means(term, pod, namespace_labels) for index, pod in enumerate(pods))


def _together(pods: Sequence[Pod], namespace_labels: Mapping[str, str] | None) -> set[str]:
    """Labels by which some member wants to be where another is. One pod must match all terms of the other, or none counts."""
    owners: dict[tuple[Term, ...], set[int]] = {}
    for index, pod in enumerate(pods):
        if terms := _created(pod, affinity_terms, lambda pod: _required(pod)[0]):
            owners.setdefault(terms, set()).add(index)
    keys: set[str] = set()
    for terms, own in owners.items():
        for index, pod in enumerate(pods):
            if (len(own) > 1 or index not in own) and all(_means(term, pod, namespace_labels) for term in terms):
                keys |= {term.topology_key for term in terms}
                break
    return keys


def _created(pod: Pod, read: Callable[[Pod], tuple[Term, ...]], said: Callable[[Pod], Sequence[PodAffinityTerm]]) -> tuple[Term, ...]:
    """The terms as they are once the API server has created the pod."""
    return tuple(with_label_keys(term, one, pod.metadata.labels) for term, one in zip(read(pod), said(pod), strict=True))


def _required(pod: Pod) -> tuple[Sequence[PodAffinityTerm], Sequence[PodAffinityTerm]]:
    affinity = pod.spec.affinity
    near = affinity.pod_affinity.required if affinity and affinity.pod_affinity else ()
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
    return near, apart


def _spread(pods: Sequence[Pod]) -> set[str]:
    """Labels over which more members are to be spread than may be in one place. One a node is a spread by node, whatever its skew."""
    keys: set[str] = set()
    for constraint in {constraint for pod in pods for constraint in constraints_of(pod)}:
        members = sum(constraint.selector.matches(pod.metadata.labels) for pod in pods)
        if members > constraint.most and not constraint.selector.is_everything:
            keys.add(constraint.topology_key)
    return keys


def _ports_clash(pods: Sequence[Pod]) -> bool:
    taken: set[HostPort] = set()
    for pod in pods:
        wanted = set(host_ports(pod))
        if any(clash(port, other) for port in wanted for other in taken):
            return True
        taken |= wanted
    return False
