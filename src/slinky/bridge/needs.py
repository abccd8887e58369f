"""What a pod needs, summed as kube-scheduler sums it.

Comes in: a pod. Goes out: `Needs`: exact quantities by resource name. Containers run together, init containers one after the other, sidecars (init
containers that restart) beside all that come after them; overhead is on top; requests at pod level stand in for the sum of the containers'. A pod that is on a node counts with
what it was given there too, where it is being resized: the larger of what it asks for, what the kubelet has granted and what it has set. What must stay true:
what Slurm sets aside is never less than what Kubernetes counts; huge pages are a resource of their own and no part of memory.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

import msgspec

from slinky.kube.objects import Container, ContainerStatus, Pod, Quantity, ResourceNeeds
from slinky.kube.quantities import quantity

__all__ = ["Needs", "counted_of", "needs_of"]

NOTHING = Fraction(0)
POD_LEVEL = ("cpu", "memory", "hugepages-")
HUGE_PAGES = "hugepages-"

Amounts = dict[str, Fraction]

# Pods of one template share these parts, and are asked about several times each. What is remembered holds the parts too, so that their names stay theirs.
MOST_REMEMBERED = 1024
_REMEMBERED: dict[tuple[int, ...], tuple[object, "Needs"]] = {}


class Needs(msgspec.Struct, frozen=True):
    """By Kubernetes' name of the resource; what is not asked for is not there."""

    amounts: dict[str, Fraction]

    @property
    def cpu(self) -> Fraction:
        return self.amounts.get("cpu", NOTHING)

    @property
    def memory(self) -> Fraction:
        return self.amounts.get("memory", NOTHING)

    def of(self, name: str) -> Fraction:
        return self.amounts.get(name, NOTHING)


def needs_of(pod: Pod) -> Needs:
    """Of a pod that is to be scheduled. Raises QuantityError only where the API server let a malformed quantity pass, which it does not."""
    spec = pod.spec
    parts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
    names = (id(spec.containers), id(spec.init_containers), id(spec.overhead), id(spec.resources))
    known = _REMEMBERED.get(names)
    if known is None:
        if len(_REMEMBERED) >= MOST_REMEMBERED:
            _REMEMBERED.clear()
        known = _REMEMBERED[names] = (parts, _needs(pod, _requests))
    return known[1]


def counted_of(pod: Pod) -> Needs:
    """Of a pod that is on a node: also what it has there while a resize is under way, or could not be done."""
    statuses = {status.name: status for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    refused = any(found.type == "PodResizePending" and found.reason == "Infeasible" for found in pod.status.conditions)

    def granted(container: Container) -> Amounts:
        asked, status = _requests(container), statuses.get(container.name)
        return asked if status is None or status.resources is None else _effective(asked, status, refused=refused)

    needs = _needs(pod, granted)
    given = pod.status.resources
    if given is None or pod.spec.resources is None:
        return needs
    total, overhead = dict(needs.amounts), _amounts(pod.spec.overhead, {})
    granted_to_pod = _most(_amounts(given.requests, {}), _amounts(pod.status.allocated_resources, {}))
    for name in pod.spec.resources.requests:
        if name.startswith(POD_LEVEL):
            asked = quantity(pod.spec.resources.requests[name])
            there = granted_to_pod.get(name, NOTHING)
            total[name] = (there if refused else max(there, asked)) + overhead.get(name, NOTHING)
    return Needs({name: amount for name, amount in total.items() if amount > 0})


def _needs(pod: Pod, of: Callable[[Container], Amounts]) -> Needs:
    spec = pod.spec
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = _sum(sidecars, of(container))
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _sum(sidecars, _requests(container)))
    running = sidecars
    for container in spec.containers:
        running = _sum(running, of(container))
    total = _most(running, peak)
    if spec.resources:
        total |= _at_pod_level(spec.resources, total)
    total = _sum(total, _amounts(spec.overhead, {}))
    return Needs({name: amount for name, amount in total.items() if amount > 0})


def _at_pod_level(own: ResourceNeeds, containers: Amounts) -> Amounts:
    """A limit without a request is one, unless the containers have requests: then those are. As the API server fills it in; a pod that comes from it has the requests."""
    found = {name: quantity(text) for name, text in own.requests.items() if name.startswith(POD_LEVEL)}
    for name, text in own.limits.items():
        if name.startswith(POD_LEVEL) and name not in found and (name.startswith(HUGE_PAGES) or name not in containers):
            found[name] = quantity(text)
    return found


def _effective(asked: Amounts, status: ContainerStatus, *, refused: bool) -> Amounts:
    """`refused`: the kubelet said that the resize can never be done, so what is asked for does not count."""
    there = _most(_amounts(status.resources.requests, {}) if status.resources else {}, _amounts(status.allocated_resources, {}))
    return there if refused else _most(asked, there)


def _requests(container: Container) -> Amounts:
    return _amounts(container.resources.requests, container.resources.limits)


def _amounts(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    """A limit without a request is one, as the API server says too."""
    return {name: quantity(text) for name, text in {**limits, **requests}.items()}


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, NOTHING) + right.get(name, NOTHING) for name in _names(left, right)}


def _most(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, NOTHING), right.get(name, NOTHING)) for name in _names(left, right)}


def _names(left: Amounts, right: Amounts) -> Iterable[str]:
    return left.keys() | right.keys()
