"""What a JobSet says of its pods: which start together, how many are still to come, in what order they stand."""

from typing import Any

import msgspec
import pytest

from slinky.bridge.jobsets import JobSet, expected, first_ranks, is_awaited, is_whole, part_of
from slinky.bridge.keys import SETTINGS
from slinky.bridge.roots import group_of_root, largest_gang, part_in, says_the_same
from slinky.bridge.workload import WorkloadKey, key_of, rank_of, workload_of
from slinky.kube.objects import Job, Pod
from tests.bridge.counting import calls

EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}


def jobset(
    *replicated: tuple[Any, ...], annotations: dict[str, str] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> JobSet:
    """`replicated` as (name, replicas, parallelism, completions, more)."""
    jobs = []
    for name, replicas, parallelism, completions, *more in replicated:
        template = {"spec": {"parallelism": parallelism, "completions": completions}}
        jobs.append({"name": name, "replicas": replicas, "template": template, **(more[0] if more else {})})
    meta = {"name": "js", "namespace": "lab", "uid": "js-uid", "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "spec": {"replicatedJobs": jobs, **spec}, "status": status or {}}, JobSet)


def child(name: str, succeeded: int = 0, condition: str = "", attempt: int = 0, parallelism: int = 2, completions: int = 2) -> Job:
    meta = {
        "name": name,
        "namespace": "lab",
        "uid": f"{name}-uid",
        "labels": {"jobset.sigs.k8s.io/restart-attempt": str(attempt)},
        "ownerReferences": [
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "js-uid", "controller": True}
        ],
    }
    conditions = [{"type": condition, "status": "True"}] if condition else []
    status = {"succeeded": succeeded, "conditions": conditions}
    return msgspec.convert({"metadata": meta, "spec": {"parallelism": parallelism, "completions": completions}, "status": status}, Job)


def pod(replicated: str, job: int, index: int, global_index: int = 0, **status: Any) -> Pod:
    name = f"js-{replicated}-{job}"
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/jobset-uid": "js-uid",
        "jobset.sigs.k8s.io/replicatedjob-name": replicated,
        "jobset.sigs.k8s.io/job-global-index": str(global_index),
    }
    meta = {
        "name": f"{name}-{index}-x",
        "namespace": "lab",
        "uid": f"{name}-{index}",
        "labels": labels,
        "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"{name}-uid", "controller": True}],
    }
    return msgspec.convert({"metadata": meta, "status": status}, Pod)


LOOSE = (("driver", 1, 1, 1), ("worker", 2, 2, 2))
IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


def after(name: str, status: str = "Ready") -> dict[str, Any]:
    return {"dependsOn": [{"name": name, "status": status}]}


def test_without_an_order_all_start_together() -> None:
    assert is_whole(jobset(*LOOSE))
    assert part_of(jobset(*LOOSE), "worker") == "driver"
    assert expected(jobset(*LOOSE), "driver", (), {}) == 5


def test_in_order_each_replicated_job_is_a_part() -> None:
    found = jobset(*LOOSE, **IN_ORDER)
    assert not is_whole(found)
    assert [expected(found, part, (), {}) for part in ("driver", "worker")] == [1, 4]


def test_those_that_wait_for_the_same_start_together() -> None:
    found = jobset(
        ("a", 1, 1, 1), ("b", 1, 1, 1), ("c", 1, 1, 1, after("a")), ("d", 1, 1, 1, after("a")), ("e", 1, 1, 1, after("a", "Complete"))
    )
    assert [part_of(found, name) for name in "abcde"] == ["a", "a", "c", "c", "e"]
    assert [part_of(found, each.name) for each in found.spec.replicated_jobs if part_of(found, each.name) == each.name] == ["a", "c", "e"]


def test_with_exclusive_topology_leader_and_workers_of_each_job_are_two() -> None:
    found = jobset(("worker", 2, 3, 3), annotations=EXCLUSIVE)
    assert part_in(found, pod("worker", 1, 0)) == "js-worker-1/leader"
    assert part_in(found, pod("worker", 1, 2)) == "js-worker-1/workers"
    assert [expected(found, f"js-worker-1/{role}", (), {}) for role in ("leader", "workers")] == [1, 2]
    group = group_of_root(found, "js-worker-1/workers")
    workload = workload_of(WorkloadKey("JobSet", "lab", "js/js-worker-1/workers"), [pod("worker", 1, index) for index in (1, 2)], group)
    assert workload is not None
    assert (workload.is_complete, sorted(workload.wished_ranks.values())) == (True, [0, 1])
    by_selector = jobset(("worker", 2, 3, 3), annotations=EXCLUSIVE | {"alpha.jobset.sigs.k8s.io/node-selector": "true"})
    assert part_in(by_selector, pod("worker", 1, 2)) == "worker", "its pods all exist at once"


@pytest.mark.parametrize(
    ("jobs", "spec", "status", "left"),
    [
        ([child("js-worker-0", succeeded=1)], {}, {}, 3),
        ([child("js-worker-0", 2, "Complete")], {}, {}, 2),
        ([child("js-worker-0", 0, "Failed")], {}, {}, 2),
        ([child("js-worker-0", 0, "Failed")], {"failurePolicy": {"maxRestarts": 3}}, {}, 4),
        ([child("js-worker-0", 2, "Complete")], {}, {"restarts": 1}, 4),
        ([child("js-worker-0", 2, "Complete", 1)], {}, {"restarts": 1}, 2),
    ],
    ids=["one done", "a job done", "a job failed", "it may be made anew", "of an earlier try", "of this try"],
)
def test_what_is_complete_is_not_waited_for(jobs: list[Job], spec: dict[str, Any], status: dict[str, Any], left: int) -> None:
    assert expected(jobset(("worker", 2, 2, 2), status=status, **spec), "worker", jobs, {}) == left


