"""The workloads of docs/guides as their real controllers make them: Slurm places their pods with the ranks, the parts and the GPUs that the guides tell of."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from slinky.bridge.keys import JOB_ID
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.sets import FOR_EVER, RUN_FOR, job_id, procids, until_bound
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.sandbox


def manifests(team: Team, name: str, run_for: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """A guide's, in the test's own namespace and partition. `run_for` is how long pods take, by their container's name: kwok runs none."""
    found = list(yaml.safe_load_all((CHECKOUT / f"examples/guides/{name}.yaml").read_text()))
    for document in found:
        document["metadata"]["namespace"] = team.namespace
        if document["kind"] in ("JobSet", "LeaderWorkerSet"):
            document["metadata"].setdefault("annotations", {}).update(team.said())
        for template in templates(document):
            annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
            annotations[RUN_FOR] = (run_for or {}).get(template["spec"]["containers"][0]["name"], FOR_EVER)
    return found


def templates(document: Any) -> Iterator[dict[str, Any]]:
    """Whatever has containers in its spec, at any depth."""
    if isinstance(document, dict):
        if "containers" in (document.get("spec") or {}):
            yield document
        for value in document.values():
            yield from templates(value)
    elif isinstance(document, list):
        for value in document:
            yield from templates(value)


async def test_pytorch_on_jobset_is_one_job_of_a_node_each_in_rank_order(team: Team) -> None:
    await team.create(*manifests(team, "pytorch-jobset", {"torch": "3s"}))
    pods = await until_bound(team, "train-", 4)
    assert procids(pods) == [0, 1, 2, 3]
    assert [pod.metadata.name.rpartition("-")[0] for pod in pods] == [f"train-worker-0-{rank}" for rank in range(4)]
    assert len({pod.spec.node_name for pod in pods}) == 4
    assert {pod.metadata.annotations["task.slinky.slurm.net/ntasks"] for pod in pods} == {"4"}
    assert {pod.metadata.annotations["task.slinky.slurm.net/gpus"] for pod in pods} == {"0,1,2,3,4,5,6,7"}
    job = await team.until_job(job_id(pods), JobState.COMPLETED)
    assert (job.name, job.tasks, job.tres_per_task, job.time_limit) == (f"{team.namespace}/train", 4, "gres/gpu:8", 120)


async def test_each_group_of_the_inference_set_is_one_job(team: Team) -> None:
    await team.create(*manifests(team, "lws-inference"))
    pods = await until_bound(team, "vllm-", 4)
    assert len({pod.spec.node_name for pod in pods}) == 4
    for group in (0, 1):
        leader, worker = [pod for pod in pods if pod.metadata.name in (f"vllm-{group}", f"vllm-{group}-1")]
        assert leader.metadata.labels["role"] == "leader"
        assert procids([leader, worker]) == [0, 1]
        job = await team.slurm.jobs.get(job_id([leader, worker]))
        assert (job.name, job.tasks, job.tres_per_task) == (f"{team.namespace}/vllm-{group}", 2, "gres/gpu:8")


async def test_launcher_and_workers_of_mpi_are_two_parts_of_one_job_that_ends_with_the_launcher(team: Team) -> None:
    await team.create(*manifests(team, "mpi", {"mpirun": "5s"}))
    pods = await until_bound(team, "pi-", 5)
    assert procids(pods) == [0, 1, 2, 3, 4]
    assert pods[0].metadata.name.startswith("pi-launcher-0-0-")
    assert pods[0].spec.node_name not in {pod.spec.node_name for pod in pods[1:]}
    parts = await team.slurm.jobs.parts(int(pods[0].metadata.labels[JOB_ID]))
    assert [(part.tasks, part.cpus_per_task) for part in parts] == [(1, 1), (4, 8)]
    for part in parts:
        await team.until_job(part.job_id, JobState.COMPLETED)
