"""Reading an object as it was written: the typed object, or everything that is wrong with it.

Pure. Comes in: `Written`. Goes out: a `Controller`, `NodeSet` …, or a list of `Problem`, each with the field's path. What must stay true: nothing that was written is passed over in silence; a null
where a value could stand is as if nothing stood there, as the API server has it; parts that Kubernetes defines are left as they are.
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from slinky.operator.kinds import KINDS, Accounting, Controller, LoginSet, NodeSet, RestApi, Token, Written
from slinky.operator.kinds.anatomy import fields_of, part_of
from slinky.operator.kinds.common import Part
from slinky.operator.kinds.unsupported import UNSUPPORTED, UNSUPPORTED_WORDS

__all__ = ["INVALID", "UNKNOWN_FIELD", "UNSUPPORTED_FIELD", "Problem", "read", "read_as"]

UNKNOWN_FIELD = "UnknownField"
UNSUPPORTED_FIELD = "Unsupported"
INVALID = "InvalidSpec"

T = TypeVar("T", Controller, Accounting, RestApi, NodeSet, LoginSet, Token)
AnyKind = Controller | Accounting | RestApi | NodeSet | LoginSet | Token


@dataclass(frozen=True)
class Problem:
    """`reason` is a condition's: one word."""

    path: str
    message: str
    reason: str = INVALID

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def read(kind: str, written: Written) -> AnyKind | list[Problem]:
    """`kind` is one of `KINDS`; the kind that is written is not looked at (watches do not say it)."""
    return read_as(KINDS[kind], written)  # type: ignore[type-var, return-value]


def read_as(type_: type[T], written: Written) -> T | list[Problem]:
    """The same by type, for those who know what they want."""
    parts = {field.name: part_of(field.type) for field in fields_of(type_)}
    spec, status = parts["spec"], parts["status"]
    assert spec and status
    if found := list(_Judge(type_.__name__).struct(spec, written.spec, "spec")):
        return found
    return type_(
        metadata=written.metadata, spec=msgspec.convert(_present(spec, written.spec), spec), status=_status(status, written.status)
    )


S = TypeVar("S")


def _status(part: type[S], said: Any) -> S:
    """What was seen is seen again: a status that cannot be read counts as none."""
    try:
        return msgspec.convert(_present(part, said), part)
    except msgspec.ValidationError:
        return part()


def _present(part: type, said: Any) -> Any:
    """Without nulls, at every place that has a type of ours; and without what is empty and would be refused otherwise."""
    if not isinstance(said, dict):
        return {}
    known = {field.name: field for field in fields_of(part)}
    forgiven = issubclass(part, Part)
    return {
        name: _value(known[name].type, value) if name in known else value
        for name, value in said.items()
        if value is not None and (name in known or not forgiven)
    }


def _value(type_: inspect.Type, value: Any) -> Any:
    if part := part_of(type_):
        return _present(part, value)
    if isinstance(type_, inspect.ListType) and (part := part_of(type_.item_type)):
        return [_present(part, each) for each in value]
    return value


# What is wrong


class _Judge:
    """Of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def struct(self, part: type, said: Any, path: str) -> Iterator[Problem]:
        if said is None:
            return
        known = {field.name: field for field in fields_of(part)}
        if not isinstance(said, dict):
            yield Problem(path, f"is {_shown(said)}; it has to be a mapping with the fields {_listed(list(known))}")
            return
        for name, value in said.items():
            here = f"{path}.{name}"
            if name in known:
                if value is not None:
                    yield from self.value(known[name].type, value, here)
            elif instead := UNSUPPORTED.get((self._kind, here)):
                if value:
                    yield Problem(here, instead, UNSUPPORTED_FIELD)
            else:
                yield Problem(here, _unknown(str(name), list(known)), UNKNOWN_FIELD)

    def value(self, type_: inspect.Type, value: Any, path: str) -> Iterator[Problem]:
        if part := part_of(type_):
            yield from self.struct(part, value, path)
        elif isinstance(type_, inspect.ListType):
            if not isinstance(value, list):
                yield Problem(path, f"is {_shown(value)}; it has to be a list")
                return
            for index, each in enumerate(value):
                yield from self.value(type_.item_type, each, f"{path}[{index}]")
        elif isinstance(type_, inspect.DictType):
            yield from _mapping_problems(type_, value, path)
        elif isinstance(type_, inspect.EnumType):
            yield from self.word([str(each.value) for each in type_.cls], value, path)
        elif said := _wrong_scalar(type_, value):
            yield Problem(path, said)

    def word(self, allowed: list[str], value: Any, path: str) -> Iterator[Problem]:
        if value in allowed:
            return
        if instead := UNSUPPORTED_WORDS.get((self._kind, path, str(value))):
            yield Problem(path, instead, UNSUPPORTED_FIELD)
            return
        near = _nearest(str(value), allowed)
        yield Problem(path, f"is {_shown(value)}; it has to be {_listed(allowed, 'or')}{f' (meant: {near}?)' if near else ''}")


def _mapping_problems(type_: inspect.DictType, value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, f"is {_shown(value)}; it has to be a mapping")
    elif isinstance(type_.value_type, inspect.StrType):
        for name, each in value.items():
            if not isinstance(each, str):
                yield Problem(f"{path}.{name}", f"is {_shown(each)}; it has to be a string (put it in quotes)")


def _wrong_scalar(type_: inspect.Type, value: Any) -> str:
    match type_:
        case inspect.BoolType():
            return "" if isinstance(value, bool) else f"is {_shown(value)}; it has to be true or false"
        case inspect.StrType():
            return "" if isinstance(value, str) else f"is {_shown(value)}; it has to be a string (put it in quotes)"
        case inspect.IntType(ge=least, le=most):
            return _wrong_number(value, least, most)
        case inspect.UnionType():
            whole = isinstance(value, int) and not isinstance(value, bool)
            return "" if whole or isinstance(value, str) else f"is {_shown(value)}; it has to be a whole number, or a share such as 25%"
    return ""


def _wrong_number(value: Any, least: int | None, most: int | None) -> str:
    bounds = f" from {least} to {most}" if most is not None else f" of {least} or more" if least is not None else ""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and (least is None or value >= least) and (most is None or value <= most):
        return ""
    return f"is {_shown(value)}; it has to be a whole number{bounds}"


def _unknown(name: str, known: list[str]) -> str:
    near = _nearest(name, known)
    if near:
        return f"there is no such field; the nearest is {near}"
    return f"there is no such field; there are {_listed(known)}"


def _nearest(name: str, known: list[str]) -> str:
    """By letters, whatever their case."""
    lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return lower[found[0]] if found else ""


def _listed(words: list[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"' if len(value) <= 40 else f'"{value[:40]}…"'
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return str(value)
