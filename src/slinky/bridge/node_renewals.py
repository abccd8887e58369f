"""How many nodes are drained at once to be registered anew, and whose turn it is.

Comes in: nodes whose resources are other than registered, and what became of them. Goes out: leave to drain one. What must stay true: at most so many at once as the settings say; a change that goes away by itself within `settleSeconds` drains nobody; whoever waits for room is asked when some is free.
"""

import time
from collections.abc import Callable, Iterable

from slinky.bridge.node_plan import NodeAction, Refuse, Wait
from slinky.bridge.node_settings import NodeSettings

__all__ = ["Renewals"]


class Renewals:
    """`again(name, seconds)` asks for another look."""

    def __init__(self, settings: NodeSettings, again: Callable[[str, float], None]) -> None:
        self._settings, self._again = settings, again
        self._differs_since: dict[str, float] = {}
        self._renewing: set[str] = set()
        self._want_room: dict[str, None] = {}

    def adopt(self, names: Iterable[str]) -> None:
        """Drained for it already."""
        self._renewing |= set(names)

    def same(self, name: str) -> None:
        """It is registered as it should be, or not at all."""
        self._differs_since.pop(name, None)

    def may(self, name: str, registered: int) -> bool:
        """Its resources have been other for a while, and there is room among those that are being renewed."""
        age = time.monotonic() - self._differs_since.setdefault(name, time.monotonic())
        if age < self._settings.settle_seconds:
            self._again(name, self._settings.settle_seconds - age)
            return False
        return name in self._renewing or len(self._renewing) < self._settings.renewing_at_once(registered)

    def begun(self, name: str) -> None:
        self._renewing.add(name)

    def rested(self, name: str, action: NodeAction | None) -> None:
        """There is nothing to be done about it now."""
        if not isinstance(action, Wait) or action.until != "free":
            self._renewing.discard(name)
        if isinstance(action, Wait) and action.until == "room":
            self._want_room[name] = None
        else:
            self._want_room.pop(name, None)
        if self._want_room and isinstance(action, None | Refuse):
            self._again(self._want_room.popitem()[0], 0.0)
