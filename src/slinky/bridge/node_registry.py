"""Slurm's nodes as last seen, and what can be done to them: the thin edge of the registration towards Slurm.

Comes in: one act at a time about one node, each of which may be repeated. Goes out: requests, few of them: marks that are wanted at the same moment go in one, and all who ask whether live jobs
name a node share one look at the jobs. What must stay true: `held` is only a memory; before a node is changed or removed it is looked at again (`refresh`).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable

import msgspec

from slinky.bridge.node_mark import birth_reason, mark_for
from slinky.slurm import ConfigurationError, Node, NodeChange, NodeDescription, NotFoundError, Pace, SlurmClient, expand

__all__ = ["NodeRegistry"]

NAMES_SECONDS = 10.0


class NodeRegistry:
    def __init__(self, slurm: SlurmClient, cluster: str) -> None:
        self.held: dict[str, Node] = {}
        self.followed: set[str] = set()  # of these it is told when they go
        self._slurm = slurm
        self._cluster = cluster
        self._unmarked: dict[str, str] = {}
        self._marking = asyncio.Lock()
        self._named: frozenset[str] = frozenset()
        self._named_at = float("-inf")
        self._naming = asyncio.Lock()

    # Looking

    async def load(self) -> None:
        self.held = {node.name: node for node in await self._slurm.nodes.all()}

    async def refresh(self, name: str) -> None:
        try:
            self.held[name] = await self._slurm.nodes.get(name)
        except NotFoundError:
            self.held.pop(name, None)

    async def follow(self, pace: Pace) -> AsyncIterator[str]:
        """The names of nodes that came, went or have another state; for ever."""
        self.followed.clear()
        async for transition in self._slurm.nodes.watch(pace):
            if transition.after is None:
                self.held.pop(transition.name, None)
                self.followed.discard(transition.name)
            else:
                self.held[transition.name] = transition.after
                self.followed.add(transition.name)
            yield transition.name

    async def is_named(self, name: str) -> bool:
        """Does a live job name it, to be left out or to be used? Asked of all jobs at once, and believed for a few seconds."""
        async with self._naming:
            if time.monotonic() - self._named_at > NAMES_SECONDS:
                said: set[str] = set()
                async for job in self._slurm.jobs.stream():
                    if not job.is_finished and (job.excluded_nodes or job.required_nodes):
                        said |= {job.excluded_nodes, job.required_nodes}
                self._named, self._named_at = frozenset(_names(said)), time.monotonic()
        return name in self._named

    # Acting

    async def create(self, description: NodeDescription) -> None:
        born = msgspec.structs.replace(description, other={**description.other, "Reason": birth_reason(self._cluster)})
        await self._slurm.nodes.create(born)
        await self.mark(description.name, mark_for(self._cluster, description.topology, (gres.name for gres in description.gres)))

    async def mark(self, name: str, mark: str) -> None:
        self._unmarked[name] = mark
        try:
            async with self._marking:
                if name not in self._unmarked:  # it went along with another's
                    return
                names = [other for other, same in self._unmarked.items() if same == mark]
                await self._slurm.nodes.update(names, NodeChange(extra=mark))
                for marked in names:
                    self._unmarked.pop(marked, None)
        finally:
            self._unmarked.pop(name, None)

    async def update(self, name: str, change: NodeChange) -> None:
        await self._slurm.nodes.update([name], change)

    async def drain(self, name: str, reason: str) -> None:
        await self._slurm.nodes.drain([name], reason)

    async def undrain(self, name: str) -> None:
        await self._slurm.nodes.undrain([name])

    async def delete(self, name: str) -> None:
        """Slurm itself refuses (2016) while a job is there."""
        await self._slurm.nodes.delete(name)


def _names(expressions: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for expression in expressions:
        with contextlib.suppress(ConfigurationError):
            found.update(expand(expression))
    return found
