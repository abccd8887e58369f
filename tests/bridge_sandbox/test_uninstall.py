"""The bridge uninstalled on the real servers: finalizers, taints, nodes and jobs go in order, also where it is killed in the middle or Slurm is down; and what is left is said."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from slinky.bridge.keys import CONDITION, CORDONED_FOR_SLURM, FINALIZER, JOB_ID, MANAGED_NODE, NODE_CONDITION, SETTINGS
from slinky.bridge.marker import comment_for, read_comment
from slinky.kube import LEASES, NODES, PODS, NotFoundError, PatchKind, Pod
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobDescription, JobState
from tests.bridge_sandbox.conftest import Team, open_team
from tests.bridge_sandbox.newcomers import brought_along, command, gone_from_slurm, slinky
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox

_numbers = itertools.count()


@asynccontextmanager
async def bridge_of_its_own(sandbox: Sandbox, partition: Partition, folder: Path, **more: Any) -> AsyncIterator[tuple[SandboxBridge, Team]]:
    """What is left of the team's namespace goes with the sandbox: nobody is there any more to help."""
    name = f"leave{next(_numbers)}"
    settings = {
        "managedNamespaceSelector": {"matchLabels": {"bridge": name}},
        "status": {"seconds": 1, "rate": 50},
        "leader": {"seconds": 5},
        **more,
    }
    async with sandbox_bridge(sandbox, folder, name=name, **settings) as bridge, open_team(sandbox, partition, label=name) as team:
        yield bridge, team


def bare(pod: Pod) -> bool:
    return FINALIZER not in pod.metadata.finalizers and JOB_ID not in pod.metadata.labels


async def killed_after(line: str, *words: str) -> None:
    """The command, SIGKILLed as soon as it has said this."""
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        async for said in process.stdout:
            if line in said.decode():
                break
        else:
            pytest.fail(f"it never said {line!r}")
    process.kill()
    await process.wait()


