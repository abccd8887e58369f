"""Hybrid nodes: a slurmd beside the kubelet, on two real machines of the sandbox. Pods and Slurm's own jobs share them by Slurm's accounting, and the next begins when the last one is gone, whichever side either is of."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest
import yaml

from slinky.bridge.keys import SETTINGS, SLURM_NODE, SLURM_NODE_NAME
from slinky.kube import NODES, PODS, Change, PatchKind, Pod, Reflector
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.prolog import install_prolog, set_limit
from slinky.sandbox.shape import Shape
from slinky.slurm import NodeDescription
from tests.bridge_sandbox.conftest import POLICY, Team, background_bridge, open_team
from tests.bridge_sandbox.history import History, script
from tests.conftest import CHECKOUT, Partition, Starter

pytestmark = pytest.mark.sandbox

COMPUTE = Partition("compute", ("node-0", "node-1"))


@pytest.fixture(scope="module")
def hybrid(start_sandbox: Starter) -> Sandbox:
    """As docs/bridge-hybrid.md says it is set up."""
    sandbox = start_sandbox("hybrid", Shape(nodes=0, real_nodes=2, slurmd=True))
    asyncio.run(install_prolog(sandbox))
    return sandbox


@pytest.fixture(scope="module")
def bridge(hybrid: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBridge]:
    settings: dict[str, Any] = {"managedNamespaceSelector": {"matchLabels": {"bridge": "on"}}, "partition": "compute"}
    with background_bridge(hybrid, tmp_path_factory.mktemp("bridge"), policy=POLICY, **settings) as found:
        yield found


@pytest.fixture
async def team(hybrid: Sandbox, bridge: SandboxBridge) -> AsyncIterator[Team]:
    assert bridge
    async with open_team(hybrid, COMPUTE) as found:
        yield found


def a_pod(name: str, cpus: int = 1, seconds: float = 600, *, node: str = "", grace: int = 60) -> dict[str, Any]:
    """It writes its history into a folder of the node's."""
    resources = {"cpu": str(cpus), "memory": "32Mi"}
    container = {
        "name": "c",
        "image": "sandbox/busybox:1",
        "command": ["sh", "-c", script(name, cpus, seconds, folder="/history")],
        "resources": {"requests": resources, "limits": {"memory": "32Mi"}},
        "volumeMounts": [{"name": "history", "mountPath": "/history"}],
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "containers": [container],
        "volumes": [{"name": "history", "hostPath": {"path": "/var/tmp"}}],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {SETTINGS + "timelimit": "30"}}, "spec": spec}


async def sbatch(team: Team, name: str, cpus: int = 1, seconds: float = 600, *, node: str = "") -> int:
    where = [f"--nodelist={node}"] if node else []
    what = ["--partition=compute", f"--cpus-per-task={cpus}", "--mem=32M", "--chdir=/", "--output=/dev/null", f"--job-name={name}"]
    return int(await team.head("sbatch", "--parsable", *what, *where, f"--wrap={script(name, cpus, seconds)}"))


async def salloc(team: Team, name: str, seconds: float) -> None:
    """One CPU of each node, for a step on both."""
    step = script(name, 1, seconds)
    what = ["--partition=compute", "--nodes=2", "--ntasks=2", "--cpus-per-task=1", "--mem=32M", "--quiet"]
    await team.head("salloc", *what, "srun", "--chdir=/", "--quiet", "sh", "-c", step)


def histories(team: Team) -> list[History]:
    return [History(team.sandbox, node) for node in COMPUTE.nodes]


async def until(team: Team, what: str, holds: Callable[[], bool], seconds: float = 90) -> None:
    async def look() -> bool:
        return holds()

    await team.until(what, look, seconds)


async def until_said(team: Team, words: str) -> None:
    """By the prolog on the first node."""
    log = team.sandbox.folder / "node-0/var/tmp/prolog.log"
    await until(team, f"the prolog said: {words}", lambda: log.exists() and words in log.read_text())


async def until_state(team: Team, job_id: int, *states: str) -> None:
    async def reached() -> bool:
        return (await team.head("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T")) in states

    await team.until(f"job {job_id} was {states[0]}", reached)


async def test_sbatch_salloc_and_pods_share_two_hybrid_nodes_and_nobody_gets_what_another_has(team: Team) -> None:
    """One pod stays on the first node all the time; the others come and go beside jobs and steps."""
    nodes = histories(team)
    await team.create(a_pod("pod-stays", node="node-0"))
    await until(team, "it had begun", lambda: nodes[0].began("pod-stays") is not None)

    async def queue(number: int) -> None:
        await team.create(a_pod(f"pod-{number}", seconds=1.5))
        await sbatch(team, f"batch-{number}", seconds=1.5)

    beside = sbatch(team, "batch-beside", seconds=1.5, node="node-0")
    await asyncio.gather(beside, *map(queue, range(4)), salloc(team, "step", 1.5))
    everyone = 1 + 4 + 4 + 2
    await until(team, "all had ended", lambda: sum(line.sign == "-" for node in nodes for line in node.lines()) == everyone)
    assert max(node.most_at_once() for node in nodes) == 2  # all of a node's CPUs, and none twice
    assert nodes[0].together("pod-stays", "step")
    assert nodes[0].together("pod-stays", "batch-beside")
    assert nodes[0].ended("pod-stays") is None


