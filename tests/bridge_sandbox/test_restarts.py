"""The bridge stopped, killed and started again, and Slurm too: what runs runs on, what waits goes on, nothing is submitted twice or left behind."""

import hashlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from slinky.bridge.keys import FINALIZER
from slinky.kube import NODES, PODS, PatchKind
from slinky.sandbox.bridge import SandboxBridge, free_port, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kubernetes import kwok_nodes
from slinky.sandbox.slurm import external_node
from slinky.slurm import JobState, expand
from tests.bridge_sandbox.conftest import Team, open_team
from tests.bridge_sandbox.sets import FOR_EVER, fail, job_id, jobset, replicated, until_anew, until_bound
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox

_numbers = itertools.count()


@pytest.fixture
async def own(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> AsyncIterator[tuple[SandboxBridge, Team]]:
    """A bridge of the test's own, to be stopped and started, and a team of its."""
    name = f"own{next(_numbers)}"
    selector = {"matchLabels": {"bridge": name}}
    async with (
        sandbox_bridge(sandbox, tmp_path, name=name, managedNamespaceSelector=selector, status={"seconds": 1, "rate": 50}) as bridge,
        open_team(sandbox, partition, label=name) as team,
    ):
        yield bridge, team


async def jobs_of(team: Team) -> list[int]:
    told = await team.head("squeue", "-h", "-p", team.partition.name, "-t", "all", "-o", "%i")
    return sorted(map(int, told.split()))


async def test_a_bridge_that_is_killed_leaves_nothing_undone_and_does_nothing_twice(own: tuple[SandboxBridge, Team]) -> None:
    bridge, team = own
    await team.create(team.pod("runs"), team.pod("cancelled"), team.pod("ends", run_for="3s"), team.pod("held", said={"priority": "0"}))
    await team.until_running("runs", "cancelled", "ends")
    [runs, cancelled, ends, held] = await team.until_labelled("runs", "cancelled", "ends", "held")
    assert await bridge.stop("run", signal.SIGKILL) == -signal.SIGKILL

    # While it is down: the webhook still takes pods in, Slurm and the default scheduler do their work, and one pod's owner loses patience.
    await team.create(team.pod("new"))
    await team.head("scancel", str(cancelled))
    other = team.pod("other") | {"metadata": {"name": "other", "namespace": "default"}}
    other["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": "kwok-47"}}
    await team.kube.create(PODS.untyped, other, "default")

    async def other_runs() -> bool:
        return (await team.kube.get(PODS, "other", "default")).status.phase == "Running"

    await team.until("a pod of the default scheduler ran", other_runs)
    await team.kube.delete(PODS, "other", "default")
    in_another = (await team.head("sbatch", "--parsable", "-p", "compute", "--hold", "--wrap", "true")).split(";")[0]

    async def over() -> bool:
        return (await team.get("ends")).status.phase == "Succeeded"

    await team.until("a pod ended", over)
    assert (await team.get("cancelled")).metadata.deletion_timestamp is None

    await bridge.start("run")
    await team.until_running("new")
    await team.until_gone("cancelled")
    await team.until_job(ends, JobState.COMPLETED)
    assert await team.until_labelled("runs", "held") == [runs, held]
    assert (await team.get("runs")).status.phase == "Running"
    assert (await team.slurm.jobs.get(held)).is_pending
    assert len(await jobs_of(team)) == 5
    assert (await team.slurm.jobs.get(int(in_another))).is_pending
    await team.head("scancel", in_another)


@pytest.mark.long
async def test_a_job_whose_pod_vanished_while_the_bridge_was_down_is_ended(own: tuple[SandboxBridge, Team]) -> None:
    bridge, team = own
    await team.create(team.pod("p"), team.pod("stays"))
    await team.until_running("p", "stays")
    [job_id, other] = await team.until_labelled("p", "stays")
    foreign = await team.head("sbatch", "--parsable", "-p", "compute", "--hold", "--comment", "slinky", "--wrap", "true")
    assert await bridge.stop("run") == 0
    patch = [{"op": "remove", "path": "/metadata/finalizers"}]
    await team.kube.patch(PODS, "p", patch, team.namespace, kind=PatchKind.JSON)
    await team.kube.delete(PODS, "p", team.namespace, grace_seconds=0)
    await team.until_gone("p")
    await bridge.start("run")
    await team.until_job(job_id, JobState.CANCELLED)
    assert (await team.slurm.jobs.get(other)).is_running
    assert (await team.slurm.jobs.get(int(foreign))).is_pending
    await team.head("scancel", foreign)


