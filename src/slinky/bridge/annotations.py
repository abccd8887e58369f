"""What users say about their job by annotation, read and checked.

Comes in: the annotations of the object that Slurm schedules. Goes out: `JobSettings`, or an `AnnotationError` with one sentence for each thing that is wrong,
saying what would be right. Nothing is guessed and nothing that begins with our prefix is ignored, so a mistake is met when the object is applied and not in a queue.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from slinky.bridge.keys import OLD_SETTINGS, SETTINGS
from slinky.bridge.quantities import QuantityError, mebibytes, quantity, whole

__all__ = ["AnnotationError", "JobSettings", "old_names", "read_settings"]

MOST_TEXT = 1024
MOST_PRIORITY = 2**32 - 3  # the two above it mean "unset" and "infinite" to Slurm
MOST_NODES = 2**31 - 1


class Signal(msgspec.Struct, frozen=True):
    """To be sent to the containers this many seconds before the job ends. `name` without SIG: `USR1`."""

    name: str
    seconds: int = 60


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was said; None is what was not. `time_limit` in minutes, memory in MiB. `exclusive` as Slurm's `shared` puts it: "" is sharing, None is not said."""

    account: str | None = None
    constraints: str | None = None
    cpus_per_task: int | None = None
    exclusive: str | None = None
    gang: bool | None = None
    gres: str | None = None
    group_id: str | None = None
    job_name: str | None = None
    licenses: str | None = None
    max_nodes: int | None = None
    memory_per_node: int | None = None
    min_nodes: int | None = None
    partition: str | None = None
    priority: int | None = None
    qos: str | None = None
    reservation: str | None = None
    signal: Signal | None = None
    time_limit: int | None = None
    user_id: str | None = None
    wckey: str | None = None


class AnnotationError(ValueError):
    """One sentence a problem, each with the annotation's whole name."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def _name(text: str) -> str:
    if not re.fullmatch(r"[\w.@+-]+", text):
        raise ValueError("a name of letters, digits, dots, dashes and underscores")
    return text


def _names(text: str) -> str:
    if not re.fullmatch(r"[\w.@+-]+(,[\w.@+-]+)*", text):
        raise ValueError("a name, or several separated by commas")
    return text


def _text(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("a text of one line")
    return text


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text) or not 1 <= int(text) <= MOST_NODES:
        raise ValueError("a whole number from 1 on")
    return int(text)


def _cpus(text: str) -> int:
    return _positive(text, whole, "a number of CPUs above zero, such as 4 or 500m (which is rounded up)")


def _memory(text: str) -> int:
    return _positive(text, mebibytes, "an amount of memory above zero, such as 16Gi")


def _positive(text: str, rounded: Callable[[Any], int], right: str) -> int:
    try:
        value = quantity(text)
    except QuantityError:
        raise ValueError(right) from None
    if value <= 0:
        raise ValueError(right)
    return rounded(value)


def _priority(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text) or int(text) > MOST_PRIORITY:
        raise ValueError(f"a whole number from 0 (held) to {MOST_PRIORITY}")
    return int(text)


def _exclusive(text: str) -> str:
    known = {"true": "none", "false": "", "user": "user", "mcs": "mcs", "topo": "topo"}
    if text.lower() not in known:
        raise ValueError(
            "true (whole nodes), false (nodes are shared), user, mcs or topo (shared with the same user, label or topology only)"
        )
    return known[text.lower()]


def _yes(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<dh>\d+)(?::(?P<dm>\d+)(?::(?P<ds>\d+))?)?|(?P<h>\d+):(?P<hm>\d+):(?P<hs>\d+)|(?P<m>\d+):(?P<ms>\d+)|(?P<minutes>\d+))"
)


def _minutes(text: str) -> int:
    """Minutes, or a time as Slurm writes it: M:S, H:M:S, D-H, D-H:M, D-H:M:S. Rounded up."""
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError("minutes, or a time such as 90, 1:30:00 or 2-12:00:00")
    part = {name: int(value) for name, value in found.groupdict("0").items()}
    hours = part["days"] * 24 + part["dh"] + part["h"]
    seconds = ((hours * 60) + part["dm"] + part["hm"] + part["m"] + part["minutes"]) * 60 + part["ds"] + part["hs"] + part["ms"]
    if not 1 <= seconds <= MOST_NODES * 60:
        raise ValueError("a time above zero")
    return -(-seconds // 60)


_GRES = re.compile(r"(?:gres[:/])?[\w.-]+(?:[:=][\w.-]+){0,2}")


def _gres(text: str) -> str:
    if not all(_GRES.fullmatch(word) for word in text.split(",")):
        raise ValueError("generic resources per node as Slurm writes them, such as gpu:2 or gres/gpu:h100:4")
    return text


def _signal(text: str) -> Signal:
    found = re.fullmatch(r"(?:SIG)?([A-Z][A-Z0-9]+)(?:@([1-9]\d{0,4}))?", text)
    if not found:
        raise ValueError("a signal, and the seconds before the end if not 60, such as USR1 or USR1@300")
    return Signal(found[1], int(found[2] or 60))


# Suffix → (field, reader). The field is what `JobSettings` calls it.
_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "account": ("account", _name),
    "constraints": ("constraints", _text),
    "cpu-per-task": ("cpus_per_task", _cpus),
    "exclusive": ("exclusive", _exclusive),
    "gang": ("gang", _yes),
    "gres": ("gres", _gres),
    "group-id": ("group_id", _name),
    "job-name": ("job_name", _text),
    "licenses": ("licenses", _text),
    "max-nodes": ("max_nodes", _count),
    "mem-per-node": ("memory_per_node", _memory),
    "min-nodes": ("min_nodes", _count),
    "partition": ("partition", _names),
    "priority": ("priority", _priority),
    "qos": ("qos", _name),
    "reservation": ("reservation", _names),
    "signal": ("signal", _signal),
    "timelimit": ("time_limit", _minutes),
    "user-id": ("user_id", _name),
    "wckey": ("wckey", _name),
}


def read_settings(annotations: Mapping[str, str]) -> JobSettings:
    """Raises AnnotationError, with all that is wrong at once."""
    found: dict[str, Any] = {}
    problems: list[str] = []
    for key, text in annotations.items():
        if not key.startswith(SETTINGS):
            continue
        suffix = key.removeprefix(SETTINGS)
        if suffix not in _READERS:
            problems.append(f"annotation {key} is not known{_suggestion(suffix)}")
            continue
        field, read = _READERS[suffix]
        try:
            if len(text) > MOST_TEXT:
                raise ValueError(f"at most {MOST_TEXT} characters")
            found[field] = read(text.strip())
        except ValueError as right:
            problems.append(f"annotation {key} is {text[:80]!r}, and must be {right}")
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


def _suggestion(suffix: str) -> str:
    close = difflib.get_close_matches(suffix, _READERS, n=1)
    return f": did you mean {SETTINGS}{close[0]}?" if close else f"; there is {', '.join(_READERS)}"
