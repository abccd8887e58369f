"""Telling users: conditions on pods that wait, and Events for what happens to them.

Comes in: each look of the reconciler at a workload, and what it did. Goes out: writes of status, few: a pod that is bound within the first seconds gets none; one that waits is looked at every half minute, and
written only when there is something new; one that waits for its turn in the bridge itself is told so once; all together at a limited rate.

*Invariants:* nothing of the way of a pod ever waits for this. A large workload is told in slices of about a second; between
them other namespaces have their turn. Each slice speaks of pods and jobs as they are at that moment.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Iterable, Sequence

from slinky.bridge.keys import CONDITION, SETTINGS
from slinky.bridge.pacing import Pace
from slinky.bridge.plan import Snapshot
from slinky.bridge.settings import StatusSettings
from slinky.bridge.standing import Standing, conditions_for, standing_of
from slinky.bridge.submission import Submission
from slinky.bridge.workload import WorkloadKey
from slinky.kube import PODS, Client, EventRecorder, InvalidError, NotFoundError, PatchKind, Pod, WorkQueue, reference
from slinky.slurm import NotFoundError as NoSuchJobError
from slinky.slurm import SlurmClient, SlurmError, compress

__all__ = ["Teller"]

log = logging.getLogger(__name__)

FIRST_LOOK = 5.0
SLICE = 20  # writes for one workload, before others have their turn

Standings = Callable[[WorkloadKey], Sequence[tuple[list[Pod], Standing | int | None]]]


class Teller:
    """`standings(key)` gives a workload's pods and how they stand, together where they stand the same; a number is the job to ask Slurm about, None that there is nothing to say."""

    def __init__(
        self, kube: Client, slurm: SlurmClient, events: EventRecorder, settings: StatusSettings, may_act: Callable[[], bool] = lambda: True
    ) -> None:
        self._kube = kube
        self._slurm = slurm
        self._events = events
        self._settings = settings
        self._may_act = may_act
        self._waiting: set[WorkloadKey] = set()
        self._suspended: set[WorkloadKey] = set()
        self._resting: set[WorkloadKey] = set()  # of those, what was told lasts until their next step
        self._rounds: dict[WorkloadKey, set[str]] = {}  # of a workload that was told in part, the pods that were
        self.queue: WorkQueue[WorkloadKey] = WorkQueue(group=lambda key: key.namespace, expected=(SlurmError,))
        self._without_job: dict[WorkloadKey, str] = {}  # pods run, and Slurm does not know their job: what was told
        self.standings: Standings = lambda _: ()
        self.slurm_time: Callable[[], float | None] = lambda: None  # by slurmctld's clock, where it is known

    def look(self, key: WorkloadKey, now: Snapshot, pods: Sequence[Pod]) -> None:
        """After each look of the reconciler."""
        self._tell_if_suspended(key, now, pods)
        waits = any(pod.state == "waiting" and not pod.deleting for pod in now.pods)
        if waits and key not in self._waiting:
            self._waiting.add(key)
            self.queue.add_after(key, FIRST_LOOK)
        elif waits and key in self._resting and (now.job is not None or now.parked):
            self._resting.discard(key)
            self.queue.add_after(key, FIRST_LOOK)
        elif not waits and key in self._waiting:
            self.forget(key)
            if any(pod.condition(CONDITION) for pod in pods):
                self.queue.add(key)  # what they say is no longer so
        self._look_for_job(key, now, pods)

    def _look_for_job(self, key: WorkloadKey, now: Snapshot, pods: Sequence[Pod]) -> None:
        """Pods that run and whose job Slurm does not know are told so, and that it is over."""
        holds = any(pod.state == "bound" for pod in now.pods)
        state = now.job.state if now.job is not None and now.job.state in ("absent", "lost") and holds else ""
        if state == self._without_job.get(key, ""):
            return
        if state:
            self._without_job[key] = state
        else:
            self._without_job.pop(key, None)
        if state == "lost" and now.job is not None:
            note = f"Slurm does not know job {now.job.job_id} any more; the pod runs on, without Slurm"
            self._event([pod for pod in pods if pod.spec.node_name and not pod.is_over], "JobLost", note, warning=True)
        self.queue.add_after(key, FIRST_LOOK if state == "absent" else 0.0)

    def _tell_if_suspended(self, key: WorkloadKey, now: Snapshot, pods: Sequence[Pod]) -> None:
        """When that changes, as far as this process has seen."""
        suspended = now.job is not None and now.job.suspended
        if suspended == (key in self._suspended) or now.job is None:
            return
        (self._suspended.add if suspended else self._suspended.discard)(key)
        here = [pod for pod in pods if not pod.is_over]
        if suspended:
            self._event(here, "Suspended", f"Slurm job {now.job.job_id} is suspended: its pods run on as they are", warning=True)
        elif now.job.state == "running":
            self._event(here, "Resumed", f"Slurm job {now.job.job_id} runs again")
        self.queue.add(key)

    def moved_up(self, key: WorkloadKey) -> None:
        """Its position in a line is known from now on."""
        if key in self._resting:
            self._resting.discard(key)
            self.queue.add(key)

    def forget(self, key: WorkloadKey) -> None:
        """It waits no more, or is no more."""
        self._rounds.pop(key, None)
        self._waiting.discard(key)
        self._resting.discard(key)

    def forget_all(self, key: WorkloadKey) -> None:
        """Nothing is left of it."""
        self.forget(key)
        self._suspended.discard(key)
        self._without_job.pop(key, None)

    async def run(self) -> None:
        """For ever."""
        await self.queue.serve(self._tell, workers=1)

    async def _tell(self, key: WorkloadKey) -> None:
        """A slice of what there is to tell. The next one comes when others have had their turn."""
        waited, told = key in self._waiting, self._rounds.setdefault(key, set())
        asks, standings, left = False, self.standings(key), max(SLICE, int(self._settings.rate))
        pace = Pace()
        for pods, said in standings:
            untold = [pod for pod in pods if pod.metadata.uid not in told]
            if not untold:
                continue
            asks = asks or isinstance(said, int)
            found = await self._asked(said) if isinstance(said, int) else said
            if found is None:
                continue
            for pod in untold:
                if waited and key not in self._waiting:  # it has just begun: it is told that next
                    self._rounds.pop(key, None)
                    self.queue.add(key)
                    return
                if not left:
                    self.queue.add(key)
                    return
                if not (isinstance(said, int) and pod.spec.node_name):
                    left -= await self._write(pod, found)
                told.add(pod.metadata.uid)
                await pace.step()
        self._rounds.pop(key, None)
        if key in self._waiting:
            if standings and all(isinstance(said, Standing) and said.lasting for _, said in standings):
                self._resting.add(key)
            else:
                self.queue.add_after(key, self._settings.seconds)
        if asks:
            await asyncio.sleep(1 / self._settings.rate)

    async def _asked(self, job_id: int) -> Standing | None:
        try:
            parts = await self._slurm.jobs.parts(job_id)
            now = dt.datetime.now(dt.UTC)
            there = self.slurm_time()
            return standing_of(parts, now, 0.0 if there is None else there - now.timestamp())
        except NoSuchJobError:
            return None

    async def _write(self, pod: Pod, standing: Standing) -> bool:
        """Whether there was something to write."""
        conditions = conditions_for(pod, standing, dt.datetime.now(dt.UTC))
        if not conditions or not self._may_act():
            return False
        change = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": conditions}}
        try:
            await self._kube.patch(PODS, pod.metadata.name, change, pod.metadata.namespace, kind=PatchKind.STRATEGIC, subresource="status")
        except (NotFoundError, InvalidError):
            return True  # it is gone, or another has its name; a conflict is tried again
        await asyncio.sleep(1 / self._settings.rate)
        return True

    # Events

    def bound(self, placed: Sequence[tuple[Pod, str]], job: Submission) -> None:
        for pod, node in placed:
            self._event([pod], "Scheduled", f"Slurm gave job {job.job_id} node {node}")

    def parked(self, pods: Sequence[Pod], why: str) -> None:
        self._event(pods, "Parked", why, warning=True)

    def one_for_all(self, pods: Sequence[Pod], why: str) -> None:
        self._event(pods, "LargestForAll", f"the pods differ: every task requests the largest pod's resources: {why}", warning=True)

    def unknown_nodes(self, pods: Sequence[Pod], names: Iterable[str]) -> None:
        listed = compress(sorted(names))
        self._event(
            pods[:1],
            "UnknownNodes",
            f"annotation {SETTINGS}exclude names {listed[:200]}, which Slurm does not know: left out",
            warning=True,
        )

    def list_withheld(self, pods: Sequence[Pod], why: str) -> None:
        self._event(pods[:1], "NodeListTooLong", f"SLURM_JOB_NODELIST and SLURM_TASKS_PER_NODE are empty: {why}", warning=True)

    def held(self, pods: Sequence[Pod], why: str) -> None:
        self._event(pods, "NodeNotFree", f"not bound yet: {why}", warning=True)

    def requeued(self, pods: Sequence[Pod], why: str) -> None:
        self._event(pods, "Requeued", f"submitted to Slurm again, without the nodes that Kubernetes refused: {why}", warning=True)

    def waits(self, pods: Sequence[Pod], why: str) -> None:
        self._event(pods, "WaitingForVolumes", why, warning=True)

    def evicted(self, pod: Pod, why: str) -> None:
        self._event([pod], "Evicted", why, warning=True)

    def spared(self, pod: Pod, why: str) -> None:
        self._event([pod], "EvictionDelayed", why, warning=True)

    def overridden(self, pod: Pod, why: str) -> None:
        self._event([pod], "BudgetOverridden", why, warning=True)

    def _event(self, pods: Sequence[Pod], reason: str, note: str, *, warning: bool = False) -> None:
        for pod in pods:
            self._events.record(reference(pod, "v1", "Pod"), reason, note, warning=warning)
