"""Kubernetes nodes become Slurm's external nodes on the real servers: labelled, changed, unlabelled, deleted; with jobs on them, with others' nodes beside them, and with the bridge or slurmctld going away in the middle."""

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from slinky.bridge.keys import EXTERNAL_NODE, EXTERNAL_NODE_PARTITIONS, SLURM_NODE_NAME
from slinky.bridge.node_controller import NodeController
from slinky.bridge.node_mark import mark_for, owner_of
from slinky.bridge.settings import NodeSettings, Settings
from slinky.kube import NODES, PODS, Client, EventRecorder, Reflector, from_kubeconfig
from slinky.sandbox.bridge import sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from slinky.slurm import JobDescription, Node, NodeDescription, NodeGres, NotFoundError, Pace, SlurmClient
from tests.bridge_sandbox.node_site import NodeSite
from tests.conftest import Starter

pytestmark = pytest.mark.sandbox

NUMBER = 32
CLUSTER = "test"
SOCKETS, THREADS = "example.com/sockets", "example.com/threads"
BRIDGE = Settings(partition="bridge", nodes=NodeSettings(settle_seconds=0.2, sockets_label=SOCKETS, threads_label=THREADS, max_renewing=1))

_numbers = itertools.count()


@pytest.fixture(scope="module")
def place(start_sandbox: Starter) -> Sandbox:
    return start_sandbox("nodes", Shape(nodes=NUMBER, register=False))


class Site(NodeSite):
    """Both sides of the registration, and bridges that come and go."""

    def __init__(self, sandbox: Sandbox, kube: Client, slurm: SlurmClient, events: EventRecorder) -> None:
        super().__init__(sandbox, kube, slurm)
        self.events = events
        self.metrics = CollectorRegistry()
        self.leave = True

    @asynccontextmanager
    async def bridge(self, *, synced: bool = True) -> AsyncIterator[NodeController]:
        self.metrics = CollectorRegistry()
        async with Reflector(self.kube, NODES).running() as cache:
            controller = NodeController(
                cache,
                self.slurm,
                BRIDGE,
                CLUSTER,
                may_act=lambda: self.leave,
                events=self.events,
                metrics=self.metrics,
                pace=Pace(fastest=0.1, slowest=0.5),
            )
            task = asyncio.create_task(controller.run())
            if synced:
                await controller.synced.wait()
            try:
                yield controller
            finally:
                task.cancel()
                ended = await asyncio.gather(task, return_exceptions=True)
                assert isinstance(ended[0], asyncio.CancelledError), ended

    async def mark(
        self, name: str, *, labels: dict[str, str | None] | None = None, annotations: dict[str, str | None] | None = None
    ) -> None:
        await self.kube.patch(NODES, name, {"metadata": {"labels": labels or {}, "annotations": annotations or {}}})

    async def label(self, name: str, *features: str) -> None:
        annotations: dict[str, str | None] = {EXTERNAL_NODE_PARTITIONS: ",".join(features)} if features else {}
        await self.mark(name, labels={EXTERNAL_NODE: ""}, annotations=annotations)

    async def unlabel(self, name: str) -> None:
        await self.mark(name, labels={EXTERNAL_NODE: None})

    async def until_in_slurm(self, name: str, is_so: Callable[[Node], bool] = lambda _: True, what: str = "there") -> Node:
        """And ours."""
        return await self.until_slurm(name, lambda found: owner_of(found, CLUSTER) == "ours" and is_so(found), what)

    async def job(self, node: str, feature: str, **more: Any) -> int:
        """A running job on that node, which alone has the feature."""
        description = JobDescription(
            name="j", tasks=1, cpus_per_task=1, memory_per_node=16, partition="bridge", constraints=feature, **more
        )
        job_id = (await self.slurm.jobs.submit_external(description)).job_id

        async def runs() -> bool:
            job = await self.slurm.jobs.get(job_id)
            return job.is_running and job.nodes == node

        await self.until(f"job {job_id} ran on {node}", runs)
        return job_id

    async def by_hand(self, description: NodeDescription) -> Node:
        await self.slurm.nodes.create(description)
        return await self.slurm.nodes.get(description.name)


