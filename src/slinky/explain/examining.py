"""The facts about an installation, gathered from both sides: the bridge's here, the operator's and the exporters' in `examining_operator` and `examining_exporter`.

Comes in: settings, how Kubernetes is reached, whose rights are asked about. Goes out: an `Installation`. What must stay true: nothing is changed on either side (the questions about rights are POSTs that leave nothing behind).
"""

import asyncio
import datetime as dt
from typing import Any

import msgspec

from slinky.bridge.admission_service import configurations
from slinky.bridge.settings import Settings, SettingsError
from slinky.explain.asking import AskKube, AskSlurm
from slinky.explain.examining_exporter import examine_exporters
from slinky.explain.examining_operator import examine_operator, is_there
from slinky.explain.examining_webhooks import webhooks_of
from slinky.explain.gathering import claim_lease_of, lease_of
from slinky.explain.installation import Installation, KubeSide, SlurmSide, Webhooks
from slinky.explain.rights import Right, review_of, rights_of
from slinky.kube import (
    NAMESPACES,
    NODES,
    PODS,
    Access,
    Client,
    Resource,
)
from slinky.kube import NotFoundError as KubeNotFoundError
from slinky.kube.objects import Record
from slinky.operator.settings import Settings as OperatorSettings
from slinky.slurm import SlurmClient

__all__ = ["Asked", "examine"]

AT_ONCE = 8  # questions about rights
BRIDGE_ACCOUNT = "slurm-bridge"


class _Verdict(Record, frozen=True):
    allowed: bool = False


class _Review(Record, frozen=True):
    status: _Verdict = _Verdict()


class _Version(Record, frozen=True):
    git_version: str = ""


ACCOUNTS: Resource[dict[str, Any]] = Resource("", "v1", "serviceaccounts", dict)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be looked at: these parts (`bridge`, `operator`, `exporter`), and with `others` also those that are found there."""

    parts: frozenset[str] = frozenset({"bridge"})
    others: bool = False
    operator: OperatorSettings = OperatorSettings(namespace="slinky")
    operator_config: str = ""
    operator_wrong: str = ""
    exporter_url: str = ""


THE_BRIDGE = Asked()


async def examine(
    settings: Settings, access: Access | Exception, *, config: str = "", wrong: str = "", bridge_user: str = "", asked: Asked = THE_BRIDGE
) -> Installation:
    kube_side, slurm_side, has_bridge = KubeSide(), SlurmSide(), "bridge" in asked.parts
    async with AskKube(access) as kube:
        if has_bridge:
            async with AskSlurm(settings) as slurm:
                kube_side, slurm_side = await asyncio.gather(_kubernetes(kube, settings, bridge_user), _slurm(slurm, settings))
        operator = exporters = None
        if "operator" in asked.parts or (asked.others and await is_there(kube, asked.operator)):
            operator = await examine_operator(kube, asked.operator, asked.operator_config, asked.operator_wrong)
        if "exporter" in asked.parts or asked.others:
            exporters = await examine_exporters(kube, asked.exporter_url, sure="exporter" in asked.parts)
        kube_side = msgspec.structs.replace(kube_side, troubles=tuple(kube.troubles), unread=frozenset(kube.unread))
    return Installation(
        now=dt.datetime.now(dt.UTC),
        settings=settings,
        config=config,
        wrong=wrong,
        has_bridge=has_bridge,
        kube=kube_side,
        slurm=slurm_side,
        operator=operator,
        exporters=exporters,
    )


# Kubernetes


async def _kubernetes(kube: AskKube, settings: Settings, bridge_user: str) -> KubeSide:
    ahead = await kube.ask("clock", _kube_ahead, None)
    version, nodes, namespaces = await asyncio.gather(
        kube.ask("version", _version, ""),
        kube.ask("nodes", lambda client: client.list(NODES), None),
        kube.ask("namespaces", lambda client: client.list(NAMESPACES), None),
    )
    nobody: tuple[str, tuple[Right, ...]] = (bridge_user, ())
    pods, lease, claim, webhooks, (user, denied) = await asyncio.gather(
        kube.ask("pods", lambda client: client.list(PODS, labels="scheduler.slinky.slurm.net/slurm-jobid"), None),
        kube.ask("lease", lambda client: lease_of(client, settings), None),
        kube.ask("claim", lambda client: claim_lease_of(client, settings), None),
        kube.ask("webhooks", lambda client: webhooks_of(client, settings.admission, settings.namespace, _wanted(settings)), Webhooks()),
        kube.ask("rights", lambda client: _rights(client, settings, bridge_user), nobody),
    )
    return KubeSide(
        version=version,
        nodes=tuple(nodes.items) if nodes else (),
        namespaces=tuple(namespaces.items) if namespaces else (),
        pods=tuple(pods.items) if pods else (),
        lease=lease,
        claim=claim,
        webhooks=webhooks,
        denied=denied,
        bridge_user=user,
        ahead=ahead,
    )


def _wanted(settings: Settings) -> list[tuple[Resource[Any], dict[str, Any]]]:
    try:
        return configurations(settings)
    except SettingsError:
        return []


async def _kube_ahead(client: Client) -> float | None:
    said = await client.server_time()
    return (said - dt.datetime.now(dt.UTC)).total_seconds() if said else None


async def _version(client: Client) -> str:
    return msgspec.json.decode(await client.raw("GET", "/version"), type=_Version).git_version


async def _rights(client: Client, settings: Settings, user: str) -> tuple[str, tuple[Right, ...]]:
    user = user or next(iter(settings.admission.bridge_users), "") or await _own_account(client, settings)
    turns = asyncio.Semaphore(AT_ONCE)

    async def is_denied(right: Right) -> bool:
        path, body = review_of(right, user)
        async with turns:
            return not msgspec.json.decode(await client.raw("POST", path, body=body), type=_Review).status.allowed

    wanted = list(rights_of(settings))
    answers = await asyncio.gather(*map(is_denied, wanted))
    return user, tuple(right for right, denied in zip(wanted, answers, strict=True) if denied)


async def _own_account(client: Client, settings: Settings) -> str:
    """The bridge's, where it runs in the cluster as its example says."""
    try:
        await client.get(ACCOUNTS, BRIDGE_ACCOUNT, settings.namespace)
    except KubeNotFoundError:
        return ""
    return f"system:serviceaccount:{settings.namespace}:{BRIDGE_ACCOUNT}"


