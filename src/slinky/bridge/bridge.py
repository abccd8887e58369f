"""The bridge as one process: scheduler and controllers, of which one leads.

Comes in: the settings and a way to the API server. Goes out: a running bridge, with its health and metrics. What must stay true: caches are warm before this process may lead, so that a successor goes on at once; nothing acts without the
Lease; at the end the Lease is given back.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from prometheus_client import CollectorRegistry

from slinky.bridge.absence_alarm import AbsenceAlarm, AbsenceGauges
from slinky.bridge.checkpoint import COMMANDS_AT_ONCE, Checkpoints, signals_counter
from slinky.bridge.claim import ClaimKeeper
from slinky.bridge.clocks import ClockGauges, RemoteClock
from slinky.bridge.executor import Executor
from slinky.bridge.group_status import GroupStatus
from slinky.bridge.hybrid_nodes import HybridNodes
from slinky.bridge.keeping import concerns_slurm, says_other
from slinky.bridge.keys import LABELLED_UNTIL
from slinky.bridge.leadership import KUBE_CLOCK_SECONDS, Leadership
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.node_controller import NodeController
from slinky.bridge.node_loss import NodeLoss
from slinky.bridge.poller import JobPoller, PollTimes
from slinky.bridge.settings import Settings
from slinky.bridge.shadow import ReadingClient, Shadow, ShadowExecutor, ShadowTeller, shadow_cluster_name, shadow_site
from slinky.bridge.shadow_metrics import ShadowMetrics
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.telling import Teller
from slinky.bridge.translate import site_of
from slinky.bridge.volumes.acts import StorageActs
from slinky.bridge.volumes.binder import VolumeBinder
from slinky.bridge.watches import Watches, release_of
from slinky.bridge.windows import Window
from slinky.bridge.workload import WorkloadKey
from slinky.kube import (
    LEASES,
    NAMESPACES,
    Access,
    Client,
    EventRecorder,
    HealthServer,
    KubeError,
    KubeMetrics,
    Leading,
    Node,
)
from slinky.slurm import TLS, Credentials, JobCompletion, Observer, SlurmClient, TokenFile

__all__ = ["Bridge", "slurm_of"]

log = logging.getLogger(__name__)

KUBE_CONNECTIONS = 40
EVENTS_PER_SECOND = 10.0  # an Event costs the API server as much as a quarter of a pod's whole way


def slurm_of(settings: Settings, credentials: Credentials | None = None, observer: Observer | None = None) -> SlurmClient:
    said = settings.slurm
    tls = TLS.of_files(said.ca_file, said.certificate_file, said.key_file)
    return SlurmClient(settings.slurm_rest_api, credentials or TokenFile(said.token_file, said.user), tls=tls, observer=observer)


class Bridge:
    """`await Bridge(settings, access).run()`, until cancelled."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._credentials: Credentials = TokenFile(settings.slurm.token_file, settings.slurm.user)
        self._registry = CollectorRegistry()
        self._signals = signals_counter(self._registry)
        self._absence = AbsenceGauges(self._registry)
        self._clocks = ClockGauges(self._registry)
        self._alarm: AbsenceAlarm | None = None
        self._kube_metrics = KubeMetrics(self._registry)
        self._metrics = BridgeMetrics(self._registry)
        self._shadow_metrics = ShadowMetrics(self._registry)
        self._leadership: Leadership | None = None
        self._claim: ClaimKeeper | None = None
        leader, (namespace, lease) = settings.leader, self._lease_name
        self._leading = Leading(access, lease, namespace, elect=leader.elect, seconds=leader.seconds, metrics=self._kube_metrics)

    async def run(self) -> None:
        """Until cancelled; the Lease is given back then."""
        async with AsyncExitStack() as stack:
            health = await stack.enter_async_context(HealthServer(self._registry, port=self._settings.health_port).running())
            client = ReadingClient if self._settings.shadow else Client
            kube = await stack.enter_async_context(client(self._access, connections=KUBE_CONNECTIONS, observer=self._kube_metrics.observe))
            slurm = await stack.enter_async_context(slurm_of(self._settings, self._credentials, self._metrics.observe))
            lag = asyncio.create_task(self._kube_metrics.measure_loop_lag(), name="loop lag")
            stack.callback(lag.cancel)
            lead = await self._prepare(stack, health, kube, slurm)
            log.info("the caches are filled: ready to lead")
            await self._leading.run(lambda: self._one_time(lead))

    async def _one_time(self, lead: "Lead") -> None:
        """One leader's time, from its beginning to its end."""
        if self._claim:
            self._claim.begin()
        self._leadership = leadership = lead()
        try:
            await leadership.run()
        finally:
            self._leadership = self._alarm = None
            self._leading.notes = {}
            self._metrics.forget_all()
            self._shadow_metrics.record = None

    async def _prepare(self, stack: AsyncExitStack, health: HealthServer, kube: Client, slurm: SlurmClient) -> "Lead":
        """Caches, warm; and what makes a leader's time of them."""
        settings = self._settings
        watches = Watches(
            kube,
            settings,
            await release_of(kube),
            self._kube_metrics,
            touched=self._touched,
            look=self._look,
            namespace_changed=self._namespace_changed,
        )
        await watches.fill(stack, health)
        health.ready("absence", lambda: self._alarm.problem if self._alarm else None)
        played, nodes, pods, volumes = watches.played, watches.nodes.cache, watches.pods, watches.volumes
        cluster = settings.cluster or (await kube.get(NAMESPACES, "kube-system")).metadata.uid
        completion = await self._completion(stack)
        events: EventRecorder | None = None
        commands: Client | None = None
        hetjobs = settings.gangs.hetjobs == "auto"
        if played is None:
            events = EventRecorder(kube, "slurm-bridge", socket.gethostname(), per_second=EVENTS_PER_SECOND)
            self._kube_metrics.follow("events", events)
            await stack.enter_async_context(events.running())
            if settings.leader.elect:
                self._claim = ClaimKeeper(kube, slurm, self._lease_name, self._registry)
                self._claim.events = events
                health.ready("claim", lambda: self._claim.problem if self._claim else None)
            # A command in a container takes as long as its image likes: it never has a connection that a binding could use.
            commands = await stack.enter_async_context(
                Client(self._access, connections=COMMANDS_AT_ONCE, observer=self._kube_metrics.observe)
            )
            site = site_of(settings, cluster)
            executor = Executor(kube, slurm, site, completion=completion, may_act=self._may_act, hetjobs=hetjobs)
            teller: Callable[[], Teller] = partial(Teller, kube, slurm, events, settings.status, self._may_act)
        else:
            writer = await stack.enter_async_context(Client(self._access, connections=1, observer=self._kube_metrics.observe))
            shadow = Shadow(played, writer, settings.namespace, self._shadow_metrics)
            site = shadow_site(site_of(settings, cluster))
            executor = ShadowExecutor(shadow, kube, slurm, site, completion=completion, may_act=self._may_act, hetjobs=hetjobs)
            teller = partial(ShadowTeller, shadow, slurm, settings.shadow_report_seconds, self._may_act)
        times = PollTimes(fastest=settings.slurm.fastest_poll, slowest=settings.slurm.slowest_poll)

        kube_clock = RemoteClock(oldest=KUBE_CLOCK_SECONDS)
        loss = NodeLoss(nodes, pods, settings.nodes.gone_seconds, kube_clock) if played is None else None
        nodes.subscribe(lambda change: self._node_changed(change.old, change.new), replay=False)

        def binder() -> VolumeBinder | None:
            if settings.shadow:  # claims are bound for the pods as they are
                return None
            return VolumeBinder(volumes, nodes, StorageActs(kube, self._may_act), settings.volumes.bind_seconds)

        notes = settings.leader.elect and played is None  # in shadow mode no label is written

        def lead() -> Leadership:
            slurm_nodes = SlurmNodes(slurm)
            leadership = Leadership(
                executor,
                slurm,
                watches.membership,
                watches.groups.get,
                watches.ledger,
                slurm_nodes,
                watches.judgement,
                Window(settings.windows.namespace, settings.windows.total, watches.grants.window),
                teller(),
                self._metrics,
                lambda told: JobPoller(slurm, told, times),
                watches.grants.of,
                feature_labels=settings.nodes.feature_labels,
                volumes=binder(),
                gangs=settings.gangs,
                eviction=settings.eviction,
                sink=settings.nodes.sink,
                absence=settings.absence,
                names=watches.names,
                hybrid_devices=settings.hybrid.devices == "allow",
                kube_clock=kube_clock,
                noted=partial(self._noted, kube) if notes else None,
                note=self._note if notes else None,
            )
            leadership.also(HybridNodes(watches.names, nodes, slurm_nodes, events, self._may_act).run, "hybrid nodes")
            if settings.gangs.write_status and played is None:
                leadership.also(GroupStatus(kube, pods, watches.groups, settings.status, self._may_act).run, "group status")
            if settings.nodes.register:
                controller = NodeController(
                    nodes,
                    slurm,
                    settings,
                    cluster,
                    kube=kube if played is None else None,
                    names=watches.names,
                    occupants=watches.ledger.ours_on,
                    may_act=self._may_act,
                    changed=leadership.nodes_changed,
                    events=events,
                    metrics=self._registry,
                )
                leadership.also(controller.run, "nodes")
                leadership.also_freed(controller.node_freed)
            volumes.changed = leadership.storage_changed
            watches.ledger.freed, watches.ledger.taken = leadership.node_freed, leadership.node_taken
            if events is not None and commands is not None:
                allowed, may_act = settings.checkpoint_signals, self._may_act
                leadership.also_endings(Checkpoints(kube, commands, events, self._signals, allowed=allowed, may_act=may_act))
            leadership.also_clocks(kube, events, self._lease_name, self._clocks)
            if loss is not None:
                leadership.also_node_loss(loss)
            if self._claim is not None:
                leadership.also_claim(self._claim)
            self._alarm = leadership.also_absence(partial(AbsenceAlarm, settings.absence), kube, events, self._lease_name, self._absence)
            self._kube_metrics.follow("workloads", leadership.reconciler.queue)
            self._kube_metrics.follow("submits", leadership.reconciler.submits)
            return leadership

        return lead

    def _may_act(self) -> bool:
        """This process leads, and no other copy of this cluster claims its jobs."""
        return self._leading.may_act() and (self._claim is None or self._claim.may_act)

    async def _noted(self, kube: Client) -> tuple[float, int]:
        """What the last leader noted on the Lease for the next one; zeros where it did not."""
        namespace, name = self._lease_name
        try:
            moment, _, last_id = (await kube.get(LEASES, name, namespace)).metadata.annotations.get(LABELLED_UNTIL, "0/0").partition("/")
            return float(moment), int(last_id)
        except (KubeError, ValueError) as error:
            log.warning("cannot read from Lease %s/%s which jobs are labelled (%s): reading more jobs from Slurm", namespace, name, error)
            return 0.0, 0

    def _note(self, moment: float, last_id: int) -> None:
        self._leading.notes = {LABELLED_UNTIL: f"{moment:.0f}/{last_id}"}

    @property
    def _lease_name(self) -> tuple[str, str]:
        name = self._settings.leader.name
        return self._settings.namespace, shadow_cluster_name(name) if self._settings.shadow else name

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if self._leadership and says_other(old, new):
            node = new or old
            in_slurm = concerns_slurm(old, new, self._settings.nodes.feature_labels)
            self._leadership.nodes_changed(node.metadata.name if node else "", in_slurm=in_slurm)

    def _touched(self, key: WorkloadKey) -> None:
        if self._leadership:
            self._leadership.reconciler.touched(key)

    def _look(self, key: WorkloadKey) -> None:
        """Only those workloads of which something is known: one that has pods is touched by them. A set without a part stands for all its parts, of which it may have any number."""
        if self._leadership:
            self._leadership.reconciler.look(key)

    def _namespace_changed(self, name: str) -> None:
        if self._leadership:
            self._leadership.reconciler.namespace_changed(name)

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


Lead = Callable[[], Leadership]
