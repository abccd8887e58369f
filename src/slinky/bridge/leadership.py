"""A leader's time: everything that acts, from the moment this process leads until it no longer does.

Comes in: warm caches, the clients, the settings. Goes out: pods bound, jobs submitted and ended, nodes registered. What must stay true: before the first act, what an earlier leader left is taken over; when leadership is lost
everything stops, and what was in memory is forgotten.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from slinky.bridge.absence import AbsenceSettings
from slinky.bridge.absence_alarm import AbsenceAlarm, AbsenceGauges
from slinky.bridge.adoption import Found, found_in, inheritance, meant_by, whole
from slinky.bridge.binding import Binder
from slinky.bridge.checkpoint import Checkpoints
from slinky.bridge.clocks import ClockGauges, ClockWatch, RemoteClock, read_kube_clock
from slinky.bridge.directions import Directions, Judgement
from slinky.bridge.endings import Endings
from slinky.bridge.eviction_settings import EvictionSettings
from slinky.bridge.executor import Executor
from slinky.bridge.jobs import Jobs, is_for
from slinky.bridge.keeping import Keeper
from slinky.bridge.knowledge import Groups
from slinky.bridge.ledger import Ledger
from slinky.bridge.marker import Marking
from slinky.bridge.membership import Membership
from slinky.bridge.memory import Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.node_loss import NodeLoss
from slinky.bridge.node_names import NodeNames
from slinky.bridge.policy import Grant
from slinky.bridge.poller import JobPoller
from slinky.bridge.reconciler import URGENT, Reconciler
from slinky.bridge.settings import GangSettings
from slinky.bridge.shrinking import Shrinking
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.standing import UNSCHEDULABLE, Standing
from slinky.bridge.strays import Strays
from slinky.bridge.submitting import Submitter
from slinky.bridge.telling import Teller
from slinky.bridge.views import job_id_of
from slinky.bridge.volumes.binder import VolumeBinder
from slinky.bridge.windows import Window
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Backoff, Client, EventRecorder, Pod
from slinky.slurm import SlurmClient, SlurmError

__all__ = ["Leadership"]

log = logging.getLogger(__name__)

WORKERS = 32
SUBMITTERS = 16
NEAR_SECONDS = 600.0  # after a takeover, jobs that end within this are looked at first
KUBE_CLOCK_SECONDS = 120.0  # for how long a reading of the API server's clock is good


async def _unread() -> None:
    """The API server's clock is not read."""


