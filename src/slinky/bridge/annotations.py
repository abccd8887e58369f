"""What users say about their job by annotation, read and checked.

Comes in: the annotations of the object that Slurm schedules. Goes out: `JobSettings`, or an `AnnotationError` with one sentence for each thing that is wrong,
saying what would be right. Nothing is guessed and nothing that begins with our prefix is ignored, so a mistake is met when the object is applied and not in a queue.

*Invariants:* the scheduler reads annotations at every look, and they may be anyone's. Their number, the length of a value and the length of
what is said about them are limited, and no value costs more to read than its own length.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from slinky.bridge import annotation_values as values
from slinky.bridge.annotation_values import Moment, Signal, Switches
from slinky.bridge.keys import OLD_SETTINGS, SETTINGS

__all__ = [
    "MOST_HINTS",
    "SUFFIXES",
    "UNREADABLE",
    "AnnotationError",
    "Hints",
    "JobSettings",
    "in_short",
    "old_names",
    "read_settings",
    "suffix_of",
]

MOST_TEXT = 1024
MOST_ANNOTATIONS = 64  # with our prefix; about half as many are known
LONGEST_NAME = 63  # of an annotation after its prefix, as the API server has it
MOST_SENTENCES = 10
LONGEST_SENTENCE = 600
MOST_HINTS = 10


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was said; None is what was not. `time_limit` in minutes, memory in MiB. `exclusive` as Slurm's `shared` puts it: "" is sharing, None is not said."""

    account: str | None = None
    begin: Moment | None = None
    comment: str | None = None
    constraints: str | None = None
    contiguous: bool | None = None
    cpus_per_task: int | None = None
    deadline: Moment | None = None
    dependency: str | None = None
    exclude: str | None = None  # a hostlist, as it was written
    exclusive: str | None = None
    gang: bool | None = None
    gres: str | None = None
    group_id: str | None = None
    job_name: str | None = None
    licenses: str | None = None
    max_nodes: int | None = None
    memory_per_node: int | None = None
    min_nodes: int | None = None
    nice: int | None = None
    partition: str | None = None
    prefer: str | None = None
    priority: int | None = None
    qos: str | None = None
    reservation: str | None = None
    segment: int | None = None
    signal: Signal | None = None
    switches: Switches | None = None
    tasks_per_node: int | None = None
    time_limit: int | None = None
    user_id: str | None = None
    wckey: str | None = None


UNREADABLE = JobSettings(comment="")  # as no annotations can be read


class AnnotationError(ValueError):
    """One sentence a problem, each with the annotation's whole name."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(in_short(problems))


def in_short(sentences: Iterable[str]) -> str:
    """The first few of them as one text, each cut where it is long, and how many more there are: for refusals, conditions, Events and logs."""
    all_of_them = list(sentences)
    shown = [text if len(text) <= LONGEST_SENTENCE else f"{text[:LONGEST_SENTENCE]}…" for text in all_of_them[:MOST_SENTENCES]]
    more = len(all_of_them) - len(shown)
    return "; ".join(shown) + (f"; and {more} more problems" if more else "")


# Suffix → (field, reader). The field is what `JobSettings` calls it.
_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "account": ("account", values.name),
    "begin": ("begin", values.moment),
    "comment": ("comment", values.comment),
    "constraints": ("constraints", values.text),
    "contiguous": ("contiguous", values.yes),
    "cpu-per-task": ("cpus_per_task", values.cpus),
    "deadline": ("deadline", values.moment),
    "dependency": ("dependency", values.dependency),
    "exclude": ("exclude", values.nodes),
    "exclusive": ("exclusive", values.exclusive),
    "gang": ("gang", values.yes),
    "gres": ("gres", values.gres),
    "group-id": ("group_id", values.name),
    "job-name": ("job_name", values.text),
    "licenses": ("licenses", values.licenses),
    "max-nodes": ("max_nodes", values.count),
    "mem-per-node": ("memory_per_node", values.memory),
    "min-nodes": ("min_nodes", values.count),
    "nice": ("nice", values.nice),
    "ntasks-per-node": ("tasks_per_node", values.count),
    "partition": ("partition", values.names),
    "prefer": ("prefer", values.text),
    "priority": ("priority", values.priority),
    "qos": ("qos", values.name),
    "reservation": ("reservation", values.names),
    "segment": ("segment", values.count),
    "signal": ("signal", values.signal),
    "switches": ("switches", values.switches),
    "timelimit": ("time_limit", values.minutes),
    "user-id": ("user_id", values.name),
    "wckey": ("wckey", values.name),
}
SUFFIXES = frozenset(_READERS)


def suffix_of(field: str) -> str:
    """What the annotation for a field of `JobSettings` is called after the prefix."""
    return next(suffix for suffix, (known, _) in _READERS.items() if known == field)


class Hints:
    """What unknown annotations are probably meant to be, for the first few of a request.

    *Invariants:* a look for similar names takes about a millisecond, so that a request has a few of them. What is
    said of a name does not change within a request.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, suffix: str) -> str:
        """The same each time it is asked for; nothing for those that come too late."""
        if suffix not in self._known and len(self._known) < MOST_HINTS:
            self._known[suffix] = _suggestion(suffix)
        return self._known.get(suffix, "")


