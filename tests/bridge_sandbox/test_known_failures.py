"""Failures that users of the original met, each as a test that passes here. More of them stand where they belong: #49 in test_node_loss, the edited label and foreign admin_comment in test_trust, the orphan after a failed submit here."""

from pathlib import Path
from typing import Any

import pytest

from slinky.kube import PODS
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobState, NodeDescription
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import jobs_of, own_bridge
from tests.conftest import Partition
from tests.faults import Fault, FaultProxy, HeardRequest

pytestmark = pytest.mark.sandbox


async def test_issue_43_no_pod_dies_when_slurm_restarts_after_a_node_was_deleted(team: Team) -> None:
    """The original named nodes that a job may use (required_nodes): slurmctld kills such a job at its next start once one of them is gone."""
    extra = f"{team.partition.name}-extra"
    await team.slurm.nodes.create(NodeDescription(name=extra, address="127.0.0.1", cpus=4, real_memory=4096))
    names = [f"p{index}" for index in range(3)]
    await team.create(*(team.pod(name) for name in names), team.pod("held", said={"priority": "0"}))
    await team.until_running(*names)
    ids = await team.until_labelled(*names, "held")
    for job_id in ids:
        assert not (await team.slurm.jobs.get(job_id)).required_nodes
    await team.slurm.nodes.delete(extra)
    await team.sandbox.restart("slurmctld")

    async def answers() -> bool:
        return "UP" in await team.head("scontrol", "ping")

    await team.until("slurmctld answered", answers)
    await team.create(team.pod("after"))
    await team.until_running("after")
    assert {(await team.get(name)).status.phase for name in names} == {"Running"}
    states = await jobs_of(team)
    assert [states[job_id] for job_id in ids] == ["RUNNING"] * 3 + ["PENDING"]


async def test_issue_45_a_pod_that_goes_last_runs_while_a_hundred_that_go_first_wait(team: Team) -> None:
    """The original tried those who wait again and again, in order of priority, and never came to the others."""
    await team.create_all([team.pod(f"first-{index}", cpus=64, said={"dependency": "singleton", "job-name": "one"}) for index in range(5)])
    await team.create_all([team.pod(f"held-{index}", said={"priority": "0"}) for index in range(100)])
    await team.create(team.pod("last", said={"nice": "10000"}, run_for="1s"))
    await team.until_running("last")

    async def waiting() -> list[str]:
        return [pod.metadata.name for pod in await team.pods() if not pod.spec.node_name]

    assert len(await waiting()) >= 100


async def test_a_submit_that_failed_leaves_no_orphan(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    """The answer was lost, and the pod is gone before anybody knows; or the pod stays, and gets the job that was made, not a second one."""
    lost: list[str] = []

    def plan(request: HeardRequest) -> Fault:
        if request.method == "POST" and request.path.endswith("/job/submit") and len(lost) < 2:
            lost.append(request.path)
            return Fault.DONE_RESET
        return Fault.NONE

    async with FaultProxy(sandbox.slurm_server, plan) as proxy:
        settings: dict[str, Any] = {"slurmRestApi": proxy.url, "absence": {"sweepSeconds": 2}}
        async with own_bridge(sandbox, partition, tmp_path, **settings) as (bridge, team):
            await team.create(team.pod("gone", said={"priority": "0"}))

            async def was_lost() -> bool:
                return len(lost) == 1

            await team.until("an answer was lost", was_lost)
            await team.kube.delete(PODS, "gone", team.namespace)
            await team.create(team.pod("stays"))
            await team.until_gone("gone")
            await team.until_running("stays")
            assert len(lost) == 2

            async def one_left() -> bool:
                return [state for state in (await jobs_of(team)).values() if state in ("RUNNING", "PENDING")] == ["RUNNING"]

            await team.until("one job was left", one_left)
            assert (await team.job_of("stays")).state is JobState.RUNNING
            assert "Traceback" not in bridge.log("run")
