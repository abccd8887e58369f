"""What the demo reads and shows, without servers."""

import io
import math

import pytest
from rich.console import Console

from slinky.cli.demo_story import Binding, read_binding
from slinky.cli.demo_views import QueuedJob, read_squeue, side_by_side, state_of, tally
from slinky.kube import Pod
from slinky.kube.objects import Meta, PodSpec, PodStatus

METRICS = """\
slinky_bridge_stage_seconds_bucket{le="0.1",stage="bind"} 4.0
slinky_bridge_stage_seconds_bucket{le="0.5",stage="bind"} 19.0
slinky_bridge_stage_seconds_bucket{le="+Inf",stage="bind"} 20.0
slinky_bridge_stage_seconds_sum{stage="bind"} 6.0
slinky_bridge_stage_seconds_bucket{le="0.1",stage="queue"} 7.0
slinky_bridge_stage_seconds_sum{stage="queue"} 9.0
"""


def test_squeue_is_read_latest_first_and_what_is_no_job_is_left_out() -> None:
    told = "7|team/a|root|normal|RUNNING|0:05|kwok-1\n\n8|team/b|ai|high|PENDING|0:00|(Resources | held)\nslurm_load_jobs error\n"
    assert read_squeue(told) == [
        QueuedJob(8, "team/b", "ai", "high", "PENDING", "0:00", "(Resources | held)"),
        QueuedJob(7, "team/a", "root", "normal", "RUNNING", "0:05", "kwok-1"),
    ]


def pod(name: str, phase: str = "Pending", node: str = "", job: str = "") -> Pod:
    labels = {"scheduler.slinky.slurm.net/slurm-jobid": job} if job else {}
    return Pod(metadata=Meta(name=name, labels=labels), spec=PodSpec(node_name=node), status=PodStatus(phase=phase))


@pytest.mark.parametrize(("width", "wide"), [(160, True), (80, False)])
def test_both_queues_are_side_by_side_with_the_latest_job_first(width: int, wide: bool) -> None:
    console = Console(file=io.StringIO(), width=width)
    jobs = [QueuedJob(number, f"team/p{number}", "root", "normal", "RUNNING", "0:01", "kwok-1") for number in (3, 2, 1)]
    pods = [pod("waits"), pod("p1", "Running", "kwok-1", "1"), pod("p3", "Pending", "kwok-1", "3")]
    console.print(side_by_side(jobs, pods, 2, wide=wide))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert "Slurm · 3 jobs: 3 RUNNING" in lines[0]
    assert "Kubernetes · 3 pods: 1 Pending" in lines[0]
    assert [word in lines[2] for word in ("team/p3", "p3", "Bound", "kwok-1", "normal")] == [True, True, True, True, wide]
    assert "team/p1" not in "".join(lines)
    assert "waits" not in "".join(lines)


def test_a_pod_that_is_bound_and_not_started_yet_says_so() -> None:
    assert [state_of(pod("p")), state_of(pod("p", node="n")), state_of(pod("p", "Running", "n"))] == ["Pending", "Bound", "Running"]
    assert tally([], "pod") == "no pods"
    assert tally(["Running"], "pod") == "1 pod: 1 Running"


def test_the_time_from_start_to_bound_is_that_of_the_stage_bind_since_before() -> None:
    read = read_binding(METRICS)
    assert read == Binding(6.0, {0.1: 4.0, 0.5: 19.0, math.inf: 20.0})
    assert "0.30 s on average, 95 % within 0.5 s" in read.since(Binding(0.0, {}))
    assert "no bindings" in read.since(read)
