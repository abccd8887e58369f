"""From the objects of both sides to what the plan looks at. Pure."""

from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.bridge.plan import JobView, PodView
from slinky.kube.objects import Pod
from slinky.slurm import JobStatus

__all__ = ["job_id_of", "job_view", "pod_view"]


def job_id_of(pod: Pod) -> int:
    """0 where it has none; a label that is no number (nobody but us may write it) counts as none."""
    text = pod.metadata.labels.get(JOB_ID, "")
    return int(text) if text.isdigit() else 0


def pod_view(pod: Pod) -> PodView:
    codes = [status.state.terminated.exit_code for status in pod.status.container_statuses if status.state.terminated]
    state = "over" if pod.is_over else "bound" if pod.spec.node_name else "waiting"
    return PodView(
        uid=pod.metadata.uid,
        state=state,  # type: ignore[arg-type]
        deleting=pod.metadata.deletion_timestamp is not None,
        job_id=job_id_of(pod),
        finalizer=FINALIZER in pod.metadata.finalizers,
        exit_code=max(codes, default=1 if pod.status.phase == "Failed" else 0),
    )


def job_view(status: JobStatus) -> JobView:
    """A suspended job keeps what it has, so its pods are left as they are; one that is being prepared does not have its nodes yet."""
    if status.is_finished:
        state = "over"
    elif status.is_running and "CONFIGURING" not in status.states:
        state = "running"
    else:
        state = "pending" if status.is_pending or "CONFIGURING" in status.states else "running"
    return JobView(job_id=status.job_id, state=state, why=f"Slurm job {status.job_id} is {status.state}")  # type: ignore[arg-type]
