"""NodeSets on kwok nodes, as tests speak of them: the operator as a process, a `PlayedCluster`, external jobs on its workers, and waits for what is to become so."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from slinky.kube import EVENTS, NODES, PODS, AlreadyExistsError, Client, Node, NotFoundError, Pod, Resource, from_kubeconfig
from slinky.operator.kinds import GROUP, VERSION
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.operator import install_crds
from slinky.sandbox.played_cluster import NODESETS, PlayedCluster, played_workers
from slinky.sandbox.processes import Processes
from slinky.slurm import JobDescription, SlurmClient, SlurmError
from slinky.slurm import Node as SlurmNode
from slinky.slurm import NotFoundError as NoSuchNodeError

__all__ = ["NODESETS", "OWN_NODES", "Site", "a_site"]

CORDON = "nodeset.slinky.slurm.net/pod-cordon"
OWN_NODES = "own-nodes"
PATIENCE = 90.0


class Site(PlayedCluster):
    """One namespace with one cluster."""

    def __init__(
        self, sandbox: Sandbox, kube: Client, slurm: SlurmClient, namespace: str, operator: Processes, words: tuple[str, ...]
    ) -> None:
        super().__init__(sandbox, kube, namespace)
        self.slurm, self.operator, self._words = slurm, operator, words

    async def start_operator(self) -> None:
        await self.operator.start_part("run", *self._words)

    # Kubernetes

    async def cluster(self) -> None:
        """Its Controller and RestApi."""
        await self.create(
            "Controller",
            "c",
            external=True,
            externalConfig={"host": self.sandbox.record.addresses.head, "port": 6817},
            slurmKeyRef={"name": "keys", "key": "slurm.key"},
            jwtKeyRef={"name": "keys", "key": "jwt.key"},
        )
        await self.create("RestApi", "c", controllerRef={"name": "c"}, replicas=0)

    async def delete(self, kind: str, name: str) -> None:
        await self.kube.delete(_of(kind), name, self.namespace)

    async def said(self, kind: str, name: str) -> str:
        """Of the condition Progressing: reason and message."""
        found = await self.kube.get(_of(kind), name, self.namespace)
        told = (one for one in found.get("status", {}).get("conditions", []) if one["type"] == "Progressing")
        return next((f"{one['reason']} {one['message']}" for one in told), "")

    async def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Status and message."""
        found = await self.kube.get(NODESETS, name, self.namespace)
        for one in found.get("status", {}).get("conditions", []):
            if one["type"] == kind:
                return one["status"], f"{one['reason']} {one['message']}"
        return "", ""

    async def pods(self, name: str) -> dict[str, Pod]:
        listed = await self.kube.list(PODS, self.namespace, labels=f"app.kubernetes.io/instance={name},app.kubernetes.io/name=slurmd")
        return {pod.metadata.name: pod for pod in listed.items if pod.metadata.deletion_timestamp is None}

    async def pod(self, name: str) -> Pod:
        return await self.kube.get(PODS, name, self.namespace)

    async def cordon(self, node: str, cordoned: bool) -> None:
        await self.kube.patch(NODES, node, {"spec": {"unschedulable": cordoned or None}})

    async def a_kubernetes_node(self, name: str, **labels: str) -> None:
        """kwok keeps it alive. It has a taint: other NodeSets' workers must not take it, nor bind their volumes to it."""
        sizes = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        meta = {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name, **labels}}
        spec = {"taints": [{"key": OWN_NODES, "effect": "NoSchedule"}]}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": {"capacity": sizes, "allocatable": sizes}}
        with contextlib.suppress(AlreadyExistsError):
            await self.kube.create(NODES, body)

        async def ready() -> bool:
            node: Node = await self.kube.get(NODES, name)
            found = node.condition("Ready")
            return found is not None and found.status == "True"

        await self.until(f"node {name} was ready", ready)

    # Slurm

    async def node(self, name: str) -> SlurmNode | None:
        try:
            return await self.slurm.nodes.get(name)
        except NoSuchNodeError:
            return None

    async def states(self, name: str) -> set[str]:
        node = await self.node(name)
        return set() if node is None else set(node.states)

    async def job_on(self, name: str) -> int:
        """An external job that runs there until it is ended."""
        job = JobDescription(
            name="held", tasks=1, partition="all", required_nodes=[name], current_working_directory="/tmp", environment=["A=b"]
        )
        submitted = await self.slurm.jobs.submit_external(job)

        async def runs() -> bool:
            return (await self.slurm.jobs.get(submitted.job_id)).is_running

        await self.until(f"job {submitted.job_id} ran on {name}", runs)
        return submitted.job_id

    async def is_running(self, job_id: int) -> bool:
        return (await self.slurm.jobs.get(job_id)).is_running

    async def until(self, what: str, probe: Callable[[], Awaitable[object]], seconds: float = PATIENCE) -> None:
        async def is_so() -> bool:
            try:
                return bool(await probe())
            except (NotFoundError, SlurmError, KeyError):
                return False

        try:
            await self.sandbox.until("slurmctld", what, is_so, seconds)
        except Exception as error:
            raise AssertionError(f"{what}: not so.\n{await self.situation()}") from error

    async def until_pods(self, nodeset: str, *names: str) -> None:
        async def as_wanted() -> bool:
            return set(await self.pods(nodeset)) == set(names)

        await self.until(f"NodeSet {nodeset} had pods {names}", as_wanted)

    async def until_ready(self, nodeset: str) -> None:
        async def ready() -> bool:
            found = await self.kube.get(NODESETS, nodeset, self.namespace)
            is_seen = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
            return (
                is_seen
                and (await self.condition(nodeset, "Ready"))[0] == "True"
                and (await self.condition(nodeset, "Progressing"))[0] == "False"
            )

        await self.until(f"NodeSet {nodeset} was ready", ready)

    async def until_gone(self, kind: str, name: str) -> None:
        async def gone() -> bool:
            try:
                await self.kube.get(_of(kind), name, self.namespace)
            except NotFoundError:
                return True
            return False

        await self.until(f"{kind} {name} was gone", gone)

    async def until_event(self, kind: str, reason: str) -> None:
        async def told() -> bool:
            return any(
                event.reason == reason and event.regarding.kind == kind for event in (await self.kube.list(EVENTS, self.namespace)).items
            )

        await self.until(f"Event {reason} told of a {kind}", told)

    async def until_states(self, name: str, *wanted: str, without: tuple[str, ...] = ()) -> None:
        async def so() -> bool:
            states = await self.states(name)
            return bool(states) and set(wanted) <= states and states.isdisjoint(without)

        await self.until(f"Slurm node {name} was {wanted} and not {without}", so)

    async def situation(self) -> str:
        listed = await self.kube.list(NODESETS, self.namespace)
        pods = await self.kube.list(PODS, self.namespace)
        nodes = [f"{node.name} {node.states} {node.reason!r}" for node in await self.slurm.nodes.all() if not node.name.startswith("kwok")]
        told = [f"{each['metadata']['name']} {each.get('spec', {}).get('replicas')} {each.get('status')}" for each in listed.items]
        there = [
            f"{pod.metadata.name} {pod.status.phase} {dict(pod.metadata.annotations)} {pod.metadata.deletion_timestamp}"
            for pod in pods.items
        ]
        return "\n".join([*told, *there, *nodes, self.operator.log("run")[-6000:]])


