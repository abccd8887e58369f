"""From the objects of both sides to what the plan looks at. Pure."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from slinky.bridge.ends import Ending
from slinky.bridge.keys import FINALIZER, RANK, job_id_of
from slinky.bridge.plan import JobView, Outcome, PodView, outcomes
from slinky.bridge.submission import Submission
from slinky.kube.objects import Pod
from slinky.slurm import JobState, JobStates

__all__ = ["DEFAULT_GRACE", "ending_view", "exit_code_of", "exit_codes", "job_view", "needs_job", "pod_view", "speaks_for_all"]


S = TypeVar("S", bound=JobStates)
DEFAULT_GRACE = 30  # of a pod that names none

# What ended a job, as the reason of a pod's condition.
REASONS = {
    JobState.PREEMPTED: "SlurmPreempted",
    JobState.TIMEOUT: "SlurmTimeout",
    JobState.DEADLINE: "SlurmTimeout",
    JobState.CANCELLED: "SlurmCancelled",
    JobState.NODE_FAIL: "SlurmNodeFail",
}


def needs_job(pod: PodView) -> bool:
    """Whether its label still counts. One that is over and was let go has no use for its job: those who come after it in its workload get another."""
    return pod.state != "over" or pod.finalizer


def _rank_held(pod: Pod) -> int:
    """The rank that a bound pod was given with its Binding; -1 for none."""
    text = pod.metadata.annotations.get(RANK, "")
    return int(text) if pod.spec.node_name and text.isascii() and text.isdigit() and len(text) < 10 else -1


def pod_view(pod: Pod) -> PodView:
    state = "over" if pod.is_over else "bound" if pod.spec.node_name else "waiting"
    return PodView(
        uid=pod.metadata.uid,
        state=state,  # type: ignore[arg-type]
        deleting=pod.metadata.deletion_timestamp is not None,
        job_id=job_id_of(pod),
        finalizer=FINALIZER in pod.metadata.finalizers,
        exit_code=exit_code_of(pod),
        rank=_rank_held(pod),
        gated=bool(pod.spec.scheduling_gates),
        born=pod.metadata.born,
        lingers=_lingers(pod),
    )


def _lingers(pod: Pod) -> bool:
    """A bound pod that was deleted with a longer grace period than its own, which the policy bounds."""
    given, own = pod.metadata.deletion_grace_period_seconds, pod.spec.termination_grace_period_seconds
    deleting = pod.metadata.deletion_timestamp is not None and given is not None
    return deleting and bool(pod.spec.node_name) and not pod.is_over and (given or 0) > (DEFAULT_GRACE if own is None else own)


def exit_code_of(pod: Pod) -> int:
    """The worst of its containers'; 1 where it failed and none of them tells (evicted, say). At most 255, as Slurm keeps a byte."""
    if not pod.is_over:
        return 0
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    worst = max((status.state.terminated.exit_code for status in statuses if status.state.terminated), default=0)
    if pod.status.phase == "Succeeded":
        return 0
    return min(max(worst, 1), 255)


def exit_codes(pods: Sequence[PodView], job: Submission, before: Mapping[int, Outcome] | None = None) -> dict[int, int]:
    """Of a hetjob's components but the leader, by their ids: the worst of the last pods that had a place there and ended by themselves. `before` are those of pods that are gone."""
    said = outcomes(before or {}, pods, job.job_id)
    return {
        component.job_id: max((said[rank].exit_code for rank in component.ranks if rank in said), default=0)
        for component in job.components[1:]
    }


def speaks_for_all(parts: Sequence[S]) -> S:
    """Of a hetjob's parts the one that tells how the whole is: one that is over, else one that has not begun, else any. It runs when all do; none is of use without the others."""
    return min(parts, key=lambda part: 0 if part.is_finished else 1 if part.is_pending or "CONFIGURING" in part.states else 2)


def job_view(status: JobStates, job_id: int, tasks: int = 1) -> JobView:
    """A suspended job goes on when it is resumed, so its pods are left as they are; one that is being prepared does not have its nodes yet."""
    if status.is_finished:
        state = "over"
    elif status.is_running and "CONFIGURING" not in status.states:
        state = "running"
    else:
        state = "pending" if status.is_pending or "CONFIGURING" in status.states else "running"
    reason = REASONS.get(status.state, "SlurmJobEnded") if state == "over" else ""
    why = f"Slurm job {job_id} is {status.state}"
    return JobView(job_id=job_id, state=state, why=why, tasks=tasks, reason=reason, suspended=status.is_suspended)  # type: ignore[arg-type]


def ending_view(view: JobView, ending: Ending | None) -> JobView:
    """As it is for its pods: a job that runs, and that they have to leave."""
    if ending is None or view.state != "running":
        return view
    return msgspec.structs.replace(view, state="ending", why=ending.why, reason=ending.reason, until=ending.until)
