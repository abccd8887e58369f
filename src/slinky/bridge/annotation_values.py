"""The values of job annotations: each reader takes the text that a user wrote, as `sbatch` would take it, and gives the value; or raises a ValueError that says what would be right.

Pure: a moment that is said from now on stays so, until it is known from when on ("now" is the creation of the workload's youngest pod).
"""

import datetime as dt
import re
import signal as signals
from collections.abc import Callable
from fractions import Fraction

import msgspec

from slinky.kube.quantities import QuantityError, mebibytes, quantity, whole
from slinky.slurm import ConfigurationError
from slinky.slurm.hostlists import TooManyNamesError
from slinky.slurm.hostlists import count as count_names
from slinky.slurm.tres import parse_gres

__all__ = [
    "Moment",
    "Signal",
    "Switches",
    "comment",
    "count",
    "cpus",
    "dependency",
    "exclusive",
    "gres",
    "licenses",
    "memory",
    "minutes",
    "moment",
    "name",
    "names",
    "nice",
    "nodes",
    "priority",
    "signal",
    "switches",
    "text",
    "yes",
]

MOST_PRIORITY = 2**32 - 3  # the two above it mean "unset" and "infinite" to Slurm
MOST_NICE = 2**31 - 3
MOST_COUNT = 2**31 - 1
MOST_MEBIBYTES = 2**43  # an exbibyte times eight: all that 64 bits of bytes can count
MOST_COMMENT = 1024  # bytes: Slurm refuses more
MOST_EXCLUDED = 10_000
LATEST = 2**32 - 3  # as a time, the last moments of 32 bits mean "never" to Slurm
SIGNAL_SECONDS = 60
MOST_SIGNAL_SECONDS = 65535


class Moment(msgspec.Struct, frozen=True):
    """`seconds` since 1970, or, where it is `relative`, from the moment on from which it counts."""

    seconds: int
    relative: bool = False

    def at(self, now: dt.datetime) -> int:
        return int(now.timestamp()) + self.seconds if self.relative else self.seconds


class Signal(msgspec.Struct, frozen=True):
    """To be sent to the containers this many seconds before the job ends. `name` without SIG: `USR1`."""

    name: str
    seconds: int = SIGNAL_SECONDS


class Switches(msgspec.Struct, frozen=True):
    """At most this many switches between the nodes; for such a place the job waits at most `seconds` (None: as long as the site allows)."""

    count: int
    seconds: int | None = None


def name(said: str) -> str:
    if not re.fullmatch(r"[\w.@+-]+", said):
        raise ValueError("a name of letters, digits, dots, dashes and underscores")
    return said


def names(said: str) -> str:
    if not re.fullmatch(r"[\w.@+-]+(,[\w.@+-]+)*", said):
        raise ValueError("a name, or several separated by commas")
    found = said.split(",")
    if len(set(found)) < len(found):
        raise ValueError("a name, or several separated by commas, each of them once")
    return said


def text(said: str) -> str:
    if not said or not said.isprintable():
        raise ValueError("a text of one line")
    return said


def comment(said: str) -> str:
    if not said or not said.isprintable() or len(said.encode()) > MOST_COMMENT:
        raise ValueError(f"a text of one line and at most {MOST_COMMENT} bytes")
    return said


def count(said: str) -> int:
    if not re.fullmatch(r"\d{1,10}", said) or not 1 <= int(said) <= MOST_COUNT:
        raise ValueError("a whole number from 1 on")
    return int(said)


def cpus(said: str) -> int:
    return _positive(said, whole, "a number of CPUs above zero, such as 4 or 500m (which is rounded up)", MOST_COUNT)


def memory(said: str) -> int:
    return _positive(said, mebibytes, "an amount of memory above zero, such as 16Gi", MOST_MEBIBYTES)


def _positive(said: str, rounded: Callable[[Fraction], int], right: str, most: int) -> int:
    try:
        value = quantity(said)
    except QuantityError:
        raise ValueError(right) from None
    if not 0 < rounded(value) <= most:
        raise ValueError(right)
    return rounded(value)


def priority(said: str) -> int:
    if not re.fullmatch(r"\d{1,10}", said) or int(said) > MOST_PRIORITY:
        raise ValueError(f"a whole number from 0 (held) to {MOST_PRIORITY}")
    return int(said)


def nice(said: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,10}", said) or abs(int(said)) > MOST_NICE:
        raise ValueError(f"a whole number from -{MOST_NICE} (sooner) to {MOST_NICE} (later)")
    return int(said)


def exclusive(said: str) -> str:
    known = {"true": "none", "false": "", "user": "user", "mcs": "mcs", "topo": "topo"}
    if said.lower() not in known:
        raise ValueError(
            "true (whole nodes), false (nodes are shared), user, mcs or topo (shared with the same user, label or topology only)"
        )
    return known[said.lower()]


def yes(said: str) -> bool:
    if said.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return said.lower() == "true"


_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<dh>\d+)(?::(?P<dm>\d+)(?::(?P<ds>\d+))?)?|(?P<h>\d+):(?P<hm>\d+):(?P<hs>\d+)|(?P<m>\d+):(?P<ms>\d+)|(?P<minutes>\d+))"
)