def _of(kind: str) -> Resource[dict[str, Any]]:
    return Resource(GROUP, VERSION, kind.lower() + "s", dict)


@contextlib.asynccontextmanager
async def a_site(sandbox: Sandbox, namespace: str, folder: Path, *, slurm_url: str = "", **settings: Any) -> AsyncIterator[Site]:
    """The operator runs, for this namespace only, and the cluster's objects are there."""
    operator = Processes("operator", folder)
    config = folder / "config.yaml"
    slurm = {
        "address": slurm_url or sandbox.slurm_server,
        "fastestPoll": 0.2,
        "slowestPoll": 1.0,
        "currentSeconds": 3.0,
        "requestSeconds": 2.0,
    }
    leader = {"elect": False}
    written = {"namespaces": [namespace], "namespace": namespace, "slurm": slurm, "leader": leader, **settings}
    config.write_text(yaml.safe_dump(written))
    words = ("--config", str(config), "--kubeconfig", str(sandbox.kubeconfig))
    await install_crds(sandbox)
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube, sandbox.slurm_client() as client:
        site = Site(sandbox, kube, client, namespace, operator, words)
        await site.create_head()
        await site.start_operator()
        try:
            async with played_workers(kube, client, namespace):
                yield site
        finally:
            await operator.stop_all()
            await _tidy(site)


async def _tidy(site: Site) -> None:
    """Nothing stays on the sandbox that others use too."""
    listed = await site.kube.list(NODESETS, site.namespace)
    instances = {each["metadata"]["name"] for each in listed.items}
    for plural in ("nodesets", "controllers", "restapis"):
        resource: Resource[dict[str, Any]] = Resource(GROUP, VERSION, plural, dict)
        for each in (await site.kube.list(resource, site.namespace)).items:
            await site.kube.patch(resource, each["metadata"]["name"], {"metadata": {"finalizers": None}}, site.namespace)
    for node in await site.slurm.nodes.all():
        if site.namespace in node.comment or instances & set(node.features):
            with contextlib.suppress(SlurmError):
                await site.slurm.nodes.delete(node.name)
