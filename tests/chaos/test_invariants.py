"""Each invariant is seen to hold of a plain history, and not to hold of one in which just that was done which it forbids."""

from typing import Any

import msgspec
import pytest

from tests.chaos.history import Act, History, JobRecord, LiveJob, NodeSeen, PodSeen
from tests.chaos.invariants import INVARIANTS, LATENCY, check
from tests.chaos.lives import family
from tests.chaos.report import fates

BOUND, DOUBLE, AGREE, LOST, TWICE = INVARIANTS
GIB = 1 << 30


def pod(revision: int, name: str = "pod-0001", **more: Any) -> PodSeen:
    defaults: dict[str, Any] = {"cpu": 1000, "memory": GIB, "namespace": "a", "uid": f"uid-{name}", "at": 100.0 + revision}
    return PodSeen(revision=revision, name=name, **{**defaults, **more})


def life(start: int, name: str = "pod-0001", job_id: int = 7, node: str = "n0", **more: Any) -> list[PodSeen]:
    """Made, bound, running, and over two seconds later."""
    there = {"node": node, "job_id": job_id, "scheduled": 100.0 + start + 1, **more}
    return [
        pod(start, name, **{key: value for key, value in more.items() if key not in ("node", "scheduled")}),
        pod(start + 1, name, **there),
        pod(start + 2, name, **there, begun=True, phase="Running"),
        pod(start + 4, name, **there, begun=True, ended=True, phase="Succeeded", exit_code=0),
    ]


def job(job_id: int = 7, name: str = "pod-0001", **more: Any) -> JobRecord:
    defaults: dict[str, Any] = {
        "state": "COMPLETED",
        "submit": 101.0,
        "start": 102.0,
        "end": 105.0,
        "nodes": ("n0",),
        "cluster": "chaos",
        "workload": f"Pod a/uid-{name}",
        "pods": (f"a/{name}",),
    }
    return JobRecord(job_id=job_id, name=f"a/{name}", **{**defaults, **more})


def node(name: str = "n0", **more: Any) -> NodeSeen:
    return NodeSeen(revision=0, at=100.0, name=name, **{"cpu": 2000, "memory": 4 * GIB, "gpus": 2, **more})


def history(pods: list[PodSeen], jobs: list[JobRecord] | None = None, **more: Any) -> History:
    defaults: dict[str, Any] = {"last_fault": 150.0, "settled_at": 160.0, "nodes": [node()]}
    return History(cluster="chaos", pods=pods, jobs=[job()] if jobs is None else jobs, **{**defaults, **more})


def violations(of: History) -> dict[str, tuple[str, ...]]:
    return {checked.name: checked.violations for checked in check(of) if checked.violations}


def test_a_plain_life_violates_nothing_and_everything_was_looked_at() -> None:
    plain = history(life(1))
    assert violations(plain) == {}
    assert all(checked.looked_at for checked in check(plain))
    assert fates(plain) == {"ran to its end": 1}


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        ([], "accounting does not have"),
        ([job(cluster="another")], "accounting does not have"),
        ([job(workload="Pod a/uid-other")], "which is that of Pod a/uid-other"),
        ([job(start=0.0)], "started never"),
        ([job(start=104.0)], "started at 104"),
        ([job(start=80.0, end=101.0 - LATENCY - 2)], "had ended"),
        ([job(nodes=("n1",))], "has n1"),
    ],
)
def test_a_pod_bound_without_a_running_job_of_its_own_is_found(jobs: list[JobRecord], why: str) -> None:
    [text] = violations(history(life(1), jobs))[BOUND]
    assert why in text


def test_a_pod_bound_without_a_label_is_found() -> None:
    assert "without the label" in violations(history(life(1, job_id=0)))[BOUND][0]


def test_a_job_that_ended_a_moment_ago_may_still_bind() -> None:
    late = history(life(1), [job(start=80.0, end=102.0 - LATENCY, state="CANCELLED")])
    assert BOUND not in violations(late)


def test_a_pod_in_the_stead_of_another_is_its_groups() -> None:
    group: dict[str, Any] = {"workload": "Job a/gang-job-0002", "pods": ("a/gang-job-0002-old",)}
    seen = life(1, "gang-job-0002-new", owner="Job gang-job-0002", group="gang-job-0002")
    assert violations(history(seen, [job(**group)])) == {}
    assert BOUND in violations(history(seen, [job(**{**group, "workload": "Job a/gang-job-0003"})]))


def two_at_once(**more: Any) -> History:
    """The second begins at 3, before the first has ended at 5."""
    second = [
        pod(4, "pod-0002", node="n0", job_id=8, scheduled=104.0, **more),
        pod(4, "pod-0002", node="n0", job_id=8, scheduled=104.0, begun=True, phase="Running", **more),
        pod(9, "pod-0002", node="n0", job_id=8, scheduled=104.0, begun=True, ended=True, phase="Succeeded", **more),
    ]
    pods = sorted([*life(1, gpus=1, devices=("gpu 0",)), *second], key=lambda seen: seen.revision)
    return history(pods, [job(), job(8, "pod-0002", start=103.0, end=110.0)])


