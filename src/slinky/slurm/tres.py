"""Slurm's words for resources, taken apart: `cpu=4,mem=4G,gres/gpu=2`, `gpu:h100:8(S:0-1),hca:2` and `gres/gpu:h100:2,gres/shard:3`.

Pure. What must stay true: what cannot be understood is left out; nothing is raised, as one odd word of one node must not cost all the others.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["MIB", "GresKind", "Resources", "read_gres", "read_gres_asked", "read_tres"]

MIB = 1024**2
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_ASIDE = re.compile(r"\([^)]*\)")
NO_GRES = frozenset({"cpu", "mem", "node", "billing", "energy", "vmem", "pages"})
NO_GRES_KINDS = ("license/", "bb/", "fs/", "ic/")


class GresKind(NamedTuple):
    """A GRES and its type, empty where it has none."""

    name: str
    type: str = ""


class Resources(NamedTuple):
    """Memory in bytes; GRES by name, all types together."""

    cpus: float = 0.0
    memory: float = 0.0
    nodes: float = 0.0
    gres: Mapping[str, float] = {}


def read_tres(text: str) -> Resources:
    """Memory without a unit is MiB, as everywhere in Slurm."""
    found: dict[str, str] = {}
    for word in text.split(","):
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
    gres: dict[str, float] = {}
    typed: dict[str, float] = {}
    for name, value in found.items():
        if name.startswith("gres/"):
            kind, colon, _ = name[5:].partition(":")
            place = typed if colon else gres
            place[kind] = place.get(kind, 0.0) + _number(value)
    memory = found.get("mem", "")
    plain = _number(memory)
    return Resources(
        cpus=_number(found.get("cpu", "")),
        memory=plain if memory[-1:] in _UNITS and memory[-1:] else plain * MIB,
        nodes=_number(found.get("node", "")),
        gres=typed | gres,
    )


def read_gres(text: str) -> dict[GresKind, float]:
    """What stands in parentheses (sockets, indices) is left out."""
    found: dict[GresKind, float] = {}
    for word in _ASIDE.sub("", text).split(","):
        name, *rest = word.strip().split(":")
        if not name:
            continue
        count = 1.0
        if rest and _NUMBER.fullmatch(rest[-1]):
            count = _number(rest.pop())
        kind = GresKind(name, ":".join(rest))
        found[kind] = found.get(kind, 0.0) + count
    return found


def read_gres_asked(text: str | None) -> dict[str, int]:
    """Of a job's `tres_per_task` and the like: `gres/gpu:h100:2,gres/shard:3` → {"gpu:h100": 2, "shard": 3}; without a number it is one. What is no GRES (`cpu:4`, which Slurm may add) does not count."""
    words = [word for word in (text or "").split(",") if word and not _is_no_gres(word)]
    plain = ",".join(word.removeprefix("gres/").removeprefix("gres:").replace("=", ":") for word in words)
    return {f"{kind.name}:{kind.type}" if kind.type else kind.name: int(count) for kind, count in read_gres(plain).items()}


def _is_no_gres(word: str) -> bool:
    return word.replace("=", ":").partition(":")[0] in NO_GRES or word.startswith(NO_GRES_KINDS)


def _number(text: str) -> float:
    match = _NUMBER.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0
