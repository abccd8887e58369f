"""What the kinds' types are made of: each field's name in the API server, its help, its type and its default.

Pure. Comes in: a Struct of `slinky.operator.kinds`. Goes out: its fields, for who reads objects (`reading`), makes CRDs (`schema`) or documents (`reference`): one look at the types, three uses.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

__all__ = ["Field", "fields_of", "part_of"]


@dataclass(frozen=True)
class Field:
    """`type` is without None and without its help; `default` is None where it is absence itself."""

    name: str
    type: inspect.Type
    help: str
    default: Any


@cache
def fields_of(part: type) -> tuple[Field, ...]:
    """Of a Struct, in the order they are defined in."""
    told = inspect.type_info(part)
    assert isinstance(told, inspect.StructType)
    return tuple(_field(each) for each in told.fields)


def part_of(type_: inspect.Type) -> type | None:
    """The Struct, where it is one."""
    return type_.cls if isinstance(type_, inspect.StructType) else None


def _field(found: inspect.Field) -> Field:
    type_, help_ = _unwrapped(found.type)
    default = found.default
    if default is msgspec.NODEFAULT and found.default_factory is not msgspec.NODEFAULT:
        default = found.default_factory()
    return Field(found.encode_name, type_, help_, None if default is msgspec.NODEFAULT else default)


def _unwrapped(type_: inspect.Type) -> tuple[inspect.Type, str]:
    help_ = ""
    while True:
        if isinstance(type_, inspect.Metadata):
            help_ = help_ or str((type_.extra_json_schema or {}).get("description", ""))
            type_ = type_.type
        elif isinstance(type_, inspect.UnionType) and any(isinstance(each, inspect.NoneType) for each in type_.types):
            rest = tuple(each for each in type_.types if not isinstance(each, inspect.NoneType))
            type_ = rest[0] if len(rest) == 1 else inspect.UnionType(rest)
        else:
            return type_, help_