@pytest.mark.long
async def test_what_an_administrator_says_about_where_a_job_may_go_outlives_the_bridge(own: tuple[SandboxBridge, Team]) -> None:
    bridge, team = own
    label, nodes = f"ssd-{team.namespace}", team.partition.nodes
    for node in nodes[:2]:
        await team.kube.patch(NODES, node, {"metadata": {"labels": {label: "yes"}}})
    pod = team.pod("p", said={"priority": "0"})
    pod["spec"]["nodeSelector"] = {label: "yes"}
    await team.create(pod)
    [job_id] = await team.until_labelled("p")

    async def left_out() -> set[str]:
        return set(expand((await team.slurm.jobs.get(job_id)).excluded_nodes))

    assert await left_out() == {*nodes[2:]}
    await team.head("scontrol", "update", f"jobid={job_id}", f"ExcNodeList={','.join([*nodes[2:], nodes[0]])}")
    await bridge.stop("run", signal.SIGKILL)
    await bridge.start("run")
    await team.kube.patch(NODES, nodes[2], {"metadata": {"labels": {label: "yes"}}})

    async def told() -> bool:
        return await left_out() == {nodes[0], nodes[3]}

    await team.until("the job was told of the node that will do now, and of no other", told)
    for node in nodes[:3]:
        await team.kube.patch(NODES, node, {"metadata": {"labels": {label: None}}})


@asynccontextmanager
async def cloud_nodes(team: Team, names: Sequence[str]) -> AsyncIterator[None]:
    """Nodes on both sides, in the team's partition, for the time of a test. Slurm knows no GPUs there."""
    shape = team.sandbox.record.shape
    template = next(iter(kwok_nodes(shape)))
    parts = (f"PartitionName={team.partition.name}", f"Nodes={','.join((*team.partition.nodes, *names))}")
    plain = msgspec.structs.replace(external_node("", "127.0.0.1", shape), gres=[])
    try:
        for name in names:
            labels = template["metadata"]["labels"] | {"kubernetes.io/hostname": name}
            await team.kube.raw(
                "POST", "/api/v1/nodes", body=template | {"metadata": template["metadata"] | {"name": name, "labels": labels}}
            )
            await team.slurm.nodes.create(msgspec.structs.replace(plain, name=name))
        await team.head("scontrol", "update", *parts)
        yield
    finally:
        await team.delete_all()
        await team.head("scancel", f"--partition={team.partition.name}")
        await team.head("scontrol", "update", parts[0], f"Nodes={','.join(team.partition.nodes)}")
        for name in names:
            await team.kube.delete(NODES, name)
        await team.slurm.nodes.delete(names)


@pytest.mark.long
async def test_exclusions_that_are_too_many_for_a_comment_go_with_their_cause_and_an_administrators_stay(
    own: tuple[SandboxBridge, Team],
) -> None:
    """A pod may use two nodes only, and the bridge is killed; then the others may be used too. Jobs that ask for GPUs name none of the new nodes at all."""
    bridge, team = own
    label, nodes = f"pool-{team.namespace}", team.partition.nodes
    names = [f"gke-{hashlib.sha256(f'{team.namespace}{number}'.encode()).hexdigest()[:24]}-x" for number in range(150)]

    async def say(node: str, value: str | None) -> None:
        await team.kube.patch(NODES, node, {"metadata": {"labels": {label: value}}})

    async with cloud_nodes(team, names):
        for node in nodes:
            await say(node, "yes")
        pod = team.pod("p", said={"priority": "0"})
        pod["spec"] |= {"nodeSelector": {label: "yes"}, "tolerations": [{"operator": "Exists"}]}
        gpus = team.pod("gpus", gpus=1, said={"priority": "0"})
        gpus["spec"] |= {"nodeSelector": {label: "yes"}, "tolerations": [{"operator": "Exists"}]}
        await team.create(pod, gpus)
        [job_id, with_gpus] = await team.until_labelled("p", "gpus")

        async def left_out() -> set[str]:
            return set(expand((await team.slurm.jobs.get(job_id)).excluded_nodes))

        assert await left_out() == {*names}
        assert (await team.slurm.jobs.get(with_gpus)).excluded_nodes == ""
        await team.head("scontrol", "update", f"jobid={job_id}", f"ExcNodeList={','.join([*names, nodes[0]])}")
        await bridge.stop("run", signal.SIGKILL)
        await bridge.start("run")
        for name in names:
            await say(name, "yes")

        async def told() -> bool:
            return await left_out() == {nodes[0]}

        await team.until("the job was told that all may be used, but the one that the administrator left out", told)
        for node in nodes:
            await say(node, None)