@pytest.fixture
async def site(place: Sandbox) -> AsyncIterator[Site]:
    async with (
        Client(from_kubeconfig(place.kubeconfig)) as kube,
        place.slurm_client() as slurm,
        EventRecorder(kube, "slinky-bridge", "test").running() as events,
    ):
        yield Site(place, kube, slurm, events)


@pytest.fixture
def node() -> str:
    """A Kubernetes node of the test's own."""
    return f"kwok-{next(_numbers):02}"


async def test_a_labelled_node_is_in_slurm_with_address_gpus_and_features_and_takes_a_job(site: Site, node: str) -> None:
    async with site.bridge():
        await site.label(node, "bridge", "f1")
        found = await site.until_in_slurm(node)
        address = next(a.address for a in (await site.kube.get(NODES, node)).status.addresses if a.type == "InternalIP")
        assert (found.address, found.cpus, found.real_memory, found.gres) == (address, 64, 256 * 1024, "gpu:8")
        assert (found.sockets, found.cores, found.threads) == (1, 64, 1)
        assert found.features == ["bridge", "f1"]
        shown = await site.sandbox.link.run("head", "sinfo", "--noheader", f"--nodes={node}", "--partition=bridge", "-o", "%N %G %f %t")
        assert shown.split() == [node, "gpu:8", "bridge,f1", "idle"]
        job = await site.job(node, "f1", tres_per_node="gres/gpu:1")
        assert (await site.slurm.jobs.allocation(job)).nodes[0].node == node
        await site.slurm.jobs.cancel(job)
        assert "64 CPUs, 262144 MiB, 8 gpu, features bridge,f1" in await site.until_said(node, "Registered")
        assert site.metrics.get_sample_value("slinky_bridge_nodes", {"state": "registered"}) == 1
        await site.unlabel(node)
        await site.until_gone(node)
        await site.until_said(node, "Removed")


async def test_a_node_that_leaves_is_drained_while_a_job_is_there_and_gone_after_it(site: Site, node: str) -> None:
    async with site.bridge():
        await site.label(node, "bridge", "f2")
        await site.until_in_slurm(node)
        job = await site.job(node, "f2")
        await site.unlabel(node)
        found = await site.until_in_slurm(node, lambda found: found.is_draining, "draining")
        assert found.reason.startswith("slurm-bridge: leaving:")
        assert (await site.slurm.jobs.get(job)).is_running
        await site.slurm.jobs.cancel(job)
        await site.until_gone(node)


async def test_a_node_that_is_wanted_again_while_it_leaves_is_in_use_again(site: Site, node: str) -> None:
    async with site.bridge():
        await site.label(node, "bridge", "f3")
        await site.until_in_slurm(node)
        job = await site.job(node, "f3")
        await site.unlabel(node)
        await site.until_in_slurm(node, lambda found: found.is_draining, "draining")
        await site.label(node)
        await site.until_in_slurm(node, lambda found: found.takes_jobs, "in use")
        assert (await site.slurm.jobs.get(job)).is_running
        await site.slurm.jobs.cancel(job)
        await site.unlabel(node)
        await site.until_gone(node)


async def test_a_deleted_node_is_gone_from_slurm(site: Site, node: str) -> None:
    async with site.bridge():
        await site.label(node)
        await site.until_in_slurm(node)
        await site.kube.delete(NODES, node)
        await site.until_gone(node)


async def test_a_node_is_kept_drained_while_a_live_job_names_it(site: Site, node: str) -> None:
    async with site.bridge():
        await site.label(node)
        await site.until_in_slurm(node)
        waits = JobDescription(name="w", tasks=1, memory_per_node=16, partition="bridge", excluded_nodes=[node], priority=0)
        job = (await site.slurm.jobs.submit_external(waits)).job_id
        await site.unlabel(node)
        await site.until_in_slurm(node, lambda found: found.is_drained, "drained")
        await site.slurm.jobs.update(job, JobDescription(comment="it can still be changed"))
        await site.slurm.jobs.cancel(job)
        await site.until_gone(node)


