"""Slurm's nodes as last seen, and what can be done to them: the thin edge of the registration towards Slurm.

Comes in: one act at a time about one node, each of which may be repeated. Goes out: requests, few of them: marks, drains and resumptions that are wanted at the same moment go in one, many who want a fresh look share one list, and all who ask whether live jobs
name a node share one search through the jobs. What must stay true: `held` is only a memory; before a node is changed or removed it is looked at again (`refresh`). A node that a job names is asked about by that job's id, not by a search; jobs of others that name no node
are read once an hour, jobs of ours at each search.

*Invariants:* before a node is deleted, every live job was read after the deletion was first wanted: `scontrol update`
can add a node to any waiting job, and Slurm refuses every update of a job that names a deleted node.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable

import msgspec

from slinky.bridge.node_mark import birth_reason, mark_for
from slinky.slurm import (
    ConfigurationError,
    Diagnostics,
    Job,
    Node,
    NodeChange,
    NodeDescription,
    NotFoundError,
    Pace,
    SlurmClient,
    expand,
)
from slinky.slurm.pod_comments import PodComment, read_pod_comment

__all__ = ["NodeRegistry"]

log = logging.getLogger(__name__)

NAMES_SECONDS = 10.0  # for which a search through the jobs is believed,
LATE_SECONDS = 75.0  # or a long one, which ended after those that asked were told to come again: they do within a minute
NAMELESS_SECONDS = 3600.0  # for which a job of others that names no node is not read again, unless a node is about to be deleted
WANTED_SECONDS = 120.0  # without a question, after which a deletion is no longer wanted
MOST_WITNESSES = 8  # jobs that are remembered for naming one node
READ_TOGETHER = 64  # jobs that are read at a time in a search
SEARCH_SHARE = 0.25  # of the time, that a long search takes at most
LIST_SHARE = 0.05  # of the time, that asking for the ids of all live jobs may take
LONGEST_PAUSE = 600.0  # between two searches
AT_ONCE = 1000  # jobs that a search reads without pauses
WAIT_SECONDS = 5.0  # for a search; one that takes longer goes on by itself
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
        self._started: Diagnostics | None = None
        self._refreshing = asyncio.Lock()
        self._witnesses: dict[str, set[int]] = {}  # of each name that live jobs have, some of those jobs
        self._nameless: dict[int, float] = {}  # jobs of others that name no node, and when they were read
        self._searched_at = float("-inf")
        self._believed = NAMES_SECONDS
        self._read_since = float("-inf")  # all jobs that the last search knew of were read after this
        self._wanted: dict[str, tuple[float, float]] = {}  # nodes to delete: when this was first and last asked
        self._list_took = 0.0
        self._naming = asyncio.Lock()
        self._search: asyncio.Task[None] | None = None

    # Looking

    async def load(self) -> None:
        self.held = {node.name: node for node in await self._slurm.nodes.all()}

    async def was_restarted(self) -> bool:
        """Whether slurmctld was started since this was last asked: it may have older states, and no request need have failed."""
        found = await self._slurm.diag()
        before, self._started = self._started, found
        return before is not None and found.is_of_another_start(before)

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
        """Whether a live job names it, to be left out or to be used; asked before the node is deleted. True also while a search through the jobs takes long."""
        async with self._naming:
            wanted = self._is_wanted(name)
            if await self._is_searching(0.0):
                return True
            if await self._has_witness(name):
                del self._wanted[name]
                return True
            now = asyncio.get_running_loop().time()
            since = now - self._searched_at
            if since > self._believed and since <= min(self._list_took / LIST_SHARE, LONGEST_PAUSE):
                return True  # it is searched again when that costs Slurm less
            if since > self._believed and await self._find(name, now - NAMELESS_SECONDS):
                return True
            if self._read_since < wanted and await self._find(name, wanted):
                return True
            del self._wanted[name]
            return False

    def _is_wanted(self, name: str) -> float:
        """Since when the node is to be deleted."""
        now = asyncio.get_running_loop().time()
        self._wanted = {other: (first, last) for other, (first, last) in self._wanted.items() if now - last <= WANTED_SECONDS}
        first, _ = self._wanted.get(name, (now, now))
        self._wanted[name] = first, now
        return first

    async def _find(self, name: str, good: float) -> bool:
        """Search the jobs, of which those that others own and that were read after `good` are trusted. Whether one names the node, or may, as the search takes longer."""
        self._search = asyncio.create_task(self._read_all(name, good), name="jobs that name nodes")
        return await self._is_searching(WAIT_SECONDS) or name in self._witnesses

    async def _is_searching(self, wait: float) -> bool:
        """Whether a search is still under way after this time. What failed in it is raised, and tried again later."""
        if self._search is None:
            return False
        if not self._search.done():
            await asyncio.wait({self._search}, timeout=wait)
        if not self._search.done():
            return True
        search, self._search = self._search, None
        search.result()
        return False

    async def _has_witness(self, name: str) -> bool:
        """Whether one of the jobs that named it still does: a few small requests, however many jobs there are."""
        suspects = self._witnesses.get(name)
        if not suspects:
            return False
        live = {status.job_id for status in await self._slurm.jobs.states(suspects) if not status.is_finished}
        for job_id in sorted(live):
            if name in _named_by(job for job in await self._slurm.jobs.records([job_id]) if not job.is_finished):
                return True
        self._witnesses.pop(name, None)
        self._searched_at = min(self._searched_at, asyncio.get_running_loop().time() - self._believed - 1)
        return False

    async def _read_all(self, name: str, good: float) -> None:
        """The live jobs, but for those of others that were read after `good` and name no node."""
        began = asyncio.get_running_loop().time()
        live = await self._slurm.jobs.live_ids()
        self._list_took = asyncio.get_running_loop().time() - began
        oldest = min(good, began - NAMELESS_SECONDS)
        self._nameless = {job_id: read for job_id, read in self._nameless.items() if job_id in live and read >= oldest}
        trusted = {job_id for job_id, read in self._nameless.items() if read >= good}
        if len(unread := sorted(live - trusted)) > AT_ONCE:
            log.info("node %s is to be deleted: the bridge first reads %d jobs, as one of them may name it", name, len(unread))
        await self._read(unread)
        self._read_since = min([began, *(self._nameless[job_id] for job_id in trusted)])
        took = self._searched_at - began
        self._believed = NAMES_SECONDS if took < WAIT_SECONDS else LATE_SECONDS

    async def _read(self, job_ids: Collection[int]) -> None:
        """Some at a time: a list of all would take gigabytes of slurmrestd's memory."""
        ids, found = list(job_ids), dict[str, set[int]]()
        long = len(ids) > AT_ONCE
        for start in range(0, len(ids), READ_TOGETHER):
            began, asked = asyncio.get_running_loop().time(), set(ids[start : start + READ_TOGETHER])
            for job in await self._slurm.jobs.records(asked):
                names = _named_by([job])
                for name in names:
                    witnesses = found.setdefault(name, set())
                    if len(witnesses) < MOST_WITNESSES:
                        witnesses.add(job.job_id)
                if names or read_pod_comment(job.admin_comment, PodComment) is not None:
                    asked -= {job.job_id, job.array_job_id}
            self._nameless |= dict.fromkeys(asked, began)
            if long:
                await asyncio.sleep((asyncio.get_running_loop().time() - began) * (1 / SEARCH_SHARE - 1))
        self._witnesses, self._searched_at = found, asyncio.get_running_loop().time()

    def stop(self) -> None:
        """A search that is under way is of no use any more."""
        if self._search is not None:
            self._search.cancel()

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


def _named_by(jobs: Iterable[Job]) -> set[str]:
    """The nodes that live jobs leave out or ask for."""
    return _names({text for job in jobs if not job.is_finished for text in (job.excluded_nodes, job.required_nodes) if text})


def _names(expressions: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for expression in expressions:
        with contextlib.suppress(ConfigurationError):
            found.update(expand(expression))
    return found
