"""The users of a run: they make what the plan says when it says, and delete what they are tired of.

Comes in: arrivals. Goes out: objects on the API server, directly, and a word to the journal about every deletion. What must stay true: who is turned away (the server restarts, the webhook is down) tries again for a while, and an object is
made once: one that is there already is theirs.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from slinky.kube import Client, ConflictError, KubeError, NotFoundError
from tests.chaos.journal import Journal
from tests.chaos.workload import Arrival

__all__ = ["PLURALS", "Users"]

PATIENCE = 90.0
PAUSE = 0.3
PLURALS = {"Pod": "pods", "Job": "jobs", "JobSet": "jobsets", "PodGroup": "podgroups"}


class Users:
    def __init__(self, kube: Client, journal: Journal) -> None:
        self._kube, self._journal = kube, journal
        self.made = 0
        self.refused: list[str] = []

    async def live(self, arrival: Arrival) -> None:
        """From the first object to the last deletion."""
        for document in arrival.documents:
            if await self._persist(lambda document=document: self._create(arrival.namespace, document)):  # type: ignore[misc]
                self.made += 1
                if document["kind"] == "Pod":
                    self._journal.act("created", f"{arrival.namespace}/{document['metadata']['name']}")
            else:
                self.refused.append(f"{arrival.namespace}/{document['metadata']['name']}")
        if arrival.deleted_after:
            await asyncio.sleep(arrival.deleted_after)
            self._journal.act("deleted", f"{arrival.namespace}/{arrival.name}")
            for document in reversed(arrival.documents):
                await self._persist(lambda document=document: self._delete(arrival, document))  # type: ignore[misc]

    async def _persist(self, deed: Callable[[], Awaitable[None]]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                await deed()
            except KubeError:
                await asyncio.sleep(PAUSE)
            else:
                return True
        return False

    async def _create(self, namespace: str, document: dict[str, Any]) -> None:
        try:
            await self._kube.raw("POST", _path(namespace, document), body=document, seconds=10)
        except ConflictError:
            return

    async def _delete(self, arrival: Arrival, document: dict[str, Any]) -> None:
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if arrival.grace is not None:
            body["gracePeriodSeconds"] = arrival.grace
        path = f"{_path(arrival.namespace, document)}/{document['metadata']['name']}"
        try:
            await self._kube.raw("DELETE", path, body=body, seconds=10)
        except NotFoundError:
            return


def _path(namespace: str, document: dict[str, Any]) -> str:
    version = document["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{PLURALS[document['kind']]}"
