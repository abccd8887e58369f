"""Where pods may go, on the real servers: what Kubernetes refuses, Slurm is told beforehand; what it is told stays true while the job waits; and where both still disagree, the workload goes back into the queue."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slinky.bridge.keys import JOB_ID
from slinky.kube import EVENTS, NODES, PODS, Resource
from slinky.sandbox.bridge import SandboxBridge
from slinky.slurm import Job, JobState, expand
from tests.bridge_sandbox.conftest import Team

pytestmark = pytest.mark.sandbox

TAINT = {"key": "only", "value": "others", "effect": "NoSchedule"}


@asynccontextmanager
async def labelled(team: Team, labels: dict[str, dict[str, str]]) -> AsyncIterator[None]:
    """Nodes with these labels, for the time of a test."""
    for node, said in labels.items():
        await team.kube.patch(NODES, node, {"metadata": {"labels": said}})
    try:
        yield
    finally:
        for node, said in labels.items():
            await team.kube.patch(NODES, node, {"metadata": {"labels": dict.fromkeys(said)}})


@asynccontextmanager
async def tainted(team: Team, *nodes: str) -> AsyncIterator[None]:
    before = {node: (await team.kube.get(NODES.untyped, node)).get("spec", {}).get("taints") for node in nodes}
    for node in nodes:
        await team.kube.patch(NODES, node, {"spec": {"taints": [*(before[node] or ()), TAINT]}})
    try:
        yield
    finally:
        for node in nodes:
            await team.kube.patch(NODES, node, {"spec": {"taints": before[node]}})


def with_spec(pod: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return pod | {"spec": pod["spec"] | spec}


async def excluded(team: Team, name: str) -> set[str]:
    return set(expand((await team.job_of(name)).excluded_nodes or ""))


async def test_a_node_selector_is_told_to_slurm_as_nodes_to_leave_out(team: Team) -> None:
    good, *others = team.partition.nodes
    async with labelled(team, {good: {"disk": "ssd"}}):
        await team.create(with_spec(team.pod("p"), nodeSelector={"disk": "ssd"}))
        [pod] = await team.until_running("p")
        assert pod.spec.node_name == good
        assert await excluded(team, "p") == set(others)


async def test_a_mapped_label_is_told_as_a_constraint(team: Team, bridge: SandboxBridge) -> None:
    assert bridge
    *others, good = team.partition.nodes
    before = ",".join((await team.slurm.nodes.get(good)).features)
    await team.head("scontrol", "update", f"nodename={good}", f"availablefeatures={before},zone=z9", f"activefeatures={before},zone=z9")
    try:
        async with labelled(team, {good: {"example.com/zone": "z9"}}):
            await team.create(with_spec(team.pod("p"), nodeSelector={"example.com/zone": "z9"}))
            [pod] = await team.until_running("p")
            job = await team.job_of("p")
            assert (pod.spec.node_name, job.features, job.excluded_nodes) == (good, "zone=z9", "")
            assert others
    finally:
        await team.head("scontrol", "update", f"nodename={good}", f"availablefeatures={before}", f"activefeatures={before}")


async def test_taints_that_are_not_tolerated_keep_pods_away_and_tolerations_do_not(team: Team) -> None:
    free, *shut = team.partition.nodes
    async with tainted(team, *shut):
        tolerating = [{"key": "only", "operator": "Exists"}]
        await team.create_all([team.pod(f"p{n}") for n in range(3)])
        pods = await team.until_running("p0", "p1", "p2")
        assert {pod.spec.node_name for pod in pods} == {free}
        await team.create(with_spec(team.pod("t", said={"exclusive": "true"}), tolerations=tolerating))
        [pod] = await team.until_running("t")
        assert pod.spec.node_name in shut


async def test_what_no_node_will_take_waits_with_the_reason_and_goes_when_one_will(team: Team) -> None:
    await team.create(with_spec(team.pod("p"), nodeSelector={"color": "mauve"}))
    message = await team.until_condition("p", "Parked")
    assert "color" in message
    scheduled = (await team.get("p")).condition("PodScheduled")
    assert scheduled
    assert scheduled.reason == "Unschedulable"
    async with labelled(team, {team.partition.nodes[2]: {"color": "mauve"}}):
        [pod] = await team.until_running("p")
        assert pod.spec.node_name == team.partition.nodes[2]


async def test_a_job_that_waits_is_told_when_nodes_change(team: Team) -> None:
    """It waits behind a pod that has the only node it may use; then another node gets the label."""
    first, second, *_ = team.partition.nodes
    async with labelled(team, {first: {"disk": "ssd"}}):
        await team.create(with_spec(team.pod("has", said={"exclusive": "true"}), nodeSelector={"disk": "ssd"}))
        await team.until_running("has")
        await team.create(with_spec(team.pod("waits"), nodeSelector={"disk": "ssd"}))
        [job_id] = await team.until_labelled("waits")
        assert second in await excluded(team, "waits")
        async with labelled(team, {second: {"disk": "ssd"}}):
            [pod] = await team.until_running("waits")
            assert pod.spec.node_name == second
            assert pod.metadata.labels[JOB_ID] == str(job_id)


async def let_start(team: Team, *, yes: bool) -> None:
    """While the partition is down, jobs wait."""
    await team.head("scontrol", "update", f"partitionname={team.partition.name}", f"state={'up' if yes else 'down'}")


async def test_a_node_that_turns_out_wrong_at_binding_sends_the_pod_back_into_the_queue_with_its_age(team: Team) -> None:
    """Host ports of pods that Slurm knows nothing of: taken after the job was submitted, and before it starts. Where the bridge was quick enough to tell Slurm of them, once more."""
    for number in range(5):
        name = f"waits{number}"
        first, before = await contradicted(team, name)
        now = await team.job_of(name)
        if now.job_id != first:
            break
        await team.delete_all()
        await team.until_gone(name, *(f"{name}-foreign-{node}" for node in team.partition.nodes[:3]))
    assert now.job_id != first
    assert isinstance(now.priority, int)
    assert isinstance(before.priority, int)
    assert now.priority >= before.priority > 700
    assert (await team.slurm.jobs.get(first)).state is JobState.CANCELLED
    await until_event(team, name, "Requeued")


async def contradicted(team: Team, name: str) -> tuple[int, Job]:
    """A pod's first job, as it waited, and the pod on the only node that is left for it."""
    await let_start(team, yes=False)
    await team.create(with_port(team.pod(name), 7001))
    [first] = await team.until_labelled(name)
    await team.head("scontrol", "update", f"jobid={first}", "nice=-700")
    before = await team.slurm.jobs.get(first)
    for node in team.partition.nodes[:3]:
        foreign = with_port(team.pod(f"{name}-foreign-{node}"), 7001)
        await team.create(with_spec(foreign, nodeName=node, schedulerName="somebody-else"))
    await let_start(team, yes=True)
    [pod] = await team.until_running(name)
    assert pod.spec.node_name == team.partition.nodes[3]
    return first, before


