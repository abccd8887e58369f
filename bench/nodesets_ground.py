"""What measurements of NodeSets stand on: the operator's process, its clusters, and what is asked of the servers."""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from slinky.kube import NAMESPACES, Client, NotFoundError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.played_cluster import NODESETS, PlayedCluster
from slinky.sandbox.processes import Processes
from slinky.slurm import SlurmClient

__all__ = ["SECONDS", "Ground", "Measured"]

SECONDS = 300.0
LOOK_SECONDS = 0.1
SAMPLE = re.compile(r"^slinky_(kube|slurm)_requests_total\{(.*)\} (\S+)$", re.MULTILINE)


class Ground:
    """The operator's process, and what is asked of the servers."""

    def __init__(self, sandbox: Sandbox, kube: Client, slurm: SlurmClient, operator: Processes, say: Callable[[str], None]) -> None:
        self.sandbox, self.kube, self.slurm, self.operator, self.say = sandbox, kube, slurm, operator, say

    async def cluster(self, namespace: str) -> "Measured":
        await self.kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        made = Measured(self, namespace)
        await made.create_head()
        return made

    @asynccontextmanager
    async def holding(self, parts: Sequence[str]) -> AsyncIterator[None]:
        """These parts of the sandbox do nothing meanwhile, and go on afterwards."""
        for part in parts:
            await self.sandbox.link.signal(part, signal.SIGSTOP)
        try:
            yield
        finally:
            for part in parts:
                await self.sandbox.link.signal(part, signal.SIGCONT)

    async def calls(self) -> dict[str, float]:
        """So far: to the API server by method and resource, to Slurm as one."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.operator.health()}/metrics") as answer:
            text = await answer.text()
        found: dict[str, float] = {}
        for server, labels, value in SAMPLE.findall(text):
            said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            key = f"{said['method']} {said['resource']}" if server == "kube" else "Slurm"
            found[key] = found.get(key, 0) + float(value)
        return found

    async def until(self, what: str, probe: Callable[[], Awaitable[bool]], *, every: float = LOOK_SECONDS) -> float:
        """Seconds that it took."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(SECONDS):
                while not await probe():
                    await asyncio.sleep(every)
        except TimeoutError:
            raise AssertionError(f"not within {SECONDS:g} s: {what}; the operator's log ends: {self.operator.log('run')[-3000:]}") from None
        took = time.monotonic() - began
        self.say(f"{what}: {took:.1f} s")
        return took

    async def pods(self) -> int:
        """How many there are, by a question that costs neither the API server nor the operator much."""
        answer = await self.kube.raw("GET", "/api/v1/pods", parameters={"limit": "1"})
        found = msgspec.json.decode(answer, type=dict[str, Any])
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    async def until_created(self, count: int, before: int) -> float:
        """`before`: how many pods there were."""

        async def created() -> bool:
            return await self.pods() - before >= count

        return await self.until(f"{count} pods were created", created)


class Measured(PlayedCluster):
    """One of the clusters, and how its NodeSets stand."""

    def __init__(self, ground: Ground, namespace: str) -> None:
        super().__init__(ground.sandbox, ground.kube, namespace)

    async def many(self, name: str, replicas: int) -> None:
        strategy = {"rollingUpdate": {"maxUnavailable": "100%"}}
        await self.nodeset(name, replicas=replicas, oversubscribeNode=True, updateStrategy=strategy)

    async def is_ready(self, name: str, count: int) -> bool:
        found = await self.kube.get(NODESETS, name, self.namespace)
        status: dict[str, Any] = found.get("status", {})
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        settled = {one["type"]: one["status"] for one in status.get("conditions", [])}
        is_so = settled.get("Ready") == "True" and settled.get("Progressing") == "False"
        return is_so and status.get("readyReplicas") == status.get("updatedReplicas") == status.get("replicas") == count

    async def is_gone(self, name: str) -> bool:
        try:
            await self.kube.get(NODESETS, name, self.namespace)
        except NotFoundError:
            return True
        return False
