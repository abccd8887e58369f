"""The states of nodes on both sides, on the real servers: people cordon and drain, nodes become not ready and come back, Slurm comes back empty."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest

from slinky.bridge.keys import CORDONED_FOR_SLURM, EXTERNAL_NODE, JOB_ID, MANAGED_NODE, NODE_CONDITION, OVERRULED, SLURM_NODE_NAME
from slinky.bridge.node_mirror import MirrorSnapshot, plan_mirror
from slinky.bridge.node_standing import NodeStandings
from slinky.bridge.node_writer import NodeWriter
from slinky.kube import NAMESPACES, NODES, PODS, Client, EventRecorder, Pod, Reflector, from_kubeconfig
from slinky.kube import Node as KubeNode
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.errors import PartSlowError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import JobDescription, Node, NodeDescription, SlurmClient
from tests.bridge_sandbox.conftest import background_bridge
from tests.bridge_sandbox.node_site import NodeSite
from tests.conftest import Starter

pytestmark = pytest.mark.sandbox

NUMBER = 30
SETTINGS: dict[str, Any] = {
    "managedNamespaces": ["lab"],
    "nodes": {
        "register": True,
        "settleSeconds": 1,
        "notReadySeconds": 2,
        "flapChanges": 4,
        "flapSeconds": 6,
        "featureLabels": {"kubernetes.io/hostname": "name"},
    },
}
_numbers = itertools.count(1)
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}


@pytest.fixture(scope="module")
def place(start_sandbox: Starter) -> Sandbox:
    return start_sandbox("states", Shape(nodes=NUMBER, register=False))


class Site(NodeSite):
    """Both sides, and a bridge as an admin runs it."""

    def __init__(self, sandbox: Sandbox, kube: Client, slurm: SlurmClient, bridge: SandboxBridge) -> None:
        super().__init__(sandbox, kube, slurm)
        self.bridge = bridge

    async def join(self, *names: str, **labels: str) -> None:
        """Registered, idle and tainted."""
        for name in names:
            await self.kube.patch(NODES, name, {"metadata": {"labels": {EXTERNAL_NODE: "", **labels}}})
        for name in names:
            await self.until_slurm(name, lambda found: found.takes_jobs, "in use")
            await self.until_node(name, lambda node: bool(taints(node)), "tainted")

    async def cordon(self, name: str, cordoned: bool = True) -> None:
        await self.kube.patch(NODES, name, {"spec": {"unschedulable": cordoned or None}})

    async def ready(self, name: str, ready: bool) -> None:
        """kwok, which would make it ready again at once, looks after it no more."""
        now = "2026-01-01T00:00:00Z" if ready else "2026-01-01T00:00:01Z"
        condition = READY | {"status": "True" if ready else "False", "lastHeartbeatTime": now, "lastTransitionTime": now}
        await self.kube.patch(NODES, name, {"metadata": {"labels": {"type": "by-hand"}}})
        patch = {"status": {"conditions": [condition]}}
        await self.kube.raw("PATCH", f"/api/v1/nodes/{name}/status", body=patch, content_type="application/strategic-merge-patch+json")

    async def scontrol(self, name: str, state: str, reason: str = "") -> None:
        words = [f"NodeName={name}", f"State={state}", *([f"Reason={reason}"] if reason else [])]
        await self.sandbox.link.run("head", "scontrol", "update", *words)

    async def pod(self, name: str, node: str = "", **spec: Any) -> None:
        """On that node, which alone has the feature of its name."""
        annotations = {"slurmjob.slinky.slurm.net/constraints": f"name={node}"} if node else {}
        amounts = {"cpu": "1", "memory": "64Mi"}
        box = {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [box], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec},
        }
        await self.kube.create(PODS.untyped, body, "lab")

    async def bare_job(self, node: str) -> int:
        """One without a pod, running on that node."""
        description = JobDescription(name="j", tasks=1, memory_per_node=16, partition="bridge", constraints=f"name={node}")
        job = (await self.slurm.jobs.submit_external(description)).job_id

        async def runs() -> bool:
            return (await self.slurm.jobs.get(job)).is_running

        await self.until(f"job {job} ran", runs)
        return job

    async def until_runs(self, name: str) -> Pod:
        async def runs() -> bool:
            return (await self.kube.get(PODS, name, "lab")).status.phase == "Running"

        try:
            await self.until(f"pod {name} ran", runs)
        except PartSlowError:
            pytest.fail(f"pod {name} did not run; its conditions: {(await self.kube.get(PODS, name, 'lab')).status.conditions}")
        return await self.kube.get(PODS, name, "lab")

    async def job_of(self, name: str) -> int:
        return int((await self.kube.get(PODS, name, "lab")).metadata.labels[JOB_ID])

    async def looked(self) -> None:
        """By now the bridge has had the time to do what it should not: what was done to another node after it has been seen."""
        name = "kwok-00"
        node = await self.kube.get(NODES, name)
        if EXTERNAL_NODE not in node.metadata.labels:
            await self.join(name)
        was = node.spec.unschedulable
        await self.cordon(name, not was)
        await self.until_slurm(name, lambda found: ("DRAIN" in found.states) is not was, "as its Node")


def taints(node: KubeNode, effect: str = "NoSchedule") -> list[str]:
    return [taint.value for taint in node.spec.taints if (taint.key, taint.effect) == (MANAGED_NODE, effect)]


def drained_for(reason: str) -> Callable[[Node], bool]:
    return lambda found: "DRAIN" in found.states and found.reason.startswith(f"slurm-bridge: {reason}")


def condition(node: KubeNode) -> tuple[str, str]:
    found = node.condition(NODE_CONDITION)
    return (found.status, found.reason) if found else ("", "")


@pytest.fixture(scope="module")
def bridge(place: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBridge]:
    with background_bridge(place, tmp_path_factory.mktemp("states"), **SETTINGS) as found:
        yield found
        assert "Traceback" not in found.log("run")


@pytest.fixture
async def site(place: Sandbox, bridge: SandboxBridge) -> AsyncIterator[Site]:
    async with Client(from_kubeconfig(place.kubeconfig)) as kube, place.slurm_client() as slurm:
        if not any(found.metadata.name == "lab" for found in (await kube.list(NAMESPACES)).items):
            await kube.create(NAMESPACES.untyped, {"metadata": {"name": "lab"}})
        yield Site(place, kube, slurm, bridge)


@pytest.fixture
def names() -> Callable[[int], list[str]]:
    """Nodes of the test's own."""
    return lambda number: [f"kwok-{next(_numbers):02}" for _ in range(number)]


