"""The operator as one process: caches, a leader, and each object's turn.

Comes in: the settings and a way to the API server. Goes out: clusters that are as their objects say, with health and metrics. What must stay true: caches are warm before this process may lead, so that a successor goes on at once; nothing acts
without the Lease; with the operator gone, clusters run on.
"""

import asyncio
import logging
import re
import socket
from contextlib import AsyncExitStack
from pathlib import Path

from prometheus_client import CollectorRegistry

from slinky.kube import Access, Client, EventRecorder, HealthServer, KubeMetrics, Leading
from slinky.operator.applying import Applier
from slinky.operator.assembling import Assembler
from slinky.operator.children import MANAGER
from slinky.operator.clusters import Clusters
from slinky.operator.keys import KeyMaker
from slinky.operator.metrics import ObjectMetrics, SlurmMetrics
from slinky.operator.nodesets.controller import NodeSets
from slinky.operator.passes import Passes
from slinky.operator.settings import Settings
from slinky.operator.site import Site
from slinky.operator.statuses import Statuses
from slinky.operator.watching import Watches

__all__ = ["Operator", "domain_in"]

log = logging.getLogger(__name__)

KUBE_CONNECTIONS = 96  # more than one NodeSet creates side by side: the others need not wait for it
EVENTS_PER_SECOND = 10.0
RESOLV_CONF = Path("/etc/resolv.conf")
DEFAULT_DOMAIN = "cluster.local"


def domain_in(resolv_conf: str) -> str:
    """The cluster's DNS domain, as a pod's resolv.conf tells it (`search ns.svc.cluster.local …`); empty where it does not."""
    found = re.search(r"^search\s.*?\bsvc\.(\S+)", resolv_conf, re.MULTILINE)
    return found[1].rstrip(".") if found else ""


class Operator:
    """`await Operator(settings, access).run()`, until cancelled."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._registry = CollectorRegistry()
        self._kube_metrics = KubeMetrics(self._registry)
        self._slurm_metrics = SlurmMetrics(self._registry)
        self._object_metrics = ObjectMetrics(self._registry)
        leader = settings.leader
        self._leading = Leading(
            access, leader.name, settings.namespace, elect=leader.elect, seconds=leader.seconds, metrics=self._kube_metrics
        )

    async def run(self) -> None:
        """Until cancelled; the Lease is given back then."""
        async with AsyncExitStack() as stack:
            settings = self._settings
            server = HealthServer(
                self._registry,
                port=settings.health_port,
                metrics_port=settings.metrics_port,
            )
            health = await stack.enter_async_context(server.running())
            site = await self._site(stack, health)
            lag = asyncio.create_task(self._kube_metrics.measure_loop_lag(), name="loop lag")
            stack.callback(lag.cancel)
            log.info("the caches are filled: ready to lead")
            await self._leading.run(lambda: self._lead(site))

    async def _site(self, stack: AsyncExitStack, health: HealthServer) -> Site:
        settings, observe = self._settings, self._kube_metrics.observe
        kube = await stack.enter_async_context(Client(self._access, connections=KUBE_CONNECTIONS, observer=observe, field_manager=MANAGER))
        # Watches have connections of their own, as many as there are namespaces: they must not use up those of writes.
        watching = await stack.enter_async_context(Client(self._access, connections=0, observer=observe, field_manager=MANAGER))
        watches = Watches(watching, settings.namespaces, self._kube_metrics)
        await watches.fill(stack, health)
        self._object_metrics.kinds = watches.kinds
        events = EventRecorder(kube, "slurm-operator", socket.gethostname(), per_second=EVENTS_PER_SECOND)
        self._kube_metrics.follow("events", events)
        await stack.enter_async_context(events.running())
        clusters = Clusters(settings.slurm, self._slurm_metrics.observe)
        self._slurm_metrics.clusters = clusters
        stack.push_async_callback(clusters.close)
        return Site(
            settings=settings,
            kube=kube,
            watches=watches,
            applier=Applier(kube, watches, self._leading.may_act),
            statuses=Statuses(kube, events, self._leading.may_act),
            keys=KeyMaker(kube, watches.files, keep=settings.keep_keys, may_act=self._leading.may_act),
            clusters=clusters,
            events=events,
            may_act=self._leading.may_act,
            cluster_domain=settings.cluster_domain or domain_in(_text(RESOLV_CONF)) or DEFAULT_DOMAIN,
        )

    async def _lead(self, site: Site) -> None:
        """One leader's time: everything that acts."""
        assembler = Assembler(site.watches, self._settings, site.cluster_domain)
        passes = Passes(site, assembler, self._kube_metrics)
        nodesets = NodeSets(site, assembler, self._kube_metrics)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(passes.run(), name="objects")
                group.create_task(passes.reconfiguring.run(), name="reconfiguring")
                group.create_task(nodesets.run(), name="nodesets")
        finally:
            await site.clusters.close()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
