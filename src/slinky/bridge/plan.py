"""What to do next for a workload: the place where correctness lives.

Comes in: what is known of a workload's pods, of its job, and of the job's allocation, at one moment. Goes out: the actions to be taken now, in order; none where there is nothing to do but
wait. Pure: it asks nobody and remembers nothing, so it can be run again at any time, after a restart too, and leads to the same end.

What must stay true, whatever happened before:
- A pod is bound only to a node that its own job was given, and only while that job runs; the job that its label names is its own, and no other.
- No second job is submitted while one may exist.
- A job of ours ends when none of its pods is left to run and none will come in their stead; a pod keeps its finalizer until its containers are gone, and the last one until its job has ended, unless others are awaited: many of those who
  make pods make the next only when the last is gone.
- A pod is evicted only when its own job is known to be over or ending; one that has not begun, only where somebody cancelled the job, or others of its gang had begun. On a job that Slurm does not know nothing is done until it is settled what became of it.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from slinky.bridge.placement import Placement

__all__ = [
    "Action",
    "Bind",
    "EndJob",
    "Evict",
    "JobView",
    "Label",
    "Outcome",
    "PodView",
    "Release",
    "SetApart",
    "Shorten",
    "Snapshot",
    "Submit",
    "outcomes",
    "plan",
]


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """`waiting`: not bound. `bound`: on a node, and its containers may run. `over`: its containers are gone. `exit_code` where it is over, `rank` where it is or was bound (-1: not known).

    `gated`: it may not be bound now. `born` tells which of two in one slot came later. `lingers`: it was deleted with a longer grace period than its own.
    """

    uid: str
    state: Literal["waiting", "bound", "over"]
    deleting: bool = False
    job_id: int = 0
    finalizer: bool = True
    exit_code: int = 0
    rank: int = -1
    gated: bool = False
    born: float = 0.0
    lingers: bool = False


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """`ending`: its resources will be taken, and it is time for its pods to go. `over`: it has ended; `absent`: Slurm does not know it, and it is not settled what that means; `lost`: it was settled that it will not come back.

    `tasks` is how many pods it has room for. `reason` and `why` say of one that is ending or over what ended it, in a word and in words; `until` how long its pods' going can wait (0: no longer).
    `suspended`: somebody holds it up in Slurm, and its CPUs may be others' meanwhile: its pods are left as they are, and none is bound.
    """

    job_id: int
    state: Literal["pending", "running", "ending", "over", "absent", "lost"]
    why: str = ""
    tasks: int = 1
    reason: str = ""
    until: float = 0.0
    suspended: bool = False


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`pods` in rank order. `submit_unknown`: a submit was sent whose outcome is not known; `parked`: no node could ever hold it; `gated`: it may not be submitted now; `broken`: members of a gang that
    had not begun have been missing for too long: the job is given back until the gang is complete again; `rejected`: why Kubernetes does not take its pods on the nodes that Slurm chose: another job is to be
    submitted without those.

    `awaited`: whoever made the pods will make others in the stead of those that are gone, so that a job without pods is kept; `completed`: it says that all is done, and well. `elastic`: pods for which the job has no room may start by
    themselves. `outcomes` are by rank how pods ended by themselves, also of those that are gone; `remembered` what Slurm keeps of that.
    """

    pods: Sequence[PodView]
    size: int
    job: JobView | None = None
    placements: Sequence[Placement] = ()
    submit_unknown: bool = False
    parked: bool = False
    gated: bool = False
    broken: bool = False
    rejected: str = ""
    awaited: bool = False
    completed: bool = False
    elastic: bool = False
    outcomes: Mapping[int, "Outcome"] = {}
    remembered: Mapping[int, "Outcome"] = {}


class Outcome(msgspec.Struct, frozen=True):
    """How a pod ended by itself."""

    uid: str
    exit_code: int


class Submit(msgspec.Struct, frozen=True):
    """Submit the workload's waiting pods as one job; where an earlier submit is unknown, find that one first."""

    uids: tuple[str, ...]


class Label(msgspec.Struct, frozen=True):
    """Write the job's id on a pod (or take it off: 0). The commit point: only the job that the label names can bind the pod."""

    uid: str
    job_id: int


class SetApart(msgspec.Struct, frozen=True):
    """Mark a pod for which its gang's job has no room and will have none: it becomes a workload of its own."""

    uid: str


