"""The sandbox's Slurm is a whole one: external nodes and jobs, accounting, fairshare, limits, preemption, metrics, tokens."""

from typing import Any

import pytest

from slinky.sandbox.client import HttpError, Rest, SlurmRest
from slinky.sandbox.handle import Sandbox
from tests.conftest import Cli, Partition

pytestmark = pytest.mark.sandbox


def external_job(partition: Partition, **settings: Any) -> dict[str, Any]:
    base = {
        "partition": partition.name,
        "flags": ["EXTERNAL_JOB"],
        "name": "t",
        "current_working_directory": "/tmp",
        "environment": ["PATH=/usr/bin"],
        "account": "physics",
    }
    return {"job": base | settings}


async def submit(rest: SlurmRest, body: dict[str, Any]) -> int:
    return int((await rest.slurm("POST", "job/submit", body))["job_id"])


async def until_state(sandbox: Sandbox, rest: SlurmRest, job: int, wanted: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def reached() -> bool:
        found[:] = (await rest.slurm("GET", f"job/{job}"))["jobs"]
        return wanted in found[0]["job_state"]

    await sandbox.until("slurmctld", f"job {job} was {wanted}", reached)
    return found[0]


async def test_external_jobs_share_a_node_and_get_gpus(sandbox: Sandbox, partition: Partition) -> None:
    async with sandbox.slurm() as rest:
        settings = {"tasks": 1, "cpus_per_task": 4, "tres_per_node": "gres/gpu:1", "memory_per_node": {"set": True, "number": 1024}}
        jobs = [await submit(rest, external_job(partition, **settings)) for _ in range(2)]
        told = [await until_state(sandbox, rest, job, "RUNNING") for job in jobs]
        assert told[0]["nodes"] == told[1]["nodes"] in partition.nodes
        assert "gres/gpu=1" in told[0]["tres_alloc_str"]


async def test_accounting_tells_account_and_qos_of_a_finished_job(sandbox: Sandbox, partition: Partition, cli: Cli) -> None:
    async with sandbox.slurm() as rest:
        job = await submit(rest, external_job(partition, user_id="alice", group_id="alice", qos="high"))
        await until_state(sandbox, rest, job, "RUNNING")
        await rest.slurm("DELETE", f"job/{job}")
        await until_state(sandbox, rest, job, "CANCELLED")

    async def accounted() -> bool:
        done = cli("sandbox", "slurm", "--name", sandbox.record.name, "sacct", "-nXPj", str(job), "--format=User,Account,QOS,State")
        return done.stdout.strip() == "alice|physics|high|CANCELLED by 0"

    await sandbox.until("slurmdbd", f"job {job} was accounted", accounted)


async def test_a_job_of_a_higher_qos_preempts(sandbox: Sandbox, partition: Partition) -> None:
    async with sandbox.slurm() as rest:
        everything = {"minimum_nodes": 4, "shared": ["none"]}
        low = await submit(rest, external_job(partition, qos="low", **everything))
        await until_state(sandbox, rest, low, "RUNNING")
        high = await submit(rest, external_job(partition, qos="high", **everything))
        await until_state(sandbox, rest, high, "RUNNING")
        assert "PREEMPTED" in (await rest.slurm("GET", f"job/{low}"))["jobs"][0]["job_state"]


async def test_limits_hold(sandbox: Sandbox, partition: Partition) -> None:
    """QoS `limited` lets a user run one job."""
    async with sandbox.slurm() as rest:
        body = external_job(partition, user_id="bob", group_id="bob", qos="limited", tasks=1)
        first, second = await submit(rest, body), await submit(rest, body)
        await until_state(sandbox, rest, first, "RUNNING")
        waiting = await until_state(sandbox, rest, second, "PENDING")
        assert waiting["state_reason"] == "QOSMaxJobsPerUserLimit"


async def test_an_account_that_a_user_is_not_in_is_refused(sandbox: Sandbox, partition: Partition) -> None:
    async with sandbox.slurm() as rest:
        with pytest.raises(HttpError, match="Invalid account"):
            await submit(rest, external_job(partition, user_id="carol", group_id="carol", account="ai"))


async def test_fairshare_tells_people_apart(sandbox: Sandbox, cli: Cli) -> None:
    told = cli(
        "sandbox", "slurm", "--name", sandbox.record.name, "sshare", "--all", "--noheader", "--parsable2", "--format=Account,User,RawShares"
    )
    rows = {tuple(part.strip() for part in line.split("|")) for line in told.stdout.splitlines()}
    assert {("physics", "", "40"), ("biology", "", "20"), ("physics", "alice", "1")} <= rows


async def test_a_user_submits_with_a_token_of_her_own(sandbox: Sandbox, partition: Partition) -> None:
    token = (await sandbox.link.run("head", "scontrol", "token", "username=alice")).strip().removeprefix("SLURM_JWT=")
    async with SlurmRest(sandbox.slurm_server, token, user="alice") as rest, sandbox.slurm() as root:
        job = await submit(rest, external_job(partition))
        assert (await until_state(sandbox, root, job, "RUNNING"))["user_name"] == "alice"


async def test_a_wrong_token_is_refused(sandbox: Sandbox) -> None:
    async with SlurmRest(sandbox.slurm_server, "nonsense") as rest:
        with pytest.raises(HttpError, match="authentication"):
            await rest.slurm("GET", "jobs/state/")


async def test_slurmctld_serves_metrics(sandbox: Sandbox) -> None:
    async with Rest(f"http://{sandbox.record.addresses.head}:6817") as slurmctld:
        assert f"slurm_nodes {sandbox.record.shape.nodes}" in await slurmctld.get("/metrics/nodes")


async def test_slurmctld_comes_back_with_its_nodes_and_jobs(sandbox: Sandbox, partition: Partition) -> None:
    async with sandbox.slurm() as rest:
        job = await submit(rest, external_job(partition, tasks=1))
        nodes = (await until_state(sandbox, rest, job, "RUNNING"))["nodes"]
        await sandbox.restart("slurmctld")
        await sandbox.until("slurmctld", "it answered", lambda: rest.slurm("GET", "ping/"))
        assert (await until_state(sandbox, rest, job, "RUNNING"))["nodes"] == nodes
