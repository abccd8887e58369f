"""Webhook configurations at the API server: where it finds a webhook, and how the configuration that says so is written.

Comes in: a configuration as it is to be. Goes out: the same at the API server. What must stay true: nobody else's fields in it are lost, an authority that is there least of all; what can be said twice is,
where an answer was lost.
"""

import asyncio
import base64
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from slinky.kube.admission.cabundle import bundle_with
from slinky.kube.backoff import Backoff
from slinky.kube.client import Client
from slinky.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ConnectionFailedError,
    DeadlineError,
    InterruptedReadError,
    NotFoundError,
    OutcomeUnknownError,
    TooManyRequestsError,
    UnavailableError,
)
from slinky.kube.resources import Resource

__all__ = [
    "MUTATING_CONFIGURATIONS",
    "VALIDATING_CONFIGURATIONS",
    "WebhookEndpoint",
    "carried_over",
    "delete_configurations",
    "patiently",
    "write_configuration",
]

log = logging.getLogger(__name__)

TRIES = 5  # of one writing, where others write too
LEAVE_SECONDS = 5.0
PATIENCE = 60  # tries of a service that starts: some minutes
PASSING = (
    AlreadyExistsError,
    ConnectionFailedError,
    OutcomeUnknownError,
    InterruptedReadError,
    DeadlineError,
    ConflictError,
    TooManyRequestsError,
    UnavailableError,
)
BACKOFF = Backoff(first=0.5, most=5.0)
T = TypeVar("T")
Document = dict[str, Any]
GROUP = "admissionregistration.k8s.io"
MUTATING_CONFIGURATIONS: Resource[Document] = Resource(GROUP, "v1", "mutatingwebhookconfigurations", dict, namespaced=False)
VALIDATING_CONFIGURATIONS: Resource[Document] = Resource(GROUP, "v1", "validatingwebhookconfigurations", dict, namespaced=False)


@dataclass(frozen=True)
class WebhookEndpoint:
    """By which the API server reaches a webhook: a Service, or a `url` where it runs outside the cluster."""

    service: str
    namespace: str
    url: str = ""

    @property
    def names(self) -> list[str]:
        """Under which we are called, for the certificate."""
        if self.url:
            return [urlsplit(self.url).hostname or ""]
        service = f"{self.service}.{self.namespace}.svc"
        return [service, f"{service}.cluster.local"]

    @property
    def leave_seconds(self) -> float:
        """For how long one that ends should answer on: until nobody comes any more, where there are others behind the Service."""
        return 0.0 if self.url else LEAVE_SECONDS

    def client_config(self, path: str, authority: str = "") -> Document:
        """`authority` is base64, as `caBundle` is; where it is empty, `caBundle` is left to others."""
        bundle = {"caBundle": authority} if authority else {}
        if self.url:
            return {"url": self.url.rstrip("/") + path} | bundle
        return {"service": {"name": self.service, "namespace": self.namespace, "port": 443, "path": path}} | bundle


async def patiently(deed: Callable[[], Awaitable[T]]) -> T:
    """At the start: what can be said twice is, where an answer was lost or the server has none at the moment. A service that ended for that would be away for longer."""
    failures = 0
    while True:
        try:
            return await deed()
        except PASSING as error:
            failures += 1
            if failures >= PATIENCE:
                raise
            pause = BACKOFF.seconds(failures)
            log.warning("%s; again in %.1f s", error, pause)
            await asyncio.sleep(pause)


async def write_configuration(client: Client, resource: Resource[Document], wanted: Document) -> None:
    """Create it, or put it in the place of the one that is there.

    Written whole and not by server-side apply: webhooks are in an order that matters, and one that is no longer wanted would stay as a stump, for its
    `caBundle` is another's field.
    """
    name = wanted["metadata"]["name"]
    for failures in range(1, TRIES + 1):
        try:
            try:
                found = await client.get(resource, name)
            except NotFoundError:
                await client.create(resource, wanted)
            else:
                await client.replace(resource, name, carried_over(wanted, found))
        except (AlreadyExistsError, ConflictError, NotFoundError) as error:
            if failures == TRIES:
                raise
            pause = BACKOFF.seconds(failures)
            log.info("%s %s was changed by somebody else just now (%s); looking again in %.1f s", wanted["kind"], name, error, pause)
            await asyncio.sleep(pause)
            continue
        log.info("%s %s: %s", wanted["kind"], name, ", ".join(webhook["name"] for webhook in wanted["webhooks"]) or "no webhook")
        return


def carried_over(wanted: Document, found: Mapping[str, Any]) -> Document:
    """`wanted`, to be written in place of `found`: with its version, what others wrote on it, and the authority that its webhooks have."""
    bundles = {each.get("name"): each.get("clientConfig", {}).get("caBundle") for each in found.get("webhooks") or ()}
    any_bundle = next((bundle for bundle in bundles.values() if bundle), None)
    webhooks = []
    for webhook in wanted["webhooks"]:
        found_bundle = bundles.get(webhook["name"]) or any_bundle
        bundle = webhook["clientConfig"].get("caBundle")
        bundle = bundle_with(base64.b64decode(bundle), found_bundle or "", dt.datetime.now(dt.UTC)) if bundle else found_bundle
        webhooks.append(webhook | {"clientConfig": webhook["clientConfig"] | ({"caBundle": bundle} if bundle else {})})
    meta = found["metadata"]
    labels = {**(meta.get("labels") or {}), **wanted["metadata"]["labels"]}
    return wanted | {"metadata": {**meta, "labels": labels}, "webhooks": webhooks}


async def delete_configurations(client: Client, name: str) -> list[str]:
    """Which there were."""
    gone = []
    for resource in (MUTATING_CONFIGURATIONS, VALIDATING_CONFIGURATIONS):
        try:
            await client.delete(resource, name)
        except NotFoundError:
            continue
        gone.append(f"{resource.plural}/{name}")
    return gone
