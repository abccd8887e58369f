"""A leader's time: everything that acts, from the moment this process leads until it no longer does.

Comes in: warm caches, the clients, the settings. Goes out: pods bound, jobs submitted and ended, nodes registered. What must stay true: before the first act, what an earlier leader left is taken over; when leadership is lost
everything stops, and what was in memory is forgotten.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from slinky.bridge.absence_alarm import AbsenceAlarm, AbsenceGauges
from slinky.bridge.adoption import Found, inheritance, meant_by
from slinky.bridge.binding import Binder
from slinky.bridge.checkpoint import Checkpoints
from slinky.bridge.claim import Claimed, ClaimKeeper
from slinky.bridge.clocks import ClockGauges, ClockWatch, RemoteClock, read_kube_clock
from slinky.bridge.directions import Directions, Judgement
from slinky.bridge.endings import Endings
from slinky.bridge.eviction_settings import EvictionSettings
from slinky.bridge.executor import Executor
from slinky.bridge.jobs import Jobs, is_for
from slinky.bridge.keeping import Keeper
from slinky.bridge.keys import job_id_of
from slinky.bridge.knowledge import Groups
from slinky.bridge.ledger import Ledger
from slinky.bridge.lines import FRONT, Siblings, SubmitLimits
from slinky.bridge.marker import Marking
from slinky.bridge.membership import Membership
from slinky.bridge.memory import Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.node_loss import NodeLoss
from slinky.bridge.node_names import NodeNames
from slinky.bridge.pacing import Pace
from slinky.bridge.policy import Grant
from slinky.bridge.poller import JobPoller
from slinky.bridge.reconciler import URGENT, Reconciler
from slinky.bridge.settings import AbsenceSettings, GangSettings
from slinky.bridge.shrinking import Shrinking
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.standing import UNSCHEDULABLE, Standing
from slinky.bridge.strays import Strays
from slinky.bridge.submitting import Submitter
from slinky.bridge.takeover import Takeover
from slinky.bridge.telling import Teller
from slinky.bridge.volumes.binder import VolumeBinder
from slinky.bridge.whereabouts import EVERYWHERE
from slinky.bridge.windows import Window
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Client, EventRecorder, Pod
from slinky.slurm import SlurmClient

__all__ = ["Leadership"]

log = logging.getLogger(__name__)

WORKERS = 32
SUBMITTERS = 16
NOTE_SECONDS = 2.0
CONFLICT_SECONDS = 30.0  # between two looks at jobs while another copy of this cluster claims some
MOST_CLAIMED = 100  # jobs that are looked at again then
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
        noted: Callable[[], Awaitable[tuple[float, int]]] | None = None,
        note: Callable[[float, int], None] | None = None,
    ) -> None:
        self._executor = executor
        self._slurm = slurm
        self._membership = membership
        self._groups = groups
        self._teller = teller
        self._window = window
        self._slurm_nodes = slurm_nodes
        self._in_slurm = (names or NodeNames()).in_slurm
        self._claim: ClaimKeeper | None = None
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
        limits = SubmitLimits(lambda *turn: self.reconciler.call(*turn), teller.moved_up)
        siblings = Siblings(judgement.in_flight, judgement.interference, lambda *turn: self.reconciler.call(*turn), teller.moved_up)
        self._directions, self._limits, self._siblings = directions, limits, siblings
        self.reconciler = Reconciler(
            executor,
            membership,
            groups,
            self._jobs,
            self.poller,
            Submitter(executor, slurm_nodes, directions, self.poller, teller, metrics, grants, limits, siblings),
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
        self._directions = directions
        loop = self.reconciler
        self.keeper = Keeper(executor, directions, loop.waiting, loop.lookup, loop.queue.add, loop.is_still_own, membership.pods)
        sweep = (absence or AbsenceSettings()).sweep_seconds
        self._strays = Strays(executor, slurm, membership, loop.known, loop.owner_of, sweep)
        self._note = note
        self._takeover = Takeover(
            slurm, executor.site.cluster, membership, loop, self._is_of, self._take_over, self._strays.suspect, noted or _nothing_noted
        )
        self._takeover.leaves, self._takeover.is_seen = self._leaves, self._is_seen
        self._strays.note, loop.may_begin = self._takeover.note, self._takeover.may_begin
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
        self._directions.node_changed(node)
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

    def nodes_changed(self, node: str = "", *, in_slurm: bool = True) -> None:
        """Kubernetes' nodes have other labels, taints or amounts, or are others; this one, where it is named. `in_slurm`: Slurm's may be too, and are read again."""
        if node:
            self._directions.node_changed(node)
        if in_slurm:
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

    def also_claim(self, claim: ClaimKeeper) -> None:
        """Jobs that another copy of this cluster submitted stop everything."""
        self._claim = claim
        self._strays.is_foreign = claim.is_foreign_job
        self._executor.stamp, claim.comments = claim.stamp, self._executor.comments
        claim.live = lambda: self.poller.jobs
        self.also(claim.run, "claim")

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
            await self._slurm.jobs.submits_alone("admin_comment")
            self._takeover.begin(await self._takeover.until_answered(self._slurm_ahead))
            tasks.create_task(self.poller.run(), name="jobs")
            if self._claim is not None:
                await self._settle_claim(self._claim)
            tasks.create_task(self._teller.run(), name="status")
            tasks.create_task(self.keeper.run(), name="whereabouts")
            tasks.create_task(self.reconciler.submits.serve(self.reconciler.submit, workers=SUBMITTERS), name="submits")
            tasks.create_task(self.reconciler.queue.serve(self.reconciler.reconcile, workers=WORKERS), name="workloads")
            await self._takeover.run()
            keys = self._membership.keys()
            log.info("leading: %d workloads, %d jobs of theirs in Slurm", len(keys), len(self.reconciler.knowledge.owners))
            tasks.create_task(self._strays.run(), name="jobs without pods")
            tasks.create_task(self._note_labels(), name="labels noted")

    async def _settle_claim(self, claim: ClaimKeeper) -> None:
        """Until it is known that no other copy of this cluster claims its jobs: nothing is done before that."""
        again: list[int] = []
        while True:
            claimed = await self._claimed(await self._takeover.until_answered(partial(self._takeover.look_first, again)))
            if await self._takeover.until_answered(partial(claim.settle, claimed)):
                return
            newest = sorted(claimed, key=lambda job: (job.claim.generation, job.claim.beat), reverse=True)
            again = [job.job_id for job in newest[:MOST_CLAIMED]]
            await asyncio.sleep(CONFLICT_SECONDS)

    async def _claimed(self, found: Sequence[Found]) -> list[Claimed]:
        """Jobs that are not over and carry a claim; ours by their pods' labels."""
        keys = self._membership.keys()
        labels, pace = set[int](), Pace()
        for key in keys:
            labels.update(job_id_of(pod) for pod in self._membership.pods(key))
            await pace.step()
        return [
            Claimed(job.submission.job_id, job.claim, job.submission.job_id in labels)
            for job in found
            if job.claim is not None and not job.is_over
        ]

    async def _slurm_ahead(self) -> float:
        """Of the API server's clock, in seconds: jobs' times are compared with pods'."""
        await self.poller.confirm()
        await self._read_kube_clock()
        return self.poller.clock.ahead_of(self._kube_clock, asyncio.get_running_loop().time())

    async def _note_labels(self) -> None:
        """For the next leader: up to which moment each job that was submitted has its label."""
        while self._note is not None:
            now = time.time()
            open_ones = [
                known.sent_at for known in self.reconciler.known.values() if known.submitting or known.unsettled or known.unwritten
            ]
            if all(open_ones):  # else one that was taken over has yet to get its label
                self._note(min([now, *open_ones]), await self._slurm.jobs.last_id())
            await asyncio.sleep(NOTE_SECONDS)

    def _take_over(self, key: WorkloadKey, jobs: Sequence[Found]) -> None:
        """Of the jobs that name a workload, the one that is its own; the others are ended."""
        if not jobs:
            return
        self._executor.adopting(key, self._membership.pods(key), jobs)
        pods = self._membership.pods(key)
        awaited = self.reconciler.succession.prospects(key).awaited
        inherited = inheritance(self._executor.site.cluster, key, pods, jobs, awaited=awaited, in_slurm=self._in_slurm)
        if inherited.own and (pods or awaited):
            known = self.reconciler.known.setdefault(key, Known())
            known.take(inherited.own.submission, self.poller.epoch)
            known.is_for(meant_by(inherited.own, pods))
            known.depends_on_pods = self._directions.depend_on_pods(pod for pod in pods if not pod.spec.node_name)
            known.where = [EVERYWHERE] * len(known.job_ids) if inherited.own.anywhere else None
            for job_id in known.job_ids:
                self.reconciler.own_job(job_id, key)
            self._window.keep(key)  # until it is seen to have started
            leaves = self._leaves(inherited.own)
            if leaves:
                self._expect_end(key)
            self.reconciler.queue.add(key, priority=URGENT if leaves else 0)
        for job_id in inherited.strays if pods or awaited else [job_id for job in jobs for job_id in job.to_end]:
            self._strays.suspect(job_id)

    def _leaves(self, job: Found) -> bool:
        return job.is_leaving or self._is_near(job.ends)

    def _is_seen(self, key: WorkloadKey) -> bool:
        known = self.reconciler.known.get(key)
        return known is None or not any(map(self.poller.has_yet_to_see, known.job_ids))

    def _is_near(self, ends: float) -> bool:
        """Whether a job's end, by Slurm's clock, may come before its record is read in turn."""
        now = self._slurm_time()
        return now is not None and 0 < ends < now + NEAR_SECONDS

    def _is_of(self, job: Found, key: WorkloadKey) -> bool:
        said = Marking(marker=job.marker, cluster="", workload=str(job.key), count=job.count, pods=job.pods)
        return is_for(said, job.submission.job_id, key, [pod.metadata.name for pod in self._membership.pods(key)])

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
        if (standing := self._in_line(key)) is not None:
            return standing
        if self._window.is_waiting(key):
            return Standing(
                reason="Window",
                message="waits for its turn to be queued in Slurm: enough pods of the namespace, or of all, wait there already",
                lasting=True,
            )
        if any(pod.spec.scheduling_gates for pod in pods):
            return None
        if key.kind != "Pod":
            return self._gathering(key, known, pods)
        return None

    def _gathering(self, key: WorkloadKey, known: Known, pods: list[Pod]) -> Standing:
        """Of pods whose gang is not complete: how many are missing, or that the object they name is."""
        if key.kind not in ("Job", "Pod") and self._groups(key) is None:
            kind = "PodGroup" if key.kind == "CoschedulingPodGroup" else key.kind
            name = f"{kind} {key.namespace}/{key.object_name}"
            unknown = f"{name} does not exist{'' if kind == 'PodGroup' else ' or has no such group'}"
            waiting = "1 pod is waiting" if len(pods) == 1 else f"{len(pods)} pods are waiting"
            return Standing(reason="GroupMissing", message=f"{unknown}: {waiting} for it")
        workload = self.reconciler.knowledge.workload(key, pods, known)
        wanted = f" of {workload.size}" if workload and workload.size > len(pods) else ""
        return Standing(reason="Gathering", message=f"waiting for the rest of the gang: {len(pods)}{wanted} pods of {key} exist")

    def _in_line(self, key: WorkloadKey) -> Standing | None:
        """Of one that waits for a submit limit, or for pods in flight. Beyond the front of a line nothing changes for it."""
        if found := self._limits.standing(key):
            why, position = found
            message = f"Slurm accepts no more jobs now: {why}; {_place(position)}"
            return Standing(reason="SubmitLimit", message=message, lasting=not position)
        if found := self._siblings.standing(key):
            why, position = found
            return Standing(reason="PlacedInTurn", message=f"{why}; {_place(position)}", lasting=not position)
        return None


def _place(position: int) -> str:
    """In a line. Its length is not told: it would be news all the time."""
    if not position:
        return f"more than {FRONT} pods or gangs are ahead of it in line"
    return "it is the first in line" if position == 1 else f"it is number {position} in line"


async def _nothing_noted() -> tuple[float, int]:
    """Nothing tells which jobs of an earlier leader have their label."""
    return 0.0, 0


def _surplus(known: Known) -> Standing:
    """Of a pod of a gang whose job has no slot for it."""
    slots = known.submission.tasks if known.submission else 0
    return Standing(
        reason="Surplus",
        message=f"Slurm job {known.job_id} of its gang was submitted for {slots} pods: it waits until a slot is free that fits it, or for the next job",
    )
