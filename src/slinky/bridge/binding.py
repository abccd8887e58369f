"""A job that has started: its pods into its slots, and onto their nodes.

Comes in: the job, its pods, what Slurm allocated, what Kubernetes counts on the nodes. Goes out: Bindings, all of a workload's at once, after the volumes that they need. What must stay true: nothing is bound to a node that has no room for it in
Kubernetes' own count, or that Slurm gave it alone while another's containers are not gone, or where its volumes cannot be had; who waits for a node is looked at again when something there goes away.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from slinky.bridge.devices import Indices
from slinky.bridge.directions import Judgement
from slinky.bridge.executor import Executor, is_refused
from slinky.bridge.ledger import Ledger
from slinky.bridge.memory import Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.needs import Needs, needs_of
from slinky.bridge.node_names import NodeNames
from slinky.bridge.pacing import Pace, all_of, in_turns
from slinky.bridge.placement import Placement, PlacementError, Slot, assign, hetjob_slots, slots_of
from slinky.bridge.plan import JobView, PodView
from slinky.bridge.submission import Layout, Submission, task_annotations
from slinky.bridge.submitting import ANY_NODE
from slinky.bridge.task import exceeds
from slinky.bridge.telling import Teller
from slinky.bridge.volumes.binder import VolumeBinder
from slinky.bridge.volumes.outcomes import NodeRefused, Underway
from slinky.bridge.volumes.patience import wait_for, wait_no_more
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod
from slinky.slurm import Allocation, SlurmClient, SlurmError

__all__ = ["Binder", "NodeRefused", "OldNewsError"]

log = logging.getLogger(__name__)

HELD_SECONDS = 30.0  # how long an allocation is kept for a node that is full of pods which are not about to go


class OldNewsError(SlurmError):
    """Slurm does not answer, or was not asked for a while: a job that ran then may be over, and its nodes another's."""


