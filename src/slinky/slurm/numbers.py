"""Slurm's numbers that may be unset or infinite, as one Python type: `None`, `INFINITE`, or the number.

On the wire such a number is a triplet, `{"set": true, "infinite": false, "number": 5}`. It is decoded as a `Triplet`, which costs msgspec next to
nothing, and turned into the Python value only when somebody reads the attribute: a list of 10,000 jobs pays for no number that nobody asks for.
"""

import math
from typing import Any, Final, Generic, TypeVar, final, overload

import msgspec

__all__ = ["INFINITE", "Envelope", "Infinite", "Number", "Quantity", "Triplet", "WireError", "WireWarning", "encode_infinite", "plain"]


@final
class Infinite:
    """The type of `INFINITE`: more than any number, and equal to itself only."""

    _only: "Infinite | None" = None

    def __new__(cls) -> "Infinite":
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "INFINITE"

    def __float__(self) -> float:
        return math.inf

    def __gt__(self, other: object) -> bool:
        return not isinstance(other, Infinite)

    def __ge__(self, other: object) -> bool:
        return True

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return isinstance(other, Infinite)

    def __hash__(self) -> int:
        return hash(math.inf)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce__(self) -> tuple[Any, ...]:
        return (Infinite, ())


INFINITE: Final = Infinite()

Quantity = int | Infinite | None


class Triplet(msgspec.Struct, frozen=True, gc=False):
    """A number as slurmrestd writes it. `set` false with `infinite` true occurs, and means infinite."""

    set: bool = False
    infinite: bool = False
    number: int | float = 0


N = TypeVar("N", int, float)


def plain(triplet: Triplet | None) -> Any:
    """None, INFINITE or the number."""
    if triplet is None:
        return None
    if triplet.infinite:
        return INFINITE
    return triplet.number if triplet.set else None


class Number(Generic[N]):
    """An attribute that reads another, a Triplet, as `None`, `INFINITE` or a number."""

    __slots__ = ("_of",)

    def __init__(self, of: str) -> None:
        self._of = of

    @overload
    def __get__(self, instance: None, owner: type) -> "Number[N]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> "N | Infinite | None": ...
    def __get__(self, instance: object | None, owner: type) -> "Number[N] | N | Infinite | None":
        if instance is None:
            return self
        value: N | Infinite | None = plain(getattr(instance, self._of))
        return value


def encode_infinite(value: object) -> object:
    """For msgspec's encoder: how the numbers that only we know are told to slurmrestd."""
    if isinstance(value, Infinite):
        return {"set": True, "infinite": True}
    raise NotImplementedError(f"{type(value).__name__} is not something that can be sent to Slurm")


class WireError(msgspec.Struct, gc=False):
    """One entry of `errors`."""

    error_number: int = 0
    error: str = ""
    description: str = ""
    source: str = ""


class WireWarning(msgspec.Struct, gc=False):
    """One entry of `warnings`."""

    description: str = ""
    source: str = ""


class Envelope(msgspec.Struct, kw_only=True):
    """What every answer of slurmrestd carries, whatever else is in it."""

    errors: list[WireError] | None = None
    warnings: list[WireWarning] | None = None