def read_settings(annotations: Mapping[str, str], hints: Hints | None = None) -> JobSettings:
    """Raises AnnotationError, with all that is wrong at once. `hints` are those of the request."""
    hints = hints or Hints()
    said = {key.removeprefix(SETTINGS): text for key, text in annotations.items() if key.startswith(SETTINGS)}
    if len(said) > MOST_ANNOTATIONS:
        raise AnnotationError(
            [f"more than {MOST_ANNOTATIONS} annotations begin with {SETTINGS}; {len(_READERS)} are known: remove the others"]
        )
    found: dict[str, Any] = {}
    problems: list[str] = []
    for suffix, text in said.items():
        if suffix not in _READERS:
            problems.append(f"annotation {SETTINGS}{suffix[:LONGEST_NAME]} is not known{hints.of(suffix)}")
            continue
        value, problem = _read(suffix, text) if len(text) <= MOST_TEXT else (None, _too_long(suffix, text))
        if problem:
            problems.append(problem)
        else:
            found[_READERS[suffix][0]] = value
    least, most = found.get("min_nodes"), found.get("max_nodes")
    if least and most and least > most:
        problems.append(f"annotation {SETTINGS}min-nodes is {least}, and must not be above {SETTINGS}max-nodes, which is {most}")
    if problems:
        raise AnnotationError(problems)
    return JobSettings(**found)


def old_names(annotations: Mapping[str, str]) -> list[str]:
    """Warnings about the names that the annotations had before: they do nothing."""
    return [
        f"annotation {key} has no effect: since 1.0 its name is {SETTINGS}{key.removeprefix(OLD_SETTINGS)}"
        for key in annotations
        if key.startswith(OLD_SETTINGS) and key.removeprefix(OLD_SETTINGS) in _READERS
    ]


@lru_cache(1024)
def _read(suffix: str, text: str) -> tuple[Any, str]:
    """The value of an annotation, or what is wrong with it. Remembered, as all pods of a workload say the same at each look."""
    try:
        return _READERS[suffix][1](text.strip()), ""
    except ValueError as right:
        return None, f"annotation {SETTINGS}{suffix} is {text[:80]!r}, and must be {right}"


def _too_long(suffix: str, text: str) -> str:
    return f"annotation {SETTINGS}{suffix} is {text[:80]!r}, and must be at most {MOST_TEXT} characters"


@lru_cache(256)
def _suggestion(suffix: str) -> str:
    close = difflib.get_close_matches(suffix, _READERS, n=1) if len(suffix) <= LONGEST_NAME else []
    return f": did you mean {SETTINGS}{close[0]}?" if close else f"; there is {', '.join(_READERS)}"
