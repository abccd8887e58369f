"""The loop: what changed on either side leads to a look at its workload, a plan, and its execution.

Comes in: the caches of Kubernetes and the poller's word on Slurm's jobs. Goes out: acts, through the executor. What must stay true: one workload is with one worker at a time; everything decided comes from memory; submits have
workers of their own, so that a pod whose job has started never waits behind a thousand that have not.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec

from slinky.bridge.acts import Acts
from slinky.bridge.binding import Binder
from slinky.bridge.ends import Ending
from slinky.bridge.eviction_settings import EvictionSettings
from slinky.bridge.evictions import Evictions
from slinky.bridge.executor import EXPECTED, Executor
from slinky.bridge.jobs import Jobs
from slinky.bridge.knowledge import Groups, Hold, Knowledge
from slinky.bridge.looks import next_moment, phase_of, views_in_turns, views_of
from slinky.bridge.membership import Membership
from slinky.bridge.memory import SETS, Known
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.pacing import Pace, all_of, seconds_between_looks
from slinky.bridge.placement import Placement
from slinky.bridge.plan import (
    Action,
    Bind,
    EndJob,
    Evict,
    JobView,
    Label,
    PodView,
    Release,
    Remember,
    SetApart,
    Shorten,
    Snapshot,
    Submit,
    plan,
)
from slinky.bridge.poller import JobPoller
from slinky.bridge.settings import GangSettings
from slinky.bridge.submitting import Submitter
from slinky.bridge.succession import Succession, without
from slinky.bridge.telling import Teller
from slinky.bridge.volumes.patience import is_to_be_told
from slinky.bridge.windows import Window
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Backoff, Pod, WorkQueue

__all__ = ["Reconciler"]

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.05, most=30.0)  # short, so that an outage of either side does not outlast itself by much
STARTED = 1  # priority of a workload whose job has changed, over those that are to be submitted
URGENT = 2  # and of one whose job is about to end: after a takeover thousands have changed

Shrink = Callable[[Sequence[Pod], Sequence[PodView], JobView | None, Known, WorkloadKey, Callable[[], bool]], Awaitable[None]]


async def _never(*_: object) -> None:
    """Nodes are kept until the job ends."""


class Reconciler:
    """`queue` has the workloads to look at; `submits` those of them that are to be submitted."""

    def __init__(
        self,
        executor: Executor,
        membership: Membership,
        groups: Groups,
        jobs: Jobs,
        poller: JobPoller,
        submitter: Submitter,
        binder: Callable[[Callable[[WorkloadKey], None]], Binder],
        window: Window,
        teller: Teller,
        metrics: BridgeMetrics,
        hold: Hold = lambda *_: "",
        gangs: GangSettings | None = None,
        eviction: EvictionSettings | None = None,
        shrink: Shrink | None = None,
    ) -> None:
        self._submitter = submitter
        self._arrivals = itertools.count(1)
        self._acts = Acts(executor, submitter, poller, metrics, Evictions(executor, teller, metrics, eviction))
        self.is_still_own = self._acts.is_still_own
        self.binder = binder(lambda key: self.touched(key, priority=STARTED))
        self._window = window
        self._teller = teller
        self._metrics = metrics
        gangs = gangs or GangSettings()
        self.succession = Succession(membership, groups, executor.site, gangs.replacement_seconds)
        self.queue: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace, backoff=BACKOFF, expected=EXPECTED)
        self.submits: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace, backoff=BACKOFF, expected=EXPECTED)
        self.knowledge = Knowledge(
            executor, membership, groups, jobs, poller, submitter, metrics, self.succession, self.queue.add, hold, gangs.max_pods
        )
        self.known, self.own_job, self.owner_of = self.knowledge.known, self.knowledge.own_job, self.knowledge.owner_of
        self.waiting, self.lookup, self.is_signalled = self.knowledge.waiting, self.knowledge.lookup, self.knowledge.is_signalled
        self._shrink = shrink or _never
        self.may_begin: Callable[[WorkloadKey], bool] = lambda _: True  # False while it is not known whether an earlier leader submitted it
        self.is_gone: Callable[[Pod], bool] = lambda _: False  # a pod's node is, and so the pod counts as over
        self.endings: Callable[[WorkloadKey, Workload | None, int], None] = lambda *_: None  # told of each look, with the job that runs
        self.signalled: Callable[[WorkloadKey], None] = lambda _: None  # Slurm has just signalled its job

    # What happens elsewhere

    def touched(self, key: WorkloadKey, *, priority: int = 0) -> None:
        """One of its pods has changed, or what they need. A look costs as much as the workload has pods: of a large one, the changes of some moments are one look, or n pods that start or end one after the other would cost n²."""
        known = self.known.get(key)
        wait = (
            known.looked_at + seconds_between_looks(known.pods) - asyncio.get_running_loop().time()
            if known is not None and known.pods
            else 0.0
        )
        self.queue.add_after(key, wait, priority=priority)

    def job_changed(self, job_id: int) -> None:
        if key := self.owner_of(job_id):
            signalled = self.is_signalled(job_id)
            self.queue.add(key, priority=URGENT if signalled else STARTED)
            if signalled:
                self.signalled(key)

    def job_ends(self, key: WorkloadKey, job_id: int, ending: Ending | None) -> None:
        """By the job's record, just read: it is time for its pods to go, or not (any more)."""
        known = self.known.get(key)
        if known is None or known.job_id != job_id or known.end is ending:
            return
        if known.end is None or ending is None:
            known.refusals = {}  # what a budget said to another end is nothing to this one
        elif known.end.is_same_end(ending):
            return
        else:  # the budget is asked again at once; the time for which it was honoured counts
            self._acts.ask_again(key.namespace, known)
            again = {uid: msgspec.structs.replace(refusal, tries=0, again=0.0) for uid, refusal in known.refusals.items()}
            known.refusals = again
        known.end = ending
        self.queue.add(key, priority=URGENT)

    def look(self, key: WorkloadKey) -> None:
        """At a workload, if it is known. The key of a JobSet or LeaderWorkerSet without a part means its parts that are known."""
        if key.kind in SETS and not key.part:
            for known in self.known.parts(key):
                self.queue.add(known)
        elif key in self.known:
            self.queue.add(key)

    def slurm_nodes_changed(self) -> None:
        """Those for which no node was large enough are judged again."""
        for key, known in self.known.items():
            if known.too_large:
                known.parked_until = 0.0
                self.queue.add(key)

    def namespace_changed(self, name: str) -> None:
        """Its labels may grant what was refused, and more at once."""
        for key, known in self.known.items():
            if key.namespace == name and known.parked and not known.too_large:
                known.parked_until = 0.0
                self.queue.add(key)
        self._add(self._window.next())

    def _hurry(self, key: WorkloadKey) -> None:
        self.queue.add(key, priority=STARTED)

    # One workload

    async def reconcile(self, key: WorkloadKey) -> None:
        """Look, plan, act. What fails is raised: the queue comes back to it."""
        if not self.may_begin(key):
            return  # it is looked at when that is known
        known = self.known.setdefault(key, Known())
        known.arrived = known.arrived or next(self._arrivals)
        if known.submitting:
            return  # it is looked at again when that is done
        known.looked_at = asyncio.get_running_loop().time()
        try:
            await self._look(key, known)
        finally:
            known.looked_at = asyncio.get_running_loop().time()

    async def _look(self, key: WorkloadKey, known: Known) -> None:
        pace = Pace()
        pods = self.knowledge.pods(key)
        await self._acts.check_labels(pods, known)
        await self._acts.restore_labels(pods, known)
        await self._acts.restore_reasons(pods, known)
        await pace.step()
        views = await views_in_turns(pods, known, self.is_gone, pace)
        known.holds = any(view.state == "bound" or (view.state == "over" and view.finalizer) for view in views)
        await pace.step()
        workload = self.knowledge.workload(key, pods, known)
        await pace.step()
        job = await self.knowledge.job(key, pods, views, known)
        if known.scope is not None and (known.over or not known.job_id):
            self._submitter.job_ended(known)
        elif known.scope is None and known.job_id and not known.over and workload is not None:
            self._submitter.inherit(workload, known)
        views = await self._acts.adopt_labels(pods, views, job, known)
        if not pods and not known.unsettled and (job is None or job.state in ("over", "lost")):
            await self.binder.give_back(key)
            self._forget(key, known)
            return
        await pace.step()
        everyone, strangers = views, self.succession.strangers(key, pods, views, workload, job, known)
        views = without(everyone, strangers)
        wished = workload.wished_ranks if workload else {}
        starts = any(view.state == "waiting" and not view.deleting for view in views)
        components = self.knowledge.components(workload, job, known) if starts else {}
        await pace.step()
        placements = await self.binder.placements(key, views, job, known, wished, components)
        if known.unplaceable and not any(view.state == "bound" for view in views):
            await self._submitter.reject(key, known, {}, pods, known.unplaceable)
        if job is not None and job.state not in ("ending", "over", "lost"):
            await self._submitter.label_the_rest(pods, known)
        await pace.step()
        now = self.knowledge.snapshot(key, pods, views, workload, job, known, awaits=not strangers - known.written.apart)
        await pace.step()
        actions = plan(msgspec.structs.replace(now, placements=placements))
        await pace.step()
        if job is not None and job.state == "pending":
            self._add(self._window.keep(key))
        elif not any(isinstance(action, Submit) for action in actions):
            self._add(self._window.leave(key))
            if job is None:
                self._submitter.leave_lines(key)
        if job is not None and not starts:
            self._submitter.siblings.land(key)
        elif job is not None and job.state == "running":
            self._submitter.siblings.started(key)
        await self._carry_out(actions, key, {pod.metadata.uid: pod for pod in pods}, now, known)
        self._metrics.now(known, phase_of(now, self._window.is_waiting(key) or self._submitter.stands_in_line(key)), len(pods))
        self._teller.look(key, msgspec.structs.replace(now, pods=everyone) if strangers else now, pods)
        await self._shrink(pods, views, job, known, key, partial(self.succession.may_come, key, pods, known))
        self.endings(key, workload, job.job_id if job is not None and job.state in ("running", "ending") else 0)
        if is_to_be_told(known, asyncio.get_running_loop().time()):
            self._teller.waits([pod for pod in pods if not pod.spec.node_name], known.waits)
        self._look_again(key, known)

    async def submit(self, key: WorkloadKey) -> None:
        """Of the submit workers: the workload as it is now, if it is still to be submitted."""
        known = self.known.get(key)
        if known is None or known.submitting or known.job_id:
            return
        if known.unsettled:
            await self._settle(key, known, known.unsettled)
            return
        pace, pods = Pace(), self.knowledge.pods(key)
        workload = self.knowledge.workload(key, pods, known)
        await pace.step()
        now = self.knowledge.snapshot(key, pods, views_of(pods, known, self.is_gone), workload, None, known)
        if workload is None or not any(isinstance(action, Submit) for action in plan(now)):
            self.queue.add(key)
            return
        known.submitting = True
        try:
            if await self._submitter.submit(workload, known):
                self.knowledge.submitted(key, workload, known)
            else:
                self._add(self._window.leave(key))
        finally:
            known.submitting = False
            if not known.job_id and known.unsettled is None:
                self._submitter.siblings.land(key)
            self._hurry(key)  # the label is the commit point: it goes before other looks

    async def _settle(self, key: WorkloadKey, known: Known, sent: Workload) -> None:
        """Before anything else is submitted, or all is forgotten: the job that an unanswered submit may have made."""
        known.submitting = True
        try:
            if await self._submitter.settle(sent, known):
                self.own_job(known.job_id, key)
        finally:
            known.submitting = False
            self.queue.add(key)

    async def _carry_out(self, actions: Sequence[Action], key: WorkloadKey, pods: Mapping[str, Pod], now: Snapshot, known: Known) -> None:
        """What concerns a job's end in order, what concerns its pods all at once."""
        acts: list[Awaitable[None]] = []
        bindings: list[Placement] = []
        given_back = False
        if len(pods) > 1 and any(isinstance(action, Evict) for action in actions):
            await self._submitter.label_all(pods.values(), known)
        evictions = iter(self._acts.in_turn([action for action in actions if isinstance(action, Evict)], known))
        for action in actions:
            match action:
                case Submit():
                    lined_up = self._submitter.stands_in_line(key)
                    if lined_up and self._submitter.must_wait(key):
                        self._add(self._window.leave(key))
                    elif self._window.enter(key, again=lined_up):
                        self._add(self._window.next())
                        if not self.submits.agenda.failures(key):  # else it comes again by itself, later and later
                            self.submits.add(key)
                case EndJob(job_id, exit_code, why):
                    await all_of(acts)
                    acts = []
                    await self._acts.end(key, job_id, exit_code, why, now, known)
                    self.queue.add(key)
                case Remember(job_id, failures):
                    if not await self._acts.remember(job_id, failures, known):
                        self._hurry(key)
                        return
                case Label(uid, job_id):
                    acts.append(self._submitter.label([pods[uid]], job_id, known))
                    given_back = given_back or not job_id
                case Evict():
                    eviction = next(evictions)
                    acts.append(self._acts.evict(pods[eviction.uid], eviction, known))
                case Shorten(uid):
                    acts.append(self._acts.shorten(pods[uid]))
                case SetApart(uid):
                    acts.append(self._acts.set_apart(pods[uid], known))
                case Release(uid):
                    acts.append(self._acts.release(pods[uid], known))
                case Bind(placement):
                    bindings.append(placement)
        await all_of(acts)
        if given_back:
            self.knowledge.drop_job(key, known)
            self.queue.add(key)  # where no label had been written yet, no watch tells
        if bindings and not await self.is_still_own(known):
            self._hurry(key)
        elif bindings:
            refused = await self.binder.bind(key, bindings, pods, known)
            if not refused and all(placement.uid in known.written.ranks for placement in bindings):
                self._submitter.siblings.land(key)
            began = any(pod.state == "bound" for pod in now.pods)
            if refused and not began and await self._submitter.reject(key, known, refused, list(pods.values())):
                self._hurry(key)

    def _look_again(self, key: WorkloadKey, known: Known) -> None:
        now = asyncio.get_running_loop().time()
        least = seconds_between_looks(known.pods)  # moments of each of n pods, one by one, would cost n²
        for moment in (next_moment(known, now, self.succession.seconds), self._submitter.turn_of(key)):
            if moment > now:
                self.queue.add_after(key, max(moment - now, least) + 0.05)

    def _forget(self, key: WorkloadKey, known: Known) -> None:
        self.knowledge.drop_job(key, known)
        self._metrics.forget(known)
        self.known.forget(key)
        self._teller.forget_all(key)
        self.binder.forget(key)
        self.endings(key, None, 0)
        self._add(self._window.leave(key))
        self._submitter.leave_lines(key)

    def call(self, key: WorkloadKey, seconds: float) -> None:
        """Its turn in a line has come, or comes then."""
        if seconds > 0:
            self.queue.add_after(key, seconds + 0.05)
        else:
            self._hurry(key)

    def _add(self, keys: Sequence[WorkloadKey]) -> None:
        """Whose turn it is in the window: before those who would only be told to wait, be they 100,000 of one namespace."""
        for key in keys:
            self._hurry(key)
