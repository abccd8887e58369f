"""The checkpoint signal: `slurmjob.slinky.slurm.net/signal: USR1@300` reaches the containers that many seconds before their job's time is up, or as soon as Slurm announces that the job is preempted.

In: each look of the reconciler at a workload that asks for it, and the job's own record (its end, and when it was preempted), each time that one is read (`endings`). Out: the signal to process 1 of each container that runs,
by a command in the container. What was done stands in an annotation on the pod, in an Event and in a metric.

*Invariants:* early rather than late; once for each pod and end of its job, after a restart too (twice rather than never), and before the pod is evicted, unless that takes longer than `HOLD_SECONDS`. Slurm is never asked to send a
signal itself, which would make nodes without a slurmd unusable. A command in a container may hang for as long as its image likes: commands have connections and workers of their own, of which no namespace can take all, so that no
binding, no eviction and no other namespace's signal waits for them.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry, Counter

from slinky.bridge.delivery import Delivery, deliver
from slinky.bridge.ends import End
from slinky.bridge.fair_work import FairWork
from slinky.bridge.keys import SIGNALLED
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import PODS, Client, ConflictError, EventRecorder, InvalidError, KubeError, NotFoundError, Pod, reference
from slinky.slurm import Job

__all__ = ["AGAIN_SECONDS", "COMMANDS_AT_ONCE", "Asked", "Checkpoints", "Occasion", "Signals", "next_occasion", "signals_counter"]

log = logging.getLogger(__name__)

EARLY_SECONDS = 10.0  # for the look itself, and the way into the containers
SHORTEST_LOOK = 1.0
NEVER = float("inf")
AGAIN_SECONDS = 2.0  # where no container runs yet, or one could not be reached
MOST_TRIES = 5
MOST_TOLD = 100_000
COMMANDS_AT_ONCE = 32  # in containers, of all namespaces
HOLD_SECONDS = 20.0  # how long an eviction waits for its pods' signals at most


class Occasion(msgspec.Struct, frozen=True):
    """An end of a job that its pods are to be told of. `word` names it among others of the same job."""

    kind: str  # timelimit, preemption
    at: int

    @property
    def word(self) -> str:
        return f"{self.kind}@{self.at}"


class Asked(msgspec.Struct, frozen=True):
    """What one workload wants."""

    job_id: int
    signal: str
    seconds: int


class Signals(msgspec.Struct, frozen=True):
    """`wait`: in how many seconds its moment comes; `again`: it has come, and some pods are still to be told. `holds`: the eviction of its pods waits for their signals."""

    wait: float = NEVER
    again: bool = False
    holds: bool = False


def next_occasion(end: int | None, preempted: int | None, seconds: int, now: float | None) -> tuple[Occasion | None, float]:
    """Whether it is time, and if not, in how many seconds to look again. `end` and `preempted` are the job's, by Slurm's clock; None for never. So is `now`; None where it is not known."""
    if preempted:
        return Occasion("preemption", preempted), NEVER
    if not end or now is None:
        return None, NEVER
    left = end - seconds - EARLY_SECONDS - now
    if left <= 0:
        return Occasion("timelimit", end), NEVER
    return None, max(left, SHORTEST_LOOK)


def signals_counter(registry: CollectorRegistry) -> Counter:
    return Counter(
        "slinky_bridge_checkpoint_signals",
        "Pods that were to get their checkpoint signal, by what came of it",
        ["outcome"],
        registry=registry,
    )


class Checkpoints:
    """`commands` is a client that is used for commands in containers and for nothing else. `pods(key)` are a workload's; `current(pod)` is a pod as it is now, None if it is gone; `done(key)` is called when all signals that were under way for one have been sent or given up."""

    def __init__(
        self,
        kube: Client,
        commands: Client,
        events: EventRecorder,
        sent: Counter,
        *,
        allowed: bool = True,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kube = kube
        self._commands = commands
        self._events = events
        self._allowed = allowed
        self._may_act = may_act
        self._sent = sent
        self._work: FairWork[str] = FairWork(COMMANDS_AT_ONCE)
        self._under_way: dict[WorkloadKey, dict[str, float]] = {}  # pods' UIDs, and since when
        self._followed: dict[WorkloadKey, Asked] = {}
        self._told: dict[str, str] = {}  # pod's UID → the occasion that it was told of, until its annotation is seen
        self._tries: dict[str, int] = {}
        self._not_before: dict[str, float] = {}  # when those may be tried again, by the loop's clock
        self.pods: Callable[[WorkloadKey], Sequence[Pod]] = lambda _: []
        self.current: Callable[[Pod], Pod | None] = lambda pod: pod
        self.done: Callable[[WorkloadKey], None] = lambda _: None

    async def run(self) -> None:
        """Until cancelled, and with it all commands that are under way."""
        await self._work.run()

    def look(self, key: WorkloadKey, workload: Workload | None, running_job: int) -> bool:
        """After each look of the reconciler. `running_job` is 0 where the workload's job does not run. Whether it asks for something new: the job's record is wanted soon."""
        signal = workload.settings.signal if workload and running_job else None
        if signal is None:
            self._followed.pop(key, None)
            return False
        asked = Asked(running_job, signal.name, signal.seconds)
        if self._followed.get(key) == asked:
            return False
        self._followed[key] = asked
        return True

    def seen(self, key: WorkloadKey, job: Job, end: End | None, now: float | None) -> Signals:
        """The job's record was read, at `now` by Slurm's clock. Whatever it asked for, a pod has its signal before it is evicted."""
        asked = self._followed.get(key)
        if asked is None or asked.job_id != job.job_id:
            return Signals()
        if end is not None and end.kind == "timelimit":
            asked = msgspec.structs.replace(asked, seconds=max(asked.seconds, int(end.at - end.evict_at)))
        occasion, wait = _of(job, asked, now)
        again = occasion is not None and self._tell(key, occasion, asked)
        return Signals(wait, again, self._holds(key))

    def _holds(self, key: WorkloadKey) -> bool:
        now = asyncio.get_running_loop().time()
        return any(now - since < HOLD_SECONDS for since in self._under_way.get(key, {}).values())

    def _tell(self, key: WorkloadKey, occasion: Occasion, asked: Asked) -> bool:
        """Whether some of its pods are still to be told."""
        here = {pod.metadata.uid: pod for pod in self.pods(key)}
        pods = [pod for pod in here.values() if self._is_to_be_told(pod, occasion)]
        if not pods or not self._may_act():
            return False
        now, under_way = asyncio.get_running_loop().time(), self._under_way.get(key, {})
        new = [pod for pod in pods if pod.metadata.uid not in under_way and now >= self._not_before.get(pod.metadata.uid, 0.0)]
        if new:
            log.info("%s: %s to %d pods, %s (job %d)", key, asked.signal, len(new), occasion.word, asked.job_id)
            under_way = self._under_way.setdefault(key, {})
        for pod in new:
            under_way[pod.metadata.uid] = now
            self._work.add(key.namespace, pod.metadata.uid, partial(self._turn, key, pod, occasion, asked))
        return True

    async def _turn(self, key: WorkloadKey, pod: Pod, occasion: Occasion, asked: Asked) -> None:
        try:
            # It may have waited for minutes behind commands that hang.
            now = self.current(pod)
            if now is not None and self._is_to_be_told(now, occasion):
                await self._tell_one(now, occasion, asked)
        except KubeError as error:
            log.warning("pod %s: the checkpoint signal could not be recorded, so the pod may get it twice: %s", pod.key, error)
        finally:
            under_way = self._under_way.get(key, {})
            under_way.pop(pod.metadata.uid, None)
            if not under_way:
                self._under_way.pop(key, None)
                self.done(key)

    def _is_to_be_told(self, pod: Pod, occasion: Occasion) -> bool:
        """One that is being deleted has had its own signal."""
        uid = pod.metadata.uid
        if pod.metadata.annotations.get(SIGNALLED) == occasion.word:
            self._told.pop(uid, None)
            return False
        return (
            bool(pod.spec.node_name)
            and not pod.is_over
            and pod.metadata.deletion_timestamp is None
            and self._told.get(uid) != occasion.word
        )

    async def _tell_one(self, pod: Pod, occasion: Occasion, asked: Asked) -> None:
        """Once. Where no container runs yet, or none was reached, it comes again with the next look at the job's record."""
        uid = pod.metadata.uid
        if not self._may_act():
            return
        delivery = await deliver(self._commands, pod, asked.signal) if self._allowed else SWITCHED_OFF
        if delivery.again:
            self._tries[uid] = tries = self._tries.get(uid, 0) + bool(delivery.problems)
            if tries < MOST_TRIES:
                self._not_before[uid] = asyncio.get_running_loop().time() + AGAIN_SECONDS
                return
        if len(self._told) + len(self._tries) > MOST_TOLD:
            self._told.clear()
            self._tries.clear()
            self._not_before.clear()
        self._tries.pop(uid, None)
        self._not_before.pop(uid, None)
        self._told[uid] = occasion.word
        self._note(pod, occasion, asked, delivery)
        change = {"metadata": {"uid": pod.metadata.uid, "annotations": {SIGNALLED: occasion.word}}}
        try:
            await self._kube.patch(PODS, pod.metadata.name, change, pod.metadata.namespace)
        except (NotFoundError, ConflictError, InvalidError):
            log.debug("pod %s is gone, or is another one now", pod.key)

    def _note(self, pod: Pod, occasion: Occasion, asked: Asked, delivery: Delivery) -> None:
        why = "its job's time limit is near" if occasion.kind == "timelimit" else "its job is being preempted"
        self._sent.labels("delivered" if delivery.reached and not delivery.problems else "partly" if delivery.reached else "failed").inc()
        if delivery.reached:
            words = f"{asked.signal} was sent to {', '.join(delivery.reached)}: {why}"
            self._events.record(reference(pod, "v1", "Pod"), "CheckpointSignal", words)
        if delivery.problems:
            words = f"{asked.signal} was not delivered ({why}): {'; '.join(delivery.problems)}"
            log.warning("pod %s: %s", pod.key, words)
            self._events.record(reference(pod, "v1", "Pod"), "CheckpointSignalFailed", words, warning=True)


SWITCHED_OFF = Delivery((), ("the bridge's setting checkpointSignals is off",))


def _of(job: Job, asked: Asked, now: float | None) -> tuple[Occasion | None, float]:
    if not job.is_running:
        return None, NEVER
    end = job.end_time if isinstance(job.end_time, int) else None
    preempted = job.preempt_time if isinstance(job.preempt_time, int) else None
    if job.time_limit is not None and not isinstance(job.time_limit, int):
        end = None  # it has no limit: what Slurm gives as its end is a year from now
    return next_occasion(end, preempted, asked.seconds, now)
