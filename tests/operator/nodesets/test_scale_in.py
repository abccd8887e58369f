"""Scaling in StatefulSet mode, and above all: when a pod may go."""

from dataclasses import replace

import msgspec
import pytest

from slinky.kube import Pod
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import ChangePod, CreatePod, DeletePod, DeleteSlurmNode, Drain, Resume, SetConditions, Tell
from slinky.operator.nodesets.drains import known_of, may_go
from slinky.operator.nodesets.plan import JobsNeeded, jobs_needed, plan
from slinky.slurm import Node as SlurmNode
from tests.operator.nodesets.scene import a_job, a_node, a_nodeset, a_pod, ago, cordoned, in_slurm, names, only, scene

SCALED_IN = "slurm-operator: NodeSet (hpc/workers) is scaled in"


def test_missing_workers_are_created_at_the_lowest_free_numbers() -> None:
    acts = plan(scene(a_nodeset(replicas=4), [a_pod(1), a_pod(3)]))
    assert only(acts, CreatePod) == [CreatePod("workers-0", ordinal=0), CreatePod("workers-2", ordinal=2)]


def test_missing_workers_are_created_also_where_slurm_does_not_answer() -> None:
    assert names(plan(scene(a_nodeset(replicas=2), current=False)), CreatePod) == ["workers-0", "workers-1"]


def test_numbers_are_padded_where_that_is_asked_for() -> None:
    assert names(plan(scene(a_nodeset(replicas=1, ordinalPadding=3))), CreatePod) == ["workers-000"]


def test_a_name_is_taken_until_its_pod_is_gone() -> None:
    assert names(plan(scene(a_nodeset(replicas=2), [a_pod(0, leaving=True), a_pod(1)])), CreatePod) == []


def test_a_pod_just_created_counts_before_the_watch_shows_it() -> None:
    acts = plan(scene(a_nodeset(replicas=2), [a_pod(0)], created=frozenset({"workers-1"})))
    assert names(acts, CreatePod) == []


def test_a_victim_is_cordoned_and_drained_before_it_is_deleted() -> None:
    acts = plan(scene(a_nodeset(replicas=1), [a_pod(0), a_pod(1)], [in_slurm("workers-0"), in_slurm("workers-1")]))
    assert only(acts, Drain) == [Drain(("workers-1",), SCALED_IN)]
    [change] = only(acts, ChangePod)
    assert (change.name, change.annotations[marks.CORDON], change.annotations[marks.CAUSE]) == ("workers-1", "true", "scale-in")
    assert names(acts, DeletePod) == []


def test_victims_are_drained_in_one_request() -> None:
    acts = plan(scene(a_nodeset(replicas=0), [a_pod(n) for n in range(3)], [in_slurm(f"workers-{n}") for n in range(3)]))
    assert only(acts, Drain) == [Drain(("workers-0", "workers-1", "workers-2"), SCALED_IN)]


def test_a_drained_victim_without_jobs_is_deleted_on_slurms_word() -> None:
    pods = [a_pod(0), a_pod(1, annotations=cordoned("scale-in"))]
    acts = plan(scene(a_nodeset(replicas=1), pods, [in_slurm("workers-0"), in_slurm("workers-1", "IDLE", "DRAIN", reason=SCALED_IN)]))
    [deleted] = only(acts, DeletePod)
    assert (deleted.uid, deleted.on_word) == ("uid-workers-1", "workers-1")


BUSY = [
    ("ALLOCATED", "DRAIN"),
    ("MIXED", "DRAIN"),
    ("IDLE", "DRAIN", "COMPLETING"),
    ("DOWN", "DRAIN", "COMPLETING"),
    ("IDLE",),
    ("ALLOCATED",),
    ("DOWN",),
]


@pytest.mark.parametrize("states", BUSY)
def test_a_victim_that_is_busy_or_not_drained_stays(states: tuple[str, ...]) -> None:
    snapshot = scene(
        a_nodeset(replicas=0), [a_pod(0, annotations=cordoned("scale-in"))], [in_slurm("workers-0", *states, reason="Not responding")]
    )
    assert names(plan(snapshot), DeletePod) == []