async def test_a_node_that_a_jobs_owner_names_late_is_kept(site: Site, node: str) -> None:
    """The bridge has read the job already, for a node that went before."""
    others = [f"kwok-{next(_numbers):02}" for _ in range(2)]
    async with site.bridge():
        for name in (node, *others):
            await site.label(name)
        for name in (node, *others):
            await site.until_in_slurm(name)
        waits = JobDescription(name="w", tasks=1, memory_per_node=16, partition="bridge", priority=0)
        job = (await site.slurm.jobs.submit_external(waits)).job_id
        await site.unlabel(others[0])
        await site.until_gone(others[0])
        await site.slurm.jobs.update(job, JobDescription(excluded_nodes=[node]))
        await site.unlabel(node)
        await site.until_in_slurm(node, lambda found: found.is_drained, "drained")
        await site.unlabel(others[1])
        await site.until_gone(others[1])
        await site.until_in_slurm(node, lambda found: found.is_drained, "drained")
        await site.slurm.jobs.update(job, JobDescription(comment="it can still be changed"))
        await site.slurm.jobs.cancel(job)
        await site.until_gone(node)


async def test_features_change_in_place(site: Site, node: str) -> None:
    async with site.bridge():
        await site.label(node, "bridge", "f4")
        await site.until_in_slurm(node)
        job = await site.job(node, "f4")
        for features in (["bridge", "f5"], ["f6"], ["bridge"]):
            await site.mark(node, annotations={EXTERNAL_NODE_PARTITIONS: ",".join(features)})
            found = await site.until_in_slurm(node, lambda found, f=features: found.features == f, f"of features {features}")  # type: ignore[misc]
            assert found.active_features == features
        assert (await site.slurm.jobs.get(job)).is_running
        await site.slurm.jobs.cancel(job)


async def test_other_resources_are_registered_anew_when_the_jobs_have_ended(site: Site, node: str) -> None:
    async with site.bridge():
        await site.label(node, "bridge", "f7")
        await site.until_in_slurm(node)
        job = await site.job(node, "f7")
        less = {"cpu": "32", "nvidia.com/gpu": "4"}
        await site.kube.patch(NODES, node, {"status": {"allocatable": less, "capacity": less}}, subresource="status")
        found = await site.until_in_slurm(node, lambda found: found.is_draining, "draining")
        assert found.reason.startswith("slurm-bridge: renewing:")
        assert (await site.slurm.jobs.get(job)).is_running
        await site.slurm.jobs.cancel(job)
        found = await site.until_in_slurm(node, lambda found: found.cpus == 32 and found.takes_jobs, "of 32 CPUs")
        assert found.gres == "gpu:4"


async def test_sockets_and_threads_are_told_where_labels_tell_them_and_no_more_when_they_do_not(site: Site, node: str) -> None:
    async with site.bridge():
        await site.mark(node, labels={EXTERNAL_NODE: "", SOCKETS: "2", THREADS: "2"})
        found = await site.until_in_slurm(node)
        assert (found.cpus, found.sockets, found.cores, found.threads) == (64, 2, 16, 2)
        await site.mark(node, labels={SOCKETS: None, THREADS: None})
        found = await site.until_in_slurm(node, lambda found: found.threads == 1 and found.takes_jobs, "of one thread a core")
        assert (found.cpus, found.sockets, found.cores) == (64, 1, 64)


async def test_few_nodes_are_drained_at_once_to_be_registered_anew(site: Site) -> None:
    names = [f"kwok-{next(_numbers):02}" for _ in range(4)]

    async def draining() -> int:
        return sum(found.name in names and "DRAIN" in found.states for found in await site.slurm.nodes.all())

    async with site.bridge():
        for name in names:
            await site.label(name, "bridge", f"own-{name}")
            await site.until_in_slurm(name)
        jobs = {name: await site.job(name, f"own-{name}") for name in names}
        for name in names:
            await site.kube.patch(NODES, name, {"status": {"allocatable": {"cpu": "32"}}}, subresource="status")

        async def first_drained() -> bool:
            return await draining() == 1

        await site.until("one node was drained", first_drained)
        await _another_is_registered(site)
        assert await draining() == 1
        for job in jobs.values():
            await site.slurm.jobs.cancel(job)
        for name in names:
            await site.until_in_slurm(name, lambda found: found.cpus == 32 and found.takes_jobs, "of 32 CPUs")


