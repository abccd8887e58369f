"""How many pods a gang still has to come."""

import datetime as dt

import pytest

from slinky.bridge.keys import GANG
from slinky.bridge.workload import PodGroup, WorkloadKey, workload_of
from slinky.kube import Job, Meta, Pod
from slinky.kube.objects import Condition, JobSpec, OwnerReference, PodSpec, PodStatus

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


def bare(*phases: str, born: int = 10, bound: int = 12) -> list[Pod]:
    """Those that are on a node, or were, have been there since `bound`."""
    found = []
    for number, phase in enumerate(phases):
        made = dt.datetime.fromtimestamp(born, dt.UTC)
        meta = Meta(name=f"p-{born}-{number}", namespace="ns", uid=f"p-{born}-{number}", creation_timestamp=made)
        at = Condition(type="PodScheduled", status="True", last_transition_time=dt.datetime.fromtimestamp(bound, dt.UTC))
        waits = phase == "Pending"
        found.append(
            Pod(
                metadata=meta,
                spec=PodSpec(node_name="" if waits else "n"),
                status=PodStatus(phase=phase, conditions=() if waits else (at,)),
            )
        )
    return found


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
        (2, ["Succeeded", "Failed", "Pending"], 1),
        (1, ["Succeeded", "Pending"], 1),
    ],
)
def test_of_pods_that_nobody_makes_anew_those_that_have_ended_are_waited_for_no_more(minimum: int, phases: list[str], size: int) -> None:
    assert size_of(minimum, bare(*phases)) == size


def test_those_of_an_earlier_gang_of_the_group_are_none_of_the_next() -> None:
    earlier = bare(*["Succeeded"] * 5, "Failed")
    assert size_of(4, [*earlier, *bare("Pending", born=20)]) == 4
    assert size_of(4, [*earlier, *bare("Succeeded", "Pending", born=20, bound=21)]) == 3


@pytest.mark.parametrize(
    ("minimum", "parallelism", "completions", "succeeded", "size"),
    [
        (3, 3, 3, 0, 3),
        (3, 3, 3, 1, 2),
        (3, 3, 3, 2, 1),
        (8, 3, 3, 0, 8),  # of several that share a group, those of the others may have yet to come
        (8, 3, 3, 1, 7),
        (3, 3, 9, 1, 3),
        (4, 8, 8, 4, 4),  # so many are still to come, and it asks for no more
        (4, 8, 8, 5, 3),
        (4, 8, 16, 12, 4),
    ],
)
def test_of_a_job_those_are_waited_for_no_more_that_it_will_not_make(
    minimum: int, parallelism: int, completions: int, succeeded: int, size: int
) -> None:
    job = Job(metadata=Meta(name="grow", namespace="ns", uid="grow-uid"), spec=JobSpec(parallelism=parallelism, completions=completions))
    pods = [a_pod(f"p-{number}", "Succeeded") for number in range(succeeded)]
    assert size_of(minimum, [*pods, a_pod("waits", "Pending")], job) == size
