"""How each Kubernetes node stands with Slurm, for people: counted for Prometheus, told as Events on the Node, written to the log.

Comes in: what was done or found out about a node. Goes out: words, each refusal once until it changes. What must stay true: labels of metrics are few and known; no node's name is one.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slinky.bridge.node_description import Unregistrable, Wanted, Wish
from slinky.bridge.node_plan import NodeAction, Refuse, Wait
from slinky.kube import Cache, EventRecorder, Node, reference

__all__ = ["NodeStandings"]

log = logging.getLogger(__name__)

STATES = ("registered", "refused", "leaving")


class NodeStandings(Collector):
    def __init__(self, nodes: Cache[Node], events: EventRecorder | None, metrics: CollectorRegistry | None) -> None:
        self._nodes, self._events = nodes, events
        self._states: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._metrics = metrics

    @contextmanager
    def exported(self) -> Iterator[None]:
        """To Prometheus, while it lasts: the next leader's time has standings of its own."""
        if self._metrics:
            self._metrics.register(self)
        try:
            yield
        finally:
            if self._metrics:
                self._metrics.unregister(self)

    def count(self, state: str) -> int:
        return sum(found == state for found in self._states.values())

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("slinky_bridge_nodes", "Kubernetes nodes in Slurm, by how they stand", labels=["state"])
        for state in STATES:
            family.add_metric([state], self.count(state))
        yield family

    def note(self, name: str, wish: Wish, action: NodeAction | None, *, held: bool) -> None:
        """There is nothing more to be done about it now."""
        state = _standing(wish, action, held)
        if state:
            self._states[name] = state
        else:
            self._states.pop(name, None)
        if not isinstance(action, Refuse):
            self._refused.pop(name, None)
        elif self._refused.get(name) != action.why:
            self._refused[name] = action.why
            self.say(name, "RegistrationRefused", action.why, warning=True)

    def say(self, name: str, reason: str, note: str, *, warning: bool = False) -> None:
        log.log(logging.WARNING if warning else logging.INFO, "node %s: %s: %s", name, reason, note)
        node = self._nodes.get(name)
        if self._events and node:
            self._events.record(reference(node, "v1", "Node"), reason, note, warning=warning)


def _standing(wish: Wish, action: NodeAction | None, held: bool) -> str:
    """The word for Prometheus; none for nodes that are none of ours."""
    if isinstance(action, Refuse) or isinstance(wish, Unregistrable):
        return "refused"
    if isinstance(wish, Wanted):
        return "registered" if held else ""
    return "leaving" if isinstance(action, Wait) else ""
