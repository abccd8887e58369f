"""The `gres` annotation beside what pods ask for by their resources: more, or otherwise put, but never less."""

from typing import Any

import msgspec
import pytest

from slinky.bridge.gres_needs import per_node, pods_held, too_few
from slinky.kube import Pod

PLAIN = {"nvidia.com/gpu": "gpu"}
TYPED = {"nvidia.com/gpu": "gpu:h100", "example.com/old": "gpu:a100", "rdma/hca": "hca"}


def a_pod(**requests: str) -> Pod:
    named: dict[str, Any] = {
        {"gpu": "nvidia.com/gpu", "old": "example.com/old", "hca": "rdma/hca"}[name]: count for name, count in requests.items()
    }
    return msgspec.convert({"spec": {"containers": [{"name": "c", "resources": {"limits": named}}]}}, Pod)


@pytest.mark.parametrize(
    ("said", "mapped", "pods"),
    [
        ("gpu:8", PLAIN, [a_pod(gpu="8")]),
        ("gres/gpu:h100:8", PLAIN, [a_pod(gpu="8")]),
        ("gpu:h100:4,gpu:a100:4", PLAIN, [a_pod(gpu="8")]),
        ("gpu", PLAIN, [a_pod(gpu="1")]),
        ("gpu=2,nvme:1", PLAIN, [a_pod(gpu="2")]),
        ("gpu:2", TYPED, [a_pod(gpu="2")]),
        ("nvme:1", PLAIN, [a_pod()]),
        ("gpu:h100:2", TYPED, [a_pod(gpu="2", hca="1")]),  # the hca is asked for all the same: see below
        ("gpu:1", {}, [a_pod(gpu="8")]),
        (None, PLAIN, [a_pod(gpu="8")]),
    ],
)
def test_as_many_as_a_pod_asks_for_or_more_may_be_said(said: str | None, mapped: dict[str, str], pods: list[Pod]) -> None:
    assert too_few(said, pods, mapped) == []


@pytest.mark.parametrize(
    ("said", "mapped", "pods", "least"),
    [
        ("gpu:1", PLAIN, [a_pod(gpu="8")], ["gpu:8"]),
        ("gpu:0", PLAIN, [a_pod(gpu="1")], ["gpu:1"]),
        ("gpu:a100:8", TYPED, [a_pod(gpu="8")], ["gpu:h100:8"]),
        ("gpu:3", TYPED, [a_pod(gpu="2", old="1")], ["gpu:a100:1", "gpu:h100:2"]),  # Slurm could choose three of one type
        ("gpu:4", PLAIN, [a_pod(), a_pod(gpu="8"), a_pod(gpu="9")], ["gpu:8"]),
    ],
)
def test_fewer_are_refused_with_what_would_be_enough(said: str, mapped: dict[str, str], pods: list[Pod], least: list[str]) -> None:
    problems = too_few(said, pods, mapped)
    assert [problem.rpartition(": say ")[2] for problem in problems] == [f"{each} at least, or leave it out" for each in least]
    assert all(problem.startswith(f"annotation slurmjob.slinky.slurm.net/gres is {said!r}, and the pod asks for") for problem in problems)


@pytest.mark.parametrize(
    ("said", "asked", "held"),
    [
        ("gpu:8", {"gpu": 8}, {"gpu": 1}),
        ("gpu:8", {"gpu": 3}, {"gpu": 2}),
        ("gpu:8", {"hca": 1}, {}),
        ("gpu:h100:4,gpu:a100:4", {"gpu": 4}, {"gpu": 2}),
        ("gpu:8", {"gpu:h100": 2}, {"gpu:h100": 4}),
        ("gpu:h100:8,gpu:a100:2", {"gpu:h100": 2, "gpu:a100": 1}, {"gpu:h100": 4, "gpu:a100": 2}),
        (None, {"gpu": 1}, {}),
    ],
)
def test_the_annotation_holds_so_many_pods_on_a_node(said: str | None, asked: dict[str, int], held: dict[str, int]) -> None:
    assert pods_held(said, asked) == held


@pytest.mark.parametrize(
    ("said", "asked", "pods", "wanted"),
    [
        ("gpu:8", {"gpu": 3}, 2, {"gpu": 8}),
        ("gpu:8", {"gpu:h100": 2, "hca": 1}, 3, {"gpu:h100": 8, "hca": 3}),
        ("gpu:0,nvme:1", {}, 1, {"nvme": 1}),
        (None, {"gpu": 1}, 4, {"gpu": 4}),
        ("gpu:h100:4", {"gpu": 2}, 2, {"gpu:h100": 4}),
    ],
)
def test_each_node_is_asked_for_all_that_its_pods_need(said: str | None, asked: dict[str, int], pods: int, wanted: dict[str, int]) -> None:
    assert per_node(said, asked, pods) == wanted
