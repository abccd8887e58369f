"""The files in examples/ that a newcomer tries first do what they say of themselves."""

import subprocess

import pytest

from slinky.bridge.keys import JOB_ID, TASK
from tests.bridge_sandbox.conftest import Team
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.sandbox


def apply(team: Team, file: str) -> None:
    command = [str(team.sandbox.folder / "bin/kubectl"), "apply", "-n", team.namespace, "-f", str(CHECKOUT / "examples" / file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr


async def test_three_pods_run_where_slurm_says(team: Team) -> None:
    apply(team, "pod.yaml")
    for pod in await team.until_running("small", "gpu", "urgent"):
        job = await team.job_of(pod.metadata.name)
        assert job.nodes == pod.spec.node_name
        assert bool(pod.metadata.annotations.get(TASK + "gpus")) == (pod.metadata.name == "gpu")
        if pod.metadata.name == "urgent":
            assert (job.account, job.qos, job.time_limit) == ("physics", "high", 30)


async def test_a_gang_of_sixteen_fills_two_nodes_in_rank_order(team: Team) -> None:
    apply(team, "gang.yaml")

    async def all_run() -> bool:
        pods = await team.pods()
        return len(pods) == 16 and all(pod.status.phase == "Running" for pod in pods)

    await team.until("all sixteen ran", all_run)
    pods = sorted(await team.pods(), key=lambda pod: int(pod.metadata.annotations[TASK + "procid"]))
    assert len({pod.metadata.labels[JOB_ID] for pod in pods}) == 1
    nodes = list(dict.fromkeys(pod.spec.node_name for pod in pods))
    places = [(pod.spec.node_name, pod.metadata.annotations[TASK + "gpus"]) for pod in pods]
    assert [node for node, _ in places] == [node for node in nodes for _ in range(8)]
    assert sorted(places) == sorted((node, str(gpu)) for node in nodes for gpu in range(8))
    assert len(nodes) == 2


async def test_a_pod_that_ends_with_three_is_a_job_that_failed_with_three(team: Team) -> None:
    apply(team, "fails.yaml")

    async def failed() -> bool:
        return (await team.get("fails")).status.phase == "Failed"

    await team.until("it had failed", failed)
    pod = await team.get("fails")
    await team.until_accounted(int(pod.metadata.labels[JOB_ID]), f"{team.namespace}/fails|FAILED|3:0|{pod.spec.node_name}")