async def test_a_hybrid_node_is_never_touched(site: Site, node: str) -> None:
    theirs = await site.by_hand(
        NodeDescription(
            name=node, external=False, address="10.201.9.9", cpus=2, real_memory=100, features=["bridge"], other={"State": "CLOUD"}
        )
    )
    async with site.bridge():
        await site.label(node)
        assert "with a slurmd" in await site.until_said(node, "RegistrationRefused")
        await site.mark(node, labels={SLURM_NODE_NAME: node})
        await site.unlabel(node)
        await _another_is_registered(site)
        assert _described(await site.slurm.nodes.get(node)) == _described(theirs)
    await site.slurm.nodes.delete(node)


async def test_others_external_nodes_are_never_touched(site: Site, node: str) -> None:
    """One made by hand, one of another Kubernetes cluster, and one whose Kubernetes node nobody knows."""
    theirs = await site.by_hand(NodeDescription(name=node, address="10.201.9.9", cpus=2, real_memory=100, features=["x"]))
    strange = await site.by_hand(NodeDescription(name="strange", address="10.201.9.9", cpus=2, real_memory=100, features=["x"]))
    await site.by_hand(NodeDescription(name="far", address="10.201.9.9", cpus=2, real_memory=100, features=["x"]))
    await site.sandbox.link.run("head", "scontrol", "update", "NodeName=far", f"Extra={mark_for('another')}")
    far = await site.slurm.nodes.get("far")
    async with site.bridge():
        await site.label(node)
        why = await site.until_said(node, "RegistrationRefused")
        assert "was not registered by this bridge and has other CPUs and memory and GRES and features and address" in why
        assert site.metrics.get_sample_value("slinky_bridge_nodes", {"state": "refused"}) == 1
        await site.unlabel(node)
        await _another_is_registered(site)
        for before in (theirs, strange, far):
            assert _described(await site.slurm.nodes.get(before.name)) == _described(before)
        for name in (node, "strange", "far"):
            await site.slurm.nodes.delete(name)


async def test_an_external_node_that_is_just_what_is_wanted_is_taken_over(site: Site, node: str) -> None:
    address = next(a.address for a in (await site.kube.get(NODES, node)).status.addresses if a.type == "InternalIP")
    gres = [NodeGres(name="gpu", count=8)]
    await site.by_hand(NodeDescription(name=node, address=address, cpus=64, real_memory=256 * 1024, features=["bridge"], gres=gres))
    async with site.bridge():
        await site.label(node)
        await site.until_in_slurm(node)
        await site.unlabel(node)
        await site.until_gone(node)


async def test_what_a_bridge_left_half_done_the_next_one_completes(site: Site, node: str) -> None:
    """Made and not marked; drained and not deleted; labelled and unlabelled while no bridge was there."""
    other = f"kwok-{next(_numbers):02}"
    async with site.bridge():
        await site.label(node, "bridge", "f8")
        await site.until_in_slurm(node)
        job = await site.job(node, "f8")
        await site.unlabel(node)
        await site.until_in_slurm(node, lambda found: found.is_draining, "draining")
    await site.label(other)
    born = NodeDescription(name="half-done", address="10.201.9.9", cpus=2, real_memory=100, features=["bridge"])
    born.other = {"Reason": f"slurm-bridge: registered by Kubernetes cluster {CLUSTER}"}
    await site.slurm.nodes.create(born)
    await site.slurm.jobs.cancel(job)
    async with site.bridge():
        await site.until_gone(node)
        await site.until_gone("half-done")
        await site.until_in_slurm(other)
    await site.unlabel(other)
    async with site.bridge():
        await site.until_gone(other)


async def test_what_vanishes_from_slurm_is_registered_again(site: Site, node: str) -> None:
    async with site.bridge():
        await site.label(node)
        await site.until_in_slurm(node)
        await site.slurm.nodes.delete(node)
        await site.until_in_slurm(node)


