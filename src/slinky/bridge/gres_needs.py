"""The GRES that pods ask for, by the site's mapping; and whether what an annotation says instead is as many. Pure.

Comes in: a pod's needs, the mapping of resources to GRES, the text of the `gres` annotation. Goes out: counts by GRES, and a sentence where the annotation has fewer. What must stay true: an annotation says more than the pods ask for, or
how it is to be found in Slurm, and never less: what Kubernetes hands out, Slurm counts.
"""

from collections.abc import Iterable, Mapping

from slinky.bridge.keys import SETTINGS
from slinky.bridge.needs import Needs, needs_of
from slinky.kube import Pod
from slinky.kube.quantities import whole
from slinky.slurm.tres import read_gres_asked

__all__ = ["gres_of", "too_few"]


def gres_of(needs: Needs, mapped: Mapping[str, str]) -> dict[str, int]:
    """By GRES, with its type where the site says one: `gpu`, `gpu:h100`."""
    counts: dict[str, int] = {}
    for resource, gres in sorted(mapped.items()):
        if count := whole(needs.of(resource)):
            counts[gres] = counts.get(gres, 0) + count
    return counts


def too_few(said: str | None, pods: Iterable[Pod], mapped: Mapping[str, str]) -> list[str]:
    """What is wrong with the annotation, one sentence a GRES, for the first of the pods that asks for more than it says. It is per node, so it must hold one pod at least. Raises QuantityError as `needs_of` does."""
    if not said:
        return []
    given = read_gres_asked(said)
    for pod in pods:
        asked = gres_of(needs_of(pod), mapped)
        if problems := [_sentence(said, name, count) for name, count in _by_name(asked).items() if _there(given, name) < count]:
            return problems
    return []


def _by_name(asked: Mapping[str, int]) -> dict[str, int]:
    """With those of all types of a name together, as an annotation may leave out the type."""
    found = dict(asked)
    for kind, count in asked.items():
        name, _, type_ = kind.partition(":")
        if type_:
            found[name] = found.get(name, 0) + count
    return found


def _there(given: Mapping[str, int], wanted: str) -> int:
    """Of a type: also those of which none is said."""
    name, _, type_ = wanted.partition(":")
    kinds = (kind.partition(":") for kind in given)
    return sum(given[f"{own}{colon}{kind}"] for own, colon, kind in kinds if own == name and (not type_ or not kind or kind == type_))


def _sentence(said: str, gres: str, count: int) -> str:
    return f"annotation {SETTINGS}gres is {said!r}, and the pod asks for {count} of {gres} by its resources: say {gres}:{count} at least, or leave it out"