def test_a_suspended_job_holds_its_node_though_the_node_looks_idle() -> None:
    node = in_slurm("workers-0", "IDLE", "DRAIN", reason=SCALED_IN)
    pods = [a_pod(0, annotations=cordoned("scale-in"))]
    assert names(plan(scene(a_nodeset(replicas=0), pods, [node], jobs=(a_job(7, "workers-0"),))), DeletePod) == []


def test_nothing_is_deleted_before_jobs_were_asked_for() -> None:
    node = in_slurm("workers-0", "IDLE", "DRAIN", reason=SCALED_IN)
    snapshot = scene(a_nodeset(replicas=0), [a_pod(0, annotations=cordoned("scale-in"))], [node], jobs=None)
    assert names(plan(snapshot), DeletePod) == []
    assert jobs_needed(snapshot) is JobsNeeded.NOW


DRAINED = in_slurm("workers-0", "IDLE", "DRAIN", reason=SCALED_IN)


def test_nothing_is_deleted_or_drained_where_slurm_does_not_answer() -> None:
    acts = plan(scene(a_nodeset(replicas=0), [a_pod(0, annotations=cordoned("scale-in"))], [DRAINED], current=False))
    assert acts == []


def test_a_pod_that_runs_stays_where_slurm_answers_and_does_not_know_its_node() -> None:
    assert names(plan(scene(a_nodeset(replicas=0), [a_pod(0)])), DeletePod) == []


def test_a_pod_that_was_never_on_a_node_goes_at_once_unless_it_changes() -> None:
    [deleted] = only(plan(scene(a_nodeset(replicas=0), [a_pod(0, node="", phase="Pending", ready=False)], current=False)), DeletePod)
    assert deleted.version == "7"


def test_a_pod_whose_image_cannot_be_had_goes_at_once() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
    pods = [a_pod(0, phase="Pending", ready=False, slurmd=waiting)]
    assert names(plan(scene(a_nodeset(replicas=0), pods, current=False)), DeletePod) == ["workers-0"]


def test_a_pod_whose_container_is_being_made_does_not_count_as_never_started() -> None:
    waiting = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    pods = [a_pod(0, phase="Pending", ready=False, slurmd=waiting)]
    assert names(plan(scene(a_nodeset(replicas=0), pods, current=False)), DeletePod) == []


def unready(number: int, *, since: float, started: float) -> Pod:
    """Minutes ago."""
    running = {"state": {"running": {"startedAt": ago(minutes=started)}}}
    return a_pod(number, ready=False, ready_since=ago(minutes=since), slurmd=running)


def test_a_slurmd_that_was_never_ready_and_is_long_unknown_to_slurm_may_go() -> None:
    """Half a minute: it answers its probe within seconds, and takes no job before."""
    old, young = unready(0, since=7, started=0.6), unready(1, since=7, started=0.4)
    assert names(plan(scene(a_nodeset(replicas=0), [old, young])), DeletePod) == ["workers-0"]


def test_a_slurmd_that_was_ready_once_stays_though_slurm_does_not_know_it_any_more() -> None:
    """It may run jobs of a Slurm that has lost its memory, however long it is not ready."""
    snapshot = scene(a_nodeset(replicas=0), [unready(0, since=600, started=601)])
    assert names(plan(snapshot), DeletePod) == []
    overdue = msgspec.structs.replace(
        snapshot.pods["workers-0"],
        metadata=msgspec.structs.replace(snapshot.pods["workers-0"].metadata, annotations=cordoned("scale-in", ago(seconds=61))),
    )
    acts = plan(scene(a_nodeset(replicas=0, drainDeadlineSeconds=60), [overdue]))
    assert names(acts, DeletePod) == ["workers-0"]
    assert [told.reason for told in only(acts, Tell)] == ["DrainDeadlineExceeded"]


@pytest.mark.parametrize("reason", ["broken fan", "Not responding", "slurm-operator: Pod is terminating", ""])
def test_a_worker_that_is_down_is_drained_before_it_goes(reason: str) -> None:
    """A slurmd that comes back is used again (ReturnToService=2), maybe between the look and the deletion."""
    pods = [a_pod(0, annotations=cordoned("scale-in"))]
    acts = plan(scene(a_nodeset(replicas=0), pods, [in_slurm("workers-0", "DOWN", reason=reason)]))
    assert only(acts, Drain) == [Drain(("workers-0",), SCALED_IN)]
    assert names(acts, DeletePod) == []
    drained = in_slurm("workers-0", "DOWN", "DRAIN", reason=f"{SCALED_IN}; before: {reason}")
    after = plan(scene(a_nodeset(replicas=0), pods, [drained]))
    assert only(after, Drain) == []
    assert names(after, DeletePod) == ["workers-0"]


