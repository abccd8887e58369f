"""Golden pairs: what a workload becomes in Slurm. Each file says why it is there. `UPDATE_GOLDEN=1 pytest tests/bridge` writes the second halves anew: read the diff."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slinky.bridge.annotations import JobSettings
from slinky.bridge.gres_needs import gres_of
from slinky.bridge.jobsets import JobSet
from slinky.bridge.leaderworkersets import LeaderWorkerSet
from slinky.bridge.marker import marker_for, read_comment
from slinky.bridge.needs import needs_of
from slinky.bridge.roots import group_of_root, part_in
from slinky.bridge.task import exceeds, per_task
from slinky.bridge.translate import MOST_KINDS, Site, components, one_for_all
from slinky.bridge.workload import PodGroup, Workload, WorkloadKey, key_of, workload_of
from slinky.kube.objects import Job, Meta, Pod
from slinky.slurm import JobDescription

PAIRS = sorted((Path(__file__).parent / "golden").glob("*.yaml"))


def load(pair: Path) -> tuple[dict[str, Any], Workload, Site]:
    said: dict[str, Any] = yaml.safe_load(pair.read_text())
    pods = [msgspec.convert(pod, Pod) for pod in said["pods"]]
    job = msgspec.convert(said["job"], Job) if "job" in said else None
    jobs = {(job.metadata.namespace, job.metadata.name): job} if job else {}
    root = (
        msgspec.convert(said["jobset"], JobSet)
        if "jobset" in said
        else msgspec.convert(said["lws"], LeaderWorkerSet)
        if "lws" in said
        else None
    )
    keys = {key_of(pod, jobs, group_of_root(root, "") if root else None, part_in(root, pod) if root else "") for pod in pods}
    assert len(keys) == 1, "a pair is about one workload"
    key = keys.pop()
    group = PodGroup(metadata=Meta(name="g", namespace="lab"), **said["group"]) if "group" in said else None
    workload = workload_of(key, pods, group_of_root(root, key.part, pods=pods) if root else group, job)
    assert workload is not None
    return said, workload, Site(**({"cluster": "c1", "partition": "bridge"} | said.get("site", {})))


def as_dict(job: JobDescription) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(job)
    comment = read_comment(found.pop("admin_comment"), "c1")
    assert comment is not None
    return found | ({"ranks": list(comment.ranks)} if comment.ranks else {}) | {"pods": list(comment.pods)}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.stem)
def test_a_workload_becomes_this_job(pair: Path) -> None:
    said, workload, site = load(pair)
    jobs = [as_dict(job) for job in components(workload, site)]
    became = jobs if len(jobs) > 1 else jobs[0]
    if os.environ.get("UPDATE_GOLDEN"):
        pair.write_text(
            yaml.safe_dump(
                {key: value for key, value in said.items() if key != "becomes"} | {"becomes": became}, sort_keys=False, width=140
            )
        )
    else:
        assert became == said["becomes"]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.stem)
def test_slurm_never_sets_aside_less_than_kubernetes_counts(pair: Path) -> None:
    """Whatever the pair says it becomes."""
    _, workload, site = load(pair)
    jobs = components(workload, site)
    ranks = [comment.ranks for job in jobs if (comment := read_comment(job.admin_comment or "", "c1"))]
    for rank, pod in enumerate(workload.everyone):
        [job] = [job for job, own in zip(jobs, ranks, strict=True) if rank in own or len(jobs) == 1]
        assert job.tasks
        assert job.cpus_per_task
        needs, task = needs_of(pod), per_task(job)
        assert task.cpus >= needs.cpu
        assert task.least_memory > 0, "a share of what is per node counts for all pods that a node may have"
        assert task.least_memory * 1048576 >= needs.memory
        assert all(task.count(kind) >= count for kind, count in gres_of(needs, site.gres).items())
        assert not exceeds(pod, task, site.gres)


def test_there_are_pairs_enough() -> None:
    assert len(PAIRS) >= 40


def test_the_marker_is_the_same_for_the_same_pods_and_another_for_others() -> None:
    assert marker_for("c", "w", ["a", "b"]) == marker_for("c", "w", ["b", "a"])
    assert len({marker_for("c", "w", ["a"]), marker_for("d", "w", ["a"]), marker_for("c", "x", ["a"]), marker_for("c", "w", ["b"])}) == 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "[]",
        '{"pods":["a/b"]}',
        '{"slinky":1,"marker":"m","cluster":"other"}',
        '{"slinky":9,"marker":"m","cluster":"c1"}',
        '{"pods":7}',
    ],
)
def test_a_comment_of_somebody_elses_is_not_ours(text: str) -> None:
    assert read_comment(text, "c1") is None


def test_a_long_list_of_pods_is_cut_and_the_rest_holds() -> None:
    from slinky.bridge.marker import MOST_BYTES, comment_for

    names = [("namespace", f"pod-with-a-rather-long-name-{i}") for i in range(5000)]
    text = comment_for("c1", "w", names, [str(i) for i in range(5000)])
    assert len(text) <= MOST_BYTES
    found = read_comment(text, "c1")
    assert found is not None
    assert found.count == 5000
    assert 100 < len(found.pods) < 5000


SITE = Site(cluster="c1", partition="bridge")


def gang(*cpus: str, site: Site = SITE, **said: Any) -> tuple[Workload, Site]:
    pods = [
        msgspec.convert(
            {
                "metadata": {"name": f"g-{rank}", "namespace": "lab", "uid": f"u{rank}"},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            },
            Pod,
        )
        for rank, cpu in enumerate(cpus)
    ]
    key = WorkloadKey("CoschedulingPodGroup", "lab", "train")
    return Workload(key=key, name="train", pods=tuple(pods), size=len(pods), settings=JobSettings(**said)), site


def test_all_components_have_the_marker_of_the_whole_and_each_the_ranks_of_its_own() -> None:
    jobs = components(*gang("1", "2", "2", "1", "2"), attempt=3)
    found = [read_comment(job.admin_comment or "", "c1") for job in jobs]
    marker = marker_for("c1", "CoschedulingPodGroup lab/train", ["u0", "u1", "u2", "u3", "u4"], 3)
    assert [(each.marker, each.count, each.ranks) for each in found if each] == [(marker, 5, (0, 3)), (marker, 5, (1, 2, 4))]
    assert [job.tasks for job in jobs] == [2, 3]


def test_what_is_equal_once_it_is_rounded_is_of_one_kind() -> None:
    assert [job.tasks for job in components(*gang("1500m", "2", "1900m"))] == [3]


@pytest.mark.parametrize("said", [{"min_nodes": 2}, {"max_nodes": 2}, {"memory_per_node": 512}, {"gres": "gpu:2"}])
def test_what_is_said_of_the_nodes_of_the_whole_makes_it_one_job(said: dict[str, Any]) -> None:
    workload, site = gang("1", "2", **said)
    [job] = components(workload, site)
    assert (job.tasks, job.cpus_per_task) == (2, 2)
    assert "speaks of the job as a whole" in one_for_all(workload, site)


def test_more_kinds_than_slurm_should_plan_for_are_one_job() -> None:
    assert len(components(*gang(*map(str, range(1, MOST_KINDS + 1))))) == MOST_KINDS
    workload, site = gang(*map(str, range(1, MOST_KINDS + 2)))
    [job] = components(workload, site)
    assert job.cpus_per_task == MOST_KINDS + 1
    assert one_for_all(workload, site) == f"they are of {MOST_KINDS + 1} kinds, and at most {MOST_KINDS} are told apart"


def test_without_hetjobs_it_is_one_job_and_the_reason_is_told_where_pods_differ() -> None:
    site = Site(cluster="c1", partition="bridge", no_hetjobs="gangs.hetjobs is never")
    assert len(components(*gang("1", "2", site=site))) == 1
    assert one_for_all(*gang("1", "2", site=site)) == "gangs.hetjobs is never"
    assert one_for_all(*gang("1", "1", site=site)) == ""
    assert one_for_all(*gang("1", "2")) == ""


def test_licenses_are_counted_once() -> None:
    assert [job.licenses for job in components(*gang("1", "2", "3", licenses="matlab:1"))] == ["matlab:1", None, None]


def test_the_nodes_that_there_are_limit_how_many_pods_a_node_is_to_have() -> None:
    """200 GiB hold 64 pods of 1 GiB, but no node has 64 CPUs: Slurm sets aside the CPUs of all of a node's tasks."""
    workload, site = gang(*["1"] * 64, memory_per_node=200 * 1024)
    assert components(workload, site)[0].tasks_per_node == 64
    known = msgspec.structs.replace(site, even_share=lambda task, _, most: min(16 // task.cpus, most))
    assert components(workload, known)[0].tasks_per_node == 16
