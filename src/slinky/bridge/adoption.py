"""Taking over what is there: at the start of a leader's time, once.

Comes in: all of Slurm's jobs, streamed, and the pods. Goes out: for each workload the job that is its own, and the jobs of ours that nobody has a use for. What must stay true: only jobs with our marker and our cluster's name
are looked at; the parts of a hetjob are one job, its leader's; the job that the pods' label names is the workload's own, if it is one of those that name the workload: any other label was written by somebody else, and says nothing; one
whose label was not written yet (or was changed) is adopted if it was submitted for just these pods, or if some of them are on nodes (be it over, if there is no other: they have yet to go); and one whose pods are gone, if others are awaited in their stead; any other that is not over is a
stray, to be ended. Where the label on a node's pod names a younger job than all that Slurm has, Slurm was set back to an old state: an older job is the pods' only if it runs, and has their nodes, or if it ended after they were
bound (then it is the label that was changed). What it says of them otherwise (over, waiting, elsewhere) was said before they came to where they are.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from slinky.bridge.claim import Claim
from slinky.bridge.keys import job_id_of
from slinky.bridge.marker import Marking, marker_for, read_comment
from slinky.bridge.submission import Submission, hetjob_of, submission_of
from slinky.bridge.views import needs_job, pod_view
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod
from slinky.slurm import Job, expand

__all__ = ["Found", "Inheritance", "found_in", "inheritance", "meant_by", "whole"]

CLOCKS = 2.0  # seconds by which those of Slurm and Kubernetes may differ, both of which tell whole ones


class Found(msgspec.Struct, frozen=True, gc=False):
    """A job of ours, or a part of one: of the hetjob `hetjob_id`, for these ranks. `left` are those of its jobs that are not over."""

    key: WorkloadKey
    submission: Submission
    marker: str
    left: tuple[int, ...] = ()
    hetjob_id: int = 0
    ranks: tuple[int, ...] = ()
    where: str = ""
    count: int = 1  # of its pods, of which `pods` names as many as there was room for
    pods: tuple[str, ...] = ()
    submitted: float = 0.0  # seconds since 1970, by the API server's clock
    started: float = 0.0
    ended: float = 0.0
    nodes: frozenset[str] = frozenset()
    anywhere: bool = False  # it has no constraint and leaves no node out
    claim: Claim | None = None  # of the leader that submitted it, or of the last that showed there that it lives
    is_leaving: bool = False  # it runs, and is being preempted
    ends: float = 0.0  # by Slurm's clock, where it runs and has a time limit

    @property
    def is_over(self) -> bool:
        return not self.left

    @property
    def to_end(self) -> tuple[int, ...]:
        """Whom to end, so that all of it ends: the parts of a hetjob go with their leader."""
        return (self.submission.job_id,) if self.submission.job_id in self.left else self.left


class Inheritance(msgspec.Struct):
    """`own` is the workload's job, if it has one; `strays` are to be ended."""

    own: Found | None = None
    strays: list[int] = []


def found_in(job: Job, cluster: str, ahead: float = 0.0) -> Found | None:
    """`ahead`: by how many seconds Slurm's clock is ahead of the API server's. The moments are told by the latter, as pods' are."""
    marking: Marking | None = read_comment(job.admin_comment, cluster) if job.is_external else None
    key = WorkloadKey.parse(marking.workload) if marking else None
    if marking is None or key is None:
        return None
    said = (job.submit_time, job.start_time, job.end_time if job.is_finished else 0)
    submitted, started, ended = (moment - ahead if isinstance(moment, int) and moment else 0.0 for moment in said)
    return Found(
        key,
        submission_of(job.job_id, job),
        marking.marker,
        () if job.is_finished else (job.job_id,),
        job.hetjob_id,
        marking.ranks,
        marking.where,
        marking.count,
        marking.pods,
        submitted,
        0.0 if job.is_pending else started,
        ended,
        frozenset(expand(job.nodes)) if job.nodes else frozenset(),
        not job.features and not job.excluded_nodes,
        Claim.parse(marking.claim),
        job.is_running and isinstance(job.preempt_time, int) and job.preempt_time > 0,
        float(job.end_time) if job.is_running and isinstance(job.end_time, int) and isinstance(job.time_limit, int) else 0.0,
    )


