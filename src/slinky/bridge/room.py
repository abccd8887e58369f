"""Has this node room for this pod, as Kubernetes counts, in what Slurm does not?

Comes in: what a pod needs, a node, and what is in use there. Goes out: an empty text, or what is missing, in words. Pure. What must stay true: a node that could never hold the pod is refused, whoever counts what is missing there; of
resources that Slurm counts too (CPU, memory, and what the site maps to a GRES) only what pods of other schedulers take is held against a node, as the rest is for Slurm to queue for; of all others (ephemeral storage, huge pages, the
number of pods, extended resources that no GRES stands for) everything is, while it is in use.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction

from slinky.bridge.needs import Needs
from slinky.kube import Node
from slinky.kube.quantities import quantity

__all__ = ["ONE_POD", "Reasons", "counted_by_slurm", "free_of", "nano", "room_refusal", "written"]

NOTHING = Fraction(0)
BYTES = frozenset({"memory", "ephemeral-storage"})  # resources that Kubernetes counts in bytes
ONE_POD = {"pods": Fraction(1)}


class Reasons(Mapping[str, str]):
    """Nodes that refuse a pod, and why, in words that are found only where they are read: of thousands of nodes few are."""

    __slots__ = ("_names", "_why")

    def __init__(self, names: Collection[str], why: Callable[[str], str]) -> None:
        self._names = names
        self._why = why

    def __getitem__(self, node: str) -> str:
        if node not in self._names:
            raise KeyError(node)
        return self._why(node) or f"node {node} was refused a moment ago"

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, node: object) -> bool:
        return node in self._names


def counted_by_slurm(mapped: Iterable[str]) -> frozenset[str]:
    """`mapped` are the Kubernetes resources that stand for a GRES (the setting `gres`)."""
    return frozenset({"cpu", "memory", *mapped})


def room_refusal(
    needs: Needs, node: Node, used: Mapping[str, Fraction], foreign: Mapping[str, Fraction], counted: frozenset[str] = frozenset()
) -> str:
    """`used` is what all pods on the node take, `pods` among it; `foreign` what those take that Slurm knows nothing of; `counted` what Slurm counts."""
    for name, amount in (needs.amounts | ONE_POD).items():
        text = node.status.allocatable.get(name)
        has = quantity(text) if text is not None else NOTHING
        if amount > has:
            there, asked = with_units(name, has, amount)
            if text is None and "/" in name and name not in counted:
                others = "resources of a DeviceClass are not supported"
                return f"node {node.metadata.name} offers no {name}, but the pod requests {asked} ({others})"
            return f"node {node.metadata.name} has {there} {name} in total, but the pod requests {asked}"
        room = has - (foreign if name in counted else used).get(name, NOTHING)
        if amount > room:
            others = " besides other schedulers' pods" if name in counted else ""
            free, asked = with_units(name, max(room, NOTHING), amount)
            return f"node {node.metadata.name} has {free} of {asked} {name} free{others}"
    return ""


def with_units(name: str, *amounts: Fraction) -> list[str]:
    """Amounts of a resource for people: `64` of cpu, `1.5Gi` of memory. Amounts that differ are never written alike."""
    in_bytes = name in BYTES or name.startswith("hugepages-")
    short = [*map(_binary, amounts)] if in_bytes else [*map(written, amounts)]
    return short if len(set(short)) == len(set(amounts)) else [f"{written(amount)} bytes" for amount in amounts]


def _binary(amount: Fraction) -> str:
    for unit, power in (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if amount >= 1 << power:
            return f"{round(float(amount / (1 << power)), 2):g}{unit}"
    return written(amount)


def free_of(
    node: Node, used: Mapping[str, Fraction], foreign: Mapping[str, Fraction], counted: frozenset[str]
) -> dict[str, tuple[int, int]]:
    """Of each resource of a node what is left for a pod that is sent there, as `room_refusal` counts, and what there is in all, in billionths."""
    found = {}
    for name, text in node.status.allocatable.items():
        has = quantity(text)
        found[name] = (nano(has - (foreign if name in counted else used).get(name, NOTHING)), nano(has))
    return found


def nano(amount: Fraction) -> int:
    """In billionths, which is as fine as Kubernetes counts: numbers that are quickly compared."""
    return amount.numerator * 10**9 // amount.denominator


def written(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{float(amount):g}"
