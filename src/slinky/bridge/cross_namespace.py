"""Required affinity and anti-affinity of a pod to pods of other namespaces. Pure.

Anti-affinity of a pod that runs holds against every pod that comes, as kube-scheduler has it. So a term that reaches into
all namespaces keeps a node from all tenants, for the price of a small pod.

*Invariants:* a term that can match a pod of another namespace is always found. One that only names its own namespace is not.
"""

from slinky.kube.objects import Affinity, LabelSelector, PodAffinityTerm

__all__ = ["reaching_terms"]

NAMESPACE_NAME = "kubernetes.io/metadata.name"  # the API server writes this label of each namespace


def reaching_terms(affinity: Affinity | None, namespace: str) -> list[str]:
    """What reaches into other namespaces, by the names of its fields: the first of each kind of affinity."""
    if affinity is None:
        return []
    kinds = (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity))
    found = []
    for kind, said in kinds:
        for index, term in enumerate(said.required if said is not None else ()):
            if field := _reaching_field(term, namespace):
                found.append(f"spec.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution[{index}].{field}")
                break
    return found


def _reaching_field(term: PodAffinityTerm, namespace: str) -> str:
    if any(name != namespace for name in term.namespaces):
        return "namespaces"
    selector = term.namespace_selector
    return "namespaceSelector" if selector is not None and not _is_of(selector, namespace) else ""


def _is_of(selector: LabelSelector, namespace: str) -> bool:
    """Whether it can choose that namespace alone: all requirements must hold, so one by its name is enough."""
    return selector.match_labels.get(NAMESPACE_NAME) == namespace or any(
        each.key == NAMESPACE_NAME and each.operator == "In" and tuple(each.values) == (namespace,) for each in selector.match_expressions
    )
