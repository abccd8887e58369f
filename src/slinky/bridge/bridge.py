"""The bridge as one process: scheduler and controllers, of which one leads.

Comes in: the settings and a way to the API server. Goes out: a running bridge, with its health and metrics. What must stay true: caches are warm before this process may lead, so that a successor goes on at once; nothing acts without the
Lease; at the end the Lease is given back.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from slinky.bridge.executor import Executor
from slinky.bridge.leadership import Leadership
from slinky.bridge.ledger import Ledger
from slinky.bridge.membership import Membership
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.poller import JobPoller, PollTimes
from slinky.bridge.settings import Settings
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.telling import Teller
from slinky.bridge.translate import Site
from slinky.bridge.windows import Window
from slinky.bridge.workload import WorkloadKey
from slinky.kube import (
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    Access,
    Client,
    EventRecorder,
    HealthServer,
    KubeMetrics,
    LeaderElector,
    Pod,
    Reflector,
)
from slinky.kube.objects import Meta, PodSpec, PodStatus
from slinky.slurm import TLS, Credentials, JobCompletion, SlurmClient, TokenFile

__all__ = ["Bridge", "own_namespace", "site_of"]

log = logging.getLogger(__name__)

KUBE_CONNECTIONS = 96
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace(settings: Settings) -> str:
    """Where the bridge's own objects live."""
    if settings.namespace:
        return settings.namespace
    try:
        return NAMESPACE_FILE.read_text().strip()
    except OSError:
        return "slinky"


def site_of(settings: Settings, cluster: str) -> Site:
    return Site(
        cluster=cluster,
        partition=settings.partition,
        mcs_label=settings.mcs_label,
        exclusive=settings.exclusive,
        default_cpus=settings.default_cpus,
        default_memory_mib=settings.default_memory_mib,
        gres=settings.gres,
    )


def _shrunk(pod: Pod) -> Pod:
    """Of other schedulers' pods only what they take of their node counts."""
    meta = Meta(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
    )
    spec = PodSpec(
        node_name=pod.spec.node_name,
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers,
        overhead=pod.spec.overhead,
        resources=pod.spec.resources,
    )
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=PodStatus(phase=pod.status.phase))


