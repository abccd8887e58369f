"""The watches of storage: claims, volumes, classes, CSI nodes, drivers, capacities and attachments.

Comes in: a client, and the word that a pod has a claim. Goes out: the caches, filled from then on; a cluster without such pods pays nothing for them. What must stay true: what is said to be known has arrived whole.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from slinky.bridge.volumes.stock import StorageCaches
from slinky.kube import (
    ATTACHMENTS,
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    Cache,
    Client,
    KubeError,
    Reflector,
)

__all__ = ["StorageWatch"]

log = logging.getLogger(__name__)


class StorageWatch:
    """`follow` gets each watch by its name when it begins."""

    def __init__(self, kube: Client, follow: Callable[[str, Reflector[Any]], None] = lambda *_: None) -> None:
        self._follow = follow
        claims, volumes, classes = Reflector(kube, CLAIMS), Reflector(kube, VOLUMES), Reflector(kube, STORAGE_CLASSES)
        csi_nodes, drivers = Reflector(kube, CSI_NODES), Reflector(kube, CSI_DRIVERS)
        capacities, attachments = Reflector(kube, STORAGE_CAPACITIES), Reflector(kube, ATTACHMENTS)
        self._reflectors: dict[str, Reflector[Any]] = {
            "storage classes": classes,
            "CSI drivers": drivers,
            "CSI nodes": csi_nodes,
            "storage capacities": capacities,
            "volume attachments": attachments,
            "volumes": volumes,
            "claims": claims,
        }
        self.caches = StorageCaches(
            claims=claims.cache,
            volumes=volumes.cache,
            classes=classes.cache,
            csi_nodes=csi_nodes.cache,
            drivers=drivers.cache,
            capacities=capacities.cache,
            attachments=attachments.cache,
        )

    @asynccontextmanager
    async def running(self, needed: asyncio.Event, known: Callable[[], None]) -> AsyncIterator[None]:
        """It begins when it is `needed`, and calls `known` when all is there."""
        task = asyncio.create_task(self._watch(needed, known), name="storage")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def trouble(self) -> str:
        """What keeps it from being known."""
        for what, reflector in self._reflectors.items():
            if not reflector.cache.is_synced and reflector.health.last_error:
                return f"{what}: {reflector.health.last_error}"
        return ""

    async def _watch(self, needed: asyncio.Event, known: Callable[[], None]) -> None:
        """For ever."""
        await needed.wait()
        log.info("a pod has claims: storage is watched from now on")
        async with AsyncExitStack() as stack:
            caches = []
            for what, reflector in self._reflectors.items():
                self._follow(what, reflector)
                caches.append(await stack.enter_async_context(reflector.running()))
            for cache in caches:
                await _filled(cache)
            known()
            await asyncio.Event().wait()


async def _filled(cache: Cache[Any]) -> None:
    while not cache.is_synced:
        try:
            await cache.wait_synced()
        except KubeError as error:
            log.warning("waiting for Kubernetes' volumes: %s", error)
