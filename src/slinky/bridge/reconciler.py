"""The loop: what changed on either side leads to a look at its workload, a plan, and its execution.

Comes in: the caches of Kubernetes and the poller's word on Slurm's jobs. Goes out: acts, through the executor. What must stay true: one workload is with one worker at a time; everything decided comes from memory; submits have
workers of their own, so that a pod whose job has started never waits behind a thousand that have not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from slinky.bridge.annotations import AnnotationError
from slinky.bridge.executor import Executor
from slinky.bridge.jobs import Jobs
from slinky.bridge.ledger import Ledger
from slinky.bridge.membership import Membership
from slinky.bridge.memory import Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.placement import Placement, PlacementError, assign, slots_of
from slinky.bridge.plan import Action, Bind, EndJob, Evict, JobView, Label, PodView, Release, Snapshot, Submit, plan
from slinky.bridge.poller import JobPoller
from slinky.bridge.slurm_nodes import FRESH_SECONDS, SlurmNodes
from slinky.bridge.submission import task_annotations
from slinky.bridge.telling import Teller
from slinky.bridge.views import pod_view
from slinky.bridge.windows import Window
from slinky.bridge.workload import PodGroup, Workload, WorkloadKey, rank_of, workload_of
from slinky.kube import Pod, WorkQueue
from slinky.slurm import RefusedError, SlurmClient

__all__ = ["Reconciler"]

log = logging.getLogger(__name__)

PARKED_SECONDS = 60.0
INCOMPLETE_SECONDS = 30.0
NODE_SECONDS = 30.0  # how long a look at a node that has no room yet is good, where nothing tells
STARTED = 1  # priority of a workload whose job has changed, over those that are to be submitted

Groups = Callable[[WorkloadKey], PodGroup | None]


class Reconciler:
    """`queue` has the workloads to look at; `submits` those of them that are to be submitted."""

    def __init__(
        self,
        executor: Executor,
        slurm: SlurmClient,
        membership: Membership,
        groups: Groups,
        ledger: Ledger,
        slurm_nodes: SlurmNodes,
        window: Window,
        poller: JobPoller,
        teller: Teller,
        metrics: BridgeMetrics,
    ) -> None:
        self._executor = executor
        self._slurm = slurm
        self._membership = membership
        self._groups = groups
        self._ledger = ledger
        self._slurm_nodes = slurm_nodes
        self._window = window
        self._poller = poller
        self._teller = teller
        self._metrics = metrics
        self._jobs = Jobs(slurm, poller, executor.site.cluster)
        self.queue: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace)
        self.submits: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace)
        self.known: dict[WorkloadKey, Known] = {}
        self._workload_of_job: dict[int, WorkloadKey] = {}
        self._waiting_for_node: dict[str, set[WorkloadKey]] = {}

    # What happens elsewhere

    def job_changed(self, job_id: int) -> None:
        if key := self._workload_of_job.get(job_id):
            self.queue.add(key, priority=STARTED)

    def node_freed(self, node: str) -> None:
        for key in self._waiting_for_node.pop(node, ()):
            self.queue.add(key, priority=STARTED)

    def slurm_nodes_changed(self) -> None:
        """Those for which no node was large enough are judged again."""
        for key, known in self.known.items():
            if known.too_large:
                known.parked_until = 0.0
                self.queue.add(key)

    def own_job(self, job_id: int, key: WorkloadKey) -> None:
        self._workload_of_job[job_id] = key
        self._poller.follow(job_id)

    # One workload

    async def reconcile(self, key: WorkloadKey) -> None:
        """Look, plan, act. What fails is raised: the queue comes back to it."""
        known = self.known.setdefault(key, Known())
        if known.submitting:
            return  # it is looked at again when that is done
        pods = sorted(self._membership.pods(key), key=rank_of)
        try:
            workload = self._workload(key, pods)
        except AnnotationError as error:
            workload = None
            self._park(key, known, pods, str(error), for_good=True)
        views = _views(pods, known)
        job = await self._job(key, views, known)
        if not pods and (job is None or job.state in ("over", "lost")):
            self._forget(key, known)
            return
        placements = await self._placements(workload, views, job, known)
        snapshot = self._snapshot(key, pods, views, workload, job, placements, known)
        actions = plan(snapshot)
        if not any(isinstance(action, Submit) for action in actions):
            self._wake(self._window.leave(key) if not job or job.state != "pending" else [])
        await self._carry_out(actions, key, {pod.metadata.uid: pod for pod in pods}, snapshot, known)
        self._metrics.now(known, _phase(snapshot, self._window.is_waiting(key)), len(pods))
        self._teller.look(key, snapshot)

    async def submit(self, key: WorkloadKey) -> None:
        """Of the submit workers: the workload as it is now, if it is still to be submitted."""
        known = self.known.get(key)
        pods = sorted(self._membership.pods(key), key=rank_of)
        if known is None or known.submitting or known.job_id:
            return
        workload = self._workload(key, pods)
        now = self._snapshot(key, pods, _views(pods, known), workload, None, [], known)
        if workload is None or not any(isinstance(action, Submit) for action in plan(now)):
            self.queue.add(key)
            return
        known.submitting = True
        try:
            await self._submit(key, workload, known)
        finally:
            known.submitting = False
            self.queue.add(key)

    async def _submit(self, key: WorkloadKey, workload: Workload, known: Known) -> None:
        missing, sure = await self._slurm_nodes.shortfall(self._executor.describe(workload))
        if missing:
            if sure:
                self._park(key, known, workload.pods, missing, too_large=True)
            else:
                known.parked_until = asyncio.get_running_loop().time() + FRESH_SECONDS
                self.queue.add_after(key, FRESH_SECONDS + 0.05)
            self._wake(self._window.leave(key))
            return
        try:
            submission = await self._executor.submit(workload)
        except RefusedError as error:
            self._park(key, known, workload.pods, f"Slurm refuses the job: {error.description or error}")
            self._wake(self._window.leave(key))
            return
        known.take(submission, self._poller.epoch)
        self.own_job(submission.job_id, key)
        self._metrics.submitted(known, workload.pods)
        self._teller.submitted(workload.pods, submission)
        await _all([self._label(pod, submission.job_id, known) for pod in workload.pods])

    async def _label(self, pod: Pod, job_id: int, known: Known) -> None:
        await self._executor.label(pod, job_id)
        known.written.labels[pod.metadata.uid] = job_id

    async def _release(self, pod: Pod, known: Known) -> None:
        await self._executor.release(pod)
        known.written.released.add(pod.metadata.uid)

    def _park(
        self, key: WorkloadKey, known: Known, pods: Sequence[Pod], why: str, *, too_large: bool = False, for_good: bool = False
    ) -> None:
        if why != known.parked:
            log.warning("%s is parked: %s", key, why)
            self._teller.parked(pods, why)
        known.parked, known.too_large = why, too_large
        known.parked_until = asyncio.get_running_loop().time() + PARKED_SECONDS
        if not for_good:
            self.queue.add_after(key, PARKED_SECONDS)

    async def _carry_out(self, actions: list[Action], key: WorkloadKey, pods: dict[str, Pod], now: Snapshot, known: Known) -> None:
        """What concerns a job's end in order, what concerns its pods all at once."""
        acts: list[Awaitable[None]] = []
        for action in actions:
            match action:
                case Submit():
                    if self._window.enter(key):
                        self._wake(self._window.next())
                        self.submits.add(key)
                case EndJob(job_id, exit_code, why):
                    await self._end(job_id, exit_code, why, now, known)
                    self.queue.add(key)
                case Label(uid, job_id):
                    acts.append(self._label(pods[uid], job_id, known))
                    if not job_id:
                        self._drop_job(known)
                case Evict(uid, why):
                    self._teller.evicted(pods[uid], why)
                    acts.append(self._executor.evict(pods[uid], why))
                case Release(uid):
                    acts.append(self._release(pods[uid], known))
                case Bind():
                    pass
        await _all(acts)
        bindings = [action.placement for action in actions if isinstance(action, Bind)]
        if bindings and known.submission:
            await self._bind(key, bindings, pods, known)

    async def _end(self, job_id: int, exit_code: int | None, why: str, now: Snapshot, known: Known) -> None:
        running = now.job is not None and now.job.state == "running"
        await self._executor.end_job(job_id, exit_code, why, running=running)
        known.over, known.why = True, f"Slurm job {job_id} was ended: {why}"
        self._metrics.ended(known)
        self._poller.forget([job_id])
        self._poller.look_soon()

    async def _bind(self, key: WorkloadKey, placements: list[Placement], pods: dict[str, Pod], known: Known) -> None:
        assert known.submission
        by_node: dict[str, list[Pod]] = {}
        for placement in placements:
            by_node.setdefault(placement.node, []).append(pods[placement.uid])
        for node, here in by_node.items():
            if obstacle := self._ledger.obstacle(node, here):
                self._hold(key, node, obstacle, known, here)
                return
        known.obstacle = ""
        for placement in placements:
            self._ledger.assume(pods[placement.uid], placement.node)
        await _all([self._bind_one(pods[placement.uid], placement, known) for placement in placements])
        self._metrics.bound(known, len(placements))
        self._teller.bound([(pods[p.uid], p.node) for p in placements], known.submission)

    async def _bind_one(self, pod: Pod, placement: Placement, known: Known) -> None:
        assert known.submission
        try:
            await self._executor.bind(pod, placement.node, task_annotations(known.submission, placement.slot, known.slots))
        except BaseException:
            self._ledger.withdraw(pod)
            raise
        known.written.ranks[placement.uid] = placement.slot.rank

    def _hold(self, key: WorkloadKey, node: str, obstacle: str, known: Known, pods: list[Pod]) -> None:
        """Slurm gave it the node; Kubernetes has no room there yet: the containers of the last pod are not gone, or somebody else's are there."""
        if not known.obstacle:
            log.info("%s waits before it is bound: %s", key, obstacle)
            self._teller.held(pods, obstacle)
        known.obstacle = obstacle
        self._waiting_for_node.setdefault(node, set()).add(key)
        self.queue.add_after(key, NODE_SECONDS)

    # What is known

    def _workload(self, key: WorkloadKey, pods: Sequence[Pod]) -> Workload | None:
        job = self._membership.job_of(pods[0]) if pods else None
        return workload_of(key, pods, self._groups(key), job)

    async def _job(self, key: WorkloadKey, pods: Sequence[PodView], known: Known) -> JobView | None:
        """The workload's job: the one this process submitted or adopted, else the one that its pods' labels name."""
        labels = {pod.job_id for pod in pods} - {0}
        if not known.job_id and labels:
            known.job_id = max(labels)
            self.own_job(known.job_id, key)
        view = await self._jobs.view(key, known)
        if view is None:
            return None
        if view.state in ("over", "lost") and view.job_id not in labels and pods:
            self._drop_job(known)  # nobody is left of those it was for: what waits now is for another job
            return None
        if known.missing_since:
            self.queue.add_after(key, 1.0)
        if view.state == "running" and not known.started_at:
            self._metrics.started(known)
        return view

    async def _placements(self, workload: Workload | None, pods: Sequence[PodView], job: JobView | None, known: Known) -> list[Placement]:
        """Where each pod of the job goes, those that are there already included."""
        if job is None or job.state != "running" or workload is None or known.submission is None:
            return []
        own = [pod for pod in pods if pod.job_id == job.job_id]
        starting = [pod.uid for pod in own if pod.state == "waiting" and not pod.deleting]
        if not starting:
            return []
        if not known.slots:
            allocation = await self._slurm.jobs.allocation(job.job_id)
            try:
                known.slots = slots_of(known.submission.tasks, known.submission.task, allocation)
            except PlacementError as error:
                known.obstacle = str(error)
                self.queue.add_after(workload.key, NODE_SECONDS)
                log.warning("%s: %s", workload.key, error)
                return []
        held = {pod.uid: pod.rank for pod in own if pod.state == "bound" and pod.rank >= 0}
        return assign(known.slots, held, starting, workload.wished_ranks)

    def _snapshot(
        self,
        key: WorkloadKey,
        pods: Sequence[Pod],
        views: Sequence[PodView],
        workload: Workload | None,
        job: JobView | None,
        placements: list[Placement],
        known: Known,
    ) -> Snapshot:
        now = asyncio.get_running_loop().time()
        size = workload.size if workload else 1
        return Snapshot(
            pods=views,
            size=size,
            job=job,
            placements=placements,
            parked=known.parked_until > now,
            gated=workload is None or any(pod.spec.scheduling_gates for pod in pods),
            broken=self._is_broken(key, pods, size, job, known, now),
        )

    def _is_broken(self, key: WorkloadKey, pods: Sequence[Pod], size: int, job: JobView | None, known: Known, now: float) -> bool:
        """Members of a gang that has a job and has not begun are missing, and have been for a while."""
        alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        if job is None or len(alive) >= min(size, job.tasks) or any(pod.spec.node_name for pod in pods):
            known.incomplete_since = 0.0
            return False
        if not known.incomplete_since:
            known.incomplete_since = now
            self.queue.add_after(key, INCOMPLETE_SECONDS + 0.1)
        return now - known.incomplete_since >= INCOMPLETE_SECONDS

    def _drop_job(self, known: Known) -> None:
        self._poller.forget([known.job_id])
        self._workload_of_job.pop(known.job_id, None)
        known.drop_job()

    def _forget(self, key: WorkloadKey, known: Known) -> None:
        self._drop_job(known)
        self._metrics.forget(known)
        self.known.pop(key, None)
        self._teller.forget(key)
        self._wake(self._window.leave(key))

    def _wake(self, keys: Sequence[WorkloadKey]) -> None:
        for key in keys:
            self.queue.add(key)


def _views(pods: Sequence[Pod], known: Known) -> list[PodView]:
    views = [known.written.over(pod_view(pod)) for pod in pods]
    known.written.keep_only({view.uid for view in views})
    return views


async def _all(acts: Sequence[Awaitable[None]]) -> None:
    """All of them, also where one fails; then that failure."""
    results = await asyncio.gather(*acts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _phase(now: Snapshot, in_window: bool) -> str:
    """For the metric: where a workload stands."""
    if now.job is None:
        if now.parked:
            return "parked"
        if in_window:
            return "window"
        return "gated" if now.gated else "gathering"
    if now.job.state == "running":
        return "running" if all(pod.state != "waiting" for pod in now.pods) else "starting"
    return now.job.state
