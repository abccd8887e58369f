"""Keeps the authority that webhooks are called with (`caBundle`) in their configurations, whoever takes it out.

In: the bundle to trust, the names of configurations. Out: patches, where one of them has another bundle or none; a configuration that does not exist yet gets it when it
comes.
What must stay true: nothing but `caBundle` is touched, and only in webhooks that still have the place and name they had when we looked.
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from slinky.kube.cache import Change
from slinky.kube.client import Client, PatchKind
from slinky.kube.errors import NotFoundError
from slinky.kube.objects import Key, KubeObject, Record
from slinky.kube.reflector import Reflector
from slinky.kube.resources import Resource
from slinky.kube.workqueue import WorkQueue

__all__ = ["MUTATING", "VALIDATING", "BundleKeeper", "WebhookConfiguration", "bundle_patch"]

log = logging.getLogger(__name__)


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


def bundle_patch(configuration: WebhookConfiguration, bundle: str) -> list[dict[str, Any]]:
    """`bundle` is base64, as the field is. Empty where nothing is to be done."""
    operations: list[dict[str, Any]] = []
    for index, webhook in enumerate(configuration.webhooks):
        if webhook.client_config.ca_bundle != bundle:
            operations.append({"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.name})
            operations.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle})
    return operations


class BundleKeeper:
    """Watches the named configurations and nothing else."""

    def __init__(self, client: Client, *, mutating: Sequence[str] = (), validating: Sequence[str] = ()) -> None:
        self._client = client
        self._bundle = ""
        self._queue: WorkQueue[Key] = WorkQueue()
        self._reflectors: dict[Key, Reflector[WebhookConfiguration]] = {}
        for resource, names in ((MUTATING, mutating), (VALIDATING, validating)):
            for name in names:
                key = Key(resource.plural, name)
                self._reflectors[key] = Reflector(client, resource, fields=f"metadata.name={name}")

    def trust(self, authorities: bytes) -> None:
        self._bundle = base64.b64encode(authorities).decode()
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
        patch = bundle_patch(configuration, self._bundle) if configuration and self._bundle else []
        if not patch:
            return
        try:
            await self._client.patch(reflector.resource, key.name, patch, kind=PatchKind.JSON)
        except NotFoundError:
            return  # it is gone; when it comes again we are told
        log.info("%s %s: authority put in", key.namespace, key.name)
