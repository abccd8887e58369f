"""The admission webhook as a running service: its certificate, its configurations at the API server, its health, around `Webhooks`.

Comes in: the settings (with `namespace` filled in) and access to Kubernetes. Goes out: a webhook that serves until it is cancelled, and then finishes what it was asked.
What must stay true: the configurations are written once the webhook listens, so that nothing waits for one that is still starting; nobody else's fields in them are lost;
it is ready only when it can answer.
"""

import asyncio
import base64
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from slinky.bridge.policy import Policy
from slinky.bridge.settings import Settings
from slinky.bridge.webhook_configuration import SECONDS, endpoint, mutating_configuration, validating_configuration
from slinky.bridge.webhooks import KINDS, ManagedNamespaces, Webhooks
from slinky.kube import (
    MUTATING_CONFIGURATIONS,
    NAMESPACES,
    VALIDATING_CONFIGURATIONS,
    Access,
    AdmissionMetrics,
    AdmissionServer,
    BundleKeeper,
    Cache,
    CertificateFiles,
    Client,
    HealthServer,
    KubeError,
    KubeMetrics,
    Namespace,
    OnFailure,
    Reflector,
    Resource,
    SelfMadeCertificate,
    patiently,
    write_configuration,
)
from slinky.settings import listening

__all__ = ["configurations", "own_username", "serve_admission", "write_configurations"]

log = logging.getLogger(__name__)


async def serve_admission(settings: Settings, access: Access, *, apply: bool = True) -> None:
    """Until cancelled. `apply`: write the webhook configurations first."""
    registry = CollectorRegistry()
    metrics = KubeMetrics(registry)
    health = HealthServer(registry, port=settings.health_port)
    # A certificate that is waited for, or a webhook that does not listen: said from the first moment on.
    waiting = {"certificate": "not there yet", "namespaces": "not listed yet", "webhook": "does not listen yet"}
    for name in waiting:
        health.ready(name, lambda name=name: waiting.get(name))  # type: ignore[misc]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(listening(health.running(), settings.health_port, "healthPort"))
        client = await stack.enter_async_context(Client(access, observer=metrics.observe, field_manager="slinky-admission"))
        users = frozenset(settings.admission.bridge_users or [await patiently(lambda: own_username(client))])
        log.info("keys of the bridge may be changed by %s", ", ".join(sorted(users)))
        namespaces = await _watched_namespaces(settings, client, metrics, stack)
        del waiting["namespaces"]
        certificate = _certificate(settings, client)
        webhooks = Webhooks(settings, ManagedNamespaces(settings, client, namespaces), users, AdmissionMetrics(registry, KINDS))
        server = AdmissionServer(
            webhooks.handlers,
            certificate,
            port=settings.admission.port,
            on_failure=OnFailure.ALLOW if settings.fails_open else OnFailure.REFUSE,
            deadline=SECONDS - 1.0,
            leave_seconds=endpoint(settings).leave_seconds,
        )
        await stack.enter_async_context(listening(server.running(), settings.admission.port, "admission.port"))
        waiting.clear()
        if apply:
            issued = certificate.issued if isinstance(certificate, SelfMadeCertificate) else None
            authorities = issued.authorities if issued else b""
            await patiently(lambda: write_configurations(client, settings, users, authorities=authorities))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            waiting["webhook"] = "is ending"


async def _watched_namespaces(settings: Settings, client: Client, metrics: KubeMetrics, stack: AsyncExitStack) -> Cache[Namespace] | None:
    """Lists of names need no watch."""
    if settings.managed_namespace_selector is None and not Policy(settings).needs_labels:
        return None
    reflector = Reflector(client, NAMESPACES)
    metrics.follow("namespaces", reflector)
    cache = await stack.enter_async_context(reflector.running())
    await cache.wait_synced()
    return cache


def _certificate(settings: Settings, client: Client) -> CertificateFiles | SelfMadeCertificate:
    ours, name = settings.admission, settings.admission.configuration
    if ours.certificate_file:
        authority = Path(ours.ca_file) if ours.ca_file else None
        bundle = BundleKeeper(client, mutating=[name], validating=[name]) if authority else None
        return CertificateFiles(Path(ours.certificate_file), Path(ours.key_file), authority=authority, bundle=bundle)
    return SelfMadeCertificate(client, ours.secret, settings.namespace, endpoint(settings).names, mutating=[name], validating=[name])


async def own_username(client: Client) -> str:
    """Who we are to the API server."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    resource: Resource[dict[str, Any]] = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", dict, namespaced=False)
    answer = await client.create(resource, review)
    username: str = answer.get("status", {}).get("userInfo", {}).get("username", "")
    if not username:
        raise KubeError("the API server does not say who we are (SelfSubjectReview); name the bridge's user in admission.bridgeUsers")
    return username


# The configurations


def configurations(
    settings: Settings, users: frozenset[str] = frozenset(), *, authorities: bytes = b""
) -> list[tuple[Resource[dict[str, Any]], dict[str, Any]]]:
    """Both, as they are to be. `authorities` is PEM. Raises SettingsError where the authority's file cannot be read."""
    authority = base64.b64encode(authorities or settings.admission.authorities()).decode()
    return [
        (MUTATING_CONFIGURATIONS, mutating_configuration(settings, authority=authority)),
        (VALIDATING_CONFIGURATIONS, validating_configuration(settings, users=sorted(users), authority=authority)),
    ]


async def write_configurations(client: Client, settings: Settings, users: frozenset[str], *, authorities: bytes = b"") -> None:
    """Create them, or put them in the place of those that are there."""
    for resource, wanted in configurations(settings, users, authorities=authorities):
        await write_configuration(client, resource, wanted)