def test_what_fits_side_by_side_is_no_double_booking() -> None:
    assert violations(two_at_once(gpus=1, devices=("gpu 1",))) == {}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"cpu": 1001}, "2001 of 2000 millicores"),
        ({"memory": 4 * GIB}, "bytes"),
        ({"gpus": 2}, "3 of 2 GPUs"),
        ({"gpus": 1, "devices": ("gpu 0",)}, "gpu 0 is both a/pod-0001's and a/pod-0002's"),
    ],
)
def test_cores_gpus_and_bytes_given_to_two_at_once_are_found(more: dict[str, Any], why: str) -> None:
    assert why in violations(two_at_once(**more))[DOUBLE][0]


def test_a_pod_that_starts_when_the_last_ones_containers_are_gone_is_in_order() -> None:
    after = [*life(1, cpu=2000), *life(6, "pod-0002", 8, cpu=2000)]
    assert violations(history(after, [job(), job(8, "pod-0002", start=107.0, end=111.0)])) == {}


def test_a_dying_pod_holds_its_room_until_its_containers_are_gone() -> None:
    first = life(1, cpu=2000)
    first[3:] = [pod(4, node="n0", job_id=7, cpu=2000, begun=True, phase="Running", deleting=True)]
    both = [*first, *life(6, "pod-0002", 8, cpu=2000)]
    jobs = [job(state="PREEMPTED"), job(8, "pod-0002", start=107.0, end=111.0)]
    assert DOUBLE in violations(history(both, jobs))


@pytest.mark.parametrize(("start", "violated"), [(103.0, True), (106.0, False)])
def test_a_slurm_job_beside_a_pod_on_a_shared_node_is_counted(start: float, violated: bool) -> None:
    pods = life(1, cpu=2000)
    pods[-1] = pod(9, node="n0", job_id=7, scheduled=102.0, cpu=2000, begun=True, ended=True, phase="Succeeded", finished=106.0)
    own = JobRecord(job_id=9, name="sbatch", state="COMPLETED", submit=start, start=start, end=start + 4, nodes=("n0",), cpus=1)
    assert (DOUBLE in violations(history(pods, [job(end=107.0), own]))) is violated


def running() -> list[PodSeen]:
    return [seen for seen in life(1, "stays-0001") if seen.phase != "Succeeded"]


def test_a_pod_and_its_job_that_go_on_are_in_order() -> None:
    goes_on = history(running(), [job(name="stays-0001", end=0.0, state="RUNNING")])
    goes_on.live = [LiveJob(job_id=7, state="RUNNING", cluster="chaos", pods=("a/stays-0001",))]
    assert violations(goes_on) == {}


def test_a_job_without_a_pod_is_found_and_one_of_another_cluster_is_not() -> None:
    alone = history(life(1), [job(end=0.0)])
    alone.live = [LiveJob(job_id=7, state="RUNNING", cluster="chaos"), LiveJob(job_id=9, state="RUNNING", cluster="another")]
    assert [text.partition(" ")[2][:1] for text in violations(alone)[AGREE]] == ["7"]


def test_a_job_whose_gang_is_just_being_made_anew_is_in_order() -> None:
    again = [pod(60, "again", at=162.0, job_id=7)]
    for pods, violated in ((life(1), True), ([*life(1), *again], False)):
        alone = history(pods, [job(end=0.0)])
        alone.live = [LiveJob(job_id=7, state="RUNNING", cluster="chaos")]
        assert (AGREE in violations(alone)) is violated


def test_a_pod_without_a_job_is_found() -> None:
    assert "7 is none" in violations(history(running()))[AGREE][0]
    assert "has no job" in violations(history([pod(1)]))[AGREE][0]


def test_a_pod_that_is_over_and_still_held_is_found() -> None:
    assert "finalizer" in violations(history(life(1, held=True)))[AGREE][0]


def test_who_was_in_the_middle_of_ending_at_the_last_look_is_in_order() -> None:
    ending = history(life(1, held=True), [job(end=107.0)], settled_at=104.0, last_fault=100.0)
    ending.pods.append(pod(7, node="n0", job_id=7, phase="Succeeded", begun=True, ended=True))
    ending.live = [LiveJob(job_id=7, state="RUNNING", cluster="chaos")]
    assert violations(ending) == {}
    del ending.pods[-1]
    assert "finalizer" in violations(msgspec.structs.replace(ending, settled_at=105.0))[AGREE][0]


def test_a_last_look_that_came_too_late_is_found() -> None:
    assert "the last look" in violations(history(life(1), settled_at=250.0))[AGREE][0]


def deleted(**more: Any) -> list[PodSeen]:
    return [*life(1)[:3], pod(4, node="n0", job_id=7, deleting=True, begun=True, phase="Running"), pod(5, gone=True, **more)]


def test_a_pod_that_goes_and_nobody_says_why_is_lost() -> None:
    assert "nobody says why" in violations(history(deleted(), [job(state="COMPLETED")]))[LOST][0]
    assert "nobody says why" in violations(history(deleted(), [job(state="CANCELLED by 0")]))[LOST][0]