def test_the_deadline_takes_the_jobs_with_it_and_says_which() -> None:
    node = in_slurm("workers-0", "ALLOCATED", "DRAIN", reason=SCALED_IN)
    pods = [a_pod(0, annotations=cordoned("scale-in", ago(seconds=61)))]
    acts = plan(scene(a_nodeset(replicas=0, drainDeadlineSeconds=60), pods, [node], jobs=(a_job(7, "workers-0"),)))
    [told] = only(acts, Tell)
    assert told.warning
    assert "job 7 " in told.note
    assert acts.index(told) < acts.index(only(acts, DeletePod)[0])


@pytest.mark.parametrize("current", [True, False])
def test_a_deadline_is_not_over_before_its_time_nor_without_slurms_word(current: bool) -> None:
    node = in_slurm("workers-0", "ALLOCATED", "DRAIN", reason=SCALED_IN)
    pods = [a_pod(0, annotations=cordoned("scale-in", ago(seconds=59 if current else 600)))]
    acts = plan(scene(a_nodeset(replicas=0, drainDeadlineSeconds=60), pods, [node], jobs=(a_job(7, "workers-0"),), current=current))
    assert names(acts, DeletePod) == []


def test_a_deadline_counts_from_when_the_worker_was_to_go_and_not_from_an_earlier_cordon() -> None:
    node = in_slurm("workers-0", "ALLOCATED", "DRAIN", reason="slurm-operator: Node (k0) is cordoned")
    pods = [a_pod(0, annotations=cordoned("node", ago(hours=1)))]
    acts = plan(
        scene(
            a_nodeset(replicas=0, drainDeadlineSeconds=60), pods, [node], jobs=(a_job(7, "workers-0"),), nodes=[a_node("k0", cordoned=True)]
        )
    )
    assert names(acts, DeletePod) == []
    assert only(acts, Tell) == []
    assert only(acts, ChangePod)[0].annotations[marks.SINCE] == "2026-11-15T12:00:00Z"


def test_who_is_no_longer_a_victim_is_uncordoned_and_resumed() -> None:
    pods = [a_pod(0), a_pod(1, annotations=cordoned("scale-in"))]
    slurm = [in_slurm("workers-0"), in_slurm("workers-1", "ALLOCATED", "DRAIN", reason=SCALED_IN)]
    acts = plan(scene(a_nodeset(replicas=2), pods, slurm))
    assert only(acts, Resume) == [Resume(("workers-1",))]
    [change] = only(acts, ChangePod)
    assert change.annotations == {marks.CORDON: None, marks.CAUSE: None, marks.SINCE: None}


def test_a_drain_whose_reason_an_admin_has_replaced_is_not_undone() -> None:
    pods = [a_pod(0, annotations=cordoned("scale-in"))]
    acts = plan(scene(a_nodeset(replicas=1), pods, [in_slurm("workers-0", "IDLE", "DRAIN", reason="bad disk")]))
    assert only(acts, Resume) == []


def test_an_admins_drain_keeps_its_reason_when_its_node_becomes_a_victim_and_suffices() -> None:
    acts = plan(scene(a_nodeset(replicas=0), [a_pod(0)], [in_slurm("workers-0", "IDLE", "DRAIN", reason="bad disk")]))
    assert only(acts, Drain) == []
    assert names(acts, DeletePod) == ["workers-0"]


def test_a_worker_that_comes_back_to_its_old_drain_is_resumed_once_it_is_ready() -> None:
    def resumed(node: SlurmNode, ready: bool) -> list[str]:
        return names(plan(scene(a_nodeset(replicas=1), [a_pod(0, ready=ready)], [node])), Resume)

    assert resumed(DRAINED, True) == ["workers-0"]
    assert resumed(DRAINED, False) == []
    assert resumed(in_slurm("workers-0", "DOWN", reason="slurm-operator: Pod is terminating"), True) == ["workers-0"]
    assert resumed(in_slurm("workers-0", "DOWN", reason="broken fan"), True) == []


