"""What a status says: Ready, Progressing and Degraded, in words. Pure.

Comes in: the conditions that stand there, what is so now, and the time. Goes out: the conditions to write. What must stay true: the moment of a condition is that of its last change of status; conditions that are not ours to
say stay as they are; where nothing is new, nothing is to be written.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from slinky.kube.objects import Condition

__all__ = ["DEGRADED", "PROGRESSING", "READY", "Said", "Standing", "broken", "noting", "says_the_same", "settled", "under_way", "written"]

READY, PROGRESSING, DEGRADED = "Ready", "Progressing", "Degraded"
LONGEST_MESSAGE = 1024


class Said(msgspec.Struct, frozen=True):
    """Of one condition: so or not so, why in a word, and why in a sentence."""

    status: bool
    reason: str
    message: str = ""


Standing = Mapping[str, Said]


def settled(message: str, reason: str = "AsWritten") -> Standing:
    """All is as the spec says."""
    return {READY: Said(True, reason, message), PROGRESSING: Said(False, "Settled"), DEGRADED: Said(False, "NoProblem")}


def under_way(reason: str, message: str, *, ready: bool = False) -> Standing:
    """It becomes as the spec says, and nothing is wrong. `ready`: it can be used meanwhile."""
    return {READY: Said(ready, reason, message), PROGRESSING: Said(True, reason, message), DEGRADED: Said(False, "NoProblem")}


def broken(reason: str, message: str, *, ready: bool = False) -> Standing:
    """Something is wrong that does not go away by waiting, or has not so far. `ready`: what was made before can be used all the same."""
    return {
        READY: Said(ready, reason, message),
        PROGRESSING: Said(False, reason, message),
        DEGRADED: Said(True, reason, message),
    }


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
