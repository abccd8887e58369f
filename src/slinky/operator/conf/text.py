"""Slurm's configuration files as text: reading the lines of one, writing them, and joining an administrator's lines with ours.

Text goes in, text comes out. Read is what Slurm reads: `Key=Value` several to a line, quotes, `#` comments unless escaped, lines that a `\\` at their end continues, `Include FILE`.
What must stay true: `parse(render(lines))` is `lines`; keys are compared without case and written as they were; what an administrator wrote wins, and of parameters that are lists both are kept, theirs
over ours item by item, each item as it was spelt.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["LISTS", "Line", "Pair", "UnwritableValueError", "join_items", "joined", "line", "pairs_of", "parse", "render", "words"]

LISTS = frozenset(
    key.lower()
    for key in [
        "AccountingStorageEnforce",
        "AccountingStorageTRES",
        "AccountingStoreFlags",
        "AuthAltParameters",
        "AuthAltTypes",
        "AuthInfo",
        "CommunicationParameters",
        "DebugFlags",
        "GresTypes",
        "LaunchParameters",
        "MetricsParameters",
        "PrologFlags",
        "SchedulerParameters",
        "SlurmctldParameters",
        "SlurmdParameters",
        "StorageParameters",
    ]
)
_RECORDS = frozenset({"nodename", "partitionname", "nodeset", "downnodes", "frontendname"})
_REPEATED = frozenset({"prolog", "epilog", "prologslurmctld", "epilogslurmctld"})

_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-+*/]?)=\s*(?:"([^"]*)"|(\S*))(?=\s|$)')
_WORD = re.compile(r'([A-Za-z0-9_.]+)=("[^"]*"|\S*)')
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)


class UnwritableValueError(ValueError):
    """A value that Slurm's files have no way to hold."""


class Pair(NamedTuple):
    key: str
    value: str
    sign: str = ""
    """`+` where the value is to be added."""


class Line(NamedTuple):
    """A line that says something: pairs, or the file it includes."""

    pairs: tuple[Pair, ...] = ()
    include: str = ""
    rest: str = ""
    """What is neither: left for Slurm to judge."""

    @property
    def record(self) -> Pair | None:
        """What the line describes (a partition, a NodeSet …), where it describes one thing and not the whole cluster."""
        return self.pairs[0] if self.pairs and self.pairs[0].key.lower() in _RECORDS else None


def line(**pairs: object) -> Line:
    return Line(tuple(Pair(key, str(value)) for key, value in pairs.items()))


def parse(text: str) -> list[Line]:
    return [_read(logical) for logical in _logical_lines(text) if logical.strip()]


def words(text: str) -> list[Pair]:
    """Parameters of one thing, a node or a partition, such as `Gres=gpu:8 Weight=10`: those without a value say nothing (Slurm would take the next word for it)."""
    return [Pair(found[1], found[2].strip('"')) for found in _WORD.finditer(text) if found[2].strip('"')]


def _logical_lines(text: str) -> Iterable[str]:
    """Without comments, and continued lines as one."""
    begun = ""
    for written in text.splitlines():
        said = _without_comment(written)
        stripped = said.rstrip()
        if _backslashes(stripped) % 2:
            begun += stripped[:-1]
            continue
        yield begun + said
        begun = ""
    if begun:
        yield begun


def _without_comment(written: str) -> str:
    for place, letter in enumerate(written):
        if letter == "#" and not _backslashes(written[:place]) % 2:
            return written[:place]
    return written


def _backslashes(text: str) -> int:
    """How many stand at its end."""
    return len(text) - len(text.rstrip("\\"))


def _read(logical: str) -> Line:
    said = re.sub(r"\\(.)", r"\1", logical)
    included = _INCLUDE.match(said)
    if included:
        return Line(include=included[1])
    pairs, place = [], 0
    while found := _PAIR.match(said, place):
        pairs.append(Pair(found[1], found[3] if found[3] is not None else found[4], found[2]))
        place = found.end()
    return Line(tuple(pairs), rest=said[place:].strip())


def render(lines: Iterable[Line]) -> str:
    return "".join(f"{_written(one)}\n" for one in lines)


def _written(one: Line) -> str:
    if one.include:
        return f"Include {_escaped(one.include)}"
    return " ".join([*(f"{pair.key}{pair.sign}={_value(pair.value)}" for pair in one.pairs), *([_escaped(one.rest)] if one.rest else [])])


def _value(value: str) -> str:
    if "\n" in value or "\r" in value or ('"' in value and (re.search(r"\s", value) or value.startswith('"'))):
        raise UnwritableValueError("a value with a line break, or with both quotes and spaces, cannot stand in a file of Slurm's")
    return f'"{_escaped(value)}"' if re.search(r"\s", value) else _escaped(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("#", "\\#")


def pairs_of(lines: Iterable[Line]) -> Iterable[Pair]:
    """Of the whole cluster: those of records (partitions, nodes …) are not among them."""
    return (pair for one in lines if one.record is None for pair in one.pairs)


def join_items(values: Iterable[str]) -> str:
    """Lists as one: an item of a later one takes the place of an earlier one of its name (`ttl=300` of `ttl=60`), and keeps its spelling."""
    items: dict[str, str] = {}
    for value in values:
        for item in filter(None, (item.strip() for item in value.split(","))):
            items[item.split("=", 1)[0].lower()] = item
    return ",".join(items.values())


def joined(ours: Sequence[Line], theirs: str, files: Mapping[str, str] | None = None) -> str:
    """Our lines and an administrator's text; `files` are those that an Include in it may name. Their lines stay as they wrote them, comments aside; lists stand at the end, where they win."""
    texts = [logical.strip() for logical in _logical_lines(theirs) if logical.strip()]
    written = [_read(text) for text in texts]
    known = [*written, *_included(written, files or {}, ())]
    settled = {pair.key.lower() for pair in pairs_of(known) if not pair.sign} - _REPEATED
    named = {(one.record.key.lower(), one.record.value) for one in known if one.record}
    kept = [one for one in ours if not _is_settled(one, settled, named)]
    rest = "".join(f"{text}\n" for one, text in zip(written, texts, strict=True) if not _list_key(one))
    return "\n".join(filter(None, (render(kept), rest, render(_lists([*ours, *known])))))


def _lists(lines: Sequence[Line]) -> Iterable[Line]:
    """Each parameter that is a list, once, with what all lines say of it."""
    values: dict[str, list[Pair]] = {}
    for pair in pairs_of(lines):
        if pair.key.lower() in LISTS:
            values.setdefault(pair.key.lower(), []).append(pair)
    return (line(**{pairs[0].key: join_items(pair.value for pair in pairs)}) for pairs in values.values())


def _list_key(one: Line) -> bool:
    """Whether the line says one parameter that is a list. (Slurm takes no second one on the same line.)"""
    return len(one.pairs) == 1 and one.pairs[0].key.lower() in LISTS and not one.rest


def _is_settled(one: Line, settled: set[str], named: set[tuple[str, str]]) -> bool:
    if one.record:
        return (one.record.key.lower(), one.record.value) in named
    return bool(one.pairs) and (one.pairs[0].key.lower() in settled or one.pairs[0].key.lower() in LISTS)


def _included(lines: Sequence[Line], files: Mapping[str, str], above: tuple[str, ...]) -> Iterable[Line]:
    """What stands in the files that are included, as far as they are known."""
    for one in lines:
        name = one.include.removeprefix("/etc/slurm/")
        if name in files and name not in above:
            inner = parse(files[name])
            yield from inner
            yield from _included(inner, files, (*above, name))