async def test_a_job_of_slurms_own_begins_when_the_containers_of_the_last_pod_are_gone(team: Team, hybrid: Sandbox) -> None:
    """The pod is told to end, and takes its time; Slurm has given its CPUs to the next job long before. A pod of another scheduler's, and one whose job runs, keep nobody waiting."""
    node = History(hybrid, "node-0")
    stranger = a_pod("stranger") | {"metadata": {"name": "stranger", "namespace": "default"}}
    stranger["spec"] |= {"nodeName": "node-0", "containers": [stranger["spec"]["containers"][0] | {"resources": {}}]}
    await team.kube.raw("POST", "/api/v1/namespaces/default/pods", body=stranger)
    await team.create(a_pod("slow", node="node-0"), a_pod("beside", node="node-0"))
    await team.until_running("slow", "beside")
    await until(team, "both had begun", lambda: node.began("slow") is not None and node.began("beside") is not None)
    job_id = (await team.job_of("slow")).job_id
    next_job = await sbatch(team, "after-slow", node="node-0")
    await team.head("scancel", str(job_id))
    await until_state(team, next_job, "CONFIGURING", "RUNNING")
    await until_said(team, f"job {next_job} waits on node-0 for {team.namespace}/slow")
    assert node.ended("slow") is None  # Slurm has given the CPU away, and the container runs
    assert node.began("after-slow") is None
    node.let_end("slow")
    await until(team, "the next had begun", lambda: node.began("after-slow") is not None)
    ended, began = node.ended("slow"), node.began("after-slow")
    assert ended is not None
    assert began is not None
    assert began >= ended
    assert node.ended("beside") is None
    await team.head("scancel", str(next_job))
    await team.kube.raw("DELETE", "/api/v1/namespaces/default/pods/stranger", body={"gracePeriodSeconds": 0})


async def test_a_pod_begins_when_the_processes_of_the_last_job_are_gone(team: Team, hybrid: Sandbox) -> None:
    """Slurm holds the node until they are: the pod's job waits in the queue."""
    node = History(hybrid, "node-1")
    last = await sbatch(team, "last", cpus=2, node="node-1")
    await until(team, "the job had begun", lambda: node.began("last") is not None)
    await team.create(a_pod("after-last", cpus=2, seconds=1, node="node-1"))
    await team.until_labelled("after-last")
    await team.head("scancel", str(last))
    await until_state(team, last, "COMPLETING")
    assert (await team.job_of("after-last")).is_pending
    node.let_end("last")
    await until(team, "the pod had ended", lambda: node.ended("after-last") is not None)
    ended, began = node.ended("last"), node.began("after-last")
    assert ended is not None
    assert began is not None
    assert began >= ended


async def test_a_pod_begins_when_a_job_of_sbatch_has_succeeded(team: Team) -> None:
    """The pod of docs/guides/hybrid-nodes.md."""
    job = await sbatch(team, "simulation", seconds=600)
    text = (
        (CHECKOUT / "examples/guides/hybrid-nodes.yaml").read_text().replace("JOBID", str(job)).replace("busybox:1.36", "sandbox/busybox:1")
    )
    pod = yaml.safe_load(text)
    pod["metadata"]["namespace"] = team.namespace
    await team.create(pod)
    await team.until_condition("report", "Dependency")
    nodes = histories(team)
    await until(team, "the job had begun", lambda: any(node.began("simulation") is not None for node in nodes))
    next(node for node in nodes if node.began("simulation") is not None).let_end("simulation")

    async def over() -> bool:
        return (await team.get("report")).status.phase == "Succeeded"

    await team.until("the pod had succeeded", over)
    found = await team.get("report")
    assert found.spec.node_name in COMPUTE.nodes
    await team.until_accounted((await team.job_of("report")).job_id, f"{team.namespace}/report|COMPLETED|0:0|{found.spec.node_name}")