Names = Callable[[int], list[str]]


async def test_a_cordoned_node_is_drained_under_its_pods_and_resumed_when_it_is_uncordoned(site: Site, names: Names) -> None:
    (node,) = names(1)
    await site.join(node)
    await site.pod("stays", node)
    await site.until_runs("stays")
    await site.cordon(node)
    found = await site.until_slurm(node, drained_for("cordoned"), "drained")
    assert found.is_draining, "its pod runs on"
    await site.cordon(node, False)
    await site.until_slurm(node, lambda found: found.takes_jobs, "in use")
    assert (await site.slurm.jobs.get(await site.job_of("stays"))).is_running
    assert condition(await site.kube.get(NODES, node)) == ("", ""), "what the Node says itself is not said again"


async def test_a_node_that_slurm_drains_puts_down_or_fails_is_cordoned_with_the_reason_until_slurm_uses_it_again(
    site: Site, names: Names
) -> None:
    drained, down, failed = names(3)
    await site.join(drained, down, failed)
    for node, state in ((drained, "DRAIN"), (down, "DOWN"), (failed, "FAIL")):
        await site.scontrol(node, state, f"broken-{state}")
    for node, state, word in ((drained, "DRAIN", "Drained"), (down, "DOWN", "Down"), (failed, "FAIL", "Failed")):
        shown = await site.until_node(node, lambda node: node.spec.unschedulable and condition(node)[0] == "False", "cordoned")
        assert condition(shown) == ("False", word)
        told = shown.condition(NODE_CONDITION)
        assert told and f"broken-{state}" in told.message and f"broken-{state}" in shown.metadata.annotations[CORDONED_FOR_SLURM]
        assert f"broken-{state}" in (await site.slurm.nodes.get(node)).reason, "the cordon drains nothing"
    await site.scontrol(drained, "DRAIN", "another-reason")
    await site.until_node(drained, lambda node: "another-reason" in node.metadata.annotations[CORDONED_FOR_SLURM], "told the new reason")
    for node in (drained, down, failed):
        await site.scontrol(node, "RESUME")
    for node in (drained, down, failed):
        shown = await site.until_node(node, lambda node: not node.spec.unschedulable and condition(node) == ("True", "InUse"), "uncordoned")
        assert CORDONED_FOR_SLURM not in shown.metadata.annotations