async def test_uninstall_lets_go_of_every_finalizer_taint_node_and_job_in_order_and_says_what_it_leaves(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    leaving = "leaving"
    async with (
        brought_along(sandbox, "leave", 2, leaving) as nodes,
        bridge_of_its_own(sandbox, partition, tmp_path, nodes={"register": True}) as (bridge, team),
    ):
        scheduler, cluster = bridge.settings["schedulerName"], bridge.settings["cluster"]

        async def registered() -> bool:
            return not any([await gone_from_slurm(team.slurm, name) for name in nodes])

        await team.until("the nodes were registered", registered)
        await team.head("scontrol", "create", f"PartitionName={leaving}", f"Nodes={','.join(nodes)}")
        there = {SETTINGS + "partition": leaving}
        await team.create(
            team.pod("runs", annotations=there),
            team.pod("waits", said={"priority": "0"}),
            team.pod("ends", run_for="1s"),
            team.pod("on-slurms-own"),  # the partition's nodes are not the bridge's: they stay
        )
        await team.until_running("runs", "ends", "on-slurms-own")
        [runs, waits, shared] = await team.until_labelled("runs", "waits", "on-slurms-own")
        uid = (await team.get("runs")).metadata.uid
        # Others' jobs, of which one looks like ours.
        other = comment_for("another-cluster", "Pod ns/x", [(team.namespace, "runs")], ["x"])
        said = [JobDescription(name="x", partition=partition.name, admin_comment=text, hold=True) for text in ("", '{"pods":[]}', other)]
        foreign = [(await team.slurm.jobs.submit_external(job)).job_id for job in said]

        dry, (refused, why) = await asyncio.gather(
            slinky(bridge, sandbox, "bridge", "uninstall", "--dry-run"), slinky(bridge, sandbox, "bridge", "uninstall")
        )
        code, output = dry
        assert code == 3
        assert "a bridge leads" in output
        for words in (
            f"mutatingwebhookconfigurations/{bridge.settings['admission']['configuration']}",
            *nodes,
            f"{team.namespace}/runs",
            str(waits),
        ):
            assert words in output
        assert f"pod {team.namespace}/waits: waits, and nobody schedules what names {scheduler}" in output
        assert refused == 1
        assert "a bridge leads" in why
        assert (await team.get("runs")).metadata.labels[JOB_ID] == str(runs), "nothing was changed"

        await bridge.stop("admission")
        await bridge.stop("run")
        # What a bridge writes on nodes that Slurm has drained.
        taint = {"key": MANAGED_NODE, "value": scheduler, "effect": "NoSchedule"}
        change: dict[str, Any] = {
            "metadata": {"annotations": {CORDONED_FOR_SLURM: "drained"}},
            "spec": {"unschedulable": True, "taints": [taint]},
        }
        await team.kube.patch(NODES, nodes[0], change, kind=PatchKind.STRATEGIC)
        condition = {"type": NODE_CONDITION, "status": "False", "reason": "Drained", "message": "x"}
        status = {"status": {"conditions": [condition]}}
        await team.kube.patch(NODES, nodes[0], status, kind=PatchKind.STRATEGIC, subresource="status")
        await killed_after("pods let go of", *command(bridge, sandbox, "bridge", "uninstall"))
        assert (await team.slurm.jobs.get(runs)).is_running, "it was killed before"
        code, output = await slinky(bridge, sandbox, "bridge", "uninstall")

        assert code == 3, output
        found = {pod.metadata.name: pod for pod in await team.pods()}
        assert bare(found["runs"]) and bare(found["waits"]), "no finalizer, no label"
        assert FINALIZER not in found["ends"].metadata.finalizers
        assert (found["runs"].metadata.uid, found["runs"].status.phase) == (uid, "Running"), "it runs on"
        told = found["waits"].condition(CONDITION)
        assert told is not None
        assert "nobody schedules this pod" in told.message
        assert (await team.slurm.jobs.get(runs)).state is JobState.CANCELLED
        assert (await team.slurm.jobs.get(waits)).state is JobState.CANCELLED
        assert (await team.slurm.jobs.get(shared)).is_running, "Slurm would give to others what its pod uses"
        assert f"job {shared}: its pods run on, and on nodes that stay in Slurm" in output
        assert found["on-slurms-own"].metadata.labels[JOB_ID] == str(shared)
        assert all([await gone_from_slurm(team.slurm, name) for name in nodes])
        node = await team.kube.get(NODES, nodes[0])
        assert MANAGED_NODE not in {found.key for found in node.spec.taints}
        assert not node.spec.unschedulable
        assert CORDONED_FOR_SLURM not in node.metadata.annotations
        assert node.condition(NODE_CONDITION) is None
        assert node.condition("Ready") is not None
        assert all([(await team.slurm.jobs.get(job_id)).is_pending for job_id in foreign])
        assert not await gone_from_slurm(team.slurm, partition.nodes[0])
        with pytest.raises(NotFoundError):
            await team.kube.get(LEASES, bridge.settings["leader"]["name"], "kube-system")
        await team.create(team.pod("new"))
        assert (await team.get("new")).spec.scheduler_name == "default-scheduler", "nothing is taken in any more, and nobody is refused"

        code, output = await slinky(bridge, sandbox, "bridge", "uninstall", "--running", "evict", "--waiting", "delete", "--timeout", "60")
        assert code == 0, output
        assert "nothing is left" in output
        await team.until_gone("waits", "on-slurms-own")
        await team.until_job(shared, JobState.CANCELLED)
        live = [job async for job in team.slurm.jobs.stream() if not job.is_finished]
        assert not [job for job in live if read_comment(job.admin_comment, cluster)]
        await team.slurm.jobs.cancel_many(foreign)


@pytest.mark.long
async def test_uninstall_without_slurm_does_what_it_can_and_the_next_one_does_the_rest(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    async with bridge_of_its_own(sandbox, partition, tmp_path) as (bridge, team):
        await team.create(team.pod("runs"), team.pod("waits", said={"priority": "0"}))
        await team.until_running("runs")
        [runs, waits] = await team.until_labelled("runs", "waits")
        await bridge.stop("admission")
        await bridge.stop("run")
        good = bridge.config.read_text()
        bridge.config.write_text(yaml.safe_dump(bridge.settings | {"slurmRestApi": "http://127.0.0.1:1"}))
        code, output = await slinky(bridge, sandbox, "bridge", "uninstall")
        assert code == 3, output
        assert "Slurm cannot be asked" in output
        assert f"jobs and nodes of cluster {bridge.settings['cluster']} stay there" in output
        pods = [await team.get("runs"), await team.get("waits")]
        assert not [pod for pod in pods if FINALIZER in pod.metadata.finalizers]
        assert pods[0].metadata.labels[JOB_ID] == str(runs), "by which the next one knows that its job is in use"
        assert (await team.slurm.jobs.get(runs)).is_running
        assert (await team.slurm.jobs.get(waits)).is_pending

        bridge.config.write_text(good)
        waiting = asyncio.create_task(
            slinky(bridge, sandbox, "bridge", "uninstall", "--running", "wait", "--waiting", "delete", "--timeout", "60")
        )
        await team.until_gone("waits")
        await team.kube.patch(PODS, "runs", {"status": {"phase": "Succeeded"}}, team.namespace, subresource="status")
        code, output = await waiting
        assert code == 0, output
        await team.until_job(runs, JobState.COMPLETED)
        await team.until_job(waits, JobState.CANCELLED)
