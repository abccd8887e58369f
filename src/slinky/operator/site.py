"""What everything that acts in the operator has at hand: clients, caches, clusters, settings, and the question whether it may act.

One for a process. What must stay true: whatever writes asks `may_act` right before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slinky.kube import Client, EventRecorder, Key
from slinky.operator.absent import not_there, without_key
from slinky.operator.applying import Applier
from slinky.operator.clusters import Clusters
from slinky.operator.keys import KeyMaker
from slinky.operator.kinds import Controller, Written
from slinky.operator.relations import Place
from slinky.operator.settings import Settings
from slinky.operator.statuses import Statuses
from slinky.operator.validation import warnings
from slinky.operator.watching import Watches

__all__ = ["Site"]


@dataclass
class Site:
    settings: Settings
    kube: Client
    watches: Watches
    applier: Applier
    statuses: Statuses
    keys: KeyMaker
    clusters: Clusters
    events: EventRecorder
    may_act: Callable[[], bool]
    cluster_domain: str = "cluster.local"
    look_at: Callable[[Place], None] = lambda _: None  # this object is to be looked at again
    look_at_nodeset: Callable[[Key], None] = lambda _: None
    look_later: Callable[[Place, float], None] = lambda _place, _seconds: None

    def tell_what_has_no_effect(self, kind: str, found: Written, read: Any) -> None:
        """By Event, once for each generation: there may be no webhook that has warned of it."""
        if found.status.get("observedGeneration") == found.metadata.generation:
            return
        said = warnings(read)
        if isinstance(read, Controller) and read.spec.metrics.service_monitor.enabled and "ServiceMonitor" not in self.watches.children:
            said.append("spec.metrics.serviceMonitor has no effect: the API server knows no ServiceMonitors")
        for each in said:
            self.statuses.event(kind, found, "NoEffect", each, warning=True)

    async def secret_key(self, name: str, key: str, namespace: str) -> bytes:
        """A key's content in a named Secret. Raises Trouble where it is not there or cannot be read."""
        found = await self.watches.files.content("Secret", name, namespace)
        if found is None:
            raise not_there("Secret", name, namespace)
        content = found.bytes_of(key)
        if not content:
            raise without_key("Secret", name, key)
        return content
