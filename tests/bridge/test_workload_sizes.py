"""How many pods a gang still has to come."""

import msgspec
import pytest

from slinky.bridge.keys import GANG
from slinky.bridge.workload import PodGroup, WorkloadKey, workload_of
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


RING = WorkloadKey("CoschedulingPodGroup", "ns", "ring")


def bare(*phases: str) -> list[Pod]:
    pods = [a_pod(f"p-{number}", phase) for number, phase in enumerate(phases)]
    return [msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=())) for pod in pods]


def size_of(minimum: int, pods: list[Pod], job: Job | None = None) -> int:
    group = PodGroup(metadata=Meta(name="ring", namespace="ns"), min_count=minimum, builtin=job is not None)
    workload = workload_of(RING, pods, group, job)
    assert workload
    return workload.size


@pytest.mark.parametrize(
    ("minimum", "phases", "size"),
    [
        (4, ["Pending"], 4),
        (4, ["Succeeded", "Failed", "Succeeded", "Pending"], 1),
        (4, ["Succeeded", "Running", "Running", "Pending"], 3),
        (2, ["Succeeded", "Failed", "Pending"], 2),  # all of a gang have ended: the next one is a gang again
        (1, ["Succeeded", "Pending"], 1),
    ],
)
def test_of_pods_that_nobody_makes_anew_those_that_have_ended_are_waited_for_no_more(minimum: int, phases: list[str], size: int) -> None:
    assert size_of(minimum, bare(*phases)) == size


def test_of_a_job_those_are_waited_for_no_more_that_it_will_not_make() -> None:
    """Of several that share a group, those of the others may have yet to come."""
    job = Job(metadata=Meta(name="grow", namespace="ns", uid="grow-uid"), spec=JobSpec(parallelism=3, completions=3))
    assert size_of(3, [a_pod("a", "Pending")], job) == 3
    assert size_of(3, [a_pod("a", "Succeeded"), a_pod("b", "Failed"), a_pod("c", "Pending")], job) == 2
    assert size_of(8, [a_pod(name, "Pending") for name in "abc"], job) == 8
    queue = msgspec.structs.replace(job, spec=JobSpec(parallelism=3, completions=9))
    assert size_of(3, [a_pod("a", "Succeeded"), a_pod("b", "Pending")], queue) == 3
