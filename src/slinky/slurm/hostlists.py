"""Hostlists: `n[1-3,07],login` ↔ the names, as Slurm itself writes and reads them (`scontrol show hostnames`, `show hostlist`).

Pure. Order and repetitions are kept, as Slurm keeps them. Several brackets make a product, in Slurm's own order; zeros in front are kept. Compressing
looks at the digits at the end of a name and joins neighbours.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator

from slinky.slurm.errors import ConfigurationError

__all__ = ["compress", "expand"]

LONGEST_RANGE = 400  # characters; no name of a node is that long
LARGEST = 1_000_000  # names; an expression a few bytes long can mean more than memory holds

_WORD = re.compile(r"((?:[^\[\],]|\[[^\[\]]*\]|\])+)(?:,|$)")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,18})", re.DOTALL)


def expand(expression: str) -> list[str]:
    """The names that an expression stands for.

    >>> expand("n[08-10]x[1-2],login")
    ['n08x1', 'n08x2', 'n09x1', 'n09x2', 'n10x1', 'n10x2', 'login']
    """
    names: list[str] = []
    for word in _words(expression.strip()):
        names.extend(_expand_word(word, expression))
        if len(names) > LARGEST:
            raise ConfigurationError(f"the hostlist {expression[:80]!r} has more than {LARGEST:,} names")
    return names


def compress(names: Iterable[str]) -> str:
    """The shortest expression that Slurm would write for the names, in their order.

    >>> compress(["n08", "n09", "n10", "login", "n1"])
    'n[08-10],login,n1'
    """
    return ",".join(_written(prefix, ranges) for prefix, ranges in _groups(names))


def _words(expression: str) -> Iterator[str]:
    position = 0
    while position < len(expression):
        if expression[position] == ",":
            position += 1
            continue
        match = _WORD.match(expression, position)
        if not match:
            raise ConfigurationError(f"the hostlist {expression!r} has a bracket that is not closed, or one inside another")
        yield match[1]
        position = match.end()


def _expand_word(word: str, expression: str) -> Iterator[str]:
    parts = _BRACKET.split(word)
    if len(parts) == 1:
        return iter((word,))
    texts, choices = parts[0::2], [_numbers(inside, expression) for inside in parts[1::2]]
    if math.prod(len(choice) for choice in choices) > LARGEST:
        raise ConfigurationError(f"the hostlist {expression[:80]!r} has more than {LARGEST:,} names")
    # Slurm's order: the last bracket runs fastest, then the first, the second, and so on.
    slowest_first = itertools.product(*reversed(choices[:-1]), choices[-1])
    in_place = ((*reversed(chosen[:-1]), chosen[-1]) for chosen in slowest_first)
    return ("".join(map("".join, zip(texts, (*chosen, ""), strict=True))) for chosen in in_place)


def _numbers(inside: str, expression: str) -> list[str]:
    """`1-3,07` → 1, 2, 3, 07. The width is that of a range's first number."""
    found: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ConfigurationError(f"the hostlist {expression[:80]!r} has a range that is none: {part[:80]!r}")
        if len(part) > LONGEST_RANGE:
            raise ConfigurationError(f"the hostlist {expression[:80]!r} has a range of {len(part):,} characters: {part[:40]}…")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise ConfigurationError(f"the hostlist {expression!r} has a range that runs backwards: {part!r}")
        if high - low >= LARGEST:
            raise ConfigurationError(f"the hostlist {expression[:80]!r} has more than {LARGEST:,} names")
        width = len(match[1])
        found += [f"{number:0{width}}" for number in range(low, high + 1)]
    return found


class _Run:
    """Neighbours: numbers from `low` to `high`, written with at least `width` digits."""

    __slots__ = ("high", "low", "width")

    def __init__(self, digits: str) -> None:
        self.low = self.high = int(digits)
        self.width = len(digits)

    def takes(self, digits: str) -> bool:
        if int(digits) != self.high + 1 or digits != f"{self.high + 1:0{self.width}}":
            return False
        self.high += 1
        return True

    def __str__(self) -> str:
        low = f"{self.low:0{self.width}}"
        return low if self.low == self.high else f"{low}-{self.high:0{self.width}}"


def _groups(names: Iterable[str]) -> Iterator[tuple[str, list[_Run]]]:
    """Names in a row that differ only in the number at their end; no runs where there is no number."""
    prefix, runs = "", list[_Run]()
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match and runs and match[1] == prefix:
            if not runs[-1].takes(match[2]):
                runs.append(_Run(match[2]))
            continue
        if runs:
            yield prefix, runs
            runs = []
        if match:
            prefix, runs = match[1], [_Run(match[2])]
        else:
            yield name, []
    if runs:
        yield prefix, runs


def _written(prefix: str, runs: list[_Run]) -> str:
    if not runs:
        return prefix
    if len(runs) == 1 and runs[0].low == runs[0].high:
        return f"{prefix}{runs[0]}"
    return f"{prefix}[{','.join(str(run) for run in runs)}]"
