"""Looking at what the original has left, and carrying out what was planned: the thin edge.

Comes in: the clients and the settings. Goes out: a `Scene`; acts, each of which may be repeated. What must stay true: what a pod is part of is told by the bridge's own code, from the same caches; nothing is done without leave; what fails is named and holds up nothing else.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from slinky.bridge.keys import GANG
from slinky.bridge.leaving.steps import Left
from slinky.bridge.marker import read_comment
from slinky.bridge.migration.plan import Handover, MarkNodes, Move, PreparePod, Scene, SingleOut, TakeJob, Unhook, pods_of_original
from slinky.bridge.settings import Settings
from slinky.bridge.watches import Watches, release_of
from slinky.kube import (
    JOBS,
    MUTATING_CONFIGURATIONS,
    NODES,
    PODS,
    VALIDATING_CONFIGURATIONS,
    Client,
    HealthServer,
    KubeError,
    KubeMetrics,
    NotFoundError,
    PatchKind,
    Resource,
)
from slinky.slurm import JobDescription, NodeChange, SlurmClient, SlurmError

__all__ = ["Mover", "deployments_of_original", "scene"]

log = logging.getLogger(__name__)

AT_ONCE = 8
WEBHOOK = "pods.slinky.slurm.net"  # how the original calls its own
CHART = "slurm-bridge-"
PARTS = "app.kubernetes.io/component in (scheduler,controllers,admission)"
DEPLOYMENTS: Resource[dict[str, Any]] = Resource("apps", "v1", "deployments", dict)


async def deployments_of_original(kube: Client) -> list[str]:
    """Those of its Helm chart that run."""
    found = (await kube.list(DEPLOYMENTS, labels=PARTS)).items
    running = [each for each in found if each.get("spec", {}).get("replicas", 1) or each.get("status", {}).get("replicas")]
    return sorted(
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in running
        if str((each["metadata"].get("labels") or {}).get("helm.sh/chart", "")).startswith(CHART)
    )


async def scene(kube: Client, slurm: SlurmClient, settings: Settings, cluster: str) -> Scene:
    """Raises KubeError, SlurmError."""
    async with AsyncExitStack() as stack:
        registry = CollectorRegistry()
        watches = Watches(
            kube,
            settings,
            await release_of(kube),
            KubeMetrics(registry),
            touched=lambda _: None,
            look=lambda _: None,
            namespace_changed=lambda _: None,
        )
        await watches.fill(stack, HealthServer(registry))
        pods = sorted(watches.pods.list(), key=lambda pod: pod.key)
        workloads = {pod.metadata.uid: key for pod in pods if (key := watches.membership.key_of(pod)) is not None}
    jobs = []
    taken = set()
    async for job in slurm.jobs.stream():
        if pods_of_original(job):
            jobs.append(job)
        elif job.is_external and not job.is_finished and read_comment(job.admin_comment, cluster):
            taken.add(job.job_id)
    return Scene(
        scheduler=settings.scheduler_name,
        cluster=cluster,
        register=settings.nodes.register,
        never=settings.never_managed,
        pods=pods,
        workloads=workloads,
        jobs=jobs,
        taken=frozenset(taken),
        nodes=(await kube.list(NODES)).items,
        slurm_nodes={node.name: node for node in await slurm.nodes.all()},
        webhooks=[
            (resource.plural, found["metadata"]["name"])
            for resource in (MUTATING_CONFIGURATIONS, VALIDATING_CONFIGURATIONS)
            for found in (await kube.list(resource)).items
            if (names := {webhook.get("name") for webhook in found.get("webhooks") or ()}) and names == {WEBHOOK}
        ],
    )


class Mover:
    """`await mover.carry_out(plan)` returns what failed."""

    def __init__(self, kube: Client, slurm: SlurmClient, *, may_act: Callable[[], bool], say: Callable[[str], None]) -> None:
        self._kube, self._slurm, self._may_act, self._say = kube, slurm, may_act, say

    async def carry_out(self, plan: Handover) -> list[Left]:
        failed: list[Left] = []
        for kind, what in TITLES.items():
            moves = [move for move in plan.moves if isinstance(move, kind)]
            if not moves:
                continue
            before, turns = len(failed), asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as tasks:
                for move in moves:
                    tasks.create_task(self._one(move, what, turns, failed))
            if not self._may_act():
                raise KubeError("the Lease was lost: a bridge leads now; end it, and run this again")
            lost = len(failed) - before
            self._say(f"{what}: {len(moves) - lost}" + (f", {lost} not" if lost else ""))
        return failed

    async def _one(self, move: Move, what: str, turns: asyncio.Semaphore, failed: list[Left]) -> None:
        async with turns:
            if not self._may_act():
                return
            try:
                await self._act(move)
            except (KubeError, SlurmError) as error:
                log.warning("%s: %s: %s", what, move.name, error)
                failed.append(Left(what, move.name, f"failed: {error}"))

    async def _act(self, move: Move) -> None:
        match move:
            case Unhook(plural, name):
                try:
                    await self._kube.delete(
                        MUTATING_CONFIGURATIONS if plural == MUTATING_CONFIGURATIONS.plural else VALIDATING_CONFIGURATIONS, name
                    )
                except NotFoundError:
                    log.debug("%s is gone already", move.name)
            case SingleOut(kind, namespace, name):
                resource = JOBS.untyped if kind == "Job" else JOBSETS
                await self._kube.patch(resource, name, {"metadata": {"annotations": {GANG: "false"}}}, namespace)
            case PreparePod(pod, patch):
                await self._kube.patch(PODS, pod.metadata.name, patch, pod.metadata.namespace, kind=PatchKind.JSON)
            case TakeJob(job_id, comment):
                await self._slurm.jobs.update(job_id, JobDescription(admin_comment=comment))
            case MarkNodes(names, mark):
                await self._slurm.nodes.update(names, NodeChange(extra=mark))


JOBSETS: Resource[dict[str, Any]] = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", dict)
TITLES: dict[type[Move], str] = {
    Unhook: "webhook configurations of the original removed",
    SingleOut: "JobSets and Jobs told that they are no gang",
    PreparePod: "waiting pods prepared",
    TakeJob: "jobs taken over",
    MarkNodes: "groups of nodes taken over in Slurm",
}
