"""The references of the operator, made from the types: of the kinds, and of the configuration file.

Pure. Goes out: Markdown, kept in docs/operator-reference.md and docs/operator-configuration.md (`slinky operator reference` and `slinky operator settings` print them). What must stay true: every field is there with
its type, default and help, in the words that stand where it is defined.
"""

import enum
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from slinky.operator.kinds import GROUP, KINDS, VERSION, KeyReference, NameReference, PodTemplate, ServiceTemplate
from slinky.operator.kinds.anatomy import Field, fields_of, part_of
from slinky.operator.kinds.common import ExternalHost
from slinky.operator.kinds.rules import REQUIRED, RULES
from slinky.operator.kinds.schema import OFFERED
from slinky.operator.settings import Settings
from slinky.settings import tables

__all__ = ["EXAMPLE", "kinds_reference", "settings_reference"]

HEAD = ("| Field | Type | Default | |", "|---|---|---|---|")
EXAMPLE = """\
namespaces: [slurm, research]
allowedTokenUsers:
  slurm: [alice, bob, "svc-*"]
networkPolicies: true
slurm:
  requestSeconds: 10
"""

SETTINGS_INTRODUCTION = f"""\
# Configuration of the operator

Made from the code: `slinky operator settings > docs/operator-configuration.md`.

One YAML file for the operator's processes, named by `--config` or `SLINKY_OPERATOR_CONFIG`. It is read once, at start. Every key, and the file itself, may be left out. A key that is not known is refused by its name.

```yaml
{EXAMPLE}```
"""

KINDS_INTRODUCTION = f"""\
# The kinds of {GROUP}

Made from the code: `slinky operator reference > docs/operator-reference.md`. The same help is shown by `kubectl explain`, once the CRDs are installed (`kubectl apply --server-side -f crds/`).

All are of `{GROUP}/{VERSION}` and namespaced; references reach no further than the object's own namespace. A field that is not in these tables is refused by its name, with the nearest that there is. Types called
*Kubernetes'* are passed on as they are and judged by the API server: whatever a container, a pod, a Service or a claim can have.
"""

WORDS = {"strategy": "Kubernetes' Deployment strategy"}
SHARED: dict[type, str] = {
    NameReference: "Reference",
    KeyReference: "Key reference",
    ExternalHost: "Address",
    PodTemplate: "Pod template",
    ServiceTemplate: "Service template",
}
CONTAINERS = ("slurmctld", "slurmdbd", "slurmrestd", "slurmd", "login", "initconf", "reconfigure", "logfile")


def settings_reference() -> str:
    return f"{SETTINGS_INTRODUCTION}\n{tables(Settings, {dict[str, Any]: 'mapping'})}"


def kinds_reference() -> str:
    lines = [KINDS_INTRODUCTION, *(line for kind in KINDS for line in _kind(kind)), "## Parts that several kinds have", ""]
    for part, name in SHARED.items():
        lines += [f"### {name}", "", _sentence(part), "", *HEAD, *_rows(part, ""), ""]
    return "\n".join(lines).rstrip() + "\n"


def _kind(kind: str) -> Iterator[str]:
    offer = OFFERED[kind]
    parts = {field.name: part_of(field.type) for field in fields_of(KINDS[kind])}
    spec, status = parts["spec"], parts["status"]
    assert spec and status
    yield from (f"## {kind}", "", _sentence(KINDS[kind]), "")
    yield from (f"`kubectl get {offer.plural}`, also by {_listed(offer.short)}.", "")
    yield from (HEAD[0].replace("Field", "Field of `spec`"), HEAD[1], *_rows(spec, ""), "")
    if said := list(_rules(spec)):
        yield from ("The API server refuses:", "", *(f"- {each}" for each in said), "")
    yield from ("| Field of `status` | Type | |", "|---|---|---|")
    yield from (f"| `{field.name}` | {_words(field, field.name)} | {_cell(field.help)} |" for field in fields_of(status))
    yield ""


def _rows(part: type, place: str) -> Iterator[str]:
    required = REQUIRED.get(part, ())
    for field in fields_of(part):
        here = f"{place}{field.name}"
        default = "required" if field.name in required else _default(field.default)
        yield f"| `{here}` | {_words(field, here)} | {default} | {_cell(field.help)} |"
        listed = isinstance(field.type, inspect.ListType)
        inner = part_of(field.type.item_type if isinstance(field.type, inspect.ListType) else field.type)
        if inner and inner not in SHARED:
            yield from _rows(inner, f"{here}{'[]' if listed else ''}.")


def _rules(part: type) -> Iterator[str]:
    """Of a part and all that is in it: what is read when a rule is broken."""
    yield from (message for _, message in RULES.get(part, ()))
    for field in fields_of(part):
        if inner := part_of(field.type):
            yield from _rules(inner)


def _words(field: Field, place: str) -> str:
    type_ = field.type
    if place in CONTAINERS:
        return "Kubernetes' container"
    if place in WORDS:
        return WORDS[place]
    if part := part_of(type_):
        return _linked(part)
    match type_:
        case inspect.ListType(item_type=each):
            return (
                f"list of {_linked(inner)}"
                if (inner := part_of(each))
                else "list"
                if isinstance(each, inspect.DictType)
                else "list of texts"
            )
        case inspect.DictType(value_type=inspect.StrType()):
            return "text → text"
        case inspect.DictType():
            return "Kubernetes' own"
        case inspect.EnumType(cls=cls):
            return " or ".join(f"`{each.value}`" for each in cls)
        case inspect.IntType():
            return "whole number"
        case inspect.BoolType():
            return "true or false"
        case inspect.UnionType():
            return "whole number or share"
        case inspect.DateTimeType():
            return "moment"
    return "text"


def _linked(part: type) -> str:
    name = SHARED.get(part)
    return f"[{name.lower()}](#{name.lower().replace(' ', '-')})" if name else "mapping"


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, str | int) and value != "" else ""


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(part: type) -> str:
    return " ".join((part.__doc__ or "").split())
