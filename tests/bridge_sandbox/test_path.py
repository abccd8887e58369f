"""A pod's way through Slurm on the real servers: it waits in Slurm's queue, is bound where Slurm says, and its job ends when it ends."""

import re
from typing import Any

import aiohttp
import pytest

from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.kube import PODS
from slinky.sandbox.bridge import SandboxBridge
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team

pytestmark = pytest.mark.sandbox

TASK = "task.slinky.slurm.net/"


@pytest.mark.parametrize(("code", "state"), [(0, JobState.COMPLETED), (3, JobState.FAILED)])
async def test_a_pod_waits_is_bound_where_slurm_says_and_ends_its_job(team: Team, code: int, state: JobState) -> None:
    ending = {"sandbox.slinky.slurm.net/exit-code": str(code)} if code else {}
    await team.create(team.pod("p", cpus=2, gpus=1, run_for="2s", annotations=ending))
    [pod] = await team.until_running("p")
    job = await team.job_of("p")
    assert job.name == f"{team.namespace}/p"
    assert job.nodes == pod.spec.node_name == pod.metadata.annotations["slinky.slurm.net/slurm-node"]
    assert pod.metadata.annotations[TASK + "gpus"] in set("01234567")
    assert FINALIZER in pod.metadata.finalizers
    ended = await team.until_job(job.job_id, state)
    assert ended.exit_code
    assert ended.exit_code.code == code
    await team.until_accounted(job.job_id, f"{team.namespace}/p|{state}|{code}:0|{pod.spec.node_name}")

    async def released() -> bool:
        return not (await team.get("p")).metadata.finalizers

    await team.until("the finalizer was gone", released)


async def test_scancel_evicts_the_pod_running_or_waiting(team: Team) -> None:
    await team.create(team.pod("runs"), team.pod("waits", said={"priority": "0"}))
    await team.until_running("runs")
    jobs = await team.until_labelled("runs", "waits")
    await team.head("scancel", *map(str, jobs))
    await team.until_gone("runs", "waits")


async def test_a_pod_deleted_while_it_waits_takes_its_job_along(team: Team) -> None:
    await team.create(team.pod("held", said={"priority": "0"}))
    [job_id] = await team.until_labelled("held")
    assert (await team.slurm.jobs.get(job_id)).is_pending
    await team.kube.delete(PODS, "held", team.namespace)
    await team.until_gone("held")
    await team.until_job(job_id, JobState.CANCELLED)


async def test_a_pod_deleted_while_it_runs_ends_its_job(team: Team) -> None:
    await team.create(team.pod("p"))
    await team.until_running("p")
    [job_id] = await team.until_labelled("p")
    await team.kube.delete(PODS, "p", team.namespace)
    await team.until_gone("p")
    await team.until_job(job_id, JobState.CANCELLED)


async def test_a_gang_is_packed_in_rank_order(team: Team) -> None:
    """16 pods with a GPU each fill two nodes of eight."""
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "ring", "annotations": team.said()},
        "spec": {"minMember": 16},
    }
    labels = {"scheduling.x-k8s.io/pod-group": "ring"}
    await team.create(*(team.pod(f"r-{index}", cpus=2, gpus=1, labels=labels) for index in reversed(range(16))), group)
    pods = await team.until_running(*(f"r-{index}" for index in range(16)))
    assert len({pod.metadata.labels[JOB_ID] for pod in pods}) == 1
    job = await team.job_of("r-0")
    assert job.name == f"{team.namespace}/ring"
    nodes = [pod.spec.node_name for pod in pods]
    order = [node.node for node in (await team.slurm.jobs.allocation(job.job_id)).nodes]
    assert nodes == [order[0]] * 8 + [order[1]] * 8
    told = [pod.metadata.annotations for pod in pods]
    assert [each[TASK + "procid"] for each in told] == [str(rank) for rank in range(16)]
    assert {each[TASK + "tasks-per-node"] for each in told} == {"8(x2)"}
    for node in set(nodes):
        devices = [pod.metadata.annotations[TASK + "gpus"] for pod in pods if pod.spec.node_name == node]
        assert sorted(devices) == list("01234567")


