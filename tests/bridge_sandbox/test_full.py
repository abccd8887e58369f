"""A full cluster: everybody waits in Slurm's queue, and Slurm's policies say who goes first."""

import asyncio

import pytest

from slinky.bridge.keys import JOB_ID
from slinky.kube import PODS, Pod
from slinky.kube.objects import Condition
from slinky.slurm import Job
from tests.bridge_sandbox.conftest import Team

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize("count", [120, pytest.param(500, marks=pytest.mark.long)])
async def test_hundreds_wait_in_slurm_and_its_policies_hold(team: Team, count: int) -> None:
    """Four nodes, all but one CPU of each taken for an hour by a QoS that nobody may preempt. Then as many pods of each of two accounts, of which one has used the cluster and the other has not."""
    fill = [team.pod(f"fill-{index}", cpus=63, said={"account": "physics", "qos": "high", "timelimit": "60"}) for index in range(4)]
    await team.create(*fill)
    await team.until_running(*(f"fill-{index}" for index in range(4)))
    crowd = [
        team.pod(f"{account}-{index}", cpus=4, said={"account": account, "timelimit": "240"})
        for index in range(count // 2)
        for account in ("physics", "ai")
    ]
    await team.create_all(crowd)

    async def all_wait() -> bool:
        queue = await team.head("squeue", "-h", "-t", "PENDING", "-p", team.partition.name, "-o", "%j")
        return len(queue.splitlines()) == count

    await team.until(f"{count} pods waited in Slurm", all_wait)

    async def all_know() -> bool:
        return all(JOB_ID in pod.metadata.labels for pod in await team.pods())

    await team.until("each pod had its job", all_know)

    # Backfill: nothing of four CPUs fits, but a small one that will be over in time does.
    await team.create(team.pod("small", cpus=1, said={"account": "ai", "timelimit": "1"}))
    await team.until_running("small")
    assert not [pod for pod in await team.pods() if pod.spec.node_name and pod.metadata.name.startswith(("ai-", "physics-"))]

    await team.create(team.pod("urgent", cpus=4, said={"account": "ai", "qos": "high"}))
    await team.until_labelled("urgent")

    # The reasons are on the pods.
    async def told() -> bool:
        said = [pod.condition("slinky.slurm.net/Slurm") for pod in await team.pods() if not pod.spec.node_name]
        return all(found is not None and found.reason in ("Priority", "Resources") for found in said)

    await team.until("every waiting pod said why", told, 120)
    scheduled = {
        (c.reason, p.reason)
        for pod in await team.pods()
        if (c := _slurm(pod)) and (p := pod.condition("PodScheduled")) and not pod.spec.node_name
    }
    assert scheduled <= {("Priority", "WaitingForSlurm"), ("Resources", "Unschedulable")}
    assert ("Priority", "WaitingForSlurm") in scheduled

    # Fairshare: Slurm reckons once a minute.
    async def ai_goes_first() -> bool:
        [one, other] = await asyncio.gather(team.job_of(f"ai-{count // 2 - 1}"), team.job_of("physics-0"))
        return _priority(one) > _priority(other)

    await team.until("the account that has used less went first", ai_goes_first, 150)
    await team.kube.delete(PODS, "fill-0", team.namespace)
    await team.until_running("urgent")

    async def sixteen_run() -> bool:
        return len(await _started(team)) == 16

    await team.until("the place of the first was filled", sixteen_run)
    assert {pod.metadata.name.partition("-")[0] for pod in await _started(team)} == {"urgent", "ai"}


def _slurm(pod: Pod) -> Condition | None:
    return pod.condition("slinky.slurm.net/Slurm")


def _priority(job: Job) -> int:
    return job.priority if isinstance(job.priority, int) else 0


async def _started(team: Team) -> list[Pod]:
    return [pod for pod in await team.pods() if pod.spec.node_name and not pod.metadata.name.startswith(("fill", "small"))]