async def test_who_uncordons_or_resumes_what_the_bridge_did_has_the_last_word(site: Site, names: Names) -> None:
    uncordoned, resumed = names(2)
    await site.join(uncordoned, resumed)
    await site.scontrol(uncordoned, "DRAIN", "fan")
    await site.cordon(resumed)
    await site.until_node(uncordoned, lambda node: CORDONED_FOR_SLURM in node.metadata.annotations, "cordoned")
    await site.until_slurm(resumed, drained_for("cordoned"), "drained")
    await site.looked()
    await site.cordon(uncordoned, False)
    await site.scontrol(resumed, "RESUME")
    await site.until_node(uncordoned, lambda node: node.metadata.annotations.get(OVERRULED) == "uncordoned", "left uncordoned")
    await site.until_node(resumed, lambda node: node.metadata.annotations.get(OVERRULED) == "resumed", "left resumed")
    await site.looked()
    assert not (await site.kube.get(NODES, uncordoned)).spec.unschedulable
    assert (await site.slurm.nodes.get(uncordoned)).reason == "fan", "and an uncordon resumes nothing in Slurm"
    assert (await site.slurm.nodes.get(resumed)).takes_jobs
    assert (await site.kube.get(NODES, resumed)).spec.unschedulable
    # Once what it was for is over, it begins anew.
    await site.cordon(uncordoned)
    await site.scontrol(uncordoned, "RESUME")
    await site.cordon(resumed, False)
    await site.until_node(resumed, lambda node: OVERRULED not in node.metadata.annotations, "nobody's word any more")
    await site.until_slurm(uncordoned, drained_for("cordoned"), "drained for the cordon that somebody made")
    assert (await site.kube.get(NODES, uncordoned)).spec.unschedulable, "that cordon is not the bridge's to undo"
    await site.cordon(resumed)
    await site.until_slurm(resumed, drained_for("cordoned"), "drained")


async def test_a_drain_by_somebody_else_survives_a_cordon_and_its_end(site: Site, names: Names) -> None:
    (node,) = names(1)
    await site.join(node)
    await site.cordon(node)
    await site.until_slurm(node, drained_for("cordoned"), "drained")
    await site.scontrol(node, "DRAIN", "fan")
    await site.cordon(node, False)
    await site.until_node(node, lambda node: condition(node) == ("False", "Drained"), "told of it")
    assert (await site.slurm.nodes.get(node)).reason == "fan"


async def test_a_node_that_is_not_ready_is_drained_its_jobs_run_on_and_it_is_resumed_when_it_is_back(site: Site, names: Names) -> None:
    (node,) = names(1)
    await site.join(node)
    await site.pod("sits-it-out", node)
    await site.until_runs("sits-it-out")
    await site.ready(node, False)
    found = await site.until_slurm(node, drained_for("not ready"), "drained")
    assert not found.is_down
    assert (await site.slurm.jobs.get(await site.job_of("sits-it-out"))).is_running
    await site.ready(node, True)
    await site.until_slurm(node, lambda found: found.takes_jobs, "in use")
    assert not (await site.kube.get(NODES, node)).spec.unschedulable, "a drain of the bridge's own cordons nothing"


async def test_a_node_that_is_not_ready_is_put_down_when_the_pods_of_its_jobs_are_gone(site: Site, names: Names) -> None:
    (node,) = names(1)
    await site.join(node)
    job = await site.bare_job(node)
    await site.ready(node, False)
    await site.until_slurm(node, drained_for("not ready"), "drained")
    found = await site.until_slurm(node, lambda found: found.is_down, "down")
    assert found.reason.startswith("slurm-bridge: gone")
    assert not (await site.slurm.jobs.get(job)).is_running
    await site.ready(node, True)
    await site.until_slurm(node, lambda found: found.takes_jobs, "in use")


