"""Writes docs/slurm-client-reference.md from the public face of slinky.slurm.

python scripts/generate_slurm_reference.py            write it
python scripts/generate_slurm_reference.py --check    exit 1 if it is not what would be written
"""

import enum
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import slinky.slurm
from slinky.slurm import errors
from slinky.slurm.calls.accounting import Accounting
from slinky.slurm.calls.cluster import Partitions, Reservations
from slinky.slurm.calls.jobs import Jobs
from slinky.slurm.calls.nodes import Nodes
from slinky.slurm.numbers import Number

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.writing import CHECKOUT, write_or_check

TARGET = CHECKOUT / "docs/slurm-client-reference.md"

CALLS = {"client": slinky.slurm.SlurmClient, "client.jobs": Jobs, "client.nodes": Nodes, "client.partitions": Partitions}
CALLS |= {"client.reservations": Reservations, "client.accounting": Accounting}


def generate() -> str:
    parts = [
        "# Reference of slinky.slurm",
        "",
        "Made from the code by `scripts/generate_slurm_reference.py`; the guide is [slurm-client.md](slurm-client.md).",
        "",
    ]
    parts += ["`slinky.slurm.sync.SlurmClient` has the same calls without `await`.", "", "## Calls", ""]
    for place, kind in CALLS.items():
        parts += [f"### {place}", "", *constructor(kind), *methods(place, kind), ""]
    public = {name: getattr(slinky.slurm, name) for name in slinky.slurm.__all__}
    parts += ["## Errors", "", "```", *tree(errors.SlurmError), "```", ""]
    parts += ["`number`, `name`, `description`, `request`, `outcome` and `outcome_known` are on each of them.", ""]
    parts += ["## Types", ""]
    for name, value in public.items():
        if inspect.isclass(value) and value is not slinky.slurm.SlurmClient and not issubclass(value, errors.SlurmError):
            parts += [f"### {name}", "", *doc(value), *members(value), ""]
    parts += ["## Functions", ""]
    for name, value in public.items():
        if inspect.isfunction(value):
            parts += [f"### {name}{signature(value)}", "", *doc(value), ""]
    return "\n".join(parts).rstrip() + "\n"


def constructor(kind: type) -> list[str]:
    return [f"`SlurmClient{signature(kind.__init__)}`", "", *doc(kind), ""] if kind is slinky.slurm.SlurmClient else []


def methods(place: str, kind: type) -> Iterator[str]:
    for name, member in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            wait = (
                "await "
                if inspect.iscoroutinefunction(member)
                else "async for … in "
                if "AsyncIterator" in str(member.__annotations__.get("return"))
                else ""
            )
            yield f"- `{wait}{place}.{name}{signature(member)}`  \n  {' '.join(doc(member))}"


def signature(function: Any) -> str:
    text = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    text = re.sub(r"<(?:Lane|JobFlag)\.(\w+): [^>]*>", r"\1", text)
    return (
        re.sub(r"(?:slinky|collections|typing|pathlib)\.(?:\w+\.)*", "", text)
        .replace("'SlurmClient'", "SlurmClient")
        .replace(" -> None", "")
    )


def doc(value: Any) -> list[str]:
    return (inspect.getdoc(value) or "").splitlines()


def tree(kind: type, depth: int = 0) -> Iterator[str]:
    summary = (kind.__doc__ or "").splitlines()[0]
    yield f"{'    ' * depth}{kind.__name__:<{28 - 4 * depth}}{summary}"
    children: list[type] = kind.__subclasses__()
    for child in sorted(children, key=lambda each: each.__name__):
        yield from tree(child, depth + 1)


def members(kind: type) -> Iterator[str]:
    yield ""
    if issubclass(kind, enum.Enum):
        yield ", ".join(f"`{member.name}`" for member in kind)
        return
    if issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if not field.name.startswith("_") and field.name not in ("errors", "warnings"):
                yield f"- `{field.name}: {type_name(field.type)}`"
        for name, member in vars(kind).items():
            if isinstance(member, Number):
                yield f"- `{name}`: a number, `INFINITE` or `None`"
    for name, member in inspect.getmembers(kind, lambda each: isinstance(each, property)):
        if not name.startswith("_"):
            yield f"- `{name}`" + (f": {' '.join(doc(member))}" if member.__doc__ else "")
    for name, member in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and not issubclass(kind, msgspec.Struct):
            yield f"- `{name}{signature(member)}`: {' '.join(doc(member))}"


def type_name(annotation: Any) -> str:
    text = annotation.__name__ if inspect.isclass(annotation) and not hasattr(annotation, "__args__") else str(annotation)
    return re.sub(r"(?:slinky|collections|typing)\.(?:\w+\.)*", "", text)


if __name__ == "__main__":
    sys.exit(write_or_check({TARGET: generate()}))