def test_an_eviction_that_slurm_confirms_only_later_is_no_reason() -> None:
    assert LOST in violations(history(deleted(), [job(state="PREEMPTED", end=120.0)]))


@pytest.mark.parametrize(
    ("state", "act", "said"),
    [
        ("PREEMPTED", None, "evicted: PREEMPTED"),
        ("CANCELLED by 0", Act(at=103.0, kind="cancelled", subject="7"), "evicted: CANCELLED"),
        ("COMPLETED", Act(at=103.0, kind="deleted", subject="a/pod-0001"), "deleted by its user"),
        ("NODE_FAIL", Act(at=103.0, kind="node-down", subject="n0"), "evicted: NODE_FAIL"),
        ("RUNNING", Act(at=103.0, kind="node-gone", subject="n0"), "its node was taken away"),
    ],
)
def test_a_pod_that_was_taken_away_for_a_reason_is_not_lost(state: str, act: Act | None, said: str) -> None:
    told = history(deleted(), [job(state=state, end=103.0)], acts=[act] if act else [])
    assert LOST not in violations(told)
    assert fates(told) == {said: 1}


def test_a_pod_whose_next_job_is_cancelled_before_its_label_is_written_is_not_lost() -> None:
    given_back = [pod(1), pod(2, job_id=7), pod(3), pod(5, deleting=True), pod(6, gone=True, deleting=True)]
    jobs = [job(state="CANCELLED by 0", end=102.5), job(8, state="CANCELLED by 0", start=0.0, end=104.5)]
    assert violations(history(given_back, jobs, acts=[Act(at=104.0, kind="cancelled", subject="8")])) == {}
    assert LOST in violations(history(given_back, jobs))


def test_a_pod_that_still_waits_at_the_end_is_lost_and_one_that_was_never_seen_too() -> None:
    waits = history([pod(1)], [], acts=[Act(at=100.0, kind="created", subject="a/pod-0002")])
    assert ["Pending at the end" in violations(waits)[LOST][0], "never seen" in violations(waits)[LOST][1]] == [True, True]


def test_what_an_owner_removes_after_a_failure_is_not_lost() -> None:
    name = "jobset-0004-w-0-"
    failing = life(1, f"{name}a", owner="Job jobset-0004-w-0")
    failing[-1] = pod(5, f"{name}a", node="n0", job_id=7, owner="Job", begun=True, ended=True, phase="Failed", exit_code=3)
    removed = [*life(1, f"{name}b", owner="Job")[:3], pod(8, f"{name}b", node="n0", job_id=7, deleting=True, owner="Job")]
    both = sorted([*failing, *removed], key=lambda seen: seen.revision)
    assert LOST not in violations(history(both, [job(workload="JobSet a/jobset-0004/w", pods=(f"a/{name}a", f"a/{name}b"))]))
    assert family(f"a/{name}a") == "a/jobset-0004"


def test_a_pod_whose_owner_is_no_more_and_never_had_a_job_is_kubernetes_to_collect() -> None:
    name, gone = "jobset-0004-w-0-a", [Act(at=103.0, kind="deleted", subject="a/jobset-0004")]
    waits = [pod(1, name, owner="Job jobset-0004-w-0")]
    absent = {waits[0].uid: "Job jobset-0004-w-0 (7)"}
    assert violations(history(waits, [], acts=gone, orphans=absent)) == {}
    assert LOST in violations(history(waits, [], acts=gone)), "its owner is there"
    assert LOST in violations(history(waits, [], orphans=absent)), "nobody has deleted it"
    bound = [*waits, pod(2, name, node="n0", job_id=7, owner="Job jobset-0004-w-0", phase="Running")]
    assert LOST in violations(history(bound, [job()], acts=gone, orphans=absent)), "it has a job, which must end"


def test_a_pod_that_changes_its_node_is_found() -> None:
    moved = [*life(1)[:3], pod(4, node="n1", job_id=7, begun=True, phase="Running"), pod(5, node="n1", ended=True, phase="Succeeded")]
    assert "was on n0 and then on n1" in violations(history(moved, nodes=[node(), node("n1")]))[TWICE][0]


def test_two_bindings_of_one_pod_are_found_and_a_refused_one_is_not() -> None:
    acts = [Act(at=102.0, kind="binding", subject="uid-pod-0001", detail=status) for status in ("201", "409", "201")]
    assert "bound 2 times" in violations(history(life(1), acts=acts))[TWICE][0]
    assert violations(history(life(1), acts=acts[:2])) == {}


def test_two_jobs_of_one_gang_that_both_bind_are_found() -> None:
    first, second = life(1, "gang-job-0002-a", 7), life(1, "gang-job-0002-b", 8)
    gang: dict[str, Any] = {"workload": "Job a/gang-job-0002", "pods": ("a/gang-job-0002-a", "a/gang-job-0002-b")}
    both = sorted([*first, *second], key=lambda seen: seen.revision)
    assert TWICE in violations(history(both, [job(7, **gang), job(8, **gang)]))
    in_turn = [*first, *life(10, "gang-job-0002-b", 8)]
    assert violations(history(in_turn, [job(7, **gang), job(8, **gang, start=110.0, end=115.0)])) == {}