async def test_a_flapping_node_stays_drained_until_it_is_calm(site: Site, names: Names) -> None:
    (node,) = names(1)
    await site.join(node)
    for _ in range(2):
        await site.ready(node, False)
        await site.ready(node, True)
    await site.until_slurm(node, drained_for("flapping"), "drained")
    assert "by turns" in await site.until_said(node, "DrainedInSlurm")
    await site.until_node(node, lambda node: condition(node) == ("False", "Drained"), "told of it")
    await site.looked()
    assert drained_for("flapping")(await site.slurm.nodes.get(node)), "though it is ready"
    await site.until_slurm(node, lambda found: found.takes_jobs, "in use when it was calm")


async def test_a_node_out_of_service_is_put_down_and_one_that_was_deleted_leaves_no_ghost(site: Site, names: Names) -> None:
    out, deleted = names(2)
    await site.join(out, deleted)
    for name, node in (("on-a-dead-one", out), ("on-a-deleted-one", deleted)):
        await site.pod(name, node)
        await site.until_runs(name)
    jobs = [await site.job_of(name) for name in ("on-a-dead-one", "on-a-deleted-one")]
    before = (await site.kube.get(NODES, out)).spec.taints
    kept = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in before]
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    await site.kube.patch(NODES, out, {"spec": {"taints": [*kept, taint]}})
    await site.kube.delete(NODES, deleted)
    found = await site.until_slurm(out, lambda found: found.is_down, "down")
    assert found.reason == "slurm-bridge: out of service in Kubernetes"
    await site.until_gone(deleted)
    for job in jobs:
        assert not (await site.slurm.jobs.get(job)).is_running
    await site.kube.patch(NODES, out, {"spec": {"taints": kept}})
    await site.until_slurm(out, lambda found: found.takes_jobs, "in use")


async def test_a_node_that_leaves_under_a_job_is_not_resumed_meanwhile(site: Site, names: Names) -> None:
    """The original drained it to remove it, and undrained it in the same breath."""
    (node,) = names(1)
    await site.join(node)
    job = await site.bare_job(node)
    await site.kube.patch(NODES, node, {"metadata": {"labels": {EXTERNAL_NODE: None}}})
    leaving = await site.until_slurm(node, drained_for("leaving"), "drained")
    for cordoned in (True, False):
        await site.cordon(node, cordoned)
        await site.looked()
    found = await site.slurm.nodes.get(node)
    assert drained_for("leaving")(found)
    assert found.reason_changed_at == leaving.reason_changed_at, "nobody drained it twice"
    assert taints(await site.kube.get(NODES, node)), "other schedulers are kept away until it is gone"
    await site.slurm.jobs.cancel(job)
    await site.until_gone(node)
    await site.until_node(node, lambda node: not taints(node) and not node.spec.unschedulable, "free of the taint")


async def test_of_a_node_with_a_slurmd_the_states_are_kept_in_step_and_nothing_else(site: Site, names: Names) -> None:
    (node,) = names(1)
    await site.slurm.nodes.create(
        NodeDescription(
            name="hybrid-1", external=False, address="10.201.9.9", cpus=2, real_memory=100, features=["x"], other={"State": "CLOUD"}
        )
    )
    before = await site.slurm.nodes.get("hybrid-1")
    await site.kube.patch(NODES, node, {"metadata": {"labels": {SLURM_NODE_NAME: "hybrid-1", EXTERNAL_NODE: ""}}})
    await site.cordon(node)
    await site.until_slurm("hybrid-1", drained_for("cordoned"), "drained")
    await site.cordon(node, False)
    await site.until_slurm("hybrid-1", lambda found: "DRAIN" not in found.states, "in use")
    await site.scontrol("hybrid-1", "DRAIN", "fan")
    await site.until_node(node, lambda node: node.spec.unschedulable and condition(node)[1] == "Drained", "cordoned")
    await site.scontrol("hybrid-1", "RESUME")
    shown = await site.until_node(node, lambda node: not node.spec.unschedulable, "uncordoned")
    assert not taints(shown)
    after = await site.slurm.nodes.get("hybrid-1")
    assert (after.cpus, after.real_memory, after.features, after.extra) == (before.cpus, before.real_memory, before.features, before.extra)
    await site.kube.patch(NODES, node, {"metadata": {"labels": {SLURM_NODE_NAME: None, EXTERNAL_NODE: None}}})
    await site.until_node(node, lambda node: condition(node) == ("", ""), "none of Slurm's")
    await site.slurm.nodes.delete("hybrid-1")


