"""What a new leader takes over: the jobs that the pods' labels name, those submitted for just these pods, and the strays."""

import datetime as dt
from typing import Any

import msgspec

from slinky.bridge.adoption import Found, found_in, inheritance
from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.bridge.marker import comment_for, marker_for
from slinky.bridge.submission import Submission
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Meta, Pod
from slinky.kube.objects import PodStatus
from slinky.slurm import Job

KEY = WorkloadKey("Job", "ns", "train")


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


def a_job(job_id: int, *uids: str, attempt: int = 0, over: bool = False) -> Found:
    return Found(KEY, Submission(job_id=job_id, tasks=len(uids)), marker_for("c1", str(KEY), uids, attempt), over)


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


def test_only_external_jobs_with_our_marker_and_cluster_are_ours() -> None:
    comment = comment_for("c1", str(KEY), [("ns", "a")], ["a"])
    said: dict[str, Any] = {"job_id": 7, "job_states": ["RUNNING"], "flags": ["EXTERNAL_JOB"], "admin_comment": comment}
    found = found_in(Job(**said), "c1")
    assert found is not None
    assert (found.key, found.submission.job_id, found.marker, found.is_over) == (KEY, 7, marker_for("c1", str(KEY), ["a"]), False)
    assert found_in(Job(**said | {"job_states": ["COMPLETED"]}), "c1") == msgspec.structs.replace(found, is_over=True)
    assert found_in(Job(**said), "c2") is None
    assert found_in(Job(**said | {"flags": []}), "c1") is None
    assert found_in(Job(**said | {"admin_comment": ""}), "c1") is None
    assert found_in(Job(**said | {"admin_comment": comment_for("c1", "nonsense", [], ["a"])}), "c1") is None