class Remember(msgspec.Struct, frozen=True):
    """Have Slurm keep, with the job, how pods that are let go have failed, by rank: whoever comes after us finds it nowhere else."""

    job_id: int
    failures: Mapping[int, Outcome]


class Shorten(msgspec.Struct, frozen=True):
    """Delete a pod again with its own grace period: somebody deleted it with a longer one, and its job is over or ending."""

    uid: str


class Bind(msgspec.Struct, frozen=True):
    placement: Placement


class Evict(msgspec.Struct, frozen=True):
    """Have a pod go, with its own grace period. Budgets may be honoured `until` then, by the loop's clock."""

    uid: str
    reason: str
    why: str
    until: float = 0.0


class EndJob(msgspec.Struct, frozen=True):
    """End the job: with this exit code where its pods ended by themselves, else (None) as cancelled."""

    job_id: int
    exit_code: int | None
    why: str


class Release(msgspec.Struct, frozen=True):
    """Take the finalizer off a pod."""

    uid: str


SLURMS_OWN = frozenset({"SlurmPreempted", "SlurmTimeout", "SlurmNodeFail"})  # ends that nobody asked for

Action = Submit | Label | SetApart | Shorten | Remember | Bind | Evict | EndJob | Release


def plan(now: Snapshot) -> list[Action]:
    """What to do now. Doing it twice does no harm; what failed is asked for again the next time."""
    job = now.job
    if job is None:
        return [*_releases(now, job_over=True), *_submission(now)]
    if job.state == "absent":
        return []
    if job.state == "lost":
        return [*_releases(now, job_over=True), *_back_to_the_start(now, job)]
    if job.state in ("ending", "over"):
        return _ending(now, job)
    if not _left(now):
        return _let_go(now, job, job_over=True) if now.awaited else [*_releases(now, job_over=False), _end(now, job)]
    if now.broken and not any(pod.state == "bound" for pod in now.pods):
        return [*_back_to_the_start(now, job), EndJob(job.job_id, None, "members of the gang are missing")]
    if now.rejected and not any(pod.state == "bound" for pod in now.pods):
        return [*_back_to_the_start(now, job), EndJob(job.job_id, None, now.rejected)]
    apart = _apart(now, job)
    if labels := _labels(now, job, {action.uid for action in apart}):
        return [*_let_go(now, job), *apart, *labels]
    return [*_let_go(now, job), *apart, *_bindings(now, job)]


def _ending(now: Snapshot, job: JobView) -> list[Action]:
    """Its pods go, but for those of whom none had begun: unless somebody cancelled it, they are queued again. A job that still has its resources gives them back when their containers are gone, not before, whoever is awaited in their stead."""
    left = [pod for pod in _left(now) if pod.job_id == job.job_id]
    if job.reason in SLURMS_OWN and left and all(pod.state == "waiting" for pod in now.pods if pod.job_id == job.job_id):
        return [*_back_to_the_start(now, job), *([EndJob(job.job_id, None, job.why)] if job.state == "ending" else [])]
    if job.state == "ending" and not left:
        end = _end(now, job)
        return [*_releases(now, job_over=False), end if end.exit_code is not None else EndJob(job.job_id, None, job.why)]
    evictions: list[Action] = [Evict(pod.uid, job.reason, job.why, job.until) for pod in left if not pod.deleting]
    evictions += [Shorten(pod.uid) for pod in left if pod.lingers]
    if any(pod.state == "waiting" for pod in left):  # who had begun stays until these are told: alone, they would be queued again
        return [*evictions]
    return [*(_releases(now, job_over=True) if job.state == "over" else _let_go(now, job)), *evictions]


def _may_start(pod: PodView) -> bool:
    return pod.state == "waiting" and not pod.deleting


def _left(now: Snapshot) -> list[PodView]:
    """Pods that hold the job: those that may still start, and those whose containers are not gone."""
    return [pod for pod in now.pods if _may_start(pod) or pod.state == "bound"]


def _labels(now: Snapshot, job: JobView, apart: set[str]) -> list[Action]:
    """Pods that wait get the job's label, as many as it has room for: those that it was submitted for, and those that come in the stead of one that is gone."""
    taken = sum(pod.job_id == job.job_id for pod in _left(now))
    waiting = [pod for pod in now.pods if _may_start(pod) and not pod.gated and pod.job_id != job.job_id and pod.uid not in apart]
    return [Label(pod.uid, job.job_id) for pod in waiting[: max(job.tasks - taken, 0)]]