async def test_a_taint_keeps_other_schedulers_away_and_pods_on_a_node_that_joins_are_left_alone(site: Site, names: Names) -> None:
    (node,) = names(1)
    only = {"schedulerName": "default-scheduler", "nodeSelector": {"kubernetes.io/hostname": node}}
    amounts = {"cpu": "1", "memory": "64Mi"}
    box = {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}

    async def foreign(name: str) -> None:
        await site.kube.create(PODS.untyped, {"metadata": {"name": name}, "spec": {"containers": [box], **only}}, "default")

    async def pod(name: str) -> Pod:
        return await site.kube.get(PODS, name, "default")

    async def was_there() -> bool:
        return (await pod("was-there")).status.phase == "Running"

    async def kept_away() -> bool:
        found = (await pod("comes-late")).condition("PodScheduled")
        return found is not None and "untolerated taint" in found.message

    await foreign("was-there")
    await site.until("the pod of another scheduler ran", was_there)
    await site.join(node)
    await foreign("comes-late")
    await site.until("the next one was kept away", kept_away)
    await site.pod("ours", node)
    assert (await site.until_runs("ours")).spec.node_name == node
    there = await pod("was-there")
    assert there.status.phase == "Running" and there.metadata.deletion_timestamp is None
    for name in ("was-there", "comes-late"):
        await site.kube.delete(PODS, name, "default", grace_seconds=0)


