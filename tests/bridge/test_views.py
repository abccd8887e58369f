"""From the objects of both sides to what the plan looks at."""

import datetime as dt

import pytest

from slinky.bridge.keys import FINALIZER, JOB_ID, TASK, job_id_of
from slinky.bridge.plan import PodView
from slinky.bridge.submission import Component, Submission
from slinky.bridge.task import PerTask
from slinky.bridge.views import exit_code_of, exit_codes, job_view, pod_view
from slinky.bridge.workload import rank_of
from slinky.kube import Meta, Pod
from slinky.kube.objects.pod import ContainerState, ContainerStatus, PodSpec, PodStatus, Terminated
from slinky.slurm import JobStatus


def ended(phase: str, *codes: int, init: tuple[int, ...] = ()) -> Pod:
    def statuses(numbers: tuple[int, ...]) -> tuple[ContainerStatus, ...]:
        return tuple(ContainerStatus(state=ContainerState(terminated=Terminated(exit_code=code))) for code in numbers)

    return Pod(status=PodStatus(phase=phase, container_statuses=statuses(codes), init_container_statuses=statuses(init)))


@pytest.mark.parametrize(
    ("pod", "code"),
    [
        (ended("Succeeded", 0), 0),
        (ended("Succeeded", 0, init=(1,)), 0),
        (ended("Failed", 0, 3, 2), 3),
        (ended("Failed", init=(7,)), 7),
        (ended("Failed"), 1),
        (ended("Failed", 0), 1),
        (ended("Failed", 137), 137),
        (ended("Failed", 4096), 255),
        (ended("Failed", -1), 1),
        (ended("Running", 3), 0),
    ],
)
def test_a_pods_exit_code_is_the_worst_of_its_containers(pod: Pod, code: int) -> None:
    assert exit_code_of(pod) == code


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("", 0), ("x", 0), ("-1", 0), ("٣", 0), ("²", 0)])
def test_a_label_that_is_no_number_is_none(text: str, number: int) -> None:
    assert job_id_of(Pod(metadata=Meta(labels={JOB_ID: text}))) == number


def test_a_pod_as_the_plan_sees_it() -> None:
    meta = Meta(uid="a", labels={JOB_ID: "7"}, finalizers=("x", FINALIZER), annotations={TASK + "procid": "3"})
    waiting = pod_view(Pod(metadata=meta))
    assert (waiting.state, waiting.job_id, waiting.finalizer, waiting.rank) == ("waiting", 7, True, -1)
    bound = pod_view(Pod(metadata=meta, spec=PodSpec(node_name="n")))
    assert (bound.state, bound.rank, bound.deleting) == ("bound", 3, False)
    over = pod_view(Pod(metadata=Meta(deletion_timestamp=dt.datetime.now(dt.UTC)), status=PodStatus(phase="Failed")))
    assert (over.state, over.deleting, over.finalizer) == ("over", True, False)


@pytest.mark.parametrize(
    ("states", "seen"),
    [
        (["PENDING"], "pending"),
        (["RUNNING"], "running"),
        (["RUNNING", "CONFIGURING"], "pending"),
        (["SUSPENDED"], "running"),
        (["COMPLETED", "COMPLETING"], "over"),
        (["CANCELLED"], "over"),
        (["PREEMPTED"], "over"),
        (["NODE_FAIL"], "over"),
    ],
)
def test_a_job_as_the_plan_sees_it(states: list[str], seen: str) -> None:
    view = job_view(JobStatus("7", states), 7, 4)
    assert (view.job_id, view.state, view.tasks) == (7, seen, 4)


@pytest.mark.parametrize("text", ["", "x", "²", "9" * 5000])
def test_an_index_that_is_no_number_is_none_and_keeps_nothing_from_going_on(text: str) -> None:
    said = {"batch.kubernetes.io/job-completion-index": text, TASK + "procid": text}
    pod = Pod(metadata=Meta(name="a", uid="u", annotations=said), spec=PodSpec(node_name="n"))
    assert rank_of(pod) == (0, 0, "a", "u")
    assert pod_view(pod).rank == -1


def test_each_component_of_a_hetjob_ends_with_the_worst_of_its_own_pods() -> None:
    parts = [Component(job_id=7 + number, ranks=ranks, task=PerTask()) for number, ranks in enumerate([(0,), (1, 3), (2,)])]
    job = Submission(job_id=7, tasks=4, components=tuple(parts))
    pods = [PodView(uid=str(rank), state="over", job_id=7, rank=rank, exit_code=code) for rank, code in enumerate([9, 2, 0, 5])]
    assert exit_codes(pods, job) == {8: 5, 9: 0}
    assert exit_codes([PodView(uid="other", state="over", job_id=6, rank=1, exit_code=3)], job) == {8: 0, 9: 0}
    assert exit_codes(pods, Submission(job_id=7)) == {}