class Binder:
    """`wake(key)` is called for a workload whose node may have room now. Without `volumes`, claims are not looked at. `is_current` tells whether what is known of Slurm's jobs is news, and `runs` whether a workload's job runs by that news."""

    def __init__(
        self,
        executor: Executor,
        slurm: SlurmClient,
        ledger: Ledger,
        judgement: Judgement,
        teller: Teller,
        metrics: BridgeMetrics,
        wake: Callable[[WorkloadKey], None],
        volumes: VolumeBinder | None = None,
        names: NodeNames | None = None,
        is_current: Callable[[], bool] = lambda: True,
        runs: Callable[[Known], bool] = lambda _: True,
    ) -> None:
        self._names = names or NodeNames()
        self._is_current, self._runs = is_current, runs
        self._executor = executor
        self._slurm = slurm
        self._ledger = ledger
        self._judgement = judgement
        self._teller = teller
        self._metrics = metrics
        self._wake = wake
        self._volumes = volumes
        self._waiting: dict[str, set[WorkloadKey]] = {}

    def node_freed(self, node: str) -> None:
        for key in self._waiting.pop(node, ()):
            self._wake(key)

    async def placements(
        self,
        key: WorkloadKey,
        pods: Sequence[PodView],
        job: JobView | None,
        known: Known,
        wished: Mapping[str, int],
        components: Mapping[str, int] | None = None,
    ) -> list[Placement]:
        """Where each pod of the job goes, those that are there already included. None while the job does not run. What was begun for those that go elsewhere, or nowhere, is undone. `components`: of a hetjob, that of each pod."""
        found = await self._placements(key, pods, job, known, wished, components)
        await self.give_back(key, {placement.uid: placement.node for placement in found})
        return found

    def forget(self, key: WorkloadKey) -> None:
        """Nothing is left of it."""
        for node in [node for node, keys in self._waiting.items() if key in keys]:
            self._waiting[node].discard(key)
            if not self._waiting[node]:
                del self._waiting[node]
        if self._volumes:
            self._volumes.forget(key)

    async def give_back(self, key: WorkloadKey, keep: Mapping[str, str] | None = None) -> None:
        """Volumes that were reserved for pods of the workload, but for those of `keep`: UID → node."""
        if self._volumes and self._volumes.holds(key):
            await self._volumes.give_back(key, keep)

    async def _placements(
        self,
        key: WorkloadKey,
        pods: Sequence[PodView],
        job: JobView | None,
        known: Known,
        wished: Mapping[str, int],
        components: Mapping[str, int] | None,
    ) -> list[Placement]:
        if job is None or job.state != "running" or known.submission is None:
            return []
        own = [pod for pod in pods if pod.job_id == job.job_id]
        starting = [pod.uid for pod in own if pod.state == "waiting" and not pod.deleting]
        if not starting:
            return []
        held = {pod.uid: pod.rank for pod in own if pod.state == "bound" and pod.rank >= 0}
        known.unplaceable = ""
        gone: dict[str, int] = {}  # slots on nodes that the job has lost since: nobody's
        if not known.slots or held:
            allocations = await asyncio.gather(*map(self._slurm.jobs.allocation, known.submission.job_ids))
            nodes = {node.node for allocation in allocations for node in allocation.nodes}
            try:
                known.slots = known.slots or _slots(known.submission, allocations)
            except PlacementError as error:
                known.obstacle = known.unplaceable = str(error)
                log.warning("%s: %s", key, error)
                return []
            taken = set(held.values())
            gone = {f"gone {slot.rank}": slot.rank for slot in known.slots if slot.node not in nodes and slot.rank not in taken}
        placed = assign(known.slots, held | gone, starting, wished, components)
        return [self._in_kubernetes(placement) for placement in placed if placement.uid not in gone]

    def _in_kubernetes(self, placement: Placement) -> Placement:
        host = self._names.in_kubernetes(placement.slot.node)
        return placement if host == placement.slot.node else msgspec.structs.replace(placement, host=host)

    async def bind(self, key: WorkloadKey, placements: Sequence[Placement], pods: Mapping[str, Pod], known: Known) -> dict[str, str]:
        """Nodes (by Slurm's names) that Kubernetes will not take a pod on, and why, under `ANY_NODE` where another node would not help; where there is one, nothing was bound. Raises OldNewsError.

        *Invariants:* all pods are checked in short turns, so that a gang of thousands does not block the event loop. They are bound in the tick in which all checks hold: what has changed on a node since its turn is checked
        again then.
        """
        assert known.submission
        self._require_news(known)
        submission, pace = known.submission, Pace()
        if overdrawn := await self._overdrawn(placements, pods, submission, pace):
            return self._refused({ANY_NODE: overdrawn}, known)
        in_slurm = {placement.node: placement.slot.node for placement in placements}
        if strange := [placement.slot.node for placement in placements if not placement.node]:
            return self._refused({name: self._names.why_unknown(name) for name in strange}, known)
        places = [(pods[placement.uid], placement.node) for placement in placements]
        placed = await self._judgement.place(places, pace)
        bound = False
        try:
            if placed.refusal:
                return self._refused(_refusal_by_node(placements, placed.refusal), known)
            nodes = _by_node(placements, pods)
            versions: dict[str, int] = {}
            for here in nodes:
                if held := self._held(key, here, pods, known):
                    return {in_slurm[here.node]: held} if self._held_for_long(here, known) else {}
                versions[here.node] = self._ledger.version(here.node)
                await pace.step()
            outcome = await self._volumes.bind(key, places) if self._volumes else None
            if isinstance(outcome, Underway):
                known.obstacle = ""
                wait_for(known, outcome.why, outcome.since, outcome.until)
                return {}
            wait_no_more(known)
            if isinstance(outcome, NodeRefused):
                known.obstacle = outcome.why
                return {in_slurm.get(outcome.node, outcome.node): outcome.why}
            layout = self._layout(key, known, [pod for pod, _ in places])
            await pace.step()  # from here on nothing waits until all pods are counted where they go
            self._require_news(known)
            if refusal := self._judgement.refusal_since(placed, places):
                return self._refused(_refusal_by_node(placements, refusal), known)
            if self._volumes and not self._volumes.still_fits(key, places):
                return {}
            for here in nodes:
                if self._ledger.version(here.node) != versions[here.node] and (held := self._held(key, here, pods, known)):
                    return {in_slurm[here.node]: held} if self._held_for_long(here, known) else {}
            known.obstacle, known.obstacle_since, known.requeues, known.rejected = "", 0.0, 0, ""
            for here in nodes:
                self._ledger.assume_all(here.node, here.pods, here.devices)
            for pod, node in places:
                self._judgement.assume(pod, node)
            bound = True
        finally:
            if not bound:
                for pod in placed.assumed:
                    self._judgement.withdraw(pod)
        begun: set[str] = set()
        try:
            await all_of([self._bind_one(pods[placement.uid], placement, layout, known, begun) for placement in placements])
        except asyncio.CancelledError:
            for pod, _ in places:
                if pod.metadata.uid not in begun:
                    self._withdraw(pod)
            raise
        if self._volumes:
            self._volumes.bound(key)
        self._metrics.bound(known, len(placements))
        await in_turns(places, lambda place: self._teller.bound([place], submission), pace)
        return {}

    @staticmethod
    def _refused(refused: dict[str, str], known: Known) -> dict[str, str]:
        wait_no_more(known)
        known.obstacle = "; ".join(refused.values())
        return refused

    def _held(self, key: WorkloadKey, here: "_OnNode", pods: Mapping[str, Pod], known: Known) -> str:
        """What keeps its pods from that node for now; the workload is woken when something there goes away."""
        obstacle = self._ledger.obstacle(here.node, here.pods, here.devices) or (
            self._company(here.node, pods, known) if here.alone else ""
        )
        if obstacle:
            wait_no_more(known)
            self._hold(key, here.node, obstacle, known, here.pods)
        return obstacle

    def _require_news(self, known: Known) -> None:
        if not self._is_current():
            raise OldNewsError("not bound yet: how its job stands was last heard too long ago", request=f"job {known.job_id}")
        if not self._runs(known):
            raise OldNewsError("not bound: its job has ended, or is about to, since it was decided", request=f"job {known.job_id}")

    def _company(self, node: str, own: Mapping[str, Pod], known: Known) -> str:
        """Empty where nobody of ours is left on a node that the job has to itself. Who is being deleted is waited for; who is not, for a while: it may be about to, or Slurm lets jobs share cores."""
        going, staying = self._ledger.others_on(node, own)
        long = known.obstacle_since and asyncio.get_running_loop().time() - known.obstacle_since >= HELD_SECONDS
        named = going or ([] if long else staying)
        return f"node {node} is its job's alone, and the containers of pod {named[0]} are not gone" if named else ""

    async def _overdrawn(self, placements: Sequence[Placement], pods: Mapping[str, Pod], job: Submission, pace: Pace) -> str:
        """Why a pod is not covered by its part of the job: the last guard, as the job may have been changed in Slurm, or submitted by an older release. Worked out once for all pods of one template."""
        covered: dict[tuple[int, int, bool], Needs] = {}  # by the id of what a template asks for, which is held here
        for placement in placements:
            pod, slot = pods[placement.uid], placement.slot
            needs = needs_of(pod)
            kind = (id(needs), slot.component, slot.alone)
            if kind not in covered:
                if why := exceeds(pod, job.task_in(slot), self._executor.site.gres, whole_node=slot.alone):
                    return f"pod {pod.key} requests {why} (job {job.job_id}, node {slot.node})"
                covered[kind] = needs
            await pace.step()
        return ""

    def _held_for_long(self, here: "_OnNode", known: Known) -> bool:
        """Somebody else's pods, who show no sign of going: not worth an allocation that others could use."""
        now = asyncio.get_running_loop().time()
        known.obstacle_since = known.obstacle_since or now
        return now - known.obstacle_since >= HELD_SECONDS and not self._ledger.passes(here.node, here.pods, here.devices)

    def _layout(self, key: WorkloadKey, known: Known, pods: Sequence[Pod]) -> Layout:
        """Of a job's slots, made once for all its pods, also for those that come later in the place of others."""
        assert known.submission
        if known.layout is None or known.layout.slots is not known.slots or known.layout.job is not known.submission:
            known.layout = Layout(known.submission, known.slots)
            if known.layout.withheld:
                log.info("%s: %s", key, known.layout.withheld)
                self._teller.list_withheld(pods, known.layout.withheld)
        return known.layout

    async def _bind_one(self, pod: Pod, placement: Placement, layout: Layout, known: Known, begun: set[str]) -> None:
        begun.add(placement.uid)
        try:
            annotations = task_annotations(layout, placement.slot, pod.spec)
            bound = await self._executor.bind(pod, placement.node, annotations, known.job_id)
        except BaseException as error:
            if is_refused(error):
                self._withdraw(pod)
            else:  # it may be there, and counts until that is known: by the next try, or by the watch; and so may the label be
                known.unwritten.discard(placement.uid)
            raise
        if bound:
            known.written.ranks[placement.uid] = placement.slot.rank
            known.unwritten.discard(placement.uid)
        else:
            self._withdraw(pod)  # what became of it the watch will show

    def _withdraw(self, pod: Pod) -> None:
        self._ledger.withdraw(pod)
        self._judgement.withdraw(pod)
        if self._volumes:
            self._volumes.unbound(pod)

    def _hold(self, key: WorkloadKey, node: str, obstacle: str, known: Known, pods: Sequence[Pod]) -> None:
        """Slurm gave it the node; Kubernetes has no room there yet: the containers of the last pod are not gone, or somebody else's are there."""
        if not known.obstacle:
            log.info("%s waits before it is bound: %s", key, obstacle)
            self._teller.held(pods, obstacle)
        known.obstacle = obstacle
        self._waiting.setdefault(node, set()).add(key)


class _OnNode(msgspec.Struct, frozen=True):
    """A workload's pods that go to one node, and their devices. `alone`: its job has the node to itself."""

    node: str
    pods: list[Pod]
    devices: list[Indices]
    alone: bool


def _by_node(placements: Sequence[Placement], pods: Mapping[str, Pod]) -> list[_OnNode]:
    by_node: dict[str, list[Placement]] = {}
    for placement in placements:
        by_node.setdefault(placement.node, []).append(placement)
    return [
        _OnNode(
            node,
            [pods[placement.uid] for placement in placed],
            [placement.slot.devices for placement in placed],
            any(placement.slot.alone for placement in placed),
        )
        for node, placed in by_node.items()
    ]


def _refusal_by_node(placements: Sequence[Placement], refusal: tuple[Pod, str]) -> dict[str, str]:
    pod, why = refusal
    return {placement.slot.node: why for placement in placements if placement.uid == pod.metadata.uid}


def _slots(job: Submission, allocations: Sequence[Allocation]) -> list[Slot]:
    if not job.components:
        return slots_of(job.tasks, job.task, allocations[0])
    return hetjob_slots([(part.ranks, part.task, given) for part, given in zip(job.components, allocations, strict=True)])
