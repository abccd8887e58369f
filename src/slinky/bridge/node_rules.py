"""What a pod requires of the node it runs on, in words: the rules by which eligibility is judged, for people who ask why.

Comes in: a pod. Goes out: one sentence for each thing that is required of a node, and one for each that is only preferred. Pure. What must stay true: everything in the pod's spec that keeps it from some nodes has its sentence.
"""

from collections.abc import Iterator, Sequence

from slinky.kube.objects import (
    Container,
    LabelSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    SelectorRequirement,
    Toleration,
    TopologySpreadConstraint,
)

__all__ = ["preferences_of", "rules_of"]

WORDS = {"In": "is one of", "NotIn": "is none of", "Gt": "is above", "Lt": "is below"}
HOLDING = ("NoSchedule", "NoExecute")


def rules_of(pod: Pod) -> list[str]:
    """What must hold of a node; whether it has room is not said here."""
    return [*_labels(pod), *_taints(pod), *_ports(pod), *_neighbours(pod), *_spread(pod), *_volumes(pod)]


def preferences_of(pod: Pod) -> list[str]:
    """What Kubernetes' own scheduler would weigh, and Slurm does not."""
    found: list[str] = []
    if (affinity := pod.spec.affinity) is not None:
        if affinity.node_affinity:
            found += [f"{_term(wish.preference)} (weight {wish.weight})" for wish in affinity.node_affinity.preferred]
        if affinity.pod_affinity:
            found += [f"{_near(wish.pod_affinity_term, pod)} (weight {wish.weight})" for wish in affinity.pod_affinity.preferred]
        if affinity.pod_anti_affinity:
            found += [f"{_far(wish.pod_affinity_term, pod)} (weight {wish.weight})" for wish in affinity.pod_anti_affinity.preferred]
    found += [_evenly(spread) for spread in pod.spec.topology_spread_constraints if spread.when_unsatisfiable == "ScheduleAnyway"]
    return found


def _labels(pod: Pod) -> Iterator[str]:
    for key, value in sorted(pod.spec.node_selector.items()):
        yield f"label {key} is {value!r}"
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if required is not None:
        terms = [_term(term) for term in required.node_selector_terms]
        yield terms[0] if len(terms) == 1 else "either " + ", or ".join(terms) if terms else "no node: its node affinity has no term"


def _term(term: NodeSelectorTerm) -> str:
    words = [_requirement(f"label {wanted.key}", wanted) for wanted in term.match_expressions]
    words += [_requirement("its name" if wanted.key == "metadata.name" else wanted.key, wanted) for wanted in term.match_fields]
    return " and ".join(words) or "no node: a term without requirements matches none"


def _requirement(what: str, wanted: SelectorRequirement) -> str:
    if wanted.operator == "Exists":
        return f"{what} is there"
    if wanted.operator == "DoesNotExist":
        return f"{what} is not there"
    values = ", ".join(map(repr, wanted.values))
    if len(wanted.values) == 1 and wanted.operator in ("In", "NotIn"):
        return f"{what} is {'' if wanted.operator == 'In' else 'not '}{values}"
    return f"{what} {WORDS.get(wanted.operator, wanted.operator)} {values}"


def _taints(pod: Pod) -> Iterator[str]:
    tolerated = [_tolerated(toleration) for toleration in pod.spec.tolerations if toleration.effect in ("", *HOLDING)]
    if "every taint" in tolerated:
        return
    yield f"no taint {' or '.join(HOLDING)}" + (f" but {', '.join(dict.fromkeys(tolerated))}" if tolerated else "")


def _tolerated(toleration: Toleration) -> str:
    if not toleration.key and toleration.operator == "Exists":
        return f"any of effect {toleration.effect}" if toleration.effect else "every taint"
    value = "" if toleration.operator == "Exists" else f"={toleration.value}"
    return f"{toleration.key}{value}" + (f":{toleration.effect}" if toleration.effect else "")


def _ports(pod: Pod) -> Iterator[str]:
    containers: Sequence[Container] = (*pod.spec.init_containers, *pod.spec.containers)
    for port in (port for container in containers for port in container.ports):
        number = port.host_port or (port.container_port if pod.spec.host_network else 0)
        if number:
            where = f" of {port.host_ip}" if port.host_ip and port.host_ip != "0.0.0.0" else ""  # noqa: S104 read, not bound
            yield f"port {number}/{port.protocol}{where} is free on the host"


def _neighbours(pod: Pod) -> Iterator[str]:
    affinity = pod.spec.affinity
    if affinity and affinity.pod_affinity:
        yield from (_near(term, pod) for term in affinity.pod_affinity.required)
    if affinity and affinity.pod_anti_affinity:
        yield from (_far(term, pod) for term in affinity.pod_anti_affinity.required)


def _near(term: PodAffinityTerm, pod: Pod) -> str:
    return f"in the same {term.topology_key} as a pod {_those(term, pod)}"


def _far(term: PodAffinityTerm, pod: Pod) -> str:
    return f"in another {term.topology_key} than every pod {_those(term, pod)}"


def _those(term: PodAffinityTerm, pod: Pod) -> str:
    words = _selected(term.label_selector)
    words += [f"with the same label {key} as this one" for key in term.match_label_keys]
    words += [f"with another label {key} than this one" for key in term.mismatch_label_keys]
    if term.namespace_selector is not None:
        named = ", ".join(_selected(term.namespace_selector)) if term.namespace_selector != LabelSelector() else ""
        words.append(f"of a namespace {named}" if named else "of any namespace")
    if term.namespaces:
        words.append(f"of namespace {', '.join(term.namespaces)}")
    elif term.namespace_selector is None:
        words.append(f"of namespace {pod.metadata.namespace}")
    return " ".join(words)


def _selected(selector: LabelSelector | None) -> list[str]:
    if selector is None:
        return ["that does not exist (no label selector)"]
    found = [f"label {key} is {value!r}" for key, value in sorted(selector.match_labels.items())]
    found += [_requirement(f"label {wanted.key}", wanted) for wanted in selector.match_expressions]
    return [f"whose {' and '.join(found)}"] if found else ["of any labels"]


def _spread(pod: Pod) -> Iterator[str]:
    for spread in pod.spec.topology_spread_constraints:
        if spread.when_unsatisfiable != "ScheduleAnyway":
            least = f", at least {spread.min_domains} of them" if spread.min_domains else ""
            yield f"{_evenly(spread)}{least}"


def _evenly(spread: TopologySpreadConstraint) -> str:
    those = " ".join([*_selected(spread.label_selector), *(f"with the same label {key} as this one" for key in spread.match_label_keys)])
    return f"with it, no {spread.topology_key} has more than {spread.max_skew} pod{'s' if spread.max_skew > 1 else ''} {those} above the one that has fewest"


def _volumes(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            yield f"the volume of claim {volume.persistent_volume_claim.claim_name} can be reached from there, or be made there"
        elif volume.ephemeral:
            yield f"a volume for {volume.name} can be made there"
