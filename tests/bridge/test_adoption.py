"""What a new leader takes over: the jobs that the pods' labels name, those submitted for just these pods, and the strays."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from slinky.bridge.adoption import Found, found_in, inheritance, meant_by, whole
from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.bridge.marker import comment_for, marker_for
from slinky.bridge.submission import Submission
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Meta, Pod
from slinky.kube.objects import Condition, PodSpec, PodStatus
from slinky.slurm import Job

KEY = WorkloadKey("Job", "ns", "train")
NOON = 1_800_000_000.0


def a_pod(uid: str, job_id: int = 0, phase: str = "Pending", *, finalizer: bool = True, deleting: bool = False) -> Pod:
    meta = Meta(
        name=uid,
        namespace="ns",
        uid=uid,
        labels={JOB_ID: str(job_id)} if job_id else {},
        finalizers=(FINALIZER,) if finalizer else (),
        deletion_timestamp=dt.datetime.now(dt.UTC) if deleting else None,
    )
    return Pod(metadata=meta, status=PodStatus(phase=phase))


def on_node(node: str, job_id: int, uid: str = "a") -> Pod:
    """Since noon."""
    bound = Condition(type="PodScheduled", status="True", last_transition_time=dt.datetime.fromtimestamp(NOON, dt.UTC))
    status = PodStatus(phase="Running", conditions=(bound,))
    return msgspec.structs.replace(a_pod(uid, job_id), spec=PodSpec(node_name=node), status=status)


def a_job(job_id: int, *uids: str, attempt: int = 0, over: bool = False, nodes: str = "", ended: float = 0.0) -> Found:
    """Without nodes it has not started."""
    submission, marker = Submission(job_id=job_id, tasks=len(uids)), marker_for("c1", str(KEY), uids, attempt)
    started, where = (1.0, frozenset(nodes.split(","))) if nodes else (0.0, frozenset[str]())
    return Found(KEY, submission, marker, () if over else (job_id,), started=started, ended=ended, nodes=where)


def inherited(pods: list[Pod], *jobs: Found) -> tuple[int, list[int]]:
    found = inheritance("c1", KEY, pods, jobs)
    return found.own.submission.job_id if found.own else 0, found.strays


def test_the_job_that_the_label_names_is_its_own_and_any_other_is_a_stray() -> None:
    pods = [a_pod("a", 7), a_pod("b", 7)]
    assert inherited(pods, a_job(7, "x", "y"), a_job(9, "a", "b")) == (7, [9])


def test_a_label_that_was_written_on_some_only_is_enough() -> None:
    assert inherited([a_pod("a"), a_pod("b", 7)], a_job(7, "a", "b")) == (7, [])


def test_without_a_label_the_job_for_just_these_pods_is_adopted() -> None:
    pods = [a_pod("a"), a_pod("b")]
    assert inherited(pods, a_job(7, "a", "b")) == (7, [])
    assert inherited(pods, a_job(7, "a", "b", attempt=2)) == (7, [])
    assert inherited(pods, a_job(7, "a", "c"), a_job(8, "a")) == (0, [7, 8])
    assert inherited(pods, a_job(7, "a", "b", over=True)) == (0, [])


def test_pods_that_are_leaving_are_not_among_those_it_is_for() -> None:
    assert inherited([a_pod("a"), a_pod("b", deleting=True)], a_job(7, "a")) == (7, [])


def test_a_job_that_is_over_is_no_stray_but_is_its_own_where_the_label_says_so() -> None:
    assert inherited([a_pod("a", 7, "Running")], a_job(7, "a", over=True), a_job(5, "a", over=True)) == (7, [])


def test_of_two_jobs_for_the_same_pods_one_is_adopted_and_the_other_ended() -> None:
    assert inherited([a_pod("a")], a_job(7, "a"), a_job(8, "a")) == (8, [7])


def test_the_label_of_one_that_is_over_and_let_go_does_not_speak_for_those_who_came_after_it() -> None:
    """A Job's second wave: the first one's pods stay as objects, with their label."""
    first = [a_pod("a", 7, "Failed", finalizer=False), a_pod("b", 7, "Failed", finalizer=False)]
    second = [a_pod("c"), a_pod("d")]
    assert inherited([*first, *second], a_job(7, "a", "b", over=True), a_job(9, "c", "d")) == (9, [])


def test_a_job_whose_pods_ended_while_nobody_looked_is_still_theirs() -> None:
    """Pods without our finalizer: it must be ended with their exit code."""
    assert inherited([a_pod("a", 7, "Failed", finalizer=False)], a_job(7, "a")) == (7, [])


def test_a_label_that_names_none_of_its_jobs_was_written_by_somebody_else_and_says_nothing() -> None:
    assert inherited([a_pod("a", 4711)], a_job(7, "a")) == (7, [])
    assert inherited([a_pod("a", 4711), a_pod("b", 7)], a_job(7, "a", "b")) == (7, [])
    assert inherited([a_pod("a", 4711)], a_job(7, "x")) == (0, [7])
    assert inherited([on_node("n", 4711)], a_job(7, "a", "gone", nodes="n")) == (7, []), "who runs there runs by a job of the workload"


def test_of_an_old_state_of_slurm_only_a_job_that_runs_and_has_their_nodes_can_be_that_of_pods_of_a_younger_one() -> None:
    """Job 80 is unknown there; 46, which had been theirs before it, is what it was then."""
    pods = [on_node("n", 80)]
    assert inherited(pods, a_job(46, "a", nodes="n", over=True, ended=NOON - 2)) == (0, []), "what ended before they came ends nothing"
    assert inherited(pods, a_job(46, "a", nodes="n", over=True, ended=NOON + 2)) == (46, []), (
        "it ended with them there: it is the label that is wrong"
    )
    assert inherited(pods, a_job(46, "a", nodes="m", over=True, ended=NOON + 2)) == (0, []), "it was elsewhere"
    assert inherited(pods, a_job(46, "a")) == (0, [46]), "it waits: it would start elsewhere"
    assert inherited(pods, a_job(46, "a", nodes="m")) == (0, [46])
    assert inherited(pods, a_job(46, "a", nodes="n")) == (46, [])
    assert inherited([*pods, on_node("m", 80, uid="b")], a_job(46, "a", "b", nodes="n")) == (0, [46])
    assert inherited([*pods, on_node("m", 80, uid="b")], a_job(46, "a", "b", nodes="n,m")) == (46, [])
    assert inherited(pods, a_job(80, "a", nodes="n", over=True), a_job(46, "a", nodes="n")) == (80, [46]), "its own has ended"
    assert inherited([on_node("n", 0)], a_job(46, "a", nodes="n", over=True)) == (46, []), "without a label it is the best that is known"
    found = inheritance("c1", KEY, pods, [a_job(46, "a", nodes="slurm-n")], in_slurm=lambda name: f"slurm-{name}")
    assert found.own is not None, "nodes go by Slurm's names"


def test_only_external_jobs_with_our_marker_and_cluster_are_ours() -> None:
    comment = comment_for("c1", str(KEY), [("ns", "a")], ["a"])
    said: dict[str, Any] = {"job_id": 7, "job_states": ["RUNNING"], "flags": ["EXTERNAL_JOB"], "admin_comment": comment}
    found = found_in(Job(**said), "c1")
    assert found is not None
    assert (found.key, found.submission.job_id, found.marker, found.is_over) == (KEY, 7, marker_for("c1", str(KEY), ["a"]), False)
    assert found_in(Job(**said | {"job_states": ["COMPLETED"]}), "c1") == msgspec.structs.replace(found, left=())
    assert found_in(Job(**said), "c2") is None
    assert found_in(Job(**said | {"flags": []}), "c1") is None
    assert found_in(Job(**said | {"admin_comment": ""}), "c1") is None
    assert found_in(Job(**said | {"admin_comment": comment_for("c1", "nonsense", [], ["a"])}), "c1") is None


@pytest.mark.parametrize("ahead", [0, 3600, -3600])
def test_jobs_times_and_pods_times_are_compared_by_one_clock(ahead: int) -> None:
    """Slurm's is an hour ahead of the API server's, or behind. A job that ended before the pods came to their node is not theirs, and one that ended after that is."""
    comment = comment_for("c1", str(KEY), [("ns", "a")], ["a"])

    def over(ended: float) -> Found:
        times = {
            name: {"set": True, "infinite": False, "number": int(moment) + ahead}
            for name, moment in (("submit_time", NOON - 100), ("start_time", NOON - 90), ("end_time", ended))
        }
        said = {"job_id": 46, "job_state": ["TIMEOUT"], "flags": ["EXTERNAL_JOB"], "admin_comment": comment, "nodes": "n", **times}
        found = found_in(msgspec.convert(said, Job), "c1", float(ahead))
        assert found is not None
        return found

    assert inherited([on_node("n", 80)], over(NOON - 60)) == (0, [])
    assert inherited([on_node("n", 80)], over(NOON + 60)) == (46, [])
    assert over(NOON).submitted == NOON - 100


def a_part(job_id: int, hetjob_id: int, ranks: tuple[int, ...], *uids: str, over: bool = False) -> Found:
    submission = Submission(job_id=job_id, tasks=len(ranks))
    return Found(KEY, submission, marker_for("c1", str(KEY), uids), () if over else (job_id,), hetjob_id, ranks)


def test_the_parts_of_a_hetjob_are_one_job_that_its_leader_stands_for() -> None:
    other = a_job(5, "x")
    [first, job] = whole([other, a_part(8, 7, (1, 2), "a", "b", "c"), a_part(7, 7, (0,), "a", "b", "c")])
    assert first is other
    assert (job.submission.job_id, job.submission.tasks, job.left) == (7, 3, (7, 8))
    assert [(part.job_id, part.ranks) for part in job.submission.components] == [(7, (0,)), (8, (1, 2))]
    assert inherited([a_pod("a", 7), a_pod("b", 7), a_pod("c", 7)], job) == (7, [])
    assert inherited([a_pod("a"), a_pod("b"), a_pod("c")], job) == (7, [])
    assert inherited([a_pod("z")], job) == (0, [7]), "the others go with the leader"


def test_what_is_left_of_a_hetjob_without_its_leader_is_ended_part_by_part() -> None:
    parts = (a_part(7, 7, (0,), "a", over=True), a_part(8, 7, (1,), "a"), a_part(9, 7, (2,), "a"))
    assert inherited([a_pod("z")], *whole(parts)) == (0, [8, 9])
    assert inherited([a_pod("z")], *whole(parts[1:])) == (0, [8, 9]), "Slurm has forgotten the leader"
    assert inherited([a_pod("z")], *whole([a_part(7, 7, (0,), "a", over=True), a_part(8, 7, (1,), "a", over=True)])) == (0, [])


def test_a_part_is_known_by_its_hetjob_and_its_ranks() -> None:
    comment = comment_for("c1", str(KEY), [("ns", "b")], ["a", "b"], 0, (1,))
    number = {"set": True, "infinite": False, "number": 7}
    job = msgspec.convert(
        {"job_id": 8, "job_state": ["RUNNING"], "flags": ["EXTERNAL_JOB"], "admin_comment": comment, "het_job_id": number}, Job
    )
    found = found_in(job, "c1")
    assert found is not None
    assert (found.hetjob_id, found.ranks, found.left) == (7, (1,), (8,))


def test_a_job_whose_pods_are_gone_is_kept_where_others_are_awaited() -> None:
    """The bridge went down while a gang was being made anew."""
    for pods in ([], [a_pod("c")], [a_pod("a", 7, "Failed", finalizer=False), a_pod("c")]):
        found = inheritance("c1", KEY, pods, [a_job(5, "x"), a_job(7, "a", "b")], awaited=True)
        assert found.own is not None
        assert (found.own.submission.job_id, found.strays) == (7, [5])
    assert inherited([a_pod("c")], a_job(7, "a", "b")) == (0, [7])
    assert inheritance("c1", KEY, [], [a_job(7, "a", over=True)], awaited=True).own is None


def test_those_that_a_job_was_submitted_for_are_named_by_it_or_by_one_of_its_parts_and_older() -> None:
    def waits(name: str, born: float = NOON) -> Pod:
        pod = a_pod(name)
        return msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, creation_timestamp=dt.datetime.fromtimestamp(born, dt.UTC))
        )

    def part(job_id: int, name: str, count: int = 2) -> Found:
        return msgspec.structs.replace(a_part(job_id, 7, (job_id - 7,), "a", "b"), pods=(f"ns/{name}",), count=count, submitted=NOON + 1)

    [job] = whole([part(7, "a"), part(8, "b")])
    pods = [waits("a"), waits("b"), waits("c"), waits("late", NOON + 60), a_pod("b", 7), on_node("n", 0)]
    assert meant_by(job, pods) == ["a", "b"]
    assert meant_by(job, [waits("a", NOON + 60)]) == [], "another of that name, which came later"
    assert meant_by(job, [waits("a", NOON + 2)]) == ["a"], "two clocks that tell whole seconds"
    assert meant_by(msgspec.structs.replace(job, count=900), pods) == ["a", "b", "c"], (
        "it had too many to name: it was for all that were there"
    )
