"""Gangs whose pods differ, on the real servers: one hetjob of Slurm, in rank order, from its submit to its end; and one job where there are no hetjobs."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slinky.bridge.keys import JOB_ID
from slinky.kube import PODS, Pod
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import Job, JobState
from tests.bridge_sandbox.conftest import Team, open_team
from tests.conftest import Partition, Starter

pytestmark = pytest.mark.sandbox

TASK = "task.slinky.slurm.net/"
_numbers = itertools.count()


def roles(
    team: Team, workers: int = 4, run_for: str = "", codes: Sequence[int] = (), gpus: int = 2, **said: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """A leader of one CPU, and workers with GPUs. `codes` are the exit codes by rank."""
    labels = {"scheduling.x-k8s.io/pod-group": "roles"}
    names = [f"r-{rank}" for rank in range(workers + 1)]
    endings = [{"sandbox.slinky.slurm.net/exit-code": str(code)} if code else {} for code in codes] or [{} for _ in names]
    pods = [
        team.pod(name, cpus=1 if rank == 0 else 2, gpus=gpus if rank else 0, run_for=run_for, labels=labels, annotations=endings[rank])
        for rank, name in enumerate(names)
    ]
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "roles", "annotations": team.said(**said)},
        "spec": {"minMember": len(names)},
    }
    return names, [*reversed(pods), group]


async def parts_of(team: Team, pods: Sequence[Pod]) -> list[Job]:
    [job_id] = {int(pod.metadata.labels[JOB_ID]) for pod in pods}
    return await team.slurm.jobs.parts(job_id)


async def test_leader_and_workers_are_one_hetjob_bound_in_rank_order_and_ended_with_their_codes(team: Team) -> None:
    names, documents = roles(team, run_for="3s", codes=[0, 0, 3, 0, 0])
    await team.create(*documents)
    pods = await team.until_running(*names)
    leader, workers = await parts_of(team, pods)
    assert (leader.tasks, leader.cpus_per_task, leader.tres_per_task) == (1, 1, "")
    assert (workers.tasks, workers.cpus_per_task, workers.hetjob_id) == (4, 2, leader.job_id)
    assert workers.tres_per_task == "gres/gpu:2"
    first, second = [await team.slurm.jobs.allocation(job.job_id) for job in (leader, workers)]
    assert pods[0].spec.node_name == first.nodes[0].node
    assert [pod.spec.node_name for pod in pods[1:]] == [second.nodes[0].node] * 4
    told = [pod.metadata.annotations for pod in pods]
    assert [each[TASK + "procid"] for each in told] == list("01234")
    assert {each[TASK + "ntasks"] for each in told} == {"5"}
    assert [each[TASK + "cpus-per-task"] for each in told] == list("12222")
    assert [each[TASK + "het-group"] for each in told] == list("01111")
    assert sorted(device for each in told[1:] for device in each[TASK + "gpus"].split(",")) == list("01234567")

    for job, code, state in ((leader, 3, JobState.FAILED), (workers, 3, JobState.FAILED)):
        ended = await team.until_job(job.job_id, state)
        assert ended.exit_code
        assert ended.exit_code.code == code
    nodes = [first.nodes[0].node, second.nodes[0].node]

    async def accounted() -> bool:
        lines = await team.head("sacct", "-X", "-n", "-P", "-j", str(leader.job_id), "-o", "JobID,State,ExitCode,NodeList")
        return lines.splitlines() == [f"{leader.job_id}+{number}|FAILED|3:0|{node}" for number, node in enumerate(nodes)]

    await team.until("sacct told of both parts", accounted)


async def test_a_part_whose_pods_succeeded_says_so_and_the_leader_has_the_worst(team: Team) -> None:
    names, documents = roles(team, workers=2, run_for="2s", codes=[4, 0, 0])
    await team.create(*documents)
    leader, workers = await parts_of(team, await team.until_running(*names))
    ended = await team.until_job(leader.job_id, JobState.FAILED)
    assert ended.exit_code
    assert ended.exit_code.code == 4
    await team.until_job(workers.job_id, JobState.COMPLETED)


@pytest.mark.parametrize("part", [0, 1])
async def test_scancel_of_it_or_of_a_part_evicts_all(team: Team, part: int) -> None:
    names, documents = roles(team)
    await team.create(*documents)
    parts = await parts_of(team, await team.until_running(*names))
    await team.head("scancel", str(parts[part].job_id))
    await team.until_gone(*names)
    for job in parts:
        await team.until_job(job.job_id, JobState.CANCELLED)


async def test_one_that_waits_says_why_counts_once_and_goes_when_it_is_deleted(team: Team) -> None:
    names, documents = roles(team, priority="0")
    await team.create(*documents)
    await team.until_labelled(*names)
    parts = await parts_of(team, [await team.get(name) for name in names])
    assert all(job.is_pending for job in parts)
    message = await team.until_condition(names[3], "JobHeldUser")
    assert f"Slurm job {parts[0].job_id} waits" in message
    for name in names:
        await team.kube.delete(PODS, name, team.namespace)
    await team.until_gone(*names)
    for job in parts:
        await team.until_job(job.job_id, JobState.CANCELLED)


async def test_a_part_that_no_node_could_hold_parks_the_whole(team: Team) -> None:
    names, documents = roles(team, workers=1, gpus=9)
    await team.create(*documents)
    message = await team.until_condition(names[0], "Parked")
    assert "the pod requests 9" in message


async def test_where_there_are_too_few_nodes_for_a_hetjob_it_is_one_job(team: Team) -> None:
    """Slurm puts no two components on one node; all of these are for one."""
    names, documents = roles(team, workers=2)
    for document in documents[:-1]:
        document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": team.partition.nodes[1]}
    await team.create(*documents)
    pods = await team.until_running(*names)
    [job] = await parts_of(team, pods)
    assert (job.tasks, job.hetjob_id, job.nodes) == (3, 0, team.partition.nodes[1])
    assert {pod.spec.node_name for pod in pods} == {team.partition.nodes[1]}

    async def told() -> bool:
        return any("as a hetjob they would need 2 nodes" in note for note in await events_of(team, names[0]))

    await team.until("an Event said so", told)


async def test_a_leader_and_workers_for_different_nodes_are_a_hetjob_too(team: Team) -> None:
    """What they need is the same; a worker that is replaced goes where workers go."""
    labels = {"scheduling.x-k8s.io/pod-group": "pools"}
    names = ["r-0", "r-1", "r-2"]
    pools = [team.partition.nodes[0], team.partition.nodes[2], team.partition.nodes[2]]
    documents = [team.pod(name, cpus=2, labels=labels) for name in names]
    for document, node in zip(documents, pools, strict=True):
        document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "pools", "annotations": team.said()},
        "spec": {"minMember": 3},
    }
    await team.create(*documents, group)
    pods = await team.until_running(*names)
    assert [pod.spec.node_name for pod in pods] == pools
    assert len(await parts_of(team, pods)) == 2
    await team.kube.delete(PODS, "r-1", team.namespace)
    await team.until_gone("r-1")
    documents[1]["metadata"]["name"] = "again"
    await team.create(documents[1])
    [pod] = await team.until_running("again")
    assert (pod.spec.node_name, pod.metadata.annotations[TASK + "procid"]) == (pools[1], "1")


async def test_a_worker_that_is_replaced_gets_a_workers_place(team: Team) -> None:
    names, documents = roles(team)
    await team.create(*documents)
    pods = await team.until_running(*names)
    leader, _ = await parts_of(team, pods)
    gone = pods[2]
    await team.kube.delete(PODS, gone.metadata.name, team.namespace)
    await team.until_gone(gone.metadata.name)
    again = next(document for document in documents if document["metadata"]["name"] == gone.metadata.name)
    again["metadata"]["name"] = "a-replacement"
    await team.create(again)
    [pod] = await team.until_running("a-replacement")
    assert pod.spec.node_name == gone.spec.node_name
    for key in ("procid", "gpus", "het-group"):
        assert pod.metadata.annotations[TASK + key] == gone.metadata.annotations[TASK + key]
    assert pod.metadata.labels[JOB_ID] == str(leader.job_id)


@asynccontextmanager
async def own_bridge(sandbox: Sandbox, partition: Partition, folder: Path, **settings: Any) -> AsyncIterator[tuple[SandboxBridge, Team]]:
    name = f"het{next(_numbers)}"
    selector = {"matchLabels": {"bridge": name}}
    async with (
        sandbox_bridge(
            sandbox, folder, name=name, managedNamespaceSelector=selector, status={"seconds": 1, "rate": 50}, **settings
        ) as bridge,
        open_team(sandbox, partition, label=name) as team,
    ):
        yield bridge, team


@pytest.mark.long
async def test_a_bridge_that_is_killed_in_the_middle_takes_it_over(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    async with own_bridge(sandbox, partition, tmp_path) as (bridge, team):
        names, documents = roles(team, codes=[0, 5, 0, 0, 0])
        await team.create(*documents)
        await team.until_labelled(*names)
        pods = [await team.get(name) for name in names]
        leader, workers = await parts_of(team, pods)
        assert await bridge.stop("run", signal.SIGKILL) == -signal.SIGKILL
        await bridge.start("run")
        pods = await team.until_running(*names)
        assert [pod.metadata.annotations[TASK + "procid"] for pod in pods] == list("01234")
        assert [job.job_id for job in await parts_of(team, pods)] == [leader.job_id, workers.job_id]

        # Once more while it runs; and a part is cancelled meanwhile.
        await bridge.stop("run", signal.SIGKILL)
        await team.head("scancel", str(workers.job_id))
        await bridge.start("run")
        await team.until_gone(*names)
        for job in (leader, workers):
            await team.until_job(job.job_id, JobState.CANCELLED)
        told = await team.head("squeue", "-h", "-p", team.partition.name, "-t", "all", "-o", "%A")
        assert sorted(map(int, told.split())) == [leader.job_id, workers.job_id]
        assert "Traceback" not in bridge.log("run")


@pytest.mark.long
async def test_a_hetjob_whose_pods_vanished_meanwhile_is_ended_whole(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    async with own_bridge(sandbox, partition, tmp_path) as (bridge, team):
        names, documents = roles(team, workers=1)
        await team.create(*documents)
        parts = await parts_of(team, await team.until_running(*names))
        await bridge.stop("run", signal.SIGKILL)
        for name in names:
            await team.kube.patch(PODS, name, {"metadata": {"finalizers": None}}, team.namespace)
            await team.kube.delete(PODS, name, team.namespace)
        await team.until_gone(*names)
        await bridge.start("run")
        for job in parts:
            await team.until_job(job.job_id, JobState.CANCELLED)


async def events_of(team: Team, name: str) -> list[str]:
    path = f"/apis/events.k8s.io/v1/namespaces/{team.namespace}/events"
    answer = msgspec.json.decode(await team.kube.raw("GET", path))
    return [event["note"] for event in answer["items"] if event["regarding"]["name"] == name and event["reason"] == "LargestForAll"]


async def test_without_hetjobs_it_is_one_job_with_the_largest_needs_and_is_told(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    async with own_bridge(sandbox, partition, tmp_path, gangs={"hetjobs": "never"}) as (_, team):
        names, documents = roles(team, run_for="2s")
        await team.create(*documents)
        [job] = await parts_of(team, await team.until_running(*names))
        assert (job.tasks, job.cpus_per_task, job.hetjob_id) == (5, 2, 0)

        async def told() -> bool:
            return await events_of(team, names[0]) == [
                "the pods differ: every task requests the largest pod's resources: gangs.hetjobs is never"
            ]

        await team.until("an Event said so", told)
        await team.until_job(job.job_id, JobState.COMPLETED)


@pytest.fixture(scope="module")
def without_backfill(start_sandbox: Starter) -> Sandbox:
    """Slurm as it is where it has no hetjobs: its scheduler is not backfill."""
    found = start_sandbox("builtin", Shape(nodes=4, addons=("podgroup",)))
    conf = found.head / "etc/slurm/slurm.conf"
    conf.write_text(conf.read_text().replace("SchedulerType=sched/backfill", "SchedulerType=sched/builtin"))
    asyncio.run(found.restart("slurmctld"))
    return found


@pytest.mark.long
async def test_a_server_that_refuses_hetjobs_gets_one_job_and_is_not_asked_again(without_backfill: Sandbox, tmp_path: Path) -> None:
    partition = Partition("bridge", tuple(f"kwok-{index}" for index in range(4)))
    async with own_bridge(without_backfill, partition, tmp_path) as (bridge, team):
        names, documents = roles(team, run_for="2s")
        await team.create(*documents)
        [job] = await parts_of(team, await team.until_running(*names))
        assert (job.tasks, job.cpus_per_task, job.hetjob_id) == (5, 2, 0)

        async def told() -> bool:
            return any("Slurm refuses them" in note for note in await events_of(team, names[0]))

        await team.until("an Event said so", told)
        await team.until_job(job.job_id, JobState.COMPLETED)
        assert bridge.log("run").count("instead of a hetjob") == 1