def whole(found: Iterable[Found]) -> list[Found]:
    """With the parts of each hetjob as one. Parts whose leader is gone stay by themselves."""
    parts: dict[int, list[Found]] = {}
    for part in found:
        parts.setdefault(part.hetjob_id or part.submission.job_id, []).append(part)
    together: list[Found] = []
    for job_id, group in parts.items():
        leader = next((part for part in group if part.submission.job_id == job_id), None)
        if leader is None or len(group) == 1:
            together += group
            continue
        group = [leader, *sorted((part for part in group if part is not leader), key=lambda part: part.submission.job_id)]
        hetjob = hetjob_of([part.submission for part in group], [(part.ranks, part.where) for part in group])
        left = tuple(job_id for part in group for job_id in part.left)
        nodes = frozenset[str]().union(*(part.nodes for part in group))
        pods = tuple(name for part in group for name in part.pods)
        leaving = any(part.is_leaving for part in group)
        joined = msgspec.structs.replace(leader, submission=hetjob, left=left, hetjob_id=job_id, ranks=(), nodes=nodes, pods=pods)
        anywhere = all(part.anywhere for part in group)
        together.append(msgspec.structs.replace(joined, anywhere=anywhere, is_leaving=leaving))
    return together


def inheritance(
    cluster: str,
    key: WorkloadKey,
    pods: Sequence[Pod],
    jobs: Sequence[Found],
    *,
    awaited: bool = False,
    in_slurm: Callable[[str], str] = str,
) -> Inheritance:
    """`jobs` are those that name this workload; `awaited`: whoever made its pods makes others in the stead of those that are gone; `in_slurm`: Slurm's name for a node."""
    views = [pod_view(pod) for pod in pods]
    ours = {job.submission.job_id for job in jobs}
    labels = {pod.job_id for pod in views if needs_job(pod)} & ours
    past = {pod.job_id for pod in views} - labels - {0}
    waiting = [pod.metadata.uid for pod in pods if not pod.is_over and pod.metadata.deletion_timestamp is None]
    marker = marker_for(cluster, str(key), waiting)
    on_nodes = [(pod, in_slurm(pod.spec.node_name)) for pod, view in zip(pods, views, strict=True) if view.state == "bound"]
    own: Found | None = None
    possible = [job for job in jobs if job.submission.job_id in labels or not _is_bygone(job, on_nodes)]
    for job in sorted(possible, key=lambda job: job.submission.job_id):
        job_id = job.submission.job_id
        if job_id in labels or (not labels and not job.is_over and (job_id in past or job.marker.startswith(marker))):
            own = job
    if own is None and not labels and (awaited or on_nodes):
        fitting = [job for job in possible if not job.is_over] or [job for job in possible if on_nodes and job.started]
        own = max(fitting, key=lambda job: job.submission.job_id, default=None)
    strays = [job_id for job in jobs if job is not own for job_id in job.to_end]
    return Inheritance(own, strays)


def _is_bygone(job: Found, on_nodes: Sequence[tuple[Pod, str]]) -> bool:
    """Pods that are on nodes, as their labels say by a younger job, are not this one's: unless it has them there, or had."""
    if job.is_over:
        has_them = any(node in job.nodes and pod.bound_at <= job.ended for pod, node in on_nodes)
    else:
        has_them = job.started > 0 and all(node in job.nodes for _, node in on_nodes)
    return not has_them and any(job.submission.job_id < job_id_of(pod) for pod, _ in on_nodes)


def meant_by(job: Found, pods: Iterable[Pod]) -> list[str]:
    """Of pods that wait without a label, the UIDs of those that a job was submitted for: older than it, and named by it, unless it had too many to name. Its labels had not all been written, and what becomes of it becomes of all."""
    all_named = len(job.pods) >= job.count
    return [
        pod.metadata.uid
        for pod in pods
        if not pod.spec.node_name
        and not job_id_of(pod)
        and (not all_named or f"{pod.metadata.namespace}/{pod.metadata.name}" in job.pods)
        and pod.metadata.born <= job.submitted + CLOCKS
    ]
