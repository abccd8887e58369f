"""When many of our jobs are absent at once: whether that is an alarm, and when it is over. Pure.

Comes in: how many jobs have pods on nodes, how many of those Slurm does not know, what an administrator has confirmed. Goes out: the alarm that holds from now on, if any. What must stay true: jobs go one by one; where a large share is
absent at once it is Slurm that has forgotten (a state file that is old or gone, another slurmctld behind the same address), and nothing is concluded from it until they are back or somebody says that they will not be.
"""

import math

import msgspec

from slinky.bridge.settings import AbsenceSettings

__all__ = ["Alarm", "Toll", "is_mass", "next_alarm"]


class Toll(msgspec.Struct, frozen=True):
    """Of the jobs with pods on nodes: all, and those that Slurm does not know, of which it is not settled what became of them."""

    running: int
    absent: int


class Alarm(msgspec.Struct, frozen=True):
    """`name` is what an administrator confirms."""

    name: str
    toll: Toll

    @property
    def words(self) -> str:
        return f"Slurm does not know {self.toll.absent} of {self.toll.running} jobs whose pods run"


def is_mass(toll: Toll, settings: AbsenceSettings) -> bool:
    return toll.absent >= _least(toll, settings)


def next_alarm(alarm: Alarm | None, toll: Toll, settings: AbsenceSettings, confirmed: str, name: str) -> Alarm | None:
    """The alarm as it is now; a new one is called `name`. It goes on until half of what would raise it, so that it does not come and go; one that was confirmed is over."""
    if alarm is None:
        return Alarm(name, toll) if is_mass(toll, settings) else None
    if confirmed == alarm.name or 2 * toll.absent < _least(toll, settings):
        return None
    return Alarm(alarm.name, toll)


def _least(toll: Toll, settings: AbsenceSettings) -> int:
    return max(settings.jobs, math.ceil(settings.share * toll.running), 1)
