"""The facts about the operator and its clusters: kinds, Lease, webhook, and all objects of ours.

Comes in: the operator's settings, and how Kubernetes is asked. Goes out: an `OperatorSide`. What must stay true: nothing is changed, and nothing is asked of any Slurm: what the operator knows of it stands in its objects.
"""

import asyncio
from typing import Any

from slinky.explain.asking import AskKube
from slinky.explain.examining_webhooks import webhooks_of
from slinky.explain.gathering import lease_of
from slinky.explain.installation import OperatorSide, Webhooks
from slinky.kube import (
    NODES,
    PODS,
    VALIDATING_CONFIGURATIONS,
    Client,
    KubeError,
    Node,
    NotFoundError,
    Pod,
    Resource,
)
from slinky.operator.admission_service import configuration
from slinky.operator.kinds import GROUP, VERSION, Written
from slinky.operator.kinds.schema import OFFERED, crds
from slinky.operator.settings import Settings, SettingsError

__all__ = ["examine_operator", "is_there"]

HEADS = "app.kubernetes.io/name in (slurmctld,slurmdbd,slurmrestd)"
CRDS: Resource[dict[str, Any]] = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", dict, namespaced=False)


async def is_there(kube: AskKube, settings: Settings) -> bool:
    """Whether there is anything of an operator's: its Lease, its webhook, or an object of ours. Who may not ask is told nothing: the question was ours."""

    async def found(client: Client) -> bool:
        try:
            if await lease_of(client, settings) is not None:
                return True
            if await _or_none(client, VALIDATING_CONFIGURATIONS.untyped, settings.admission.configuration) is not None:
                return True
            return any(await asyncio.gather(*(_all(client, kind) for kind in OFFERED)))
        except KubeError:
            return False

    return bool(await kube.ask("operator", found, False))


async def examine_operator(kube: AskKube, settings: Settings, config: str = "", wrong: str = "") -> OperatorSide:
    kinds, lease, webhooks, objects, (heads, nodes) = await asyncio.gather(
        kube.ask("kinds", _kinds, None),
        kube.ask("operator-lease", lambda client: lease_of(client, settings), None),
        kube.ask("operator-webhooks", lambda client: _webhooks(client, settings), Webhooks()),
        kube.ask("objects", _objects, None),
        kube.ask("heads", _heads, ((), {})),
    )
    return OperatorSide(
        settings=settings,
        config=config,
        wrong=wrong,
        kinds=kinds or {},
        lease=lease,
        webhooks=webhooks,
        objects=objects or {},
        heads=heads,
        nodes=nodes,
    )


async def _kinds(client: Client) -> dict[str, Any]:
    names = [document["metadata"]["name"] for document in crds()]
    found = await asyncio.gather(*(_or_none(client, CRDS, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _objects(client: Client) -> dict[str, tuple[Written, ...]]:
    found = await asyncio.gather(*(_all(client, kind) for kind in OFFERED))
    return dict(zip(OFFERED, found, strict=True))


async def _heads(client: Client) -> tuple[tuple[Pod, ...], dict[str, Node]]:
    """The daemons' pods, and the Kubernetes nodes that they are on, where those are there."""
    pods = tuple((await client.list(PODS, labels=HEADS)).items)
    names = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    found = await asyncio.gather(*(_node(client, name) for name in names))
    return pods, {node.metadata.name: node for node in found if node is not None}


async def _node(client: Client, name: str) -> Node | None:
    try:
        return await client.get(NODES, name)
    except NotFoundError:
        return None


async def _all(client: Client, kind: str) -> tuple[Written, ...]:
    """None, where the kind is not installed."""
    try:
        return tuple((await client.list(Resource(GROUP, VERSION, OFFERED[kind].plural, Written))).items)
    except NotFoundError:
        return ()


async def _webhooks(client: Client, settings: Settings) -> Webhooks:
    try:
        wanted = [(VALIDATING_CONFIGURATIONS, configuration(settings))]
    except SettingsError:
        wanted = []
    return await webhooks_of(client, settings.admission, settings.namespace, wanted)


async def _or_none(client: Client, resource: Resource[dict[str, Any]], name: str) -> dict[str, Any] | None:
    try:
        return await client.get(resource, name)
    except NotFoundError:
        return None
