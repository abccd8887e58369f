"""The reference of the configuration file, made from the types that read it.

Pure. Comes in: nothing but `Settings`. Goes out: Markdown, kept in docs/bridge-configuration.md (`slinky bridge settings` prints it). What must stay true: every
key is there with its type, default and help, in the words that stand where it is defined; the example at the top can be loaded.
"""

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from slinky.bridge.settings import Settings
from slinky.kube.objects import LabelSelector

__all__ = ["EXAMPLE", "reference"]

EXAMPLE = """\
schedulerName: slurm-bridge-scheduler
slurmRestApi: http://slurm-restapi.slurm:6820
managedNamespaceSelector:
  matchLabels: {slurm: "yes"}
partition: slurm-bridge
windows:
  namespace: 500
slurm:
  tokenFile: /etc/slurm-bridge/token/auth-token
admission:
  failOpen: false
"""

INTRODUCTION = f"""\
# Configuration of the bridge

Made from the code: `slinky bridge settings > docs/bridge-configuration.md`.

One YAML file for all of the bridge's processes, `/etc/slurm-bridge/config.yaml` unless `--config` or `SLINKY_BRIDGE_CONFIG` says otherwise. It is read once, at start. Every key may be left out. One that is
not known is refused by its name.

```yaml
{EXAMPLE}```

A configuration file of the original slurm-bridge is accepted as it stands: its keys (`schedulerName`, `slurmRestApi`, `managedNamespaces`, `managedNamespaceSelector`, `mcsLabel` and `partition`) have the
same names and meaning here. What it set elsewhere has a key of its own here, such as `slurm.tokenFile` for its environment variable `SLURM_JWT_FILE`.
"""

WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", LabelSelector: "label selector"}


def reference() -> str:
    return "\n".join([INTRODUCTION, *_section("", Settings)]).rstrip() + "\n"


def _section(name: str, kind: type[msgspec.Struct]) -> Iterator[str]:
    yield f"## `{name}`" if name else "## At the top"
    yield ""
    if name:
        yield from (_sentence(kind), "")
    rows: list[str] = []
    sections: dict[str, type[msgspec.Struct]] = {}
    inherited = {
        field.name for field in msgspec.structs.fields(kind.__bases__[0])
    }  # of a section that is made from another, only what it adds
    for field in msgspec.structs.fields(kind):
        said, help_text = _said(field.type)
        place = f"{name}.{field.encode_name}" if name else field.encode_name
        if field.name in inherited:
            continue
        if isinstance(said, type) and issubclass(said, msgspec.Struct) and said is not LabelSelector:
            sections[place] = said
            continue
        if typing.get_origin(said) is tuple and issubclass(each := typing.get_args(said)[0], msgspec.Struct):
            sections[f"{place}[]"] = each
            continue
        rows.append(f"| `{place}` | {_words(said)} | {_default(field)} | {_cell(help_text)} |")
    if rows:
        yield from ("| Key | Type | Default | |", "|---|---|---|---|", *rows, "")
    for place, section in sections.items():
        yield from _section(place, section)


def _sentence(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _said(annotation: Any) -> tuple[Any, str]:
    """The type, and the help that is annotated to it."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, ""
    said, *notes = typing.get_args(annotation)
    return said, next((note.description for note in notes if isinstance(note, msgspec.Meta) and note.description), "")


def _words(kind: Any) -> str:
    if kind in WORDS:
        return WORDS[kind]
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(f"`{word}`" for word in typing.get_args(kind))
    arguments = [_words(argument) for argument in typing.get_args(kind) if argument not in (type(None), ...)]
    origin = typing.get_origin(kind)
    if origin in (list, tuple):
        return f"list of {arguments[0]}"
    if origin is dict:
        return f"{arguments[0]} → {arguments[1]}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(arguments)
    raise TypeError(f"{kind} has no words yet: add them to settings_reference")


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None or value in ("", [], {}, ()):
        return ""
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{msgspec.json.encode(value).decode()}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
