"""What a pod needs, summed as kube-scheduler sums it.

Comes in: a pod. Goes out: `Needs`: exact quantities by resource name. Containers run together, init containers one after the other, sidecars (init
containers that restart) beside all that come after them; overhead is on top; requests at pod level stand in for the sum of the containers'. What must stay true:
what Slurm sets aside is never less than what Kubernetes counts.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from slinky.bridge.quantities import quantity
from slinky.kube.objects import Container, Pod

__all__ = ["Needs", "needs_of"]

NOTHING = Fraction(0)
POD_LEVEL = ("cpu", "memory", "hugepages-")

Amounts = dict[str, Fraction]


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
    """Raises QuantityError only where the API server let a malformed quantity pass, which it does not."""
    spec = pod.spec
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = _sum(sidecars, _requests(container))
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _sum(sidecars, _requests(container)))
    running = sidecars
    for container in spec.containers:
        running = _sum(running, _requests(container))
    total = _most(running, peak)
    if spec.resources:
        own = _amounts(spec.resources.requests, spec.resources.limits)
        total |= {name: amount for name, amount in own.items() if name.startswith(POD_LEVEL)}
    total = _sum(total, _amounts(spec.overhead, {}))
    return Needs({name: amount for name, amount in total.items() if amount > 0})


def _requests(container: Container) -> Amounts:
    return _amounts(container.resources.requests, container.resources.limits)


def _amounts(requests: Mapping[str, str], limits: Mapping[str, str]) -> Amounts:
    """A limit without a request is one, as the API server says too."""
    return {name: quantity(text) for name, text in {**limits, **requests}.items()}


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, NOTHING) + right.get(name, NOTHING) for name in _names(left, right)}


def _most(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, NOTHING), right.get(name, NOTHING)) for name in _names(left, right)}


def _names(left: Amounts, right: Amounts) -> Iterable[str]:
    return left.keys() | right.keys()
