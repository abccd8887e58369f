"""Keeps the authority that webhooks are called with (`caBundle`) in their configurations, whoever takes it out.

In: the authorities to trust, the names of configurations. Out: patches, where one of them has others only, or none; a configuration that does not exist yet gets them when it
comes.
What must stay true: nothing but `caBundle` is touched, and only in webhooks that still have the place and name they had when we looked; another authority in it that is still valid stays, for a replica
may show a certificate of that one (it has an older file, or an upgrade changes who makes certificates).
"""

import asyncio
import base64
import binascii
import datetime as dt
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from slinky.kube.admission.certificates import as_pem, still_valid
from slinky.kube.cache import Change
from slinky.kube.client import Client, PatchKind
from slinky.kube.errors import NotFoundError
from slinky.kube.objects import Key, KubeObject, Record
from slinky.kube.reflector import Reflector
from slinky.kube.resources import Resource
from slinky.kube.workqueue import WorkQueue

__all__ = ["MUTATING", "VALIDATING", "BundleKeeper", "WebhookConfiguration", "bundle_patch", "bundle_with"]

log = logging.getLogger(__name__)

MOST = 8  # authorities in a bundle


class ClientConfig(Record, frozen=True):
    ca_bundle: str = ""


class Webhook(Record, frozen=True):
    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(KubeObject, frozen=True):
    webhooks: tuple[Webhook, ...] = ()


GROUP = "admissionregistration.k8s.io"
MUTATING = Resource(GROUP, "v1", "mutatingwebhookconfigurations", WebhookConfiguration, namespaced=False)
VALIDATING = Resource(GROUP, "v1", "validatingwebhookconfigurations", WebhookConfiguration, namespaced=False)


def bundle_with(ours: bytes, found: str, now: dt.datetime) -> str:
    """A `caBundle` (base64 of PEM) that holds `ours` (PEM): `found` where that holds them, else ours first and those of `found` that are still valid."""
    try:
        there = still_valid(base64.b64decode(found, validate=True), now)
    except binascii.Error:
        there = []
    wanted = still_valid(ours, now)
    if found and wanted and set(wanted) <= set(there):
        return found
    if not wanted:
        return base64.b64encode(ours).decode()  # not ours to judge: the API server says what is wrong with it
    kept = [*wanted, *(each for each in there if each not in wanted)]
    return base64.b64encode(as_pem(kept[: max(MOST, len(wanted))])).decode()


def bundle_patch(configuration: WebhookConfiguration, ours: bytes, now: dt.datetime) -> list[dict[str, Any]]:
    """Empty where nothing is to be done."""
    operations: list[dict[str, Any]] = []
    for index, webhook in enumerate(configuration.webhooks):
        found = webhook.client_config.ca_bundle
        bundle = bundle_with(ours, found, now)
        if found != bundle:
            operations.append({"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.name})
            operations.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle})
    return operations


class BundleKeeper:
    """Watches the named configurations and nothing else."""

    def __init__(self, client: Client, *, mutating: Sequence[str] = (), validating: Sequence[str] = ()) -> None:
        self._client = client
        self._ours = b""
        self._queue: WorkQueue[Key] = WorkQueue()
        self._reflectors: dict[Key, Reflector[WebhookConfiguration]] = {}
        for resource, names in ((MUTATING, mutating), (VALIDATING, validating)):
            for name in names:
                key = Key(resource.plural, name)
                self._reflectors[key] = Reflector(client, resource, fields=f"metadata.name={name}")

    def trust(self, authorities: bytes) -> None:
        self._ours = authorities
        for key in self._reflectors:
            self._queue.add(key)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for key, reflector in self._reflectors.items():
                cache = await stack.enter_async_context(reflector.running())
                cache.subscribe(lambda change, key=key: self._changed(key, change))  # type: ignore[misc]
            task = asyncio.create_task(self._queue.serve(self._restore), name="webhook authorities")
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _changed(self, key: Key, _: Change[WebhookConfiguration]) -> None:
        self._queue.add(key)

    async def _restore(self, key: Key) -> None:
        reflector = self._reflectors[key]
        configuration = reflector.cache.get(key.name)
        patch = bundle_patch(configuration, self._ours, dt.datetime.now(dt.UTC)) if configuration and self._ours else []
        if not patch:
            return
        try:
            await self._client.patch(reflector.resource, key.name, patch, kind=PatchKind.JSON)
        except NotFoundError:
            return  # it is gone; when it comes again we are told
        log.info("%s %s: authority put in", key.namespace, key.name)