async def test_noexecute_evicts_others_but_no_pod_of_ours_and_none_of_a_daemonset(site: Site, names: Names) -> None:
    """With a taint of another scheduler's name, which the bridge that runs here leaves alone."""
    (node,) = names(1)
    tolerant = {"tolerations": [{"key": MANAGED_NODE, "operator": "Equal", "value": "second"}]}
    box = {"containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 0}
    for name, more in (("theirs", {}), ("second", tolerant)):
        await site.kube.create(PODS.untyped, {"metadata": {"name": name}, "spec": box | {"nodeName": node} | more}, "default")
    template = {"metadata": {"labels": {"d": "d"}}, "spec": box | {"nodeSelector": {"kubernetes.io/hostname": node}}}
    body = {"metadata": {"name": "daemon"}, "spec": {"selector": {"matchLabels": {"d": "d"}}, "template": template}}
    await site.kube.raw("POST", "/apis/apps/v1/namespaces/default/daemonsets", body=body)

    async def there() -> set[str]:
        return {pod.metadata.name[:6] for pod in (await site.kube.list(PODS, "default", fields=f"spec.nodeName={node}")).items}

    async def all_there() -> bool:
        return len(await there()) == 3

    await site.until("all three were on the node", all_there)
    events = EventRecorder(site.kube, "slinky-bridge", "test")
    async with Reflector(site.kube, NODES).running() as cache, events.running():
        await cache.wait_synced()
        writer = NodeWriter(site.kube, NodeStandings(cache, events, None), "second", "NoExecute")

        async def taint() -> str:
            shown = await site.kube.get(NODES, node)
            effect = await writer.effect_for(shown)
            if mirror := plan_mirror(MirrorSnapshot(node=shown, found=None, scheduler="second", taint=effect)):
                await writer.write(shown, mirror)
            return effect

        assert await taint() == "NoSchedule", "while a DaemonSet's pod does not tolerate it"
        assert "default/daemon" in await site.until_said(node, "TaintWithheld")
        assert len(await there()) == 3
        await site.kube.raw("DELETE", "/apis/apps/v1/namespaces/default/daemonsets/daemon", body={"propagationPolicy": "Background"})

        async def evicting() -> bool:
            return await taint() == "NoExecute"

        await site.until("the DaemonSet's pod was gone", evicting)

    async def left() -> bool:
        return await there() == {"second"}

    await site.until("only the one that tolerates it was left", left)
    await site.kube.delete(PODS, "second", "default", grace_seconds=0)
    await site.kube.patch(NODES, node, {"spec": {"taints": None}})


async def test_many_nodes_are_drained_and_resumed_in_few_calls(site: Site, names: Names) -> None:
    many = names(8)
    await site.join(*many)

    async def updates() -> float:
        async with aiohttp.ClientSession() as session, session.get(f"{site.bridge.health()}/metrics") as answer:
            found = re.findall(r'^slinky_slurm_requests_total\{call="POST slurm/nodes/?".*\} (\S+)', await answer.text(), re.MULTILINE)
        return sum(map(float, found))

    before = await updates()
    for cordoned in (True, False):
        await asyncio.gather(*(site.cordon(node, cordoned) for node in many))
        for node in many:
            await site.until_slurm(node, lambda found, c=cordoned: ("DRAIN" in found.states) is c, "as its Node")  # type: ignore[misc]
    assert 2 <= await updates() - before < 2 * len(many)


async def test_a_node_that_joins_cordoned_is_in_its_partition_and_is_used_when_it_is_uncordoned(site: Site, names: Names) -> None:
    (node,) = names(1)
    await site.cordon(node)
    await site.kube.patch(NODES, node, {"metadata": {"labels": {EXTERNAL_NODE: ""}}})
    await site.until_slurm(node, drained_for("cordoned"), "drained")

    async def in_partition() -> bool:
        return bool(await site.sandbox.link.run("head", "sinfo", "--noheader", "--partition=bridge", f"--nodes={node}", "--format=%N"))

    await site.until(f"node {node} was in the partition", in_partition)
    await site.cordon(node, False)
    await site.until_slurm(node, lambda found: found.takes_jobs, "in use")
    await site.pod("on-one-that-joined-cordoned", node)
    await site.until_runs("on-one-that-joined-cordoned")


async def test_a_slurm_that_comes_back_with_an_old_state_is_not_taken_for_somebody_who_resumed_the_node(site: Site, names: Names) -> None:
    (node,) = names(1)
    await site.join(node)
    state, old = "/var/lib/slurm/slurmctld", "/var/lib/slurm/old"
    slurmctld = await site.sandbox.stop("slurmctld")
    await site.sandbox.link.run("head", "cp", "-a", state, old)
    await site.sandbox.link.start(slurmctld)
    await site.until_slurm(node, lambda found: found.takes_jobs, "in use")
    await site.cordon(node)
    await site.until_slurm(node, drained_for("cordoned"), "drained")
    await site.looked()
    slurmctld = await site.sandbox.stop("slurmctld")
    await site.sandbox.link.run("head", "sh", "-c", f"rm -rf {state} && mv {old} {state}")
    await site.sandbox.link.start(slurmctld)
    await site.until_slurm(node, drained_for("cordoned"), "drained again")
    assert OVERRULED not in (await site.kube.get(NODES, node)).metadata.annotations


async def test_a_slurm_that_comes_back_empty_finds_nodes_with_pods_drained_until_those_end(site: Site, names: Names) -> None:
    busy, idle = names(2)
    await site.join(busy, idle)
    await site.pod("outlives-slurm", busy)
    await site.until_runs("outlives-slurm")
    slurmctld = await site.sandbox.stop("slurmctld")
    await site.sandbox.link.run("head", "sh", "-c", "rm -rf /var/lib/slurm/slurmctld/*")
    await site.sandbox.link.start(slurmctld)
    await site.until_slurm(idle, lambda found: found.takes_jobs and f"name={idle}" in found.features, "in use again")
    found = await site.until_slurm(busy, lambda found: drained_for("occupied")(found) and f"name={busy}" in found.features, "drained")
    assert not found.is_busy
    pod = await site.kube.get(PODS, "outlives-slurm", "lab")
    assert pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
    await site.looked()
    assert drained_for("occupied")(await site.slurm.nodes.get(busy))
    await site.kube.delete(PODS, "outlives-slurm", "lab", grace_seconds=0)
    await site.until_slurm(busy, lambda found: "DRAIN" not in found.states, "in use")
    await site.pod("next", busy)
    await site.until_runs("next")