async def until_event(team: Team, name: str, reason: str) -> None:
    async def told() -> bool:
        events = (await team.kube.list(EVENTS, team.namespace)).items
        return any(event.reason == reason and event.regarding.name == name for event in events)

    await team.until(f"an Event told of {reason}", told)


async def test_pods_that_keep_apart_are_on_different_nodes(team: Team) -> None:
    apart = {"labelSelector": {"matchLabels": {"app": "spread"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    pods = [with_spec(team.pod(f"p{number}", labels={"app": "spread"}), affinity=affinity) for number in range(4)]
    await team.create_all(pods)
    found = await team.until_running(*(f"p{number}" for number in range(4)))
    assert {pod.spec.node_name for pod in found} == set(team.partition.nodes)
    await team.create(with_spec(team.pod("fifth", labels={"app": "spread"}), affinity=affinity))
    assert "anti-affinity" in await team.until_condition("fifth", "Parked")


def with_port(pod: dict[str, Any], port: int) -> dict[str, Any]:
    [container] = pod["spec"]["containers"]
    ports = [{"containerPort": port, "hostPort": port}]
    return with_spec(pod, containers=[container | {"ports": ports}])


async def test_a_node_that_is_full_of_somebody_elses_pods_is_left_out(team: Team) -> None:
    first = team.partition.nodes[0]
    await team.create(with_spec(team.pod("foreign", cpus=62), nodeName=first, schedulerName="somebody-else"))
    await team.create(team.pod("ours", cpus=4))
    [pod] = await team.until_running("ours")
    assert pod.spec.node_name != first
    assert await excluded(team, "ours") == {first}


@pytest.mark.long
async def test_a_node_that_fills_up_before_the_pod_is_bound_is_given_up_after_a_while(team: Team) -> None:
    """And where all are full of somebody else's pods, it waits in the bridge until one is not."""
    nodes = team.partition.nodes
    await let_start(team, yes=False)
    await team.create(team.pod("ours", cpus=4))
    await team.until_labelled("ours")
    for node in nodes:
        await team.create(with_spec(team.pod(f"foreign-{node}", cpus=62), nodeName=node, schedulerName="somebody-else"))
    await let_start(team, yes=True)
    await team.until_condition("ours", "NodeNotFree")
    assert "none of the 4 nodes" in await team.until_condition("ours", "Parked")
    await until_event(team, "ours", "Requeued")
    await team.kube.delete(PODS, f"foreign-{nodes[2]}", team.namespace, grace_seconds=0)
    [pod] = await team.until_running("ours")
    assert pod.spec.node_name == nodes[2]


def _grouped(team: Team, name: str, count: int, spec: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """A built-in PodGroup, and its pods."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": team.said()},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, **spec},
    }
    pods = [with_spec(team.pod(f"{name}-{rank}", **more), schedulingGroup={"podGroupName": name}) for rank in range(count)]
    return [group, *pods]


async def _condition(team: Team, name: str) -> dict[str, Any]:
    found = await team.kube.get(Resource("scheduling.k8s.io", "v1alpha2", "podgroups", dict), name, team.namespace)
    return next(iter(found.get("status", {}).get("conditions", [])), {})


async def test_a_gang_whose_group_has_a_topology_constraint_is_within_one_domain(team: Team) -> None:
    """Two racks of two nodes, and whole nodes: three pods would need both racks."""
    key, nodes = "example.com/zone", team.partition.nodes
    racks = {node: ("r1", "r2")[index // 2] for index, node in enumerate(nodes)}
    before = "bridge"
    constraint = {"schedulingConstraints": {"topology": [{"key": key}]}}
    for node, rack in racks.items():
        words = f"{before},zone={rack}"
        await team.head("scontrol", "update", f"nodename={node}", f"availablefeatures={words}", f"activefeatures={words}")
    try:
        async with labelled(team, {node: {key: rack} for node, rack in racks.items()}):
            await team.create(*_grouped(team, "two", 2, constraint, gpus=8))
            pods = await team.until_running("two-0", "two-1")
            assert len({racks[pod.spec.node_name] for pod in pods}) == 1
            assert len({pod.spec.node_name for pod in pods}) == 2

            async def scheduled() -> bool:
                return (await _condition(team, "two")).get("status") == "True"

            await team.until("the group said that it is scheduled", scheduled)
            await team.delete_all()
            await team.until_gone("two-0", "two-1")
            await team.create(*_grouped(team, "three", 3, constraint, gpus=8))  # which never fit into a rack of two

            async def told() -> bool:
                return (await _condition(team, "three")).get("status") == "False"

            await team.until("the group of three said that it is not scheduled", told)
            assert not any(pod.spec.node_name for pod in await team.pods())
    finally:
        for node in nodes:
            await team.head("scontrol", "update", f"nodename={node}", f"availablefeatures={before}", f"activefeatures={before}")


async def test_a_group_that_asks_for_what_the_bridge_cannot_do_does_not_start_and_says_which_field(team: Team) -> None:
    unmapped = {"schedulingConstraints": {"topology": [{"key": "example.com/row"}]}}
    basic = {"schedulingPolicy": {"basic": {}}, "disruptionMode": "PodGroup"}
    await team.create(*_grouped(team, "row", 2, unmapped), *_grouped(team, "alone", 1, basic))
    assert "example.com/row" in await team.until_condition("row-0", "Parked")
    assert "spec.disruptionMode needs the policy gang" in await team.until_condition("alone-0", "Parked")

    async def told() -> bool:
        conditions = [await _condition(team, name) for name in ("row", "alone")]
        return [each.get("status") for each in conditions] == ["False", "False"] and "spec.disruptionMode" in conditions[1]["message"]

    await team.until("both groups said why", told)
    assert not any(pod.spec.node_name for pod in await team.pods())
