"""The lives of pods, put together from what was seen of them; and how each of them was decided. Pure.

What must stay true: a life is told by what Kubernetes showed; why it ended is believed only if the one who is said to have ended it has it in its own record: the user's deletions, Slurm's accounting, the nodes that were taken away.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from tests.chaos.history import Act, History, JobRecord, PodSeen

__all__ = ["OVER", "Life", "awaits_collection", "family", "fate", "first_failures", "jobs_by_id", "lives"]

OVER = ("Succeeded", "Failed")
BY_SLURM = ("PREEMPTED", "NODE_FAIL", "TIMEOUT", "DEADLINE", "BOOT_FAIL", "OUT_OF_MEMORY")
SLACK = 3.0  # seconds between a deed and the moment at which it is written down, either way


class Life:
    """All versions of one pod, in order."""

    def __init__(self, versions: Sequence[PodSeen]) -> None:
        self.versions = versions
        self.uid, self.key, self.last = versions[0].uid, versions[0].key, versions[-1]

    def first(self, *names: str) -> PodSeen | None:
        """The first version that has one of these."""
        return next((seen for seen in self.versions if any(getattr(seen, name) for name in names)), None)

    def when(self, moment: float) -> PodSeen:
        """As it was then: the last version seen by that time, or the first of all."""
        return next((seen for seen in reversed(self.versions) if seen.at <= moment), self.versions[0])

    @cached_property
    def bound(self) -> PodSeen | None:
        return self.first("node")

    @cached_property
    def job_id(self) -> int:
        """The job by which it was bound: what its label said then, or as soon as it said something; where it never was, what the label said last."""
        bound = self.bound
        if bound is None:
            return self.last.job_id
        return next((seen.job_id for seen in self.versions if seen.revision >= bound.revision and seen.job_id), 0)

    @cached_property
    def ended_by_itself(self) -> PodSeen | None:
        over = next((seen for seen in self.versions if seen.phase in OVER), None)
        return over if over is not None and not over.deleting else None

    @cached_property
    def deleted(self) -> PodSeen | None:
        return self.first("deleting", "gone")


def lives(pods: Iterable[PodSeen]) -> list[Life]:
    found: dict[str, list[PodSeen]] = {}
    for seen in pods:
        found.setdefault(seen.uid, []).append(seen)
    return [Life(versions) for versions in found.values()]


def jobs_by_id(jobs: Iterable[JobRecord], cluster: str) -> dict[int, list[JobRecord]]:
    """Of one bridge only. Several of one id where Slurm has used it again, the first submitted first."""
    found: dict[int, list[JobRecord]] = {}
    for job in sorted(jobs, key=lambda job: job.submit):
        if job.cluster == cluster:
            found.setdefault(job.job_id, []).append(job)
    return found


def fate(life: Life, history: History, jobs: Mapping[int, Sequence[JobRecord]], failed: Mapping[str, float]) -> str:
    """How it was decided, in a word; empty where nothing and nobody accounts for it. `failed` is by the name of what users made when the first of its pods failed, or was evicted."""
    if life.ended_by_itself:
        return "ran to its end"
    if life.deleted is None:
        if awaits_collection(life, history):
            return "left by the garbage collector"
        return "runs" if life.last.begun and "/stays-" in life.key else ""
    at = life.deleted.at
    if any(act.kind == "deleted" and _is_of(life.key, act.subject) and act.at <= at + SLACK for act in history.acts):
        return "deleted by its user"
    own = jobs.get(life.job_id) or [
        job for records in jobs.values() for job in records if life.key in job.pods
    ]  # its label may be on its way
    if why := _slurm(at, own, history.acts):
        return why
    if life.bound and any(act.kind == "node-gone" and act.subject == life.bound.node and act.at <= at + SLACK for act in history.acts):
        return "its node was taken away"
    if life.last.owner and failed.get(family(life.key), at) < at:
        return "removed by its owner"
    if life.last.owner and life.bound is None and not life.job_id and not life.last.reason:
        return "removed by its owner"  # who had made one too many: the bridge would say why
    return ""


def awaits_collection(life: Life, history: History) -> bool:
    """Its owner was deleted by a user while it had neither job nor node, and the API server has no such owner: there is nobody to run it for, and deleting it is Kubernetes' part (`orphans`)."""
    if life.bound or life.job_id or life.uid not in history.orphans:
        return False
    return any(act.kind == "deleted" and _is_of(life.key, act.subject) for act in history.acts)


def _slurm(at: float, jobs: Sequence[JobRecord], acts: Sequence[Act]) -> str:
    """Why Slurm ended its job, where its record says that it did, and before the pod was evicted."""
    for job in jobs:
        if not job.end or job.end > at + SLACK:
            continue
        if job.state in BY_SLURM:
            return f"evicted: {job.state}"
        cancelled = any(act.kind == "cancelled" and act.subject == str(job.job_id) and act.at <= at + SLACK for act in acts)
        if job.state.startswith("CANCELLED") and cancelled:
            return "evicted: CANCELLED"
    return ""


def family(key: str) -> str:
    """`namespace/name-0001` of what users made, for any pod of it."""
    namespace, _, name = key.partition("/")
    words = name.split("-")
    number = next((index for index, word in enumerate(words) if len(word) == 4 and word.isdigit()), len(words) - 1)
    return f"{namespace}/{'-'.join(words[: number + 1])}"


def _is_of(key: str, subject: str) -> bool:
    return key == subject or key.startswith(f"{subject}-")


def first_failures(found: Iterable[Life]) -> dict[str, float]:
    """When the first pod of each family failed or was taken away: its owner may remove the others then."""
    failed: dict[str, float] = {}
    for life in found:
        seen = next((seen for seen in life.versions if seen.phase == "Failed" or seen.deleting), None)
        if seen is not None:
            failed[family(life.key)] = min(failed.get(family(life.key), seen.at), seen.at)
    return failed