def minutes(said: str) -> int:
    """Minutes, or a time as Slurm writes it: M:S, H:M:S, D-H, D-H:M, D-H:M:S. Rounded up."""
    seconds = _seconds(said)
    if seconds is None:
        raise ValueError("minutes, or a time such as 90, 1:30:00 or 2-12:00:00")
    if not 1 <= seconds <= MOST_COUNT * 60:
        raise ValueError("a time above zero")
    return -(-seconds // 60)


def _seconds(said: str) -> int | None:
    found = _TIME.fullmatch(said)
    if not found:
        return None
    part = {name: int(value) for name, value in found.groupdict("0").items()}
    hours = part["days"] * 24 + part["dh"] + part["h"]
    return ((hours * 60) + part["dm"] + part["hm"] + part["m"] + part["minutes"]) * 60 + part["ds"] + part["hs"] + part["ms"]


_FROM_NOW = re.compile(r"now(?:\+(\d{1,9}) ?(second|minute|hour|day|week|)s?)?", re.IGNORECASE)
_UNITS = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


def moment(said: str) -> Moment:
    """ISO, in UTC where it names no offset; `now`, `now+30` (seconds), `now+1hour`; or seconds since 1970."""
    right = "a time such as 2027-01-31T18:00, 2027-01-31T18:00:00+01:00 (without an offset it is UTC), now+1hour, or seconds since 1970"
    if found := _FROM_NOW.fullmatch(said):
        number, unit = found.groups(default="")
        seconds = int(number or 0) * _UNITS[unit.lower()]
        if seconds > LATEST:
            raise ValueError(right)
        return Moment(seconds, relative=True)
    if re.fullmatch(r"\d{9,10}", said):
        seconds = int(said)
    else:
        try:
            at = dt.datetime.fromisoformat(said)
            seconds = int((at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp())
        except (ValueError, OverflowError):
            raise ValueError(right) from None
    if not 0 < seconds <= LATEST:
        raise ValueError(right)
    return Moment(seconds)


_JOB = r"\d{1,10}(?:_(?:\d{1,10}|\*))?"
_AFTER = re.compile(rf"after(?::{_JOB}(?:\+\d{{1,7}})?)+|after(?:any|ok|notok|burstbuffer)(?::{_JOB})+|singleton", re.IGNORECASE)


def dependency(said: str) -> str:
    """As for `sbatch`, but for `expand`, which takes another job's nodes, and `aftercorr`, which is for arrays."""
    words = re.split(r"[,?]", said)
    if ("," in said and "?" in said) or not all(_AFTER.fullmatch(word) for word in words):
        raise ValueError(
            "after:JOB[+MINUTES], afterany:JOB, afterok:JOB, afternotok:JOB or singleton; several separated by commas (all of them) or by question marks (one of them)"
        )
    return said.lower()


def nodes(said: str) -> str:
    """The hostlist as it stands. It is only counted: the names are made when the job is submitted, for the nodes that Slurm knows."""
    right = f"names of Slurm's nodes such as n1,n2 or n[001-016], at most {MOST_EXCLUDED:,}"
    if not re.fullmatch(r"[\w.,\[\]-]+", said):
        raise ValueError(right)
    try:
        found = count_names(said, MOST_EXCLUDED)
    except TooManyNamesError:
        raise ValueError(f"at most {MOST_EXCLUDED:,} nodes; it names more") from None
    except ConfigurationError:
        raise ValueError(right) from None
    if not found or said.count("[") != said.count("]"):
        raise ValueError(right)
    return said


def gres(said: str) -> str:
    """In one form, whichever way it was written: `gpu:h100:4,hca:1`."""
    try:
        found = parse_gres(said)
    except ValueError as error:
        raise ValueError(f"generic resources per node as Slurm writes them, such as gpu:2 or gres/gpu:h100:4 ({error})") from None
    return ",".join(f"{kind}:{count}" for kind, count in found.items())


_LICENSE = re.compile(r"[\w./@-]+(?:[:=]\d{1,9})?")


def licenses(said: str) -> str:
    if not all(_LICENSE.fullmatch(word) for word in re.split(r"[,;|]", said)):
        raise ValueError(
            "licences as Slurm writes them, such as matlab:2 or matlab@server:1,idl (all of them), or matlab|octave (one of them)"
        )
    return said


_SIGNAL = re.compile(r"(?:SIG)?(?P<name>[A-Z][A-Z0-9+-]*|\d{1,2})(?:@(?P<seconds>\d{1,6}))?", re.IGNORECASE)


def signal(said: str) -> Signal:
    """As for `sbatch`, without its letters: all containers get it."""
    right = f"a signal, and the seconds before the end if not {SIGNAL_SECONDS}, such as USR1 or USR1@300 (at most {MOST_SIGNAL_SECONDS})"
    found = _SIGNAL.fullmatch(said)
    if not found:
        raise ValueError(right)
    which, seconds = found["name"].upper(), int(found["seconds"] or SIGNAL_SECONDS)
    try:
        number = signals.Signals(int(which)) if which.isdigit() else signals.Signals[f"SIG{which}"]
    except (ValueError, KeyError):
        raise ValueError(right) from None
    if number in (signals.SIGKILL, signals.SIGSTOP) or not 1 <= seconds <= MOST_SIGNAL_SECONDS:
        raise ValueError(f"{right}; not KILL or STOP, which nobody can act upon")
    return Signal(number.name.removeprefix("SIG"), seconds)


def switches(said: str) -> Switches:
    number, at, wait = said.partition("@")
    seconds = _seconds(wait) if at else None
    if not re.fullmatch(r"[1-9]\d{0,8}", number) or (at and (seconds is None or not 0 <= seconds <= LATEST)):
        raise ValueError("a number of switches, and how long to wait for so few if that is limited, such as 1 or 1@2:00:00")
    return Switches(int(number), seconds)
