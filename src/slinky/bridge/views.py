"""From the objects of both sides to what the plan looks at. Pure."""

from slinky.bridge.keys import FINALIZER, JOB_ID, TASK
from slinky.bridge.plan import JobView, PodView
from slinky.kube.objects import Pod
from slinky.slurm import JobStates

__all__ = ["exit_code_of", "job_id_of", "job_view", "needs_job", "pod_view"]


def job_id_of(pod: Pod) -> int:
    """0 where it has none; a label that is no number (nobody but us may write it) counts as none."""
    text = pod.metadata.labels.get(JOB_ID, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def needs_job(pod: PodView) -> bool:
    """Whether its label still counts. One that is over and was let go has no use for its job: those who come after it in its workload get another."""
    return pod.state != "over" or pod.finalizer


def _rank_held(pod: Pod) -> int:
    """The rank that a bound pod was given with its Binding; -1 for none."""
    text = pod.metadata.annotations.get(TASK + "procid", "")
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
        born=pod.metadata.creation_timestamp.timestamp() if pod.metadata.creation_timestamp else 0.0,
    )


def exit_code_of(pod: Pod) -> int:
    """The worst of its containers'; 1 where it failed and none of them tells (evicted, say). At most 255, as Slurm keeps a byte."""
    if not pod.is_over:
        return 0
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    worst = max((status.state.terminated.exit_code for status in statuses if status.state.terminated), default=0)
    if pod.status.phase == "Succeeded":
        return 0
    return min(max(worst, 1), 255)


def job_view(status: JobStates, job_id: int, tasks: int = 1) -> JobView:
    """A suspended job keeps what it has, so its pods are left as they are; one that is being prepared does not have its nodes yet."""
    if status.is_finished:
        state = "over"
    elif status.is_running and "CONFIGURING" not in status.states:
        state = "running"
    else:
        state = "pending" if status.is_pending or "CONFIGURING" in status.states else "running"
    return JobView(job_id=job_id, state=state, why=f"Slurm job {job_id} is {status.state}", tasks=tasks)  # type: ignore[arg-type]
