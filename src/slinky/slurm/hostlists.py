"""Hostlists: `n[1-3,07],login` ↔ the names, as Slurm itself writes and reads them (`scontrol show hostnames`, `show hostlist`).

Pure. Order and repetitions are kept, as Slurm keeps them. Several brackets make a product, in Slurm's own order; zeros in front are kept.

*Invariants:* the names are counted before the first one is made, so a text costs no more than its own length plus the names
that it may stand for. An error repeats only the beginning of the text.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from slinky.slurm.errors import ConfigurationError

__all__ = ["TooManyNamesError", "compress", "count", "expand", "shorten"]

LARGEST = 65_536  # names in one range, in one bracket and in one list: Slurm refuses a longer range, and has no more nodes
LONGEST_NAME = 255  # characters
LONGEST_RANGE = 400  # characters of the two numbers of a range
SHOWN = 80  # characters of the text in an error


class TooManyNamesError(ConfigurationError):
    """The expression stands for more names than the caller allows."""


_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,18})", re.DOTALL)
_DIGITS = re.compile(r"([0-9]+)")
MOST_DIGITS = 18  # of a number that `shorten` joins with others


class _Range(NamedTuple):
    """Numbers from `low` to `high`, written with at least `width` digits."""

    low: int
    high: int
    width: int


class _Word(NamedTuple):
    """The text before, between and after the brackets, and what stands in each bracket."""

    texts: list[str]
    brackets: list[list[_Range]]


def expand(expression: str, most: int = LARGEST) -> list[str]:
    """The names that an expression stands for; ConfigurationError where it has more than `most`, or is no hostlist.

    >>> expand("n[08-10]x[1-2],login")
    ['n08x1', 'n08x2', 'n09x1', 'n09x2', 'n10x1', 'n10x2', 'login']
    """
    words = list(_read(expression, most))
    return [name for word in words for name in _names(word)]


def count(expression: str, most: int = LARGEST) -> int:
    """How many names an expression stands for, without making them; ConfigurationError as for `expand`.

    >>> count("n[08-10]x[1-2],login")
    7
    """
    return sum(_size(word.brackets, most) for word in _read(expression, most))


def compress(names: Iterable[str]) -> str:
    """The expression that Slurm would write for the names, in their order: only numbers at the end are joined.

    >>> compress(["n08", "n09", "n10", "login", "n1"])
    'n[08-10],login,n1'
    """
    return ",".join(_written(prefix, ranges) for prefix, ranges in _groups(names))


def shorten(names: Iterable[str]) -> str:
    """A shorter expression that Slurm reads, in the names' order: neighbours that differ in one number are joined, wherever it stands.

    >>> shorten(["ip-10-0-1-3.internal", "ip-10-0-1-4.internal", "ip-10-0-2-4.internal"])
    'ip-10-0-1-[3-4].internal,ip-10-0-2-4.internal'
    """
    return ",".join(map(str, _joined(names)))


def _read(expression: str, most: int) -> Iterator[_Word]:
    """The words of a list, one after the other. No word is given out that would make it longer than `most`."""
    total = 0
    for text in _words(expression.strip()):
        word = _word(text, expression)
        total += _size(word.brackets, most)
        if total > most:
            raise _too_many(expression, most)
        longest = sum(map(len, word.texts)) + sum(max(_longest(each) for each in inside) for inside in word.brackets)
        if longest > LONGEST_NAME:
            raise _error(expression, f"has a name of {longest:,} characters; at most {LONGEST_NAME} are allowed")
        yield word


def _words(expression: str) -> Iterator[str]:
    """The text between commas that are in no bracket."""
    start, inside = 0, False
    for position, letter in enumerate(expression):
        if letter == "[":
            if inside:
                raise _error(expression, "has nested brackets")
            inside = True
        elif letter == "]":
            inside = False
        elif letter == "," and not inside:
            if position > start:
                yield expression[start:position]
            start = position + 1
    if inside:
        raise _error(expression, "has a bracket that is not closed")
    if start < len(expression):
        yield expression[start:]


def _word(text: str, expression: str) -> _Word:
    first, *rest = text.split("[")
    texts, brackets = [first], []
    for part in rest:
        inside, _, after = part.partition("]")
        brackets.append(_ranges(inside, expression))
        texts.append(after)
    return _Word(texts, brackets)


def _ranges(inside: str, expression: str) -> list[_Range]:
    """`1-3,07` → 1 to 3, and 07. The width is that of a range's first number."""
    found: list[_Range] = []
    for part in inside.split(","):
        if len(part) > LONGEST_RANGE:
            raise _error(expression, f"has a range of {len(part):,} characters: {part[:SHOWN]}…")
        match = _RANGE.fullmatch(part)
        if not match:
            raise _error(expression, f"has an invalid range: {part[:SHOWN]!r}")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise _error(expression, f"has a range that runs backwards: {part[:SHOWN]!r}")
        if high - low >= LARGEST:
            raise _too_many(expression, LARGEST)
        found.append(_Range(low, high, len(match[1])))
    return found


