"""Whether a command such as `sbatch` speaks with the Slurm that is configured. Pure.

In: what slurmrestd says of the configured Slurm, and what the `scontrol` beside the command prints.
Out: why the command is not to be asked; empty where it is.

*Invariants:* only a cluster of the same name whose slurmctld started in the same second is the
same. What is not known is not the same.
"""

import datetime as dt
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

__all__ = ["Told", "beside", "told_by_scontrol", "why_not"]

_NAME = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
_BOOT = re.compile(r"^BOOT_TIME\s*=\s*(\S+)", re.MULTILINE)


class Told(NamedTuple):
    """A cluster's name, and when its slurmctld started, in seconds since 1970."""

    cluster: str
    started: int


def beside(command: Sequence[str]) -> list[str]:
    """The scontrol that belongs to an sbatch: the same words but for the last; [] if unknown."""
    program = PurePath(command[-1]) if command else PurePath()
    if program.name != "sbatch":
        return []
    return [*command[:-1], str(program.with_name("scontrol"))]


def told_by_scontrol(output: str) -> Told | None:
    """What `scontrol show config` printed, with its clock in UTC."""
    name, boot = _NAME.search(output), _BOOT.search(output)
    if not name or not boot:
        return None
    try:
        moment = dt.datetime.fromisoformat(boot[1]).replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    return Told(name[1], int(moment.timestamp()))


def why_not(ours: Told | None, theirs: Told | None, url: str, command: str) -> str:
    """`url`: the configured slurmrestd. `command`: the scontrol that was run."""
    if ours is None:
        return f"slurmrestd at {url} does not say which cluster it serves (Slurm 26.05 does)"
    if theirs is None:
        return f"`{command} show config` does not say with which cluster it speaks"
    if ours.cluster != theirs.cluster:
        return f"it belongs to cluster {theirs.cluster}, and {url} serves cluster {ours.cluster}"
    if ours.started != theirs.started:
        return (
            f"it belongs to another cluster {theirs.cluster} than {url}: their slurmctld started at"
            f" different times ({_moment(theirs.started)} and {_moment(ours.started)})"
        )
    return ""


def _moment(seconds: int) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
