"""What a status says: Ready, Available, Progressing and Degraded, in words. Pure.

Comes in: the conditions in the status, the present standing, and the time. Goes out: the conditions
to write.

*Invariants:* Ready is True only where the object is as its spec says and can be used: never beside
Degraded. Available says only whether it can be used. The time of a condition is that of its last
change of status. Conditions of others stay. Where nothing is new, nothing is written.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from slinky.kube.objects import Condition

__all__ = [
    "AVAILABLE",
    "DEGRADED",
    "PROGRESSING",
    "READY",
    "Said",
    "Standing",
    "broken",
    "is_available",
    "noting",
    "says_the_same",
    "settled",
    "under_way",
    "was_available",
    "written",
]

READY, AVAILABLE, PROGRESSING, DEGRADED = "Ready", "Available", "Progressing", "Degraded"
LONGEST_MESSAGE = 1024


class Said(msgspec.Struct, frozen=True):
    """Of one condition: so or not so, why in a word, and why in a sentence."""

    status: bool
    reason: str
    message: str = ""


Standing = Mapping[str, Said]

USABLE = Said(True, "Usable", "it can be used")
NO_PROBLEM = Said(False, "NoProblem")


def settled(message: str, reason: str = "AsWritten") -> Standing:
    """All is as the spec says."""
    return {
        READY: Said(True, reason, message),
        AVAILABLE: USABLE,
        PROGRESSING: Said(False, "Settled"),
        DEGRADED: NO_PROBLEM,
    }


def under_way(
    reason: str,
    message: str,
    *,
    available: bool = False,
    ready: bool = False,
) -> Standing:
    """Nothing is wrong, and something is still to be done.

    `available`: it can be used meanwhile. `ready`: all that is wanted is there; what is left to do
    takes nothing away from it.
    """
    said = Said(False, reason, message)
    return {
        READY: Said(ready, reason, message),
        AVAILABLE: USABLE if available or ready else said,
        PROGRESSING: Said(True, reason, message),
        DEGRADED: NO_PROBLEM,
    }


def broken(reason: str, message: str, *, available: bool = False) -> Standing:
    """Something is wrong that does not go away by waiting, or has not so far.

    `available`: what was made before can be used all the same.
    """
    said = Said(False, reason, message)
    return {
        READY: said,
        AVAILABLE: USABLE if available else said,
        PROGRESSING: said,
        DEGRADED: Said(True, reason, message),
    }


def is_available(standing: Standing) -> bool:
    return standing[AVAILABLE].status


def was_available(conditions: Iterable[Condition]) -> bool:
    """As a status said it; Ready where it has no Available, as one of an earlier operator."""
    held = {condition.type: condition.status == "True" for condition in conditions}
    return held.get(AVAILABLE, held.get(READY, False))


def noting(standing: Standing, note: str) -> Standing:
    """The same, with something that people should know beside it."""
    ready = standing.get(READY)
    if not note or ready is None:
        return standing
    return {**standing, READY: msgspec.structs.replace(ready, message="; ".join(filter(None, (ready.message, note))))}


def written(before: Iterable[Condition], standing: Standing, now: dt.datetime) -> list[dict[str, Any]]:
    """All conditions as they are to stand there, those of others included."""
    held = {condition.type: condition for condition in before}
    found = [_plain(condition) for condition in held.values() if condition.type not in standing]
    for type_, said in standing.items():
        status = "True" if said.status else "False"
        then = held.get(type_)
        moment = then.last_transition_time if then is not None and then.status == status and then.last_transition_time else now
        message = said.message[:LONGEST_MESSAGE]
        found.append(_plain(Condition(type=type_, status=status, reason=said.reason, message=message, last_transition_time=moment)))
    return found


def says_the_same(before: Sequence[Condition], standing: Standing) -> bool:
    held = {condition.type: (condition.status, condition.reason, condition.message) for condition in before}
    return all(
        held.get(type_) == ("True" if said.status else "False", said.reason, said.message[:LONGEST_MESSAGE])
        for type_, said in standing.items()
    )


def _plain(condition: Condition) -> dict[str, Any]:
    moment = condition.last_transition_time or dt.datetime.fromtimestamp(0, dt.UTC)
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