async def test_a_second_one_takes_over_from_a_leader_that_is_killed(
    own: tuple[SandboxBridge, Team], sandbox: Sandbox, tmp_path: Path
) -> None:
    bridge, team = own
    settings = bridge.settings | {"healthPort": free_port()}
    second = SandboxBridge(sandbox, settings, tmp_path / "second")
    await second.start("run")
    try:
        await team.create(team.pod("first"))
        await team.until_running("first")
        assert "is Slurm job" not in second.log("run")
        await bridge.stop("run", signal.SIGKILL)
        await team.create(team.pod("second"))
        await team.until_running("second")
        assert "is Slurm job" in second.log("run")
        assert len(await jobs_of(team)) == 2
    finally:
        await second.stop("run")
        await bridge.start("run")  # for the fixture, which cleans up with its help


async def test_a_leader_that_was_stopped_for_long_does_nothing_when_it_goes_on(
    own: tuple[SandboxBridge, Team], sandbox: Sandbox, tmp_path: Path
) -> None:
    bridge, team = own

    async def leads() -> bool:
        return "leadership: leading:" in bridge.log("run")

    await team.until("the first one led", leads)
    os.kill(bridge.pid("run"), signal.SIGSTOP)
    settings = bridge.settings | {"healthPort": free_port()}
    second = SandboxBridge(sandbox, settings, tmp_path / "second")
    try:
        await second.start("run")
        await team.create(team.pod("p"))
        await team.until_running("p")
        os.kill(bridge.pid("run"), signal.SIGCONT)

        async def stepped_down() -> bool:
            return "this one waits" in bridge.log("run")

        await team.until("the first one noticed", stepped_down)
        await team.create(team.pod("q"))
        await team.until_running("q")
        assert "is Slurm job" not in bridge.log("run")
        assert len(await jobs_of(team)) == 2
    finally:
        os.kill(bridge.pid("run"), signal.SIGCONT)
        await second.stop("run")

    async def leads_again() -> bool:
        return bridge.log("run").count("leadership: leading:") == 2

    await team.until("the first one led again", leads_again)


@pytest.mark.long
@pytest.mark.parametrize("part", ["slurmctld", "slurmrestd"])
async def test_slurm_restarted_in_the_middle(own: tuple[SandboxBridge, Team], sandbox: Sandbox, part: str) -> None:
    bridge, team = own
    await team.create(team.pod("runs"), team.pod("held", said={"priority": "0"}))
    await team.until_running("runs")
    before = await team.until_labelled("runs", "held")
    stopped = await sandbox.stop(part)
    await team.create(team.pod("new"))
    await sandbox.link.start(stopped)
    await team.until_running("new")
    assert await team.until_labelled("runs", "held") == before
    assert (await team.get("runs")).status.phase == "Running"
    assert FINALIZER in (await team.get("runs")).metadata.finalizers
    await team.kube.delete(PODS, "runs", team.namespace)
    await team.until_gone("runs")
    await team.until_job(before[0], JobState.CANCELLED)
    assert "Traceback" not in bridge.log("run")


@pytest.mark.long
async def test_a_gang_that_is_made_anew_while_the_bridge_is_down_keeps_its_allocation(own: tuple[SandboxBridge, Team]) -> None:
    """Its pods are held by their finalizers until the bridge is there again; then the JobSet can go on, in the job that it had."""
    bridge, team = own
    policy = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
    await team.create(jobset(team, "again", replicated(team, "w", 1, 2, run_for=FOR_EVER), failurePolicy=policy))
    before = await until_bound(team, "again-", 2)
    await bridge.stop("run", signal.SIGKILL)
    await fail(team, before[0])

    async def deleted() -> bool:
        return all([(await team.get(pod.metadata.name)).metadata.deletion_timestamp for pod in before])

    await team.until("the first pods were being deleted", deleted)
    await bridge.start("run")
    after = await until_anew(team, "again-", 2, {pod.metadata.uid for pod in before})
    assert job_id(after) == job_id(before)
    assert len(await jobs_of(team)) == 1


async def test_how_a_pod_of_a_gang_failed_is_known_after_a_restart_though_the_pod_is_gone(own: tuple[SandboxBridge, Team]) -> None:
    """Slurm keeps it with the job, which fails by it though all who are left end well."""
    bridge, team = own
    await team.create(
        {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "ring"}, "spec": {"minMember": 2}}
    )
    labels = {"scheduling.x-k8s.io/pod-group": "ring"}
    await team.create(*(team.pod(name, labels=labels) for name in ("a", "b")))
    await team.until_running("a", "b")
    job, _ = await team.until_labelled("a", "b")
    await fail(team, await team.get("a"), 3)

    async def let_go() -> bool:
        return FINALIZER not in (await team.get("a")).metadata.finalizers

    await team.until("it was let go", let_go)
    await bridge.stop("run", signal.SIGKILL)
    await team.kube.delete(PODS, "a", team.namespace, grace_seconds=0)
    await team.until_gone("a")
    await bridge.start("run")
    await fail(team, await team.get("b"), 0)
    ended = await team.until_job(job, JobState.FAILED)
    assert ended.exit_code is not None
    assert ended.exit_code.code == 3