@pytest.mark.long
async def test_a_pods_last_word_is_why_slurm_ended_its_job_whatever_its_kubelet_writes_back(team: Team) -> None:
    """A kubelet's last status carries the conditions that it had seen: where that was before ours, ours is written again before the pod is let go."""
    names = [f"evicted-{index}" for index in range(3)]
    words: dict[str, list[str]] = {name: [] for name in names}

    def heard(change: Change[Pod]) -> None:
        said = change.new.condition("DisruptionTarget") if change.new else None
        if said and change.new and words[change.new.metadata.name][-1:] != [said.reason]:
            words[change.new.metadata.name].append(said.reason)

    async with Reflector(team.kube, PODS, namespace=team.namespace).running() as pods:
        await pods.wait_synced()
        pods.subscribe(heard)
        for attempt in range(5):
            for spoken in words.values():
                spoken.clear()
            await team.create(*(a_pod(name, grace=1 + attempt) for name in names))
            await team.until_running(*names)
            await team.head("scancel", *map(str, await team.until_labelled(*names)))
            await team.until_gone(*names)
            assert {name: spoken[-1:] for name, spoken in words.items()} == {name: ["SlurmCancelled"] for name in names}, words


@pytest.mark.long
async def test_at_the_limit_the_node_is_drained_with_a_reason_that_names_the_pod(team: Team, hybrid: Sandbox) -> None:
    node = History(hybrid, "node-0")
    await team.create(a_pod("stays", cpus=2, node="node-0"))
    await team.until_running("stays")
    await until(team, "it had begun", lambda: node.began("stays") is not None)
    job_id = (await team.job_of("stays")).job_id
    set_limit(hybrid, 2)
    try:
        next_job = await sbatch(team, "refused", cpus=2, node="node-0")
        await team.head("scancel", str(job_id))

        async def drained() -> bool:
            return "DRAIN" in await team.head("scontrol", "show", "node", "node-0")

        await team.until("the node was drained", drained)
        told = await team.head("scontrol", "show", "node", "node-0")
        assert f"slinky prolog: job {next_job} waited 2 s for {team.namespace}/stays (job {job_id} does not have the node any more" in told
        assert node.began("refused") is None
        await until_state(team, next_job, "PENDING")  # Slurm has it in its queue again
    finally:
        set_limit(hybrid, 300)
        node.let_end("stays")
    await team.until_gone("stays")
    await team.head("scancel", str(next_job))
    await team.head("scontrol", "update", "NodeName=node-0", "State=RESUME")


@pytest.mark.long
async def test_names_that_differ_are_brought_together_by_the_label(team: Team) -> None:
    """Each Node is labelled with the other's name in Slurm, for want of a node that has two."""
    await label(team, **{"node-0": "node-1", "node-1": "node-0"})
    try:
        await team.create(a_pod("crossed", seconds=1, node="node-0"))
        await team.until_running("crossed")
        pod = await team.get("crossed")
        assert (pod.spec.node_name, pod.metadata.annotations[SLURM_NODE]) == ("node-0", "node-1")
        job = await team.job_of("crossed")
        assert (job.nodes, job.excluded_nodes) == ("node-1", "node-0")
        await label(team, **{"node-0": "node-1", "node-1": "node-1"})
        await until_event(team, "node-0", "and so is node-1: no pod is bound to either of them until only one does")
        await label(team, **{"node-0": "nowhere", "node-1": "node-1"})
        await until_event(team, "node-0", "which Slurm does not have: no pod is sent here until it does")
        await team.create(a_pod("nowhere", seconds=1, node="node-0"))
        assert "none of the 2 nodes of partition compute will do" in await team.until_condition("nowhere", "Parked")
    finally:
        await label(team, **{"node-0": None, "node-1": None})
    await team.until_running("nowhere")


async def label(team: Team, **names: str | None) -> None:
    for node, name in names.items():
        await team.kube.patch(NODES, node, {"metadata": {"labels": {SLURM_NODE_NAME: name}}}, kind=PatchKind.MERGE)


async def until_event(team: Team, node: str, note: str) -> None:
    async def said() -> bool:
        found: Any = msgspec.json.decode(await team.kube.raw("GET", "/apis/events.k8s.io/v1/events"))
        return any(event["regarding"].get("name") == node and note in event.get("note", "") for event in found["items"])

    await team.until(f"an Event on {node} said so", said)


async def test_a_node_of_slurms_that_is_none_of_kubernetes_is_kept_out_of_pods_jobs(team: Team) -> None:
    address = team.sandbox.record.addresses.head
    await team.slurm.nodes.create(NodeDescription(name="stranger", address=address, cpus=8, real_memory=1000, features=["compute"]))
    try:
        await label(team, **{"node-0": ""})  # its own name, as before; but what is known of Slurm's nodes is read anew
        await team.create(a_pod("kept", seconds=1))
        await team.until_running("kept")
        assert (await team.job_of("kept")).excluded_nodes == "stranger"
    finally:
        await label(team, **{"node-0": None})
        await team.slurm.nodes.delete("stranger")


async def test_the_nodes_are_as_the_site_made_them(team: Team) -> None:
    """Last: the bridge has registered, changed and removed nothing."""
    told = {node.name: node for node in await team.slurm.nodes.all()}
    assert sorted(told) == list(COMPUTE.nodes)
    assert all(not node.is_external and node.features == ["compute"] and not node.extra and not node.reason for node in told.values())
