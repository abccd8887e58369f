"""Models as people read them: plain values, by the names of the attributes, without the triplets behind them."""

from typing import Any

import msgspec

from slinky.slurm.numbers import Infinite, Number

__all__ = ["as_json", "plainly"]


def plainly(value: Any) -> Any:
    """Dicts, lists and plain values; an infinite number is the word "infinite"."""
    if isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if not name.startswith("_")]
        names += [name for name, member in vars(type(value)).items() if isinstance(member, Number)]
        return {name: plainly(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: plainly(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plainly(item) for item in value]
    return "infinite" if isinstance(value, Infinite) else value


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(plainly(value)), indent=2).decode()