def _apart(now: Snapshot, job: JobView) -> list[SetApart]:
    """Those that came too late for the job, of a group that may have any number of pods. One that comes in the stead of another is none of them: that one's slot will be free when it is gone."""
    alive = [pod for pod in now.pods if _may_start(pod) or (pod.state == "bound" and not pod.deleting)]
    loose = [pod for pod in alive if pod.state == "waiting" and pod.job_id != job.job_id]
    surplus = min(len(alive) - job.tasks, len(loose)) if now.elastic else 0
    return [SetApart(pod.uid) for pod in loose[len(loose) - surplus :]] if surplus > 0 else []


def _submission(now: Snapshot) -> list[Action]:
    waiting = tuple(pod.uid for pod in now.pods if _may_start(pod))
    if not waiting and now.submit_unknown:
        return [Submit(())]  # nobody waits for it any more: it is found, and then ended
    if now.gated or now.parked or not waiting or len(waiting) < now.size:
        return []
    return [Submit(waiting)]


def _back_to_the_start(now: Snapshot, job: JobView) -> list[Action]:
    """Slurm forgot the job, or it was given back. What waits goes back to the start; what runs is left running: Slurm has no claim to enforce."""
    return [Label(pod.uid, 0) for pod in now.pods if _may_start(pod) and pod.job_id == job.job_id]


def _bindings(now: Snapshot, job: JobView) -> list[Action]:
    """All pods that the job's label names at once, or none: when each has its place, and the gang is complete."""
    if job.state != "running" or job.suspended:
        return []
    own = [pod for pod in now.pods if pod.job_id == job.job_id]
    starting = [pod for pod in own if _may_start(pod) and not pod.gated]
    places = {placement.uid: placement for placement in now.placements}
    incomplete = len(own) < min(now.size, job.tasks) and all(pod.state == "waiting" for pod in own)
    if incomplete or any(pod.uid not in places for pod in starting):
        return []
    return [Bind(places[pod.uid]) for pod in starting]


def _end(now: Snapshot, job: JobView) -> EndJob:
    """By its pods' own word where they have one, the last of each slot: who was replaced does not speak for the job. A pod that was deleted did not end by itself, unless another's failure tells why: a Job that has failed deletes what is
    left of it; and one that has succeeded may too.
    """
    said = outcomes(now.outcomes, now.pods, job.job_id)
    worst = max((outcome.exit_code for outcome in said.values()), default=0)
    by_themselves = {outcome.uid for outcome in said.values()}
    deleted = any(pod.deleting and pod.state == "over" and pod.job_id == job.job_id and pod.uid not in by_themselves for pod in now.pods)
    if worst or (said and (not deleted or now.completed)):
        return EndJob(job.job_id, worst, "all pods have ended")
    return EndJob(job.job_id, None, "no pod is left that could run")


def outcomes(before: Mapping[int, Outcome], pods: Sequence[PodView], job_id: int) -> dict[int, Outcome]:
    """By rank, given those `before`: of the last pod in each slot, if it ended by itself. Who runs there now, or ran and was deleted, takes away that of the one in whose stead it came."""
    found = dict(before)
    began = sorted((pod for pod in pods if pod.job_id == job_id and pod.state != "waiting"), key=lambda pod: pod.born)
    for position, pod in enumerate(began):
        rank = pod.rank if pod.rank >= 0 else -1 - position  # its slot is not known: it counts for itself
        if pod.state == "over" and not pod.deleting:
            found[rank] = Outcome(pod.uid, pod.exit_code)
        elif rank in found and found[rank].uid != pod.uid:
            del found[rank]
    return found


def _let_go(now: Snapshot, job: JobView, *, job_over: bool = False) -> list[Action]:
    """Pods of a job that goes on. What those that failed said is remembered before they can go."""
    releases = _releases(now, job_over=job_over)
    kept = {pod.uid for pod in now.pods if pod.finalizer} - {release.uid for release in releases}
    failures = {rank: said for rank, said in now.outcomes.items() if rank >= 0 and said.exit_code and said.uid not in kept}
    return [Remember(job.job_id, failures), *releases] if failures != now.remembered else list(releases)


def _releases(now: Snapshot, *, job_over: bool) -> list[Release]:
    """Containers gone: the finalizer goes. The last pods of a job keep it until the job has ended, so that a job can always be found by its pods."""
    done = [pod for pod in now.pods if pod.finalizer and (pod.state == "over" or (pod.state == "waiting" and pod.deleting))]
    if not job_over and not _left(now):
        return []
    return [Release(pod.uid) for pod in done]