def test_what_its_pods_show_counts_before_its_jobs_status_does() -> None:
    found = jobset(("worker", 1, 2, 2))
    ended = [pod("worker", 0, index, phase="Succeeded") for index in range(2)]
    group = group_of_root(found, "worker", [child("js-worker-0")], ended)
    assert group is not None
    assert (group.min_count, group.awaited) == (0, False)


@pytest.mark.parametrize(
    ("changes", "awaited"),
    [
        ({}, True),
        ({"suspend": True}, False),
        ({"status": {"terminalState": "Failed"}}, False),
        ({"status": {"conditions": [{"type": "Completed", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "Suspended", "status": "False"}]}}, True),
    ],
)
def test_more_pods_are_awaited_until_it_is_over_or_suspended(changes: dict[str, Any], awaited: bool) -> None:
    assert is_awaited(jobset(*LOOSE, **changes)) is awaited
    assert says_the_same(jobset(*LOOSE), jobset(*LOOSE, **changes)) is ((awaited and "status" in changes) or not changes)


def test_ranks_go_by_the_spec_the_jobs_number_and_the_index() -> None:
    found = jobset(*LOOSE)
    assert first_ranks(found, "driver") == {"js-driver-0": (0, 1), "js-worker-0": (1, 2), "js-worker-1": (3, 2)}
    pods = [pod("worker", 1, 1, 2), pod("driver", 0, 0, 0), pod("worker", 0, 1, 1), pod("worker", 1, 0, 2), pod("worker", 0, 0, 1)]
    names = [each.metadata.name for each in sorted(pods, key=rank_of)]
    assert names == ["js-driver-0-0-x", "js-worker-0-0-x", "js-worker-0-1-x", "js-worker-1-0-x", "js-worker-1-1-x"]
    workload = workload_of(WorkloadKey("JobSet", "lab", "js/driver"), pods, group_of_root(found, "driver"))
    assert workload is not None
    assert (workload.name, workload.size, list(workload.wished_ranks.values())) == ("js", 5, [0, 1, 2, 3, 4])


def test_later_completions_wish_for_the_ranks_of_the_first() -> None:
    found = jobset(("a", 1, 2, 6), ("b", 1, 2, 6))
    workload = workload_of(WorkloadKey("JobSet", "lab", "js/a"), [pod("b", 0, 3, 1), pod("a", 0, 4)], group_of_root(found, "a"))
    assert workload is not None
    assert workload.wished_ranks == {"js-a-0-4": 0, "js-b-0-3": 3}


def test_annotations_of_the_set_speak_for_all_its_pods() -> None:
    found = jobset(("a", 1, 1, 1), annotations={SETTINGS + "account": "physics"})
    mine = msgspec.structs.replace(
        pod("a", 0, 0), metadata=msgspec.structs.replace(pod("a", 0, 0).metadata, annotations={SETTINGS + "account": "x"})
    )
    gang = workload_of(WorkloadKey("JobSet", "lab", "js/a"), [mine], group_of_root(found, "a"))
    assert gang is not None
    assert gang.settings.account == "physics"
    alone = workload_of(WorkloadKey("Pod", "lab", "u"), [pod("a", 0, 0)], group_of_root(found, ""))
    assert alone is not None
    assert alone.settings.account == "physics"


def test_labels_alone_make_no_pod_part_of_a_set() -> None:
    jobs = {("lab", "js-a-0"): child("js-a-0")}
    assert key_of(pod("a", 0, 0), jobs, group_of_root(jobset(("a", 1, 1, 1)), ""), "a") == WorkloadKey("JobSet", "lab", "js/a")
    stray = {
        ("lab", "js-a-0"): msgspec.structs.replace(
            jobs["lab", "js-a-0"], metadata=msgspec.structs.replace(child("js-a-0").metadata, owner_references=())
        )
    }
    assert key_of(pod("a", 0, 0), stray, None).kind == "Pod"
    loose = group_of_root(jobset(("a", 1, 1, 1), annotations={SETTINGS + "gang": "false"}), "")
    assert key_of(pod("a", 0, 0), jobs, loose, "a").kind == "Pod"


@pytest.mark.parametrize("replicated", [("w", 2_000_000_000, 1, 1), ("w", 3, 50_000, 50_000), ("w", 1, 2_000_000_000, None)])
@pytest.mark.parametrize("annotations", [{}, EXCLUSIVE])
def test_what_is_known_of_a_set_is_no_longer_for_its_size(replicated: tuple[Any, ...], annotations: dict[str, str]) -> None:
    """Each replica used to be an object of its own at every look, so a set of more than 100,000 pods was left out; now only its gang is too large."""
    found, small = (jobset(("driver", 1, 1, 1), each, annotations=annotations) for each in (replicated, ("w", 2, 2, 2)))

    def look(root: JobSet) -> None:
        part = part_in(root, pod("w", 0, 1))
        group = group_of_root(root, part)
        assert group is not None
        assert group.first_ranks.get("js-w-0")
        largest_gang(root)

    assert calls(lambda: look(found)) <= 2 * calls(lambda: look(small))
    assert largest_gang(found) > (20_000 if not annotations else 0)


def test_a_thousand_replicated_jobs_are_read_once_and_not_for_each_pod() -> None:
    found = jobset(*((f"r{number}", 1, 1, 1) for number in range(1000)))
    group_of_root(found, "r0")  # reads it
    assert calls(lambda: [part_in(found, pod(f"r{number}", 0, 0)) for number in range(1000)]) < 60_000
    group = group_of_root(found, "r0")
    assert group is not None
    assert (group.min_count, group.first_ranks["js-r999-0"], largest_gang(found)) == (1000, (999, 1), 1000)
