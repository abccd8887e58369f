"""One look at all that the bridge holds on both sides, for the plan.

Comes in: the clients, the settings, the cluster's name. Goes out: a `Look`. What must stay true: nothing is changed here; a Slurm that does not answer is no reason not to look at Kubernetes; an object that only has the name of one of ours is told apart.
"""

import asyncio
import logging
from typing import Any

from slinky.bridge.adoption import Found, found_in, whole
from slinky.bridge.key_policy import POLICIES, POLICY_BINDINGS, is_own_policy, policy_name
from slinky.bridge.leaving.plan import Look
from slinky.bridge.leaving.steps import Left, RemoveObject
from slinky.bridge.pod_policy import POD_POLICIES, POD_POLICY_BINDINGS, is_own_pod_policy, pod_policy_name
from slinky.bridge.settings import Settings
from slinky.bridge.shadow import shadow_cluster_name
from slinky.bridge.webhook_configuration import SUFFIX
from slinky.kube import MUTATING_CONFIGURATIONS, NODES, PODS, VALIDATING_CONFIGURATIONS, Client, NotFoundError, Resource
from slinky.slurm import SlurmClient, SlurmError

__all__ = ["SECRETS", "Looker"]

log = logging.getLogger(__name__)

TRIES = 2
PAUSE_SECONDS = 2.0
SECRETS: Resource[dict[str, Any]] = Resource("", "v1", "secrets", dict)


class Looker:
    """A Slurm that did not answer is not asked again: what is there stays, and is said to stay."""

    def __init__(self, kube: Client, slurm: SlurmClient, settings: Settings, cluster: str) -> None:
        self._kube, self._slurm, self._settings, self._cluster = kube, slurm, settings, cluster
        self._trouble = ""

    async def look(self) -> Look:
        scheduler = self._settings.scheduler_name
        objects, foreign = await self._objects()
        pods = (await self._kube.list(PODS, fields=f"spec.schedulerName={scheduler}")).items
        nodes = (await self._kube.list(NODES)).items
        seen: dict[str, Any] = {}
        if not self._trouble:
            seen = await self._in_slurm()
        return Look(
            scheduler=scheduler,
            cluster=self._cluster,
            pods=pods,
            nodes=nodes,
            objects=objects,
            foreign=foreign,
            slurm_trouble=self._trouble,
            **(seen or {"jobs": None}),
        )

    async def _in_slurm(self) -> dict[str, Any]:
        """Nothing where it does not answer."""
        for attempt in range(TRIES):
            try:
                return await self._jobs_and_nodes()
            except SlurmError as error:
                log.warning("Slurm cannot be asked: %s", error)
                self._trouble = str(error)
                if attempt + 1 < TRIES:
                    await asyncio.sleep(PAUSE_SECONDS)
        return {}

    async def _jobs_and_nodes(self) -> dict[str, Any]:
        nodes = {node.name: node for node in await self._slurm.nodes.all()}
        jobs: list[Found] = []
        users: dict[str, set[int]] = {}
        shadows = 0
        async for job in self._slurm.jobs.stream():
            if job.is_finished:
                continue
            for written in filter(None, (job.nodes, job.excluded_nodes, job.required_nodes)):
                users.setdefault(written, set()).add(job.job_id)
            if found := found_in(job, self._cluster):
                jobs.append(found)
            shadows += found_in(job, shadow_cluster_name(self._cluster)) is not None
        self._trouble = ""
        return {"jobs": whole(jobs), "slurm_nodes": nodes, "users": users, "shadow_jobs": shadows}

    async def _objects(self) -> tuple[list[RemoveObject], list[Left]]:
        ours: list[RemoveObject] = []
        foreign: list[Left] = []
        name = self._settings.admission.configuration
        for resource in (MUTATING_CONFIGURATIONS, VALIDATING_CONFIGURATIONS):
            found = await self._get(resource, name)
            if found is None:
                continue
            names = [str(webhook.get("name", "")) for webhook in found.get("webhooks") or ()]
            if others := [each for each in names if not each.endswith(f".{SUFFIX}")]:
                foreign.append(Left(resource.plural, name, f"has webhooks that are not the bridge's: {', '.join(others)}"))
            else:
                ours.append(RemoveObject(resource.plural, name))  # type: ignore[arg-type]
        keys, pods = policy_name(name), pod_policy_name(name)
        policies = [(each, keys, is_own_policy) for each in (POLICY_BINDINGS, POLICIES)]
        policies += [(each, pods, is_own_pod_policy) for each in (POD_POLICY_BINDINGS, POD_POLICIES)]
        for resource, policy, is_own in policies:
            found = await self._get(resource, policy)
            if found is None:
                continue
            if is_own(found, policy):
                ours.append(RemoveObject(resource.plural, policy))  # type: ignore[arg-type]
            else:
                foreign.append(Left(resource.plural, policy, "has the bridge's name, but was not written by the bridge"))
        if not self._settings.admission.certificate_file:
            secret = self._settings.admission.secret
            found = await self._get(SECRETS, secret, self._settings.namespace)
            if found is not None and found.get("type") != "Opaque":
                foreign.append(Left("secrets", secret, "is not the one that the bridge's webhook makes"))
            elif found is not None:
                ours.append(RemoveObject("secrets", secret))
        return ours, foreign

    async def _get(self, resource: Resource[dict[str, Any]], name: str, namespace: str = "") -> dict[str, Any] | None:
        try:
            return await self._kube.get(resource, name, namespace)
        except NotFoundError:
            return None
