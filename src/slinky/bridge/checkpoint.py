"""The checkpoint signal: `slurmjob.slinky.slurm.net/signal: USR1@300` reaches the containers that many seconds before their job's time is up, or as soon as Slurm announces that the job is preempted.

Comes in: each look of the reconciler at a workload that asks for it, and the job's own record (its end, and when it was preempted), each time that one is read (`endings`). Goes out: the signal to process 1 of each container that runs,
by a command in the container; what was done stands in an annotation on the pod, in an Event and in a metric. What must stay true: early rather than late; once for each pod and end of its job, after a restart too (twice
rather than never), and before the pod is evicted; Slurm is never asked to send a signal itself, which would make nodes without a slurmd unusable; nothing of a pod's way waits for this.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import msgspec
from prometheus_client import CollectorRegistry, Counter

from slinky.bridge.delivery import Delivery, deliver
from slinky.bridge.ends import End
from slinky.bridge.keys import SIGNALLED
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import PODS, Client, ConflictError, EventRecorder, InvalidError, NotFoundError, Pod, reference
from slinky.slurm import Job

__all__ = ["Asked", "Checkpoints", "Occasion", "next_occasion", "signals_counter"]

log = logging.getLogger(__name__)

EARLY_SECONDS = 10.0  # for the look itself, and the way into the containers
SHORTEST_LOOK = 1.0
LONGEST_LOOK = 15.0  # a preemption, or a limit that was made shorter, is noticed within this
AGAIN_SECONDS = 2.0  # where no container runs yet, or one could not be reached
MOST_TRIES = 5
MOST_TOLD = 100_000
AT_ONCE = 16  # pods of a gang side by side


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


def next_occasion(end: int | None, preempted: int | None, seconds: int, now: float) -> tuple[Occasion | None, float]:
    """Whether it is time, and if not, in how many seconds to look again. `end` and `preempted` are the job's, in seconds since 1970; None for never."""
    if preempted:
        return Occasion("preemption", preempted), LONGEST_LOOK
    if not end:
        return None, LONGEST_LOOK
    left = end - seconds - EARLY_SECONDS - now
    if left <= 0:
        return Occasion("timelimit", end), LONGEST_LOOK
    return None, min(max(left, SHORTEST_LOOK), LONGEST_LOOK)


def signals_counter(registry: CollectorRegistry) -> Counter:
    return Counter(
        "slinky_bridge_checkpoint_signals",
        "Pods that were to get their checkpoint signal, by what came of it",
        ["outcome"],
        registry=registry,
    )


class Checkpoints:
    """`pods(key)` are a workload's."""

    def __init__(
        self,
        kube: Client,
        events: EventRecorder,
        sent: Counter,
        *,
        allowed: bool = True,
        may_act: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kube = kube
        self._events = events
        self._allowed = allowed
        self._may_act = may_act
        self._clock = clock
        self._sent = sent
        self._followed: dict[WorkloadKey, Asked] = {}
        self._told: dict[str, str] = {}  # pod's UID → the occasion that it was told of, until its annotation is seen
        self._tries: dict[str, int] = {}
        self.pods: Callable[[WorkloadKey], Sequence[Pod]] = lambda _: []

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

    async def seen(self, key: WorkloadKey, job: Job, end: End | None) -> float:
        """The job's record was read: in how many seconds it is wanted again at the latest. Whatever it asked for, a pod has its signal before it is evicted."""
        asked = self._followed.get(key)
        if asked is None or asked.job_id != job.job_id:
            return float("inf")
        if end is not None and end.kind == "timelimit":
            asked = msgspec.structs.replace(asked, seconds=max(asked.seconds, int(end.at - end.evict_at)))
        occasion, wait = _of(job, asked, self._clock())
        if occasion is not None and await self._tell(key, occasion, asked):
            wait = AGAIN_SECONDS
        return wait if wait < LONGEST_LOOK else float("inf")

    async def _tell(self, key: WorkloadKey, occasion: Occasion, asked: Asked) -> bool:
        """Whether some of its pods are still to be told."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(pod: Pod) -> bool:
            async with turns:
                return await self._tell_one(pod, occasion, asked)

        here = {pod.metadata.uid: pod for pod in self.pods(key)}
        pods = [pod for pod in here.values() if self._is_to_be_told(pod, occasion)]
        if not pods or not self._may_act():
            return False
        log.info("%s: %s to %d pods, %s (job %d)", key, asked.signal, len(pods), occasion.word, asked.job_id)
        return not all(await asyncio.gather(*map(one, pods)))

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

    async def _tell_one(self, pod: Pod, occasion: Occasion, asked: Asked) -> bool:
        """Whether it is done, be it in vain."""
        uid = pod.metadata.uid
        delivery = await deliver(self._kube, pod, asked.signal) if self._allowed else SWITCHED_OFF
        if delivery.again:
            self._tries[uid] = tries = self._tries.get(uid, 0) + bool(delivery.problems)
            if tries < MOST_TRIES:
                return False
        if len(self._told) + len(self._tries) > MOST_TOLD:
            self._told.clear()
            self._tries.clear()
        self._tries.pop(uid, None)
        self._told[uid] = occasion.word
        self._note(pod, occasion, asked, delivery)
        change = {"metadata": {"uid": pod.metadata.uid, "annotations": {SIGNALLED: occasion.word}}}
        try:
            await self._kube.patch(PODS, pod.metadata.name, change, pod.metadata.namespace)
        except (NotFoundError, ConflictError, InvalidError):
            log.debug("pod %s is gone, or is another one now", pod.key)
        return True

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


def _of(job: Job, asked: Asked, now: float) -> tuple[Occasion | None, float]:
    if not job.is_running:
        return None, LONGEST_LOOK
    end = job.end_time if isinstance(job.end_time, int) else None
    preempted = job.preempt_time if isinstance(job.preempt_time, int) else None
    if job.time_limit is not None and not isinstance(job.time_limit, int):
        end = None  # it has no limit: what Slurm gives as its end is a year from now
    return next_occasion(end, preempted, asked.seconds, now)
