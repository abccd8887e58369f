"""The GRES that pods ask for, by the site's mapping, and what the `gres` annotation, which counts per node, has of them. Pure.

*Invariants:* the annotation may add GRES or say how many pods share a node, but Slurm never counts fewer than the pods on a node request: an
annotation with too few for one pod is refused, and what it does not name is asked for all the same.
"""

from collections.abc import Iterable, Mapping

from slinky.bridge.keys import SETTINGS
from slinky.bridge.needs import Needs, needs_of
from slinky.kube import Pod
from slinky.kube.quantities import whole
from slinky.slurm.tres import parse_gres

__all__ = ["gres_of", "per_node", "pods_held", "too_few"]


def gres_of(needs: Needs, mapped: Mapping[str, str]) -> dict[str, int]:
    """By GRES, with its type where the site says one: `gpu`, `gpu:h100`."""
    counts: dict[str, int] = {}
    for resource, gres in sorted(mapped.items()):
        if count := whole(needs.of(resource)):
            counts[gres] = counts.get(gres, 0) + count
    return counts


def pods_held(said: str | None, asked: Mapping[str, int]) -> dict[str, int]:
    """For each GRES that a pod asks for and the annotation names: how many such pods the annotation's count per node holds."""
    given = parse_gres(said) if said else {}
    found: dict[str, int] = {}
    for kind, count in asked.items():
        name, _, type_ = kind.partition(":")
        own = _of_name(given, name)
        if not own:
            continue
        if type_:
            there = own.get(kind, own.get(name, 0) if len(_of_name(asked, name)) == 1 else 0)
            found[kind] = there // count
        else:
            found[kind] = sum(own.values()) // sum(_of_name(asked, name).values())
    return found


def per_node(said: str | None, asked: Mapping[str, int], pods: int) -> dict[str, int]:
    """What is to be asked for on each node with so many of the pods: the annotation's counts, and those of what it does not name.

    A count without a type is of the type that the pods ask for, or Slurm could choose another one.
    """
    given = parse_gres(said) if said else {}
    found: dict[str, int] = {}
    for kind, count in given.items():
        types = _of_name(asked, kind)
        found[next(iter(types)) if len(types) == 1 else kind] = count
    rest = {kind: count * pods for kind, count in asked.items() if not _of_name(given, kind.partition(":")[0])}
    return {kind: count for kind, count in (found | rest).items() if count}


def too_few(said: str | None, pods: Iterable[Pod], mapped: Mapping[str, str]) -> list[str]:
    """What is wrong with the annotation, one sentence a GRES, for the first of the pods that asks for more than it says. It is per node, so it must hold one pod at least. Raises QuantityError as `needs_of` does."""
    if not said:
        return []
    for pod in pods:
        asked = gres_of(needs_of(pod), mapped)
        if problems := [_sentence(said, kind, asked[kind]) for kind, held in pods_held(said, asked).items() if not held]:
            return problems
    return []


def _of_name(counts: Mapping[str, int], name: str) -> dict[str, int]:
    """Those of a GRES, of all types."""
    return {kind: count for kind, count in counts.items() if kind.partition(":")[0] == name}


def _sentence(said: str, gres: str, count: int) -> str:
    return f"annotation {SETTINGS}gres is {said!r}, and the pod asks for {count} of {gres} by its resources: say {gres}:{count} at least, or leave it out"
