"""What is against each node at this moment, and what of the bridge's own acts is remembered: the memory behind `node_states`.

Comes in: each change of a Node's readiness, who is on a node, Slurm's node as it was last seen. Goes out: causes and snapshots for the plans. What must stay true: all of it is a shortcut that may be lost: what has to outlast a restart stands in Slurm's reason or on the Node; what only
time will change is looked at again in time; whoever was seen to be drained for us and is in use after an outage of Slurm's was not resumed by anybody, but forgotten.
"""

import time
from collections.abc import Callable, Sequence

from slinky.bridge.node_mirror import RESUMED, overruled_of
from slinky.bridge.node_plan import NodeAction, Wait
from slinky.bridge.node_readiness import NodeReadiness
from slinky.bridge.node_reasons import FLAPPING, OCCUPIED, is_held_for, kind_of, takes_no_jobs
from slinky.bridge.node_settings import NodeSettings
from slinky.bridge.node_states import Cause, StateSnapshot, Trouble, cause_of, is_ready
from slinky.kube import Node as KubeNode
from slinky.slurm import Node

__all__ = ["Troubles"]


class Troubles:
    """`occupants(name)` are the pods of ours on a node whose containers are not gone; `again(name, seconds)` asks for another look."""

    def __init__(
        self,
        settings: NodeSettings,
        occupants: Callable[[str], Sequence[str]],
        again: Callable[[str, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = settings.not_ready_seconds
        self._readiness = NodeReadiness(settings.not_ready_seconds, settings.flap_changes, settings.flap_seconds)
        self._occupants, self._again, self._clock = occupants, again, clock
        self._deserted_since: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}
        self._was_ours: set[str] = set()
        self._overruled: set[str] = set()

    # What is told to it

    def node_seen(self, name: str, node: KubeNode | None) -> None:
        if node is None:
            self._readiness.forget(name)
            self._deserted_since.pop(name, None)
            self._overruled.discard(name)
        else:
            self._gone_since.pop(name, None)
            self._readiness.note(name, is_ready(node), self._clock())

    def slurm_was_away(self) -> None:
        """It may have come back with older states: who is in use now was not necessarily resumed."""
        self._was_ours.clear()

    def taken_back(self, name: str) -> None:
        """By us."""
        self._was_ours.discard(name)

    def overrule(self, name: str) -> None:
        self._was_ours.discard(name)
        self._overruled.add(name)

    def is_overruled(self, name: str) -> bool:
        """And it may not be written down yet."""
        return name in self._overruled

    # What it tells

    def cause(self, name: str, node: KubeNode | None, found: Node | None) -> Cause | None:
        """What Kubernetes has against it now."""
        if node is None:
            return None
        now = self._clock()
        if found is not None and is_held_for(found, FLAPPING):
            self._readiness.adopt(name, now)
        verdict = self._readiness.verdict(name, now)
        if verdict.again is not None:
            self._again(name, verdict.again)
        occupied = self._is_fresh(found) and bool(self._occupants(name))
        deserted = verdict.not_ready and self._is_deserted(name, found, now)
        return cause_of(node, Trouble(not_ready=verdict.not_ready, flapping=verdict.flapping, occupied=occupied, deserted=deserted))

    def snapshot(
        self, name: str, node: KubeNode | None, found: Node, cause: Cause | None, registration: NodeAction | None
    ) -> StateSnapshot:
        if cause is None:
            self._overruled.discard(name)
        if not kind_of(found) and (cause is None or takes_no_jobs(found)):
            self._was_ours.discard(name)
        was_ours = name in self._was_ours
        if kind_of(found):
            self._was_ours.add(name)
        return StateSnapshot(
            found=found,
            cause=cause,
            overruled=name in self._overruled or (node is not None and RESUMED in overruled_of(node)),
            was_ours=was_ours,
            registering=isinstance(registration, Wait),
            hybrid=not found.is_external,
        )

    def is_lost(self, name: str, node: KubeNode | None, found: Node | None) -> bool:
        """Kubernetes has had no such Node for as long as a node may be not ready, and Slurm has it with jobs."""
        if node is not None or found is None or not found.is_busy:
            self._gone_since.pop(name, None)
            return False
        return self._is_due(name, self._gone_since, self._clock())

    def is_occupied(self, name: str) -> bool:
        return bool(self._occupants(name))

    @staticmethod
    def _is_fresh(found: Node | None) -> bool:
        """Slurm does not have it, or not with what ran there before: it was made for pods that are there already, or is still being made. One with a slurmd is the site's, which may give it no features."""
        return found is None or (found.is_external and not found.features) or is_held_for(found, OCCUPIED)

    def _is_deserted(self, name: str, found: Node | None, now: float) -> bool:
        """Slurm counts jobs there, and none of their pods is left. For a while: a job that has only just started has no pods there yet."""
        if found is None or not found.is_external or not found.is_busy or self._occupants(name):
            self._deserted_since.pop(name, None)
            return False
        return self._is_due(name, self._deserted_since, now)

    def _is_due(self, name: str, since: dict[str, float], now: float) -> bool:
        left = since.setdefault(name, now) + self._seconds - now
        if left > 0:
            self._again(name, left)
        return left <= 0