class Leadership:
    def __init__(
        self,
        executor: Executor,
        slurm: SlurmClient,
        membership: Membership,
        groups: Groups,
        ledger: Ledger,
        slurm_nodes: SlurmNodes,
        judgement: Judgement,
        window: Window,
        teller: Teller,
        metrics: BridgeMetrics,
        poller: Callable[[Callable[[int], None]], JobPoller],
        grants: Callable[[str], Grant | None],
        *,
        feature_labels: Mapping[str, str] | None = None,
        volumes: VolumeBinder | None = None,
        gangs: GangSettings | None = None,
        eviction: EvictionSettings | None = None,
        sink: str = "",
        absence: AbsenceSettings | None = None,
        names: NodeNames | None = None,
        hybrid_devices: bool = True,
        kube_clock: RemoteClock | None = None,
    ) -> None:
        self._executor = executor
        self._slurm = slurm
        self._membership = membership
        self._teller = teller
        self._window = window
        self._slurm_nodes = slurm_nodes
        self._in_slurm = (names or NodeNames()).in_slurm
        self._others: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        self._freed: list[Callable[[str], None]] = []
        self._expect_end: Callable[[WorkloadKey], None] = lambda _: None
        self._kube_clock = kube_clock or RemoteClock(oldest=KUBE_CLOCK_SECONDS)
        self._read_kube_clock: Callable[[], Awaitable[None]] = _unread
        self.poller = poller(lambda job_id: self.reconciler.job_changed(job_id))
        self._jobs = Jobs(slurm, self.poller, executor.site.cluster)
        directions = Directions(
            judgement, slurm_nodes, feature_labels or {}, names, cluster=executor.site.registrar, hybrid_devices=hybrid_devices
        )
        self.reconciler = Reconciler(
            executor,
            membership,
            groups,
            self._jobs,
            self.poller,
            Submitter(executor, slurm_nodes, directions, self.poller, teller, metrics, grants),
            lambda wake: Binder(
                executor, slurm, ledger, judgement, teller, metrics, wake, volumes, names, lambda: self.poller.is_current, self._jobs.runs
            ),
            window,
            teller,
            metrics,
            volumes.hold if volumes else lambda *_: "",
            gangs=gangs,
            eviction=eviction,
            shrink=Shrinking(executor, slurm, sink, lambda known: self.reconciler.is_still_own(known)).look,
        )
        loop = self.reconciler
        self.keeper = Keeper(executor, directions, loop.waiting, loop.lookup, loop.queue.add, loop.is_still_own)
        sweep = (absence or AbsenceSettings()).sweep_seconds
        self._strays = Strays(executor, slurm, membership, loop.known, loop.owner_of, sweep)
        teller.standings, teller.slurm_time = self._standing, self._slurm_time
        slurm_nodes.on_room, slurm_nodes.on_resumed = self._slurm_nodes_changed, self.reconciler.slurm_nodes_changed

    def also(self, service: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Something else that only a leader does, for ever."""
        self._others[name] = service

    def also_freed(self, told: Callable[[str], None]) -> None:
        """Who else wants to know of a node from which a pod is gone."""
        self._freed.append(told)

    def node_freed(self, node: str) -> None:
        """A pod is gone from it."""
        self.reconciler.binder.node_freed(node)
        self.keeper.pods_changed()
        for told in self._freed:
            told(node)

    def node_taken(self, _: str) -> None:
        """A pod came onto it."""
        self.keeper.pods_changed()

    def _slurm_nodes_changed(self) -> None:
        self.reconciler.slurm_nodes_changed()
        self.keeper.nodes_changed()

    def nodes_changed(self) -> None:
        """Kubernetes' nodes have other labels, taints or amounts, or are others."""
        self._slurm_nodes.outdate()
        self.keeper.nodes_changed()

    def storage_changed(self) -> None:
        """Claims, volumes or classes are others."""
        self.keeper.pods_changed()

    def also_endings(self, checkpoints: Checkpoints | None) -> None:
        """Ends of jobs that are seen before they come, and signals before them."""
        if checkpoints:
            checkpoints.pods, checkpoints.current = self._membership.pods, self._membership.current
            self.also(checkpoints.run, "checkpoint signals")
        endings = Endings(
            self._slurm,
            self._membership.pods,
            self._jobs.is_own,
            self.reconciler.is_signalled,
            self.reconciler.job_ends,
            self._slurm_time,
            self.poller.confirm,
            checkpoints,
        )
        self._expect_end = endings.expect
        self.reconciler.endings, self.reconciler.signalled = endings.look, endings.signalled
        self.also(endings.run, "ends of jobs")

    def _slurm_time(self) -> float | None:
        return self.poller.clock.time(asyncio.get_running_loop().time())

    def also_clocks(self, kube: Client, events: EventRecorder | None, lease: tuple[str, str], gauges: ClockGauges) -> None:
        """Skews and steps of the servers' clocks are reported."""
        clocks = {"slurm": self.poller.clock, "kubernetes": self._kube_clock}
        readers = [partial(read_kube_clock, kube, self._kube_clock)]
        self._read_kube_clock = readers[0]
        self.also(ClockWatch(clocks, readers, gauges, events, lease).run, "clocks")

    def also_node_loss(self, loss: NodeLoss) -> None:
        """Pods on nodes that are gone are let go."""
        self.reconciler.is_gone = loss
        loss.look = lambda pod: self.reconciler.queue.add(key) if (key := self._membership.key_of(pod)) else None
        self.also(loss.run, "pods on nodes that are gone")

    def also_absence(
        self, alarm: Callable[..., AbsenceAlarm], kube: Client, events: EventRecorder | None, lease: tuple[str, str], gauges: AbsenceGauges
    ) -> AbsenceAlarm:
        """What is to be done where many jobs are absent at once."""
        reconciler = self.reconciler
        found = alarm(self._jobs, self.poller, reconciler.known, reconciler.queue.add, kube, events, lease, gauges)
        self._strays.holds_back = found.holds_back
        self.also(found.run, "absence")
        return found

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, service in self._others.items():
                tasks.create_task(service(), name=name)
            tasks.create_task(self._slurm_nodes.run(), name="Slurm's nodes")
            await self._executor.begin()
            await self._adopt()
            tasks.create_task(self.poller.run(), name="jobs")
            tasks.create_task(self._teller.run(), name="status")
            tasks.create_task(self.keeper.run(), name="whereabouts")
            tasks.create_task(self._strays.run(), name="jobs without pods")
            tasks.create_task(self.reconciler.submits.serve(self.reconciler.submit, workers=SUBMITTERS), name="submits")
            tasks.create_task(self.reconciler.queue.serve(self.reconciler.reconcile, workers=WORKERS), name="workloads")

    async def _adopt(self) -> None:
        """Until Slurm could be asked."""
        backoff, failures = Backoff(first=0.5, most=15.0), 0
        while True:
            try:
                ahead = await self._slurm_ahead()
                cluster, jobs = self._executor.site.cluster, self._slurm.jobs.stream(learn=True)
                found = [job async for each in jobs if (job := found_in(each, cluster, ahead))]
                break
            except SlurmError as error:
                failures += 1
                wait = backoff.seconds(failures)
                log.warning("Slurm's jobs cannot be read (%s); pods run on, again in %.1f s", error, wait)
                await asyncio.sleep(wait)
        self._take_over(whole(found))

    async def _slurm_ahead(self) -> float:
        """Of the API server's clock, in seconds: jobs' times are compared with pods'."""
        await self.poller.confirm()
        await self._read_kube_clock()
        return self.poller.clock.ahead_of(self._kube_clock, asyncio.get_running_loop().time())

    def _take_over(self, found: Sequence[Found]) -> None:
        by_key: dict[WorkloadKey, list[Found]] = {}
        keys = self._membership.keys()
        by_label = {key.job_id: key for key in keys if key.job_id}
        for job in found:
            labelled = by_label.get(job.submission.job_id)
            by_key.setdefault(labelled if labelled and self._is_of(job, labelled) else job.key, []).append(job)
        strays = 0
        for key, jobs in by_key.items():
            self._executor.adopting(key, self._membership.pods(key), jobs)
            pods = self._membership.pods(key)
            awaited = self.reconciler.succession.prospects(key).awaited
            inherited = inheritance(self._executor.site.cluster, key, pods, jobs, awaited=awaited, in_slurm=self._in_slurm)
            if inherited.own and (pods or awaited):
                known = self.reconciler.known.setdefault(key, Known())
                known.take(inherited.own.submission, self.poller.epoch)
                known.is_for(meant_by(inherited.own, pods))
                known.depends_on_pods = True  # for all that is known
                for job_id in known.job_ids:
                    self.reconciler.own_job(job_id, key)
                self._window.keep(key)  # until it is seen to have started
                leaves = inherited.own.is_leaving or self._is_near(inherited.own.ends)
                if leaves:
                    self._expect_end(key)
                self.reconciler.queue.add(key, priority=URGENT if leaves else 0)
            for job_id in inherited.strays if pods or awaited else [job_id for job in jobs for job_id in job.to_end]:
                strays += 1
                self._strays.suspect(job_id)
        log.info("leading: %d workloads, %d jobs of theirs in Slurm, %d jobs without pods", len(keys), len(found) - strays, strays)
        for key in sorted(keys, key=self._age):  # as they came: who waits for the window keeps its place
            self.reconciler.queue.add(key)

    def _is_near(self, ends: float) -> bool:
        """Whether a job's end, by Slurm's clock, may come before its record is read in turn."""
        now = self._slurm_time()
        return now is not None and 0 < ends < now + NEAR_SECONDS

    def _is_of(self, job: Found, key: WorkloadKey) -> bool:
        said = Marking(marker=job.marker, cluster="", workload=str(job.key), count=job.count, pods=job.pods)
        return is_for(said, job.submission.job_id, key, [pod.metadata.name for pod in self._membership.pods(key)])

    def _age(self, key: WorkloadKey) -> float:
        made = (pod.metadata.creation_timestamp for pod in self._membership.pods(key))
        return max((moment.timestamp() for moment in made if moment is not None), default=0.0)

    def _standing(self, key: WorkloadKey) -> list[tuple[list[Pod], Standing | int | None]]:
        known = self.reconciler.known.get(key)
        pods = [pod for pod in self._membership.pods(key) if not pod.is_over and pod.metadata.deletion_timestamp is None]
        if known is None or not pods:
            return []
        own = {pod.metadata.uid for pod in pods if self._has_part(pod, known)}
        late = [pod for pod in pods if pod.metadata.uid not in own]
        said = self._words(key, known, pods)
        return [([pod for pod in pods if pod.metadata.uid in own], said), (late, _surplus(known))] if late else [(pods, said)]

    @staticmethod
    def _has_part(pod: Pod, known: Known) -> bool:
        return not known.job_id or bool(pod.spec.node_name) or known.written.labels.get(pod.metadata.uid, job_id_of(pod)) == known.job_id

    def _words(self, key: WorkloadKey, known: Known, pods: list[Pod]) -> Standing | int | None:
        if known.lost:
            return Standing(reason="Lost", message=f"Slurm does not know job {known.job_id} any more: pods that run go on, without Slurm")
        if known.missing_since and known.job_id:
            return Standing(
                reason="Absent", message=f"Slurm does not know job {known.job_id} at the moment: nothing is done to the pod meanwhile"
            )
        if known.obstacle:
            return Standing(reason="NodeNotFree", message=f"Slurm job {known.job_id} has started; {known.obstacle}")
        if known.waits and known.job_id:
            return Standing(reason="BindingVolumes", message=f"Slurm job {known.job_id} has started; {known.waits}")
        if any((status := self.poller.states.get(job_id)) and status.is_suspended for job_id in known.job_ids):
            return Standing(reason="Suspended", message=f"Slurm job {known.job_id} is suspended: its pods run on as they are")
        if known.started_at and known.job_id:
            return Standing(reason="Running", message=f"Slurm job {known.job_id} runs", holds=True)
        if known.job_id:
            return known.job_id
        if known.parked:
            return Standing(reason="Parked", message=known.parked, scheduled=UNSCHEDULABLE if known.too_large else "Refused")
        if known.waits:
            return Standing(reason="WaitingForVolumes", message=known.waits, scheduled="WaitingForVolumes")
        if self._window.is_waiting(key):
            return Standing(
                reason="Window",
                message="waits for its turn to be queued in Slurm: enough pods of the namespace, or of all, wait there already",
                lasting=True,
            )
        if any(pod.spec.scheduling_gates for pod in pods):
            return None
        if key.kind != "Pod":
            return Standing(reason="Gathering", message=f"{len(pods)} pods of {key} are there; it is queued in Slurm when all are")
        return None


def _surplus(known: Known) -> Standing:
    """Of a pod of a gang whose job has no slot for it."""
    slots = known.submission.tasks if known.submission else 0
    return Standing(
        reason="Surplus",
        message=f"Slurm job {known.job_id} of its gang was submitted for {slots} pods: it waits until a slot is free that fits it, or for the next job",
    )