def _size(brackets: list[list[_Range]], most: int) -> int:
    """The product of the brackets, which stops growing once it is above `most`."""
    size = 1
    for inside in brackets:
        size *= sum(high - low + 1 for low, high, _ in inside)
        if size > most:
            return most + 1
    return size


def _longest(numbers: _Range) -> int:
    return max(numbers.width, len(str(numbers.high)))


def _names(word: _Word) -> Iterator[str]:
    texts, brackets = word
    if not brackets:
        return iter((texts[0],))
    choices = [[f"{number:0{width}}" for low, high, width in inside for number in range(low, high + 1)] for inside in brackets]
    if len(choices) == 1:
        before, after = texts
        return (f"{before}{chosen}{after}" for chosen in choices[0])
    # Slurm's order: the last bracket runs fastest, then the first, the second, and so on.
    slowest_first = itertools.product(*reversed(choices[:-1]), choices[-1])
    in_place = ((*reversed(chosen[:-1]), chosen[-1]) for chosen in slowest_first)
    return ("".join(map("".join, zip(texts, (*chosen, ""), strict=True))) for chosen in in_place)


def _error(expression: str, what: str) -> ConfigurationError:
    return ConfigurationError(_fault(expression, what))


def _too_many(expression: str, most: int) -> TooManyNamesError:
    return TooManyNamesError(_fault(expression, f"has more than {most:,} names"))


def _fault(expression: str, what: str) -> str:
    return f"the hostlist {expression[:SHOWN]!r}{'…' if len(expression) > SHOWN else ''} {what}"


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


class _Joined:
    """Names in a row that differ in one number only: the parts of the first, and where the number stands once there are two."""

    __slots__ = ("parts", "place", "runs")

    def __init__(self, name: str) -> None:
        self.parts = _DIGITS.split(name)
        self.place = -1
        self.runs: list[_Run] = []

    def takes(self, name: str) -> bool:
        parts = _DIGITS.split(name)
        if len(parts) != len(self.parts):
            return False
        different = [place for place, (own, other) in enumerate(zip(self.parts, parts, strict=True)) if own != other]
        place = different[-1] if different else self.place if self.runs else len(parts) - 2
        if place < 1 or len(different) > 1 or not place % 2 or (self.runs and place != self.place) or len(parts[place]) > MOST_DIGITS:
            return False
        if not self.runs:
            if len(self.parts[place]) > MOST_DIGITS:
                return False
            self.place, self.runs = place, [_Run(self.parts[place])]
        if not self.runs[-1].takes(parts[place]):
            self.runs.append(_Run(parts[place]))
        return True

    def __str__(self) -> str:
        if not self.runs:
            return "".join(self.parts)
        inside = f"[{','.join(map(str, self.runs))}]"
        return "".join((*self.parts[: self.place], inside, *self.parts[self.place + 1 :]))


def _joined(names: Iterable[str]) -> Iterator[_Joined]:
    group: _Joined | None = None
    for name in names:
        if group is not None and group.takes(name):
            continue
        if group is not None:
            yield group
        group = _Joined(name)
    if group is not None:
        yield group