def job(team: Team, name: str, count: int, completions: int | None = None, run_for: str = "2s", **said: str) -> dict[str, Any]:
    template = team.pod("unnamed", cpus=4, run_for=run_for)
    meta = {"annotations": {"sandbox.slinky.slurm.net/run-for": run_for}}
    spec = {
        "parallelism": count,
        "completions": completions or count,
        "completionMode": "Indexed",
        "template": {"metadata": meta, "spec": template["spec"]},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": team.said(**said)}, "spec": spec}


async def test_a_job_marked_as_a_gang_is_one_job_of_slurm(team: Team) -> None:
    await team.create(job(team, "train", 6, gang="true"))

    async def run() -> bool:
        pods = await team.pods()
        return len(pods) == 6 and all(JOB_ID in pod.metadata.labels and pod.spec.node_name for pod in pods)

    await team.until("all six were bound", run)
    pods = sorted(await team.pods(), key=lambda pod: int(pod.metadata.annotations["batch.kubernetes.io/job-completion-index"]))
    [job_id] = {int(pod.metadata.labels[JOB_ID]) for pod in pods}
    assert [pod.metadata.annotations[TASK + "procid"] for pod in pods] == [str(rank) for rank in range(6)]
    found = await team.slurm.jobs.get(job_id)
    assert (found.name, found.tasks) == (f"{team.namespace}/train", 6)
    ended = await team.until_job(job_id, JobState.COMPLETED)
    assert ended.exit_code
    assert ended.exit_code.code == 0


@pytest.mark.long
async def test_pods_that_come_in_the_stead_of_failed_ones_take_their_places(team: Team) -> None:
    """All of a Job's pods fail, twice: the second ones are in the same job of Slurm, which ends as they did when the Job gives up."""
    document = job(team, "again", 2, run_for="1s", gang="true")
    document["spec"]["template"]["metadata"]["annotations"]["sandbox.slinky.slurm.net/exit-code"] = "1"
    document["spec"] |= {"completionMode": "NonIndexed", "backoffLimit": 2}
    await team.create(document)

    async def twice() -> bool:
        return len([pod for pod in await team.pods() if pod.is_over]) >= 3

    await team.until("the gang ran twice", twice, 90)
    [job_id] = {int(pod.metadata.labels[JOB_ID]) for pod in await team.pods() if pod.is_over}
    ended = await team.until_job(job_id, JobState.FAILED)
    assert (ended.tasks, ended.exit_code.code if ended.exit_code else None) == (2, 1)


async def test_a_job_without_the_mark_is_one_job_of_slurm_a_pod(team: Team) -> None:
    await team.create(job(team, "many", 4))

    async def over() -> bool:
        pods = await team.pods()
        return len(pods) == 4 and all(pod.is_over and not pod.metadata.finalizers for pod in pods)

    await team.until("all four ended", over)
    jobs = {int(pod.metadata.labels[JOB_ID]) for pod in await team.pods()}
    assert len(jobs) == 4
    for job_id in jobs:
        assert (await team.slurm.jobs.get(job_id)).state is JobState.COMPLETED


async def test_a_gang_whose_member_fails_gets_its_replacement_into_the_same_place(team: Team) -> None:
    """The Job makes a new pod for the index: it takes the slot that is free, in the allocation that is there."""
    document = job(team, "again", 3, run_for="600s", gang="true")
    document["spec"]["backoffLimitPerIndex"] = 3
    await team.create(document)

    async def all_run() -> bool:
        pods = [pod for pod in await team.pods() if not pod.is_over and pod.metadata.deletion_timestamp is None]
        return len(pods) == 3 and all(pod.spec.node_name for pod in pods)

    await team.until("three ran", all_run)
    index = "batch.kubernetes.io/job-completion-index"
    victim = next(pod for pod in await team.pods() if pod.metadata.annotations[index] == "1")
    await team.kube.delete(PODS, victim.metadata.name, team.namespace)

    async def replaced() -> bool:
        return await all_run() and victim.metadata.uid not in {pod.metadata.uid for pod in await team.pods()}

    await team.until("its replacement ran", replaced)
    [other] = [pod for pod in await team.pods() if pod.metadata.annotations[index] == "1"]
    assert other.metadata.labels[JOB_ID] == victim.metadata.labels[JOB_ID]
    assert other.spec.node_name == victim.spec.node_name
    assert other.metadata.annotations[TASK + "procid"] == "1"


async def test_a_deployment_of_fifty_runs_as_fifty_jobs(team: Team) -> None:
    template = team.pod("unnamed", cpus=1)
    meta = {"labels": {"app": "web"}, "annotations": template["metadata"]["annotations"]}
    spec = {
        "replicas": 50,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": meta, "spec": template["spec"] | {"restartPolicy": "Always"}},
    }
    await team.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})

    async def all_run() -> bool:
        pods = await team.pods()
        return len(pods) == 50 and all(pod.status.phase == "Running" for pod in pods)

    await team.until("fifty ran", all_run)
    queue = await team.head("squeue", "-h", "-p", team.partition.name, "-o", "%j|%N|%T")
    told = {tuple(line.split("|")) for line in queue.splitlines()}
    assert told == {(f"{team.namespace}/{pod.metadata.name}", pod.spec.node_name, "RUNNING") for pod in await team.pods()}


