"""How many pods a gang still has to come."""

from slinky.bridge.keys import GANG
from slinky.bridge.workload import WorkloadKey, workload_of
from slinky.kube import Job, Meta, Pod
from slinky.kube.objects import JobSpec, OwnerReference, PodStatus

OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="grow", uid="grow-uid", controller=True)


def a_pod(name: str, phase: str) -> Pod:
    return Pod(metadata=Meta(name=name, namespace="ns", uid=name, owner_references=(OWNER,)), status=PodStatus(phase=phase))


def test_pods_that_succeeded_count_before_the_jobs_status_does() -> None:
    """Else the last pod of a Job that was widened would seem to be one of a gang for which its Slurm job has too few places."""
    job = Job(
        metadata=Meta(name="grow", namespace="ns", uid="grow-uid", annotations={GANG: "true"}), spec=JobSpec(parallelism=3, completions=3)
    )
    pods = [a_pod("a", "Succeeded"), a_pod("b", "Succeeded"), a_pod("late", "Pending")]
    workload = workload_of(WorkloadKey("Job", "ns", "grow"), pods, job=job)
    assert workload
    assert workload.size == 1
