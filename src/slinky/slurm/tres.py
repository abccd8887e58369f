"""Slurm's words for resources, taken apart: `cpu=4,mem=4G,gres/gpu=2`, `gpu:h100:8(S:0-1),hca:2` and `gres/gpu:h100:2,gres/shard:3`.

Pure. What must stay true: what cannot be understood is left out; nothing is raised, as one odd word of one node must not cost all the others.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["MIB", "GresKind", "Resources", "parse_gres", "read_gres", "read_gres_asked", "read_tres"]

MIB = 1024**2
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_ASIDE = re.compile(r"\([^)]*\)")
_ASKED = re.compile(
    r"(?:gres[:/])?(?P<name>[A-Za-z_][\w.-]*)(?::(?!\d+[kKmMgGtTpP]?(?:[:=]|$))(?P<type>[\w.-]+))?(?:[:=](?P<count>\d{1,12})(?P<unit>[kKmMgGtTpP]?))?"
)
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
    """Of a job's `tres_per_task` and the like: `gres/gpu:h100:2,gres/shard:3` → {"gpu:h100": 2, "shard": 3}; without a number it is one, and of two words for one GRES the last counts, as in Slurm. What is no GRES (`cpu:4`, which Slurm may add) does not count."""
    found: dict[str, int] = {}
    for word in (text or "").split(","):
        if word and not _is_no_gres(word):
            for kind, count in read_gres(word.removeprefix("gres/").removeprefix("gres:").replace("=", ":")).items():
                found[f"{kind.name}:{kind.type}" if kind.type else kind.name] = int(count)
    return found


def parse_gres(text: str) -> dict[str, int]:
    """Read what a user asks for, as Slurm reads it: `gpu:2`, `gres/gpu:h100=2`, `bandwidth:4K` → {"gpu": 2}, ….

    Raise ValueError where Slurm would refuse the text or count less than it seems to say: of `gpu:1,gpu:1` Slurm
    counts only the last word, and it refuses a GRES that is named both with and without a type.
    """
    found: dict[str, int] = {}
    for word in text.split(","):
        match = _ASKED.fullmatch(word)
        if not match or match["name"] == "none":
            raise ValueError(f"{word!r} is not a GRES such as gpu:2 or gpu:h100:4")
        name, type_ = match["name"], match["type"]
        kind = f"{name}:{type_}" if type_ else name
        if kind in found:
            raise ValueError(f"{kind} is named twice, and Slurm would count only the last one: name it once, with the sum")
        if name in found or (not type_ and any(known.startswith(f"{name}:") for known in found)):
            raise ValueError(f"{name} is named both with and without a type, which Slurm refuses: give every {name} a type, or none")
        found[kind] = int(match["count"] or 1) * _UNITS[match["unit"].upper() if match["unit"] else ""]
    return found


def _is_no_gres(word: str) -> bool:
    return word.replace("=", ":").partition(":")[0] in NO_GRES or word.startswith(NO_GRES_KINDS)


def _number(text: str) -> float:
    match = _NUMBER.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0
