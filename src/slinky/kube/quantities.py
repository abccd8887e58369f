"""Kubernetes quantities (`250m`, `1.5Gi`, `2e3`) as exact numbers, and their rounding to what Slurm counts in: always up, never to nothing."""

import re
from fractions import Fraction
from functools import lru_cache

__all__ = ["QuantityError", "mebibytes", "quantity", "whole"]

LONGEST = 64  # characters; the largest that Kubernetes counts has 19 digits
LARGEST = 10**LONGEST

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([a-zA-Z]*))")
_SUFFIXES = {name: Fraction(1024) ** power for power, name in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_SUFFIXES |= {name: Fraction(10) ** (3 * power) for power, name in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)}


class QuantityError(ValueError):
    """Not a quantity."""


def quantity(text: str | int | float) -> Fraction:
    """The exact value; `quantity("250m")` is 1/4. Raises QuantityError.

    The API server writes short ones, but takes what a template of a JobSet or LeaderWorkerSet says as it stands.
    """
    written = str(text) if not isinstance(text, int) or abs(text) < LARGEST else "9" * (LONGEST + 1)
    if len(written) > LONGEST:
        raise QuantityError(f"{written[:LONGEST]!r}… is too long for a quantity such as 4, 500m, 1.5Gi or 2e3")
    return _quantity(written)


@lru_cache(4096)
def _quantity(text: str) -> Fraction:
    found = _FORM.fullmatch(text.strip())
    if not found or (found[3] or "") not in _SUFFIXES:
        raise QuantityError(f"{text!r} is not a quantity such as 4, 500m, 1.5Gi or 2e3")
    exponent = int(found[2][1:]) if found[2] else 0
    if abs(exponent) > 30:
        raise QuantityError(f"{text!r} is out of range")
    return Fraction(found[1]) * _SUFFIXES[found[3] or ""] * Fraction(10) ** exponent


def whole(value: Fraction) -> int:
    """Rounded up: half a CPU is one."""
    return -(-value.numerator // value.denominator)


def mebibytes(value: Fraction) -> int:
    """Bytes as MiB, rounded up: to Slurm, no memory means all of it."""
    return whole(value / 1048576)
