"""The reference of a configuration file, made from the types that read it.

Pure. Comes in: a `Section`. Goes out: Markdown, a table a section. What must stay true: every key is there with its type, default and help, in the words that stand where it is defined.
"""

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

__all__ = ["tables"]

WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def tables(kind: type[msgspec.Struct], words: Mapping[Any, str] | None = None) -> str:
    """`words`: what types that are no sections are called."""
    return "\n".join(_section("", kind, {**WORDS, **(words or {})}, set())).rstrip() + "\n"


def _section(name: str, kind: type[msgspec.Struct], words: Mapping[Any, str], shown: set[type]) -> Iterator[str]:
    """Of a section that is made from another which is `shown` already, only what it adds."""
    shown.add(kind)
    yield f"## `{name}`" if name else "## At the top"
    yield ""
    if name:
        yield from (_sentence(kind), "")
    rows: list[str] = []
    sections: dict[str, type[msgspec.Struct]] = {}
    base = kind.__bases__[0]
    inherited = {field.name for field in msgspec.structs.fields(base)} if base in shown else set()
    for field in msgspec.structs.fields(kind):
        said, help_text = _said(field.type)
        place = f"{name}.{field.encode_name}" if name else field.encode_name
        if field.name in inherited:
            continue
        if isinstance(said, type) and issubclass(said, msgspec.Struct) and said not in words:
            sections[place] = said
            continue
        if typing.get_origin(said) is tuple and issubclass(each := typing.get_args(said)[0], msgspec.Struct):
            sections[f"{place}[]"] = each
            continue
        rows.append(f"| `{place}` | {_words(said, words)} | {_default(field)} | {_cell(help_text)} |")
    if rows:
        yield from ("| Key | Type | Default | |", "|---|---|---|---|", *rows, "")
    for place, section in sections.items():
        yield from _section(place, section, words, shown)


def _sentence(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _said(annotation: Any) -> tuple[Any, str]:
    """The type, and the help that is annotated to it."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, ""
    said, *notes = typing.get_args(annotation)
    return said, next((note.description for note in notes if isinstance(note, msgspec.Meta) and note.description), "")


def _words(kind: Any, words: Mapping[Any, str]) -> str:
    if kind in words:
        return words[kind]
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(f"`{word}`" for word in typing.get_args(kind))
    arguments = [_words(argument, words) for argument in typing.get_args(kind) if argument not in (type(None), ...)]
    origin = typing.get_origin(kind)
    if origin in (list, tuple):
        return f"list of {arguments[0]}"
    if origin is dict:
        return f"{arguments[0]} → {arguments[1]}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(arguments)
    raise TypeError(f"{kind} has no words yet: give them to tables()")


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None or value in ("", [], {}, ()):
        return ""
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{msgspec.json.encode(value).decode()}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
