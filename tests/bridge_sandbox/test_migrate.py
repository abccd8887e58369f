"""From the original to this bridge on the real servers, without a restart. What the original would have made is made by hand: pods with its keys, external jobs with its comment, external nodes without a mark."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from slinky.bridge.keys import FINALIZER, GANG, JOB_ID, MANAGED_NODE, SLURM_NODE
from slinky.bridge.marker import read_comment
from slinky.bridge.migration.acts import DEPLOYMENTS
from slinky.bridge.node_mark import owner_of
from slinky.bridge.workload import COSCHEDULING_LABEL
from slinky.kube import MUTATING_CONFIGURATIONS, NODES, PODS, NotFoundError, Pod
from slinky.sandbox.bridge import sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobDescription, JobState, NodeDescription
from tests.bridge_sandbox.conftest import Team, open_team
from tests.bridge_sandbox.newcomers import CPUS, MEMORY_MIB, brought_along, slinky
from tests.bridge_sandbox.sets import JOBSETS, jobset, replicated
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox

_numbers = itertools.count()
WEBHOOK = "pods.slinky.slurm.net"


class Original:
    """What the Go slurm-bridge does, by hand: admission, submit, label and finalizer, the chosen node, the Binding."""

    def __init__(self, team: Team, scheduler: str) -> None:
        self.team, self.scheduler = team, scheduler

    async def pod(self, name: str, labels: dict[str, str] | None = None) -> None:
        document = self.team.pod(name, labels=labels or {})
        toleration = {"key": MANAGED_NODE, "operator": "Equal", "value": self.scheduler, "effect": "NoExecute"}
        document["spec"] |= {"schedulerName": self.scheduler, "tolerations": [toleration]}
        await self.team.create(document)

    async def submit(self, *names: str, partition: str = "", hold: bool = False, comment: str = "", **more: Any) -> int:
        """Whole nodes, one a pod; and nothing but their names to know them by. `more` are the nodes that it names (until August 2026) or leaves out (since)."""
        count = len(names)
        description = JobDescription(
            name=names[0] if names else "x",
            admin_comment=comment or json.dumps({"pods": [f"{self.team.namespace}/{name}" for name in names]}),
            current_working_directory="/tmp",
            cpus_per_task=1,
            memory_per_node=1024,
            mcs_label="kubernetes",
            minimum_nodes=count or 1,
            maximum_nodes=count or 1,
            nodes=str(count or 1),
            tasks_per_node=1,
            shared=["none"],
            partition=partition or self.team.partition.name,
            hold=hold or None,
            **more,
        )
        job_id = (await self.team.slurm.jobs.submit_external(description)).job_id
        for name in names:
            change = {"metadata": {"labels": {JOB_ID: str(job_id)}, "finalizers": [FINALIZER]}}
            await self.team.kube.patch(PODS, name, change, self.team.namespace)
        return job_id

    async def bind(self, job_id: int, *names: str) -> None:
        await self.team.until_job(job_id, JobState.RUNNING)
        nodes = [node.node for node in (await self.team.slurm.jobs.allocation(job_id)).nodes]
        for name, node in zip(names, nodes, strict=True):
            await self.team.kube.patch(PODS, name, {"metadata": {"annotations": {SLURM_NODE: node}}}, self.team.namespace)
            await self.team.kube.bind(name, self.team.namespace, node)

    async def gang(self, group: str, *names: str) -> None:
        document = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": group},
            "spec": {"minMember": len(names)},
        }
        await self.team.create(document)
        for name in names:
            await self.pod(name, {COSCHEDULING_LABEL: group})

    async def runs(self, *names: str, **more: Any) -> int:
        job_id = await self.submit(*names, **more)
        await self.bind(job_id, *names)
        return job_id


def life(pod: Pod) -> tuple[Any, ...]:
    """What a restart would change."""
    started = [status.state.running.started_at for status in pod.status.container_statuses if status.state.running]
    return pod.metadata.uid, pod.spec.node_name, pod.status.phase, started


async def test_migrate_takes_over_the_originals_pods_jobs_and_nodes_without_a_restart(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    name, own = f"migrated{next(_numbers)}", "migrating"
    settings = {
        "managedNamespaceSelector": {"matchLabels": {"bridge": name}},
        "nodes": {"register": True},
        "status": {"seconds": 1, "rate": 50},
    }
    async with (
        brought_along(sandbox, "migrate", 5, own) as nodes,  # who stay until their pods are gone
        sandbox_bridge(sandbox, tmp_path, parts=(), name=name, **settings) as bridge,
        open_team(sandbox, partition, label=name) as team,
    ):
        original = Original(team, bridge.settings["schedulerName"])
        for index, node in enumerate(nodes):
            made = NodeDescription(name=node, address=f"10.209.1.{index + 1}", features=[own], cpus=CPUS, real_memory=MEMORY_MIB)
            made.boards, made.sockets_per_board, made.cores_per_socket, made.threads_per_core = 1, 1, CPUS, 1
            await team.slurm.nodes.create(made)
        await team.head("scontrol", "create", f"PartitionName={own}", f"Nodes={','.join(nodes)}")
        await original.pod("runs")
        runs = await original.runs("runs", partition=own)
        await original.gang("ring", "ring-0", "ring-1")
        ring = await original.runs("ring-0", "ring-1", partition=own, required_nodes=nodes[1:3])
        await original.gang("pair", "pair-0", "pair-1")
        pair = await original.submit("pair-0", "pair-1", hold=True)
        await original.pod("waits")
        waits = await original.submit("waits", hold=True, excluded_nodes=[partition.nodes[0]])
        await original.pod("new")
        await original.pod("edited")
        await team.kube.patch(PODS, "edited", {"metadata": {"labels": {JOB_ID: str(runs)}}}, team.namespace)
        foreign = [await original.submit(hold=True, comment=text) for text in ('{"site": "x"}', '{"pods": ["elsewhere/x"]}')]
        job = replicated(team, "w", parallelism=2, run_for="3600s")
        job["template"]["spec"]["template"]["spec"]["schedulerName"] = original.scheduler
        await team.create(jobset(team, "set", job))

        async def has_pods() -> bool:
            return len([pod for pod in await team.pods() if pod.metadata.name.startswith("set-")]) == 2

        await team.until("the JobSet had its pods", has_pods)
        of_set = sorted(pod.metadata.name for pod in await team.pods() if pod.metadata.name.startswith("set-"))
        singles = [await original.submit(member, partition=own) for member in of_set]
        await original.bind(singles[0], of_set[0])
        await team.until_running("runs", "ring-0", "ring-1", of_set[0])

        labels = {"app.kubernetes.io/component": "scheduler", "helm.sh/chart": "slurm-bridge-1.2.1", "app": "original"}
        template = {"metadata": {"labels": {"app": "original"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
        deployment = {
            "metadata": {"name": "original", "labels": labels},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "original"}}, "template": template},
        }
        await team.kube.create(DEPLOYMENTS, deployment, team.namespace)
        hook = {
            "name": WEBHOOK,
            "clientConfig": {"service": {"name": "slurm-bridge-admission", "namespace": "gone", "path": "/mutate--v1-pod"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "Namespaced"}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        code, output = await slinky(bridge, sandbox, "migrate")
        assert code == 1
        assert f"the original still runs: Deployments {team.namespace}/original" in output
        await team.kube.patch(DEPLOYMENTS, "original", {"spec": {"replicas": 0}}, team.namespace)

        async def stopped() -> bool:
            return not (await team.kube.get(DEPLOYMENTS, "original", team.namespace)).get("status", {}).get("replicas")

        await team.until("the original was stopped", stopped)
        await team.kube.create(MUTATING_CONFIGURATIONS, {"metadata": {"name": f"{name}-original"}, "webhooks": [hook]})
        running = ["runs", "ring-0", "ring-1", of_set[0]]
        before = {each: await team.get(each) for each in running}

        code, output = await slinky(bridge, sandbox, "migrate", "--dry-run")
        assert code == 3, output
        assert "jobs taken over: " in output
        assert (await team.slurm.jobs.get(runs)).admin_comment == json.dumps({"pods": [f"{team.namespace}/runs"]}), "nothing was changed"
        await bridge.start("admission")
        code, output = await slinky(bridge, sandbox, "migrate")

        assert code == 3, output
        assert f"pod {team.namespace}/edited: its label names job {runs}, which does not name it" in output
        assert f"job {foreign[1]}: none of its pods (elsewhere/x) is there" in output
        with pytest.raises(NotFoundError):
            await team.kube.get(MUTATING_CONFIGURATIONS, f"{name}-original")
        for job_id in (runs, ring, waits, pair, *singles):
            assert read_comment((await team.slurm.jobs.get(job_id)).admin_comment, bridge.settings["cluster"]) is not None
        assert json.loads((await team.slurm.jobs.get(ring)).admin_comment)["pods"] == [f"{team.namespace}/ring-{index}" for index in (0, 1)]
        for job_id, text in zip(foreign, ('{"site": "x"}', '{"pods": ["elsewhere/x"]}'), strict=True):
            assert (await team.slurm.jobs.get(job_id)).admin_comment == text
        assert [owner_of(await team.slurm.nodes.get(node), bridge.settings["cluster"]) for node in nodes] == ["ours"] * 5
        assert (await team.kube.get(JOBSETS, "set", team.namespace))["metadata"]["annotations"][GANG] == "false"
        assert {each: (await team.get(each)).metadata.resource_version for each in running} == {
            each: pod.metadata.resource_version for each, pod in before.items()
        }, "nothing was written on pods that run"
        code, output = await slinky(bridge, sandbox, "migrate")
        assert code == 3
        assert "there is nothing to take over" in output

        await bridge.start("run")
        await team.until_running("new")
        assert "6 jobs of theirs" in bridge.log("run")
        assert {each: life(await team.get(each)) for each in running} == {each: life(pod) for each, pod in before.items()}
        await team.head("scontrol", "release", str(waits), str(pair))
        waited = ("waits", of_set[1], "pair-0", "pair-1")
        assert len({pod.spec.node_name for pod in await team.until_running(*waited)}) == 4
        assert await team.until_labelled(*waited) == [waits, singles[1], pair, pair], "with the job that they had"
        async with asyncio.TaskGroup() as deletions:
            for each in ("runs", "ring-0", "ring-1"):
                deletions.create_task(team.kube.delete(PODS, each, team.namespace, grace_seconds=0))
        await team.until_gone("runs", "ring-0", "ring-1")
        for job_id in (runs, ring):
            await team.until_job(job_id, JobState.CANCELLED)
        assert {(await team.slurm.jobs.get(job_id)).state for job_id in (waits, pair, *singles)} == {JobState.RUNNING}
        assert (await team.slurm.jobs.get(foreign[0])).is_pending
        assert (await team.kube.get(NODES, nodes[0])).metadata.name == nodes[0]
        await team.slurm.jobs.cancel_many(foreign)
