"""Rolling updates: who is condemned, and that nothing wedges."""

from typing import Any

import pytest

from slinky.operator.nodesets.acts import CreatePod, DeletePod, Drain, Resume
from slinky.operator.nodesets.plan import JobsNeeded, jobs_needed, plan
from slinky.operator.nodesets.updates import most_away
from tests.operator.nodesets.scene import NOW, a_job, a_nodeset, a_pod, ago, cordoned, in_slurm, names, scene

UPDATED = "slurm-operator: NodeSet (hpc/workers) is updated"


def one_away(**more: Any) -> dict[str, Any]:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}, **more}


@pytest.mark.parametrize(
    ("written", "total", "number"), [(2, 10, 2), ("25%", 10, 3), ("1%", 10, 1), ("100%", 3, 3), ("3", 10, 3), (0, 5, 1), ("x", 5, 1)]
)
def test_a_share_of_workers_is_rounded_up_and_never_none(written: int | str, total: int, number: int) -> None:
    nodeset = a_nodeset(updateStrategy={"rollingUpdate": {"maxUnavailable": written}})
    assert most_away(scene(nodeset), total) == number


def test_old_workers_are_drained_first_no_more_at_once_than_may_be_away() -> None:
    pods = [a_pod(n, revision="old") for n in range(3)]
    acts = plan(scene(a_nodeset(replicas=3, **one_away()), pods, [in_slurm(f"workers-{n}") for n in range(3)]))
    assert names(acts, Drain) == ["workers-2"]
    assert names(acts, DeletePod) == []


def test_an_old_worker_that_is_free_is_deleted_and_made_anew() -> None:
    pods = [a_pod(0, revision="old"), a_pod(1, revision="old", annotations=cordoned("update"))]
    slurm = [in_slurm("workers-0"), in_slurm("workers-1", "IDLE", "DRAIN", reason=UPDATED)]
    acts = plan(scene(a_nodeset(replicas=2, **one_away()), pods, slurm))
    assert names(acts, DeletePod) == ["workers-1"]
    later = plan(scene(a_nodeset(replicas=2, **one_away()), pods[:1], slurm))
    assert names(later, CreatePod) == ["workers-1"]
    assert names(later, Drain) == []


def test_the_next_old_worker_waits_until_the_new_one_is_available() -> None:
    slurm = [in_slurm("workers-0"), in_slurm("workers-1")]
    for ready, since, drained in [(False, ago(hours=1), []), (True, ago(seconds=5), []), (True, ago(hours=1), ["workers-0"])]:
        pods = [a_pod(0, revision="old"), a_pod(1, ready=ready, ready_since=since)]
        acts = plan(scene(a_nodeset(replicas=2, minReadySeconds=10, **one_away()), pods, slurm))
        assert names(acts, Drain) == drained


def test_idle_old_workers_go_before_busy_ones_and_those_that_end_soon_before_those_that_do_not() -> None:
    pods = [a_pod(n, revision="old") for n in range(3)]
    slurm = [in_slurm("workers-0", "ALLOCATED"), in_slurm("workers-1", "IDLE"), in_slurm("workers-2", "ALLOCATED")]
    nodeset = a_nodeset(replicas=3, **one_away())
    unasked = scene(nodeset, pods, slurm, jobs=None)
    assert jobs_needed(unasked) is JobsNeeded.NOT, "the idle one goes first, whatever the others do"
    busy = [in_slurm(f"workers-{number}", "ALLOCATED") for number in range(3)]
    assert jobs_needed(scene(nodeset, pods, busy, jobs=None)) is JobsNeeded.LATELY
    assert names(plan(unasked), Drain) == ["workers-1"]
    jobs = (a_job(1, "workers-0", ends=NOW), a_job(2, "workers-2", ends=None))
    busy = [in_slurm(f"workers-{n}", "ALLOCATED") for n in range(3)]
    assert names(plan(scene(nodeset, pods, busy, jobs=(*jobs, a_job(3, "workers-1")))), Drain) == ["workers-0"]


def test_old_workers_that_are_broken_are_replaced_beside_the_number_that_may_be_away() -> None:
    broken = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
    pods = [a_pod(n, revision="old", ready=False, phase="Pending", slurmd=broken) for n in range(3)]
    acts = plan(scene(a_nodeset(replicas=3, **one_away()), pods))
    assert names(acts, DeletePod) == ["workers-0", "workers-1", "workers-2"]


def test_a_broken_old_worker_with_jobs_is_drained_and_not_deleted() -> None:
    pods = [a_pod(0, revision="old", ready=False)]
    acts = plan(scene(a_nodeset(replicas=1), pods, [in_slurm("workers-0", "ALLOCATED")], jobs=(a_job(1, "workers-0"),)))
    assert names(acts, Drain) == ["workers-0"]
    assert names(acts, DeletePod) == []


def test_a_template_that_is_not_known_replaces_nobody() -> None:
    acts = plan(scene(a_nodeset(replicas=1), [a_pod(0, revision="old")], [in_slurm("workers-0")], revision=""))
    assert names(acts, Drain) == names(acts, DeletePod) == []


def test_on_delete_replaces_nobody() -> None:
    acts = plan(scene(a_nodeset(replicas=1, updateStrategy={"type": "OnDelete"}), [a_pod(0, revision="old")], [in_slurm("workers-0")]))
    assert names(acts, Drain) == names(acts, DeletePod) == []


def test_a_template_that_is_taken_back_resumes_those_that_were_drained_for_it() -> None:
    pods = [a_pod(0, annotations=cordoned("update"))]
    acts = plan(scene(a_nodeset(replicas=1), pods, [in_slurm("workers-0", "ALLOCATED", "DRAIN", reason=UPDATED)]))
    assert names(acts, Resume) == ["workers-0"]