async def test_what_slurm_refuses_is_parked_and_said(team: Team) -> None:
    await team.create(team.pod("poor", said={"account": "nosuch"}))
    message = await team.until_condition("poor", "Parked")
    assert "nvalid account" in message
    pod = await team.get("poor")
    assert JOB_ID not in pod.metadata.labels
    scheduled = pod.condition("PodScheduled")
    assert scheduled
    assert scheduled.reason == "Refused"


async def test_what_no_node_could_hold_is_parked_with_its_reason_and_goes_when_one_can(team: Team) -> None:
    await team.create(team.pod("huge", cpus=65))
    message = await team.until_condition("huge", "Parked")
    assert f"none of the 4 nodes of partition {team.partition.name} will do" in message
    assert "has 64 cpu in total, but the pod requests 65" in message
    scheduled = (await team.get("huge")).condition("PodScheduled")
    assert scheduled
    assert scheduled.reason == "Unschedulable"


async def test_a_waiting_pod_says_why_and_a_gated_one_is_left_out(team: Team) -> None:
    gated = team.pod("gated")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    whole = [team.pod(f"w-{index}", cpus=64, said={"timelimit": "60"}) for index in range(4)]
    await team.create(gated, *whole)
    await team.until_running(*(f"w-{index}" for index in range(4)))
    await team.create(team.pod("next", cpus=64))
    message = await team.until_condition("next", "Resources")
    assert f"waits in partition {team.partition.name}: Resources (not enough is free yet)" in message
    scheduled = (await team.get("next")).condition("PodScheduled")
    assert scheduled
    assert (scheduled.status, scheduled.reason) == ("False", "Unschedulable")
    assert JOB_ID not in (await team.get("gated")).metadata.labels
    await team.kube.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, team.namespace)
    await team.until_labelled("gated")
    await team.kube.delete(PODS, "w-0", team.namespace)
    await team.until_running("next")
    assert "runs" in await team.until_condition("next", "Running")


async def test_the_bridge_tells_prometheus_where_pods_stand_and_what_it_asked(team: Team, bridge: SandboxBridge) -> None:
    await team.create(team.pod("p"), team.pod("held", said={"priority": "0"}))
    await team.until_running("p")
    await team.until_labelled("p", "held")
    async with aiohttp.ClientSession() as session, session.get(f"{bridge.health()}/metrics") as answer:
        text = await answer.text()
    for sample in (
        r'slinky_bridge_pods\{state="pending"\} [1-9]',
        r'slinky_bridge_pods\{state="running"\} [1-9]',
        r"slinky_bridge_pods_bound_total [1-9]",
        r'slinky_bridge_stage_seconds_count\{stage="submit"\} [1-9]',
        r'slinky_bridge_stage_seconds_count\{stage="queue"\} [1-9]',
        r'slinky_bridge_stage_seconds_count\{stage="bind"\} [1-9]',
        r'slinky_slurm_requests_total\{call="POST slurm/job/submit",outcome="ok"\} [1-9]',
        r'slinky_kube_requests_total\{method="POST",outcome="ok",resource="pods/binding"\} [1-9]',
        r'slinky_workqueue_keys\{queue="workloads",state="ready"\} ',
        r"slinky_loop_lag_seconds_count [1-9]",
        r'slinky_leader\{lease="slurm-bridge"\} 1',
    ):
        assert re.search(f"^{sample}", text, re.MULTILINE), sample
