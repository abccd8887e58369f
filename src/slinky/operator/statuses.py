"""What people read: conditions in an object's status, and Events.

Comes in: an object as it was last seen, and how it stands. Goes out: a status that is written where it says something new, and an Event for each change that somebody should hear of. What must stay true: nothing is written that stands there already, and
nothing once another process leads; what is not ours in a status stays.
"""

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from slinky.kube import Client, EventRecorder, NotFoundError, ObjectReference
from slinky.kube.objects import Condition
from slinky.operator.applying import Applied
from slinky.operator.conditions import DEGRADED, PROGRESSING, READY, Standing, says_the_same, written
from slinky.operator.kinds import GROUP, VERSION, Written
from slinky.operator.watching import RESOURCES

__all__ = ["Statuses", "conditions_of", "reference_to"]

log = logging.getLogger(__name__)


def reference_to(kind: str, found: Written) -> ObjectReference:
    meta = found.metadata
    return ObjectReference(api_version=f"{GROUP}/{VERSION}", kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)


def conditions_of(status: Mapping[str, Any]) -> list[Condition]:
    """As they stand there; what cannot be read counts as none."""
    try:
        return msgspec.convert(status.get("conditions") or [], list[Condition])
    except msgspec.ValidationError:
        return []


class Statuses:
    """`await statuses.say("RestApi", found, settled("2 of 2 pods answer"), readyReplicas=2)`."""

    def __init__(self, kube: Client, events: EventRecorder | None, may_act: Callable[[], bool] = lambda: True) -> None:
        self._kube = kube
        self._events = events
        self._may_act = may_act

    async def say(self, kind: str, found: Written, standing: Standing, **fields: Any) -> None:
        """`fields` are the rest of the status, as it is in JSON; None takes one away."""
        before = conditions_of(found.status)
        said = {**fields, "observedGeneration": found.metadata.generation}
        if says_the_same(before, standing) and all(found.status.get(name) == value for name, value in said.items()):
            return
        if not self._may_act():
            return
        body = {"status": {**said, "conditions": written(before, standing, dt.datetime.now(dt.UTC))}}
        try:
            await self._kube.patch(RESOURCES[kind], found.metadata.name, body, found.metadata.namespace, subresource="status")
        except NotFoundError:
            return
        self._tell(kind, found, before, standing)

    def made(self, kind: str, found: Written, applied: Applied) -> None:
        """What was done to its children, as far as people should hear of it."""
        for child in applied.created:
            self.event(kind, found, "CreateSucceeded", f"{child.kind} {child.key.name} was created")
        for child in applied.changed:
            if child.kind in ("StatefulSet", "Deployment"):
                self.event(
                    kind,
                    found,
                    "UpdateSucceeded",
                    f"{child.kind} {child.key.name} was changed: where its pod's template was, pods are made anew",
                )
        for child in applied.deleted:
            self.event(kind, found, "DeleteSucceeded", f"{child.kind} {child.key.name} is no longer needed, and was deleted")

    def event(self, kind: str, found: Written, reason: str, note: str, *, warning: bool = False) -> None:
        log.info("%s %s: %s: %s", kind, found.key, reason, note)
        if self._events is not None and self._may_act():
            self._events.record(reference_to(kind, found), reason, note, warning=warning)

    def _tell(self, kind: str, found: Written, before: list[Condition], standing: Standing) -> None:
        held = {condition.type: condition for condition in before}
        degraded, ready = standing.get(DEGRADED), standing.get(READY)
        then = held.get(DEGRADED)
        if degraded is not None and degraded.status:
            if then is None or (then.status, then.reason, then.message) != ("True", degraded.reason, degraded.message):
                self.event(kind, found, degraded.reason, degraded.message, warning=True)
        elif _is_settled(standing) and ready is not None and not (_said(held, READY) == "True" and _said(held, PROGRESSING) == "False"):
            self.event(kind, found, "Ready", ready.message)


def _is_settled(standing: Standing) -> bool:
    return standing[READY].status and not standing[PROGRESSING].status if READY in standing and PROGRESSING in standing else False


def _said(held: Mapping[str, Condition], type_: str) -> str:
    return held[type_].status if type_ in held else ""