# Slurm


async def _slurm(slurm: AskSlurm, settings: Settings) -> SlurmSide:
    server = await slurm.ask("server", lambda client: client.server(), None)
    if down := await slurm.controller():
        unread = frozenset({"conf", "partitions", "nodes", "clock", "qos"})
        return SlurmSide(troubles=(down,), unread=unread, release=server.release if server else "", token=slurm.token)
    partitions, nodes, conf, ahead = await asyncio.gather(
        slurm.ask("partitions", lambda client: client.partitions.all(), ()),
        slurm.ask("nodes", lambda client: client.nodes.all(), ()),
        slurm.ask("conf", lambda client: client.conf(), None),
        slurm.ask("clock", _slurm_ahead, None),
    )
    user = settings.slurm.user or (slurm.token.user if slurm.token else "")
    accounting = server is not None and server.has_accounting
    qos = await slurm.ask("qos", lambda client: client.accounting.qos(), ()) if accounting else ()
    level = await slurm.ask("users", lambda client: _is_administrator(client, user), None) if accounting and user else None
    return SlurmSide(
        troubles=tuple(slurm.troubles),
        unread=frozenset(slurm.unread),
        release=server.release if server else "",
        has_accounting=accounting,
        token=slurm.token,
        is_administrator=level if accounting else (user in ("root", "slurm") if user else None),
        partitions=tuple(partitions),
        nodes=tuple(nodes),
        qos=tuple(qos),
        conf=conf.values if conf else {},
        ahead=ahead,
    )


async def _slurm_ahead(client: SlurmClient) -> float | None:
    said = (await client.diag()).req_time
    return said - dt.datetime.now(dt.UTC).timestamp() if isinstance(said, int) and said else None


async def _is_administrator(client: SlurmClient, name: str) -> bool:
    """Who is not in accounting is none there."""
    return any(user.name == name and user.is_administrator for user in await client.accounting.users())