async def test_a_slurmctld_that_restarts_finds_the_nodes_as_they_were_and_what_changed_meanwhile_is_made_up_for(
    site: Site, node: str
) -> None:
    other = f"kwok-{next(_numbers):02}"
    async with site.bridge():
        await site.label(node)
        before = await site.until_in_slurm(node)
        part = await site.sandbox.stop("slurmctld")
        await site.label(other)
        await site.sandbox.link.start(part)
        await site.until_in_slurm(other)
        assert _described(await site.until_in_slurm(node)) == _described(before)


@pytest.mark.long
async def test_a_slurm_that_is_down_at_the_start_is_waited_for(site: Site, node: str, caplog: pytest.LogCaptureFixture) -> None:
    await site.label(node)
    part = await site.sandbox.stop("slurmctld")
    caplog.set_level(logging.INFO)
    async with site.bridge(synced=False) as controller:

        async def told() -> bool:
            return "attempt 1 failed" in caplog.text

        await site.until("the outage was told of", told)
        assert not controller.synced.is_set()
        await site.sandbox.link.start(part)
        await site.until_in_slurm(node)
        await controller.synced.wait()


async def test_nothing_is_done_without_leave_and_everything_once_it_is_given(site: Site, node: str) -> None:
    await site.label(node)
    site.leave = False
    async with site.bridge(synced=False) as controller:
        with pytest.raises(NotFoundError):
            await site.slurm.nodes.get(node)
        assert not controller.synced.is_set()
        site.leave = True
        await site.until_in_slurm(node)
        site.leave = False
        await site.unlabel(node)
        assert not (await site.until_in_slurm(node)).is_drained
        site.leave = True
        await site.until_gone(node)


async def _another_is_registered(site: Site) -> None:
    """By then the bridge has had the time to do what it should not."""
    name = f"kwok-{next(_numbers):02}"
    await site.label(name)
    await site.until_in_slurm(name)


def _described(node: Node) -> tuple[object, ...]:
    return (node.address, node.cpus, node.real_memory, node.gres, node.features, node.extra, node.comment, node.reason, sorted(node.states))


async def test_a_labelled_node_takes_pods_through_the_bridge_as_it_is_run(place: Sandbox, tmp_path: Path) -> None:
    """The command, with its defaults but for where things are: label, pod, no label, gone."""
    async with (
        sandbox_bridge(place, tmp_path, managedNamespaces=["default"], cluster="whole", nodes={"register": True}) as bridge,
        place.slurm_client() as slurm,
        Client(from_kubeconfig(place.kubeconfig)) as kube,
    ):
        site = Site(place, kube, slurm, EventRecorder(kube, "test", "test"))
        name = f"kwok-{NUMBER - 1:02}" if NUMBER > 10 else f"kwok-{NUMBER - 1}"
        await site.label(name, "bridge", "whole")  # other tests have labelled others

        async def idle() -> bool:
            try:
                return (await slurm.nodes.get(name)).takes_jobs
            except NotFoundError:
                return False

        await site.until(f"{name} took jobs", idle)
        container = {"name": "c", "image": "none", "resources": {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}}
        pod = {
            "metadata": {
                "name": "p",
                "annotations": {"sandbox.slinky.slurm.net/run-for": "2s", "slurmjob.slinky.slurm.net/constraints": "whole"},
            },
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        await kube.create(PODS.untyped, pod, "default")

        async def over() -> bool:
            found = await kube.get(PODS, "p", "default")
            return found.status.phase == "Succeeded" and not found.metadata.finalizers

        await site.until("the pod ran and ended", over)
        assert (await kube.get(PODS, "p", "default")).spec.node_name == name
        async with aiohttp.ClientSession() as session, session.get(f"{bridge.health()}/metrics") as answer:
            assert re.search(r'^slinky_bridge_nodes\{state="registered"\} [1-9]', await answer.text(), re.MULTILINE)
        await kube.delete(PODS, "p", "default")
        await site.unlabel(name)
        await site.until_gone(name)
        assert "Traceback" not in bridge.log("run")