class Bridge:
    """`await Bridge(settings, access).run(stop)`, until `stop` is set."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._credentials: Credentials = TokenFile(settings.slurm.token_file, settings.slurm.user)
        self._registry = CollectorRegistry()
        self._kube_metrics = KubeMetrics(self._registry)
        self._metrics = BridgeMetrics(self._registry)
        self._lead = asyncio.Event()
        self._lost = asyncio.Event()
        self._leadership: Leadership | None = None
        self._membership: Membership

    async def run(self, stop: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            settings = self._settings
            health = await stack.enter_async_context(HealthServer(self._registry, port=settings.health_port).running())
            kube = await stack.enter_async_context(Client(self._access, connections=KUBE_CONNECTIONS, observer=self._kube_metrics.observe))
            slurm = await stack.enter_async_context(self._slurm())
            lag = asyncio.create_task(self._kube_metrics.measure_loop_lag(), name="loop lag")
            stack.callback(lag.cancel)
            synced = asyncio.create_task(self._prepare(stack, health, kube, slurm), name="caches")
            if not await _first(synced, stop):
                synced.cancel()
                return
            lead_once = synced.result()
            elector = self._elector()
            try:
                await self._rounds(lead_once, stop)
            finally:
                if elector:
                    await elector.stop()

    async def _prepare(self, stack: AsyncExitStack, health: HealthServer, kube: Client, slurm: SlurmClient) -> "LeadOnce":
        """Caches, warm; and what makes a leader's time of them."""
        settings, name = self._settings, self._settings.scheduler_name
        own = Reflector(kube, PODS, fields=f"spec.schedulerName={name}")
        foreign = Reflector(kube, PODS, fields=f"spec.schedulerName!={name},spec.nodeName!=", transform=_shrunk)
        jobs, nodes = Reflector(kube, JOBS), Reflector(kube, NODES)
        reflectors: dict[str, Reflector[Any]] = {"pods": own, "other pods": foreign, "jobs": jobs, "nodes": nodes}
        self._membership = Membership(own.cache, jobs.cache, self._touched)
        ledger = Ledger([own.cache, foreign.cache], nodes.cache)
        for what, reflector in reflectors.items():
            self._kube_metrics.follow(what, reflector)
            cache = await stack.enter_async_context(reflector.running())
            health.ready(what, lambda cache=cache: None if cache.is_synced else "not listed yet")  # type: ignore[misc]
        for reflector in reflectors.values():
            await reflector.cache.wait_synced()
        cluster = settings.cluster or (await kube.get(NAMESPACES, "kube-system")).metadata.uid
        events = EventRecorder(kube, "slurm-bridge", socket.gethostname())
        self._kube_metrics.follow("events", events)
        await stack.enter_async_context(events.running())
        completion = await self._completion(stack)
        executor = Executor(kube, slurm, site_of(settings, cluster), completion=completion, may_act=self._may_act)
        times = PollTimes(fastest=settings.slurm.fastest_poll, slowest=settings.slurm.slowest_poll)

        def lead() -> Leadership:
            leadership = Leadership(
                executor,
                slurm,
                self._membership,
                lambda _: None,
                ledger,
                SlurmNodes(slurm),
                Window(settings.windows.namespace, settings.windows.total),
                Teller(kube, slurm, events, settings.status, self._may_act),
                self._metrics,
                lambda told: JobPoller(slurm, told, times),
            )
            ledger.freed = leadership.reconciler.node_freed
            self._kube_metrics.follow("workloads", leadership.reconciler.queue)
            self._kube_metrics.follow("submits", leadership.reconciler.submits)
            return leadership

        return lead

    async def _rounds(self, lead_once: "LeadOnce", stop: asyncio.Event) -> None:
        """Leading, and not, in turn."""
        while await _first(asyncio.create_task(self._lead.wait()), stop):
            self._lost.clear()
            self._leadership = lead_once()
            task = asyncio.create_task(self._leadership.run(), name="leadership")
            lost = asyncio.create_task(self._lost.wait())
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait({task, lost, stopped}, return_when=asyncio.FIRST_COMPLETED)
            self._leadership = None
            for other in (task, lost, stopped):
                other.cancel()
            results = await asyncio.gather(task, lost, stopped, return_exceptions=True)
            if isinstance(results[0], Exception):
                raise results[0]
            if stop.is_set():
                return
            log.warning("another process leads now: this one waits")

    def _elector(self) -> LeaderElector | None:
        settings = self._settings.leader
        if not settings.elect:
            self._lead.set()
            return None
        identity = f"{socket.gethostname()}_{os.urandom(4).hex()}"
        self._elected = LeaderElector(
            self._access,
            settings.name,
            own_namespace(self._settings),
            identity,
            on_started=self._lead.set,
            on_stopped=self._stopped_leading,
            observer=self._kube_metrics.observe,
        )
        self._kube_metrics.follow(settings.name, self._elected)
        self._elected.start()
        return self._elected

    def _stopped_leading(self) -> None:
        self._lead.clear()
        self._lost.set()

    def _may_act(self) -> bool:
        return self._elected.is_leader if self._settings.leader.elect else True

    def _touched(self, key: WorkloadKey) -> None:
        if self._leadership:
            self._leadership.reconciler.queue.add(key)

    def _slurm(self) -> SlurmClient:
        said = self._settings.slurm
        files = said.ca_file or said.certificate_file
        tls = TLS(ca=said.ca_file, certificate=said.certificate_file, key=said.key_file) if files else None
        return SlurmClient(self._settings.slurm_rest_api, self._credentials, tls=tls, observer=self._metrics.observe)

    async def _completion(self, stack: AsyncExitStack) -> JobCompletion | None:
        said = self._settings.slurm
        if not said.completion:
            return None
        interpreter = said.completion_command or [sys.executable]
        completion = await stack.enter_async_context(JobCompletion(self._credentials, interpreter=interpreter))
        if await completion.is_available():
            log.info("jobs end with their pods' exit code")
            return completion
        log.info("libslurm is not at hand: jobs end as cancelled, with the outcome in their comment")
        return None


LeadOnce = Callable[[], Leadership]


async def _first(task: "asyncio.Task[Any]", stop: asyncio.Event) -> bool:
    """Until the task is done (True; its failure is raised) or `stop` is set."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        task.cancel()
        return False
    task.result()
    return True
