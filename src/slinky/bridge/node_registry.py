"""Slurm's nodes as last seen, and what can be done to them: the thin edge of the registration towards Slurm.

Comes in: one act at a time about one node, each of which may be repeated. Goes out: requests, few of them: marks, drains and resumptions that are wanted at the same moment go in one, many who want a fresh look share one list, and all who ask whether live jobs
name a node share one look at the jobs. What must stay true: `held` is only a memory; before a node is changed or removed it is looked at again (`refresh`).
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import msgspec

from slinky.bridge.node_mark import birth_reason, mark_for
from slinky.slurm import ConfigurationError, Node, NodeChange, NodeDescription, NotFoundError, Pace, SlurmClient, expand

__all__ = ["NodeRegistry"]

NAMES_SECONDS = 10.0
APART_SECONDS = 0.2
MANY = 12  # who want a fresh look at once: a list of all is then cheaper than as many requests


class _Together:
    """Nodes for which the same is wanted while the last request is under way, or was only just (`apart` seconds), go together in the next one."""

    def __init__(self, send: Callable[[list[str], str], Awaitable[None]], apart: float = APART_SECONDS) -> None:
        self._send, self._apart = send, apart
        self._sent_at = float("-inf")
        self._waiting: dict[str, str] = {}
        self._turn = asyncio.Lock()

    async def do(self, name: str, what: str) -> None:
        self._waiting[name] = what
        try:
            async with self._turn:
                if self._waiting.get(name) != what:  # it went along with another's
                    return
                await asyncio.sleep(max(0.0, self._sent_at + self._apart - time.monotonic()))
                names = [other for other, same in self._waiting.items() if same == what]
                self._sent_at = time.monotonic()
                await self._send(names, what)
                for done in names:
                    self._waiting.pop(done, None)
        finally:
            self._waiting.pop(name, None)


class NodeRegistry:
    def __init__(self, slurm: SlurmClient, cluster: str) -> None:
        self.held: dict[str, Node] = {}
        self.ahead: dict[
            str, float
        ] = {}  # since when they are held otherwise than following last told: if they change back meanwhile, it never tells
        self._told: dict[str, object] = {}
        self._slurm = slurm
        self._cluster = cluster
        nodes = slurm.nodes
        self._marks = _Together(lambda names, mark: nodes.update(names, NodeChange(extra=mark)), apart=0.0)
        self._regroups = _Together(self._regroup)
        self._drains = _Together(lambda names, reason: nodes.drain(names, reason))
        self._downs = _Together(lambda names, reason: nodes.down(names, reason))
        self._undrains = _Together(lambda names, _: nodes.undrain(names))
        self._resumes = _Together(lambda names, _: nodes.resume(names))
        self._stale: set[str] = set()
        self._started: int | None = None
        self._refreshing = asyncio.Lock()
        self._named: frozenset[str] = frozenset()
        self._named_at = float("-inf")
        self._naming = asyncio.Lock()

    # Looking

    async def load(self) -> None:
        self.held = {node.name: node for node in await self._slurm.nodes.all()}

    async def was_restarted(self) -> bool:
        """Whether slurmctld was started since this was last asked: it may have older states, and no request need have failed."""
        found = (await self._slurm.diag()).req_time_start
        before, self._started = self._started, found if isinstance(found, int) else None
        return before is not None and before != self._started

    async def refresh(self, name: str) -> None:
        """As it is now, or a moment after it was asked for."""
        self._stale.add(name)
        try:
            if len(self._stale) >= MANY:
                async with self._refreshing:
                    if name in self._stale:
                        names = frozenset(self._stale)
                        found = {node.name: node for node in await self._slurm.nodes.all()}
                        for one in names:
                            self._note(one, found.get(one))
                        self._stale -= names
                    return
            try:
                self._note(name, await self._slurm.nodes.get(name))
            except NotFoundError:
                self._note(name, None)
        finally:
            self._stale.discard(name)

    def _note(self, name: str, found: Node | None) -> None:
        if found is None:
            self.held.pop(name, None)
        else:
            self.held[name] = found
        if _said(found) == self._told.get(name):
            self.ahead.pop(name, None)
        else:
            self.ahead.setdefault(name, time.monotonic())

    async def follow(self, pace: Pace) -> AsyncIterator[tuple[str, bool]]:
        """The names of nodes that came, went or have another state, and whether Slurm could not be asked in between; for ever."""
        self._told.clear()
        async for transition in self._slurm.nodes.watch(pace):
            if transition.after is None:
                self._told.pop(transition.name, None)
            else:
                self._told[transition.name] = _said(transition.after)
            self._note(transition.name, transition.after)
            yield transition.name, transition.gap

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
        await self._marks.do(name, mark)

    async def update(self, name: str, change: NodeChange) -> None:
        await self._slurm.nodes.update([name], change)

    async def regroup(self, name: str, mark: str) -> None:
        await self._regroups.do(name, mark)

    async def _regroup(self, names: list[str], mark: str) -> None:
        """Slurm reckons which nodes a partition has when a node is made or deleted, and not when features change. So one is made that is in nobody's way, and deleted; should it be left, it goes as any node of ours that nobody asks for."""
        scratch = f"slinky-{secrets.token_hex(4)}"
        born = {"Reason": birth_reason(self._cluster)}
        await self._slurm.nodes.create(NodeDescription(name=scratch, cpus=1, real_memory=1, address="127.0.0.1", other=born))
        await self._slurm.nodes.delete(scratch)
        await self._slurm.nodes.update(names, NodeChange(extra=mark))

    async def drain(self, name: str, reason: str) -> None:
        await self._drains.do(name, reason)

    async def down(self, name: str, reason: str) -> None:
        await self._downs.do(name, reason)

    async def undrain(self, name: str) -> None:
        await self._undrains.do(name, "")

    async def resume(self, name: str) -> None:
        await self._resumes.do(name, "")

    async def delete(self, name: str) -> None:
        """Slurm itself refuses (2016) while a job is there."""
        await self._slurm.nodes.delete(name)


def _said(found: Node | None) -> object:
    """What following tells of."""
    return None if found is None else (frozenset(found.states), found.reason)


def _names(expressions: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for expression in expressions:
        with contextlib.suppress(ConfigurationError):
            found.update(expand(expression))
    return found
