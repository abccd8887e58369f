"""How much the spec of a pod may say, so that the judgement of one pod never takes long. Pure.

Kubernetes limits these lists only by the size of an object (1.5 MB), and each entry costs the bridge
time for every node or for every pod. The webhook refuses a pod above a limit, and the scheduler parks
one that came past the webhook.

*Invariants:* counting costs less than reading the spec did. No limit is near to what people write.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from slinky.kube.objects import Container, LabelSelector, PodAffinityTerm, PodSpec, SelectorRequirement, TopologySpreadConstraint

__all__ = [
    "MOST_CONDITIONS",
    "MOST_CONTAINERS",
    "MOST_HOST_PORTS",
    "MOST_RESOURCES",
    "MOST_RULES",
    "MOST_SELECTORS",
    "MOST_TERMS",
    "MOST_TOLERATIONS",
    "MOST_VALUES",
    "MOST_VALUES_IN_ALL",
    "MOST_VOLUMES",
    "is_large_term",
    "spec_problems",
]

MOST_RULES = 100  # terms, and expressions, of the node affinity
MOST_SELECTORS = 64  # entries of nodeSelector
MOST_TOLERATIONS = 64
MOST_TERMS = 16  # of affinity to pods and of topology spread: each may count all pods
MOST_CONDITIONS = 100  # labels and expressions of all terms and constraints
MOST_VALUES = 500  # of one expression, and namespaces of one term
MOST_VALUES_IN_ALL = 5_000  # of the node affinity, and of what is said about pods
MOST_HOST_PORTS = 256
MOST_CONTAINERS = 256
MOST_RESOURCES = 64  # different names
MOST_VOLUMES = 256


def spec_problems(spec: PodSpec) -> list[str]:
    """What the pod has too much of, one sentence a field."""
    found: list[str] = []
    if spec.affinity is not None or spec.node_selector or spec.tolerations:
        found += _about_nodes(spec)
    if spec.affinity is not None or spec.topology_spread_constraints:
        found += _about_pods(spec)
    found += _about_content(spec)
    return found


def _about_nodes(spec: PodSpec) -> Iterator[str]:
    nodes = spec.affinity.node_affinity if spec.affinity else None
    terms = nodes.required.node_selector_terms if nodes and nodes.required else ()
    expressions = sum(len(term.match_expressions) + len(term.match_fields) for term in terms)
    if max(len(terms), expressions) > MOST_RULES:
        right = f"at most {MOST_RULES} terms and expressions are supported; label the nodes instead"
        yield f"spec.affinity.nodeAffinity: {right}"
    said = chain.from_iterable((*term.match_expressions, *term.match_fields) for term in terms)
    yield from _values("spec.affinity.nodeAffinity", said)
    if len(spec.node_selector) > MOST_SELECTORS:
        yield _too_many("spec.nodeSelector", len(spec.node_selector), "labels", MOST_SELECTORS)
    if len(spec.tolerations) > MOST_TOLERATIONS:
        yield _too_many("spec.tolerations", len(spec.tolerations), "tolerations", MOST_TOLERATIONS)


def _about_pods(spec: PodSpec) -> Iterator[str]:
    affinity, spreads = spec.affinity, spec.topology_spread_constraints
    near = affinity.pod_affinity.required if affinity and affinity.pod_affinity else ()
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
    terms = (*near, *apart)
    if not terms and not spreads:
        return
    place = "spec.affinity.podAffinity, podAntiAffinity and spec.topologySpreadConstraints"
    if len(terms) + len(spreads) > MOST_TERMS:
        yield _too_many(place, len(terms) + len(spreads), "required terms and constraints", MOST_TERMS)
    conditions = sum(map(_conditions, terms)) + sum(map(_conditions_of_spread, spreads))
    if conditions > MOST_CONDITIONS:
        yield _too_many(place, conditions, "labels and expressions", MOST_CONDITIONS)
    selectors = [*chain.from_iterable(map(_selectors, terms)), *(each.label_selector for each in spreads)]
    said = chain.from_iterable(each.match_expressions for each in selectors if each is not None)
    yield from _values(place, said)
    longest = max((len(term.namespaces) for term in terms), default=0)
    if longest > MOST_VALUES:
        yield _too_many(f"{place}: namespaces of one term", longest, "names", MOST_VALUES)


def _about_content(spec: PodSpec) -> Iterator[str]:
    containers = (*spec.init_containers, *spec.containers)
    if len(containers) > MOST_CONTAINERS:
        yield _too_many("spec.containers and initContainers", len(containers), "containers", MOST_CONTAINERS)
    ports, names = 0, set[str]()
    for container in containers:  # without calls: asked of each pod that waits
        if container.ports:
            ports += _host_ports(container)
        names.update(container.resources.requests)
    if ports > MOST_HOST_PORTS:
        yield _too_many("hostPort of the containers' ports", ports, "host ports", MOST_HOST_PORTS)
    if len(names) > MOST_RESOURCES:
        yield _too_many("resources.requests of the containers", len(names), "different resources", MOST_RESOURCES)
    if len(spec.volumes) > MOST_VOLUMES:
        yield _too_many("spec.volumes", len(spec.volumes), "volumes", MOST_VOLUMES)


def _too_many(place: str, count: int, what: str, most: int) -> str:
    return f"{place}: {count:,} {what}, and at most {most} are supported: remove some"


def _values(place: str, said: Iterable[SelectorRequirement]) -> Iterator[str]:
    numbers = [len(each.values) for each in said]
    if max(numbers, default=0) > MOST_VALUES:
        yield _too_many(f"{place}: values of one expression", max(numbers), "values", MOST_VALUES)
    elif sum(numbers) > MOST_VALUES_IN_ALL:
        yield _too_many(f"{place}: values of all expressions", sum(numbers), "values", MOST_VALUES_IN_ALL)


def _host_ports(container: Container) -> int:
    return sum(port.host_port > 0 for port in container.ports)


def _selectors(term: PodAffinityTerm) -> Sequence[LabelSelector | None]:
    return term.label_selector, term.namespace_selector


def _size(selector: LabelSelector | None) -> int:
    if selector is None:
        return 0
    return len(selector.match_labels) + len(selector.match_expressions)


def _conditions(term: PodAffinityTerm) -> int:
    return sum(map(_size, _selectors(term))) + len(term.match_label_keys) + len(term.mismatch_label_keys)


def _conditions_of_spread(constraint: TopologySpreadConstraint) -> int:
    return _size(constraint.label_selector) + len(constraint.match_label_keys)


def is_large_term(term: PodAffinityTerm) -> bool:
    """Whether one term alone is above the limits of a whole pod."""
    if _conditions(term) > MOST_CONDITIONS or len(term.namespaces) > MOST_VALUES:
        return True
    said = [each for selector in _selectors(term) if selector is not None for each in selector.match_expressions]
    return any(_values("", said))
