"""The operator's admission webhook as a running service: its certificate, its configuration at the API server, its health, around `Validator`.

Comes in: the settings (with `namespace` filled in) and access to Kubernetes. Goes out: a webhook that serves until it is cancelled, and then finishes what it was asked.
What must stay true: the configuration is written once the webhook listens; only objects of our group are ever sent; it is ready only when it can answer.
"""

import asyncio
import base64
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from slinky.kube import (
    VALIDATING_CONFIGURATIONS,
    Access,
    AdmissionMetrics,
    AdmissionServer,
    BundleKeeper,
    CertificateFiles,
    Client,
    HealthServer,
    KubeMetrics,
    NotFoundError,
    OnFailure,
    Resource,
    SelfMadeCertificate,
    WebhookEndpoint,
    patiently,
    write_configuration,
)
from slinky.operator.admission import CONVERT, VALIDATE, Validator, convert
from slinky.operator.kinds import (
    ACCOUNTINGS,
    CONTROLLERS,
    GROUP,
    KINDS,
    LOGINSETS,
    NODESETS,
    VERSION,
    Controller,
    LoginSet,
    NodeSet,
    Written,
)
from slinky.operator.kinds.reading import read_as
from slinky.operator.kinds.schema import OFFERED
from slinky.operator.settings import Settings
from slinky.operator.validation import Neighbours
from slinky.settings import listening

__all__ = ["configuration", "serve_admission"]

LOOK_UP_SECONDS = 2.0
NAMESPACE_NAME = "kubernetes.io/metadata.name"
CONFIG_MAPS: Resource[dict[str, Any]] = Resource("", "v1", "configmaps", dict)
# What `Validator` lets pass unjudged is not sent at all: a webhook that is down must not keep finalizers or labels from changing.
SPEC_IS_NEW = (
    'request.operation == "CREATE" || (!has(object.metadata.deletionTimestamp)'
    " && (has(object.spec) != has(oldObject.spec) || (has(object.spec) && object.spec != oldObject.spec)))"
)

T = TypeVar("T", Controller, NodeSet, LoginSet)


async def serve_admission(settings: Settings, access: Access, *, apply: bool = True) -> None:
    """Until cancelled. `apply`: write the webhook configuration first."""
    ours, registry = settings.admission, CollectorRegistry()
    metrics = KubeMetrics(registry)
    health = HealthServer(
        registry,
        port=settings.health_port,
        metrics_port=settings.metrics_port,
    )
    # A certificate that is waited for, or a webhook that does not listen: said from the first moment on.
    waiting = {"webhook": "does not listen yet"}
    health.ready("webhook", lambda: waiting.get("webhook"))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(listening(health.running(), settings.health_port, "healthPort"))
        client = await stack.enter_async_context(Client(access, observer=metrics.observe, field_manager="slinky-operator-admission"))
        certificate = _certificate(settings, client)
        validator = Validator(settings, Namespace(client), AdmissionMetrics(registry, KINDS))
        server = AdmissionServer(
            {VALIDATE: validator.handle},
            certificate,
            converters={CONVERT: convert},
            port=ours.port,
            on_failure=OnFailure.ALLOW if ours.fail_open else OnFailure.REFUSE,
            deadline=ours.timeout_seconds - 1.0,
            leave_seconds=_endpoint(settings).leave_seconds,
        )
        await stack.enter_async_context(listening(server.running(), ours.port, "admission.port"))
        waiting.clear()
        if apply:
            issued = certificate.issued if isinstance(certificate, SelfMadeCertificate) else None
            wanted = configuration(settings, authorities=issued.authorities if issued else b"")
            await patiently(lambda: write_configuration(client, VALIDATING_CONFIGURATIONS, wanted))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            waiting["webhook"] = "is ending"


def configuration(settings: Settings, *, authorities: bytes = b"") -> dict[str, Any]:
    """Which requests are sent here. `authorities` is PEM. Raises SettingsError where the authority's file cannot be read."""
    ours = settings.admission
    authority = base64.b64encode(authorities or ours.authorities()).decode()
    webhook: dict[str, Any] = {
        "name": f"validate.operator.{GROUP}",
        "clientConfig": _endpoint(settings).client_config(VALIDATE, authority),
        "rules": [
            {
                "apiGroups": [GROUP],
                "apiVersions": [VERSION],
                "operations": ["CREATE", "UPDATE"],
                "resources": sorted(offer.plural for offer in OFFERED.values()),
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [{"name": "spec-is-new", "expression": SPEC_IS_NEW}],
        "failurePolicy": "Ignore" if ours.fail_open else "Fail",
        "timeoutSeconds": ours.timeout_seconds,
        "matchPolicy": ours.match_policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    if ours.match_conditions:
        webhook["matchConditions"] = [dict(each) for each in ours.match_conditions]
    if ours.namespace_selector:
        webhook["namespaceSelector"] = dict(ours.namespace_selector)
    elif settings.namespaces:
        named = {"key": NAMESPACE_NAME, "operator": "In", "values": sorted(settings.namespaces)}
        webhook["namespaceSelector"] = {"matchExpressions": [named]}
    labels = {"app.kubernetes.io/name": "slurm-operator", "app.kubernetes.io/component": "admission"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": ours.configuration, "labels": labels},
        "webhooks": [webhook],
    }


def _endpoint(settings: Settings) -> WebhookEndpoint:
    return WebhookEndpoint(settings.admission.service, settings.namespace or "slinky", settings.admission.url)


def _certificate(settings: Settings, client: Client) -> CertificateFiles | SelfMadeCertificate:
    ours = settings.admission
    if ours.certificate_file:
        authority = Path(ours.ca_file) if ours.ca_file else None
        bundle = BundleKeeper(client, validating=[ours.configuration]) if authority else None
        return CertificateFiles(Path(ours.certificate_file), Path(ours.key_file), authority=authority, bundle=bundle)
    return SelfMadeCertificate(client, ours.secret, settings.namespace, _endpoint(settings).names, validating=[ours.configuration])


class Namespace:
    """`Surroundings`, asked for when they are needed: our objects are few and seldom written, and what was applied a moment ago counts."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def neighbours(self, namespace: str) -> Neighbours:
        controllers, nodesets, loginsets = await asyncio.gather(
            self._all(CONTROLLERS, Controller, namespace),
            self._all(NODESETS, NodeSet, namespace),
            self._all(LOGINSETS, LoginSet, namespace),
        )
        return Neighbours(controllers, nodesets, loginsets)

    async def accountings(self, namespace: str) -> frozenset[str]:
        found = await self._client.list(ACCOUNTINGS, namespace, seconds=LOOK_UP_SECONDS)
        return frozenset(each.metadata.name for each in found.items)

    async def files(self, names: list[str], namespace: str) -> dict[str, list[str]]:
        found = await asyncio.gather(*(self._file_names(name, namespace) for name in names))
        return {name: held for name, held in zip(names, found, strict=True) if held is not None}

    async def _all(self, resource: Resource[Written], kind: type[T], namespace: str) -> list[T]:
        """As far as they can be read."""
        listed = await self._client.list(resource, namespace, seconds=LOOK_UP_SECONDS)
        found = [read_as(kind, each) for each in listed.items]
        return [each for each in found if not isinstance(each, list)]

    async def _file_names(self, name: str, namespace: str) -> list[str] | None:
        try:
            found = await self._client.get(CONFIG_MAPS, name, namespace, seconds=LOOK_UP_SECONDS)
        except NotFoundError:
            return None
        return sorted([*(found.get("data") or {}), *(found.get("binaryData") or {})])
