"""Taking over what is there: at the start of a leader's time, once.

Comes in: all of Slurm's jobs, streamed, and the pods. Goes out: for each workload the job that is its own, and the jobs of ours that nobody has a use for. What must stay true: only jobs with our marker and our cluster's name
are looked at; the job that the pods' label names is the workload's own; one whose label was not written yet is adopted if it was submitted for just these pods; and one whose pods are gone, if others are awaited in their stead; any other that is not over is a stray, to be ended.
"""

from collections.abc import Sequence

import msgspec

from slinky.bridge.marker import Marking, marker_for, read_comment
from slinky.bridge.submission import Submission, submission_of
from slinky.bridge.views import needs_job, pod_view
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Pod
from slinky.slurm import Job

__all__ = ["Found", "Inheritance", "found_in", "inheritance"]


class Found(msgspec.Struct, frozen=True, gc=False):
    """A job of ours."""

    key: WorkloadKey
    submission: Submission
    marker: str
    is_over: bool


class Inheritance(msgspec.Struct):
    """`own` is the workload's job, if it has one; `strays` are to be ended."""

    own: Found | None = None
    strays: list[int] = []


def found_in(job: Job, cluster: str) -> Found | None:
    marking: Marking | None = read_comment(job.admin_comment, cluster) if job.is_external else None
    key = WorkloadKey.parse(marking.workload) if marking else None
    if marking is None or key is None:
        return None
    return Found(key, submission_of(job.job_id, job), marking.marker, job.is_finished)


def inheritance(cluster: str, key: WorkloadKey, pods: Sequence[Pod], jobs: Sequence[Found], *, awaited: bool = False) -> Inheritance:
    """`jobs` are those that name this workload; `awaited`: whoever made its pods makes others in the stead of those that are gone."""
    views = [pod_view(pod) for pod in pods]
    labels = {pod.job_id for pod in views if needs_job(pod)} - {0}
    past = {pod.job_id for pod in views} - labels - {0}
    waiting = [pod.metadata.uid for pod in pods if not pod.is_over and pod.metadata.deletion_timestamp is None]
    marker = marker_for(cluster, str(key), waiting)
    own: Found | None = None
    for job in sorted(jobs, key=lambda job: job.submission.job_id):
        job_id = job.submission.job_id
        if job_id in labels or (not labels and not job.is_over and (job_id in past or job.marker.startswith(marker))):
            own = job
    if own is None and awaited and not labels:
        own = max((job for job in jobs if not job.is_over), key=lambda job: job.submission.job_id, default=None)
    strays = [job.submission.job_id for job in jobs if job is not own and not job.is_over]
    return Inheritance(own, strays)
