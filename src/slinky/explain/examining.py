"""The facts about an installation, gathered from both sides.

Comes in: settings, how Kubernetes is reached, whose rights are asked about. Goes out: an `Installation`. What must stay true: nothing is changed on either side (the questions about rights are POSTs that leave nothing behind); of the webhook's Secret only certificates are read, never keys.
"""

import asyncio
import base64
import datetime as dt
import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec

from slinky.bridge.admission_service import configurations
from slinky.bridge.settings import Settings, SettingsError
from slinky.explain.asking import SECONDS, AskKube, AskSlurm
from slinky.explain.gathering import lease_of
from slinky.explain.installation import Installation, KubeSide, SlurmSide, Webhooks
from slinky.explain.rights import Right, review_of, rights_of
from slinky.kube import (
    MUTATING_CONFIGURATIONS,
    NAMESPACES,
    NODES,
    PODS,
    Access,
    Client,
    Resource,
)
from slinky.kube import NotFoundError as KubeNotFoundError
from slinky.kube.objects import Record
from slinky.slurm import SlurmClient

__all__ = ["examine"]

AT_ONCE = 8  # questions about rights
BRIDGE_ACCOUNT = "slurm-bridge"


class _Certificates(Record, frozen=True):
    certificate: str = msgspec.field(default="", name="tls.crt")


class _Secret(Record, frozen=True):
    data: _Certificates = _Certificates()


class _Ready(Record, frozen=True):
    ready: bool | None = None


class _Endpoint(Record, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: _Ready = _Ready()


class _Slice(Record, frozen=True):
    endpoints: tuple[_Endpoint, ...] | None = None


class _Verdict(Record, frozen=True):
    allowed: bool = False


class _Review(Record, frozen=True):
    status: _Verdict = _Verdict()


class _Version(Record, frozen=True):
    git_version: str = ""


SECRETS: Resource[_Secret] = Resource("", "v1", "secrets", _Secret)
SLICES: Resource[_Slice] = Resource("discovery.k8s.io", "v1", "endpointslices", _Slice)
ACCOUNTS: Resource[dict[str, Any]] = Resource("", "v1", "serviceaccounts", dict)


async def examine(
    settings: Settings, access: Access | Exception, *, config: str = "", wrong: str = "", bridge_user: str = ""
) -> Installation:
    async with AskKube(access) as kube, AskSlurm(settings) as slurm:
        kube_side, slurm_side = await asyncio.gather(_kubernetes(kube, settings, bridge_user), _slurm(slurm, settings))
        return Installation(now=dt.datetime.now(dt.UTC), settings=settings, config=config, wrong=wrong, kube=kube_side, slurm=slurm_side)


# Kubernetes


async def _kubernetes(kube: AskKube, settings: Settings, bridge_user: str) -> KubeSide:
    ahead = await kube.ask("clock", _kube_ahead, None)
    version, nodes, namespaces = await asyncio.gather(
        kube.ask("version", _version, ""),
        kube.ask("nodes", lambda client: client.list(NODES), None),
        kube.ask("namespaces", lambda client: client.list(NAMESPACES), None),
    )
    nobody: tuple[str, tuple[Right, ...]] = (bridge_user, ())
    pods, lease, webhooks, (user, denied) = await asyncio.gather(
        kube.ask("pods", lambda client: client.list(PODS, labels="scheduler.slinky.slurm.net/slurm-jobid"), None),
        kube.ask("lease", lambda client: lease_of(client, settings), None),
        kube.ask("webhooks", lambda client: _webhooks(client, settings), Webhooks()),
        kube.ask("rights", lambda client: _rights(client, settings, bridge_user), nobody),
    )
    return KubeSide(
        troubles=tuple(kube.troubles),
        unread=frozenset(kube.unread),
        version=version,
        nodes=tuple(nodes.items) if nodes else (),
        namespaces=tuple(namespaces.items) if namespaces else (),
        pods=tuple(pods.items) if pods else (),
        lease=lease,
        webhooks=webhooks,
        denied=denied,
        bridge_user=user,
        ahead=ahead,
    )


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


async def _webhooks(client: Client, settings: Settings) -> Webhooks:
    try:
        wanted = configurations(settings)
    except SettingsError:
        wanted = []
    found: dict[str, Any] = {}
    should: dict[str, Any] = {}
    for resource, document in wanted:
        kind = "mutating" if resource.plural == MUTATING_CONFIGURATIONS.plural else "validating"
        should[kind] = document
        try:
            found[kind] = await client.get(resource.untyped, settings.admission.configuration)
        except KubeNotFoundError:
            found[kind] = None
    certificate, unanswered, endpoints = b"", "", None
    if settings.admission.url:
        certificate, unanswered = await _served(settings.admission.url)
    else:
        certificate = await _kept(client, settings)
        endpoints = await _endpoints(client, settings)
    return Webhooks(found=found, wanted=should, certificate=certificate, endpoints=endpoints, unanswered=unanswered)


async def _served(url: str) -> tuple[bytes, str]:
    """The certificate that is shown there, and what went wrong."""
    place = urlsplit(url)
    try:
        pem = await asyncio.to_thread(ssl.get_server_certificate, (place.hostname or "", place.port or 443), timeout=SECONDS / 2)
    except (OSError, ValueError) as error:
        return b"", f"a connection to it fails: {error}"
    return pem.encode(), ""


async def _kept(client: Client, settings: Settings) -> bytes:
    try:
        secret = await client.get(SECRETS, settings.admission.secret, settings.namespace)
    except KubeNotFoundError:
        return b""
    return base64.b64decode(secret.data.certificate or "")


async def _endpoints(client: Client, settings: Settings) -> int:
    labels = f"kubernetes.io/service-name={settings.admission.service}"
    found = await client.list(SLICES, settings.namespace, labels=labels)
    return sum(len(point.addresses) for each in found.items for point in each.endpoints or () if point.conditions.ready is not False)


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