def test_a_pod_that_has_ended_is_replaced_whatever_slurm_says_but_not_in_haste() -> None:
    over = [a_pod(0, phase="Failed", ready=False), a_pod(1, phase="Failed", ready=False, created=ago(seconds=5))]
    acts = plan(scene(a_nodeset(replicas=2), over, current=False))
    assert names(acts, DeletePod) == ["workers-0"]
    assert names(acts, CreatePod) == []


def test_a_pod_whose_kubernetes_node_is_gone_is_ended_at_once_where_slurm_has_no_job_there() -> None:
    slurm = [in_slurm("workers-0", "DOWN", "DRAIN", reason=SCALED_IN)]
    [deleted] = only(plan(scene(a_nodeset(replicas=0), [a_pod(0)], slurm, nodes=[a_node("other")])), DeletePod)
    assert deleted.at_once


INFO = '{"namespace":"hpc","podName":"workers-0","node":"k0","nodeSetName":"workers","nodeSetUID":"nodeset"}'


@pytest.mark.parametrize(
    ("states", "reason", "comment", "renewed"),
    [
        (("IDLE", "DRAIN"), SCALED_IN, INFO, True),
        (("DOWN",), "slurm-operator: Pod is terminating", INFO, True),
        (("DOWN", "NOT_RESPONDING"), "Not responding", INFO, True),
        (("IDLE",), "", INFO, False),
        (("IDLE", "DRAIN"), "bad disk", INFO, False),
        (("DOWN",), "broken fan", INFO, False),
        (("DOWN", "DRAIN"), f"{SCALED_IN}; before: broken fan", INFO, False),
        (("ALLOCATED", "DRAIN"), SCALED_IN, INFO, False),
        (("IDLE", "DRAIN"), SCALED_IN, "", False),
        (("IDLE", "DRAIN"), SCALED_IN, INFO.replace('"nodeset"', '"another"'), False),
    ],
)
def test_a_record_of_a_pod_that_was_goes_before_its_name_comes_again_unless_an_admin_or_a_job_holds_it(
    states: tuple[str, ...], reason: str, comment: str, renewed: bool
) -> None:
    acts = plan(scene(a_nodeset(replicas=1), [], [in_slurm("workers-0", *states, reason=reason, comment=comment)]))
    assert bool(only(acts, DeleteSlurmNode)) is renewed
    assert names(acts, CreatePod) == ([] if renewed else ["workers-0"])  # its slurmd's own record must not be the one that goes


def test_a_pod_that_goes_now_is_not_written_to_before() -> None:
    acts = plan(
        scene(
            a_nodeset(replicas=0), [a_pod(0, annotations=cordoned("scale-in"))], [in_slurm("workers-0", "IDLE", "DRAIN", reason=SCALED_IN)]
        )
    )
    assert names(acts, DeletePod) == ["workers-0"]
    assert [*only(acts, ChangePod), *only(acts, SetConditions)] == []


def test_where_not_all_jobs_are_known_a_free_node_is_free_and_a_busy_one_says_what_is_known() -> None:
    """Jobs that may be missing show on their nodes as an allocation."""
    pods = [a_pod(n, annotations=cordoned("scale-in")) for n in range(3)]
    ours = "slurm-operator: x"
    slurm = [
        in_slurm("workers-0", "IDLE", "DRAIN", reason=ours),
        in_slurm("workers-1", "ALLOCATED", "DRAIN", reason=ours),
        in_slurm("workers-2", "ALLOCATED", "DRAIN", reason=ours),
    ]
    snapshot = scene(a_nodeset(replicas=0), pods, slurm, jobs=(a_job(7, "workers-2"),))
    snapshot = replace(snapshot, slurm=replace(snapshot.slurm, knows_all_jobs=False))
    words = {worker.name: may_go(worker, snapshot, "scale-in") for worker in snapshot.workers}
    assert words["workers-0"].goes
    assert [words[name].why for name in ("workers-1", "workers-2")] == ["a job is on node workers-1", "job 7 is on node workers-2"]
    assert names(plan(snapshot), DeletePod) == ["workers-0"]
    overdue = replace(snapshot, nodeset=a_nodeset(replicas=0, drainDeadlineSeconds=60))
    [word] = [may_go(worker, overdue, "scale-in") for worker in overdue.workers if worker.name == "workers-1"]
    assert word.goes
    assert "nobody could say which jobs are" in known_of(word)
