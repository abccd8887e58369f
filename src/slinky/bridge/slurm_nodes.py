"""What Slurm's nodes could hold: the judgement on a job that no node may be large enough for, remembered until nodes change.

Comes in: Slurm's nodes, read before anything is kept back, and every few seconds while something is. Goes out: what is missing, if anything.

*Invariants:* what could run is never kept back for long: Slurm is asked after the question whether nodes have changed. The
list of all nodes (3 KB a node) is read only when they have, and takes a tenth of the time at most; in between a "no" rests on
a list that is younger than `LOOK_SECONDS`, and is taken back when a newer one says otherwise.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from slinky.bridge.capacity import NodeRoom, even_share, room_of, shortfall, too_few_nodes
from slinky.bridge.node_reasons import takes_no_jobs
from slinky.bridge.task import PerTask
from slinky.kube import Backoff
from slinky.slurm import JobDescription, Node, SlurmClient, SlurmError, expand

__all__ = ["FRESH_SECONDS", "Shortfall", "SlurmNodes"]

log = logging.getLogger(__name__)

MOST_JUDGED = 1000
BACKOFF = Backoff(first=0.5, most=15.0)
FRESH_SECONDS = 1.0
LOOK_SECONDS = 10.0
WHOLE_SECONDS = 60.0  # Slurm (26.05) does not count it as a change that a node was deleted
SHARE = 0.1  # of the time, for lists of all nodes
LEAST_REST = 0.2  # after such a list; a rest as short as that is waited for
MOST_OUTDATED = 3.0  # seconds that a list which is known to be old stands
REMEMBERED_SECONDS = 900.0  # after somebody was told no, who asks again sooner than that if he is still there


class Shortfall(NamedTuple):
    """`missing` is empty where the job could run on nodes that there are. Otherwise, where it is not `sure`, the nodes may have changed since they were read: to be asked again in a second."""

    missing: str
    sure: bool = True


FITS = Shortfall("")


class SlurmNodes:
    """`on_room` is called when what nodes have in all is other than before, `on_resumed` when one that was drained, down or failed takes jobs again."""

    def __init__(self, slurm: SlurmClient) -> None:
        self._slurm = slurm
        self._refused_at = float("-inf")
        self._rooms: dict[str, NodeRoom] = {}
        self._kinds: dict[object, NodeRoom] = {}  # nodes of one kind have one room
        self._partitions: frozenset[str] | None = None  # in which there are nodes; None where that is not known
        self._judged: dict[object, str] = {}
        self._few: dict[object, str] = {}  # the same of hetjobs
        self._sure_at = float("-inf")  # the list was right then
        self._whole_at = float("-inf")  # when it was read
        self._rest_until = float("-inf")
        self._update_time = 0  # by Slurm's clock
        self._reading = asyncio.Lock()
        self._told = True
        self._outdated = False
        self.version = 0  # another when nodes are
        self.names_version = 0  # another when some came or went
        self.on_room: Callable[[], None] = lambda: None
        self.on_resumed: Callable[[], None] = lambda: None
        self._unused: set[str] = set()

    async def shortfall(self, job: JobDescription) -> Shortfall:
        """Raises SlurmError where Slurm cannot be asked."""
        if self._rooms and not self._judge(job):
            return FITS
        asked = asyncio.get_running_loop().time()
        await self._read(asked)
        missing = self._judge(job)
        if missing:
            self._refused_at = asked
        return Shortfall(missing, self._sure_at >= asked or not self._outdated)

    async def too_few(self, jobs: Sequence[JobDescription]) -> str:
        """Whether these could not run side by side on nodes of their own, by a list that is not old. Raises SlurmError."""
        if self._rooms and not self._too_few(jobs):
            return ""
        await self._read(asyncio.get_running_loop().time())
        return self._too_few(jobs)

    def _too_few(self, jobs: Sequence[JobDescription]) -> str:
        shape = tuple((*_asked(job), job.constraints) for job in jobs)
        if shape not in self._few:
            if len(self._few) >= MOST_JUDGED:
                self._few.clear()
            self._few[shape] = too_few_nodes(jobs, self._rooms)
        return self._few[shape]

    async def rooms_of(self, partition: str) -> Mapping[str, NodeRoom]:
        """All nodes that are known, by name. They are read where none of that partition is known, or what was read is known to be old. Raises SlurmError."""
        if self._partitions is None:
            self._partitions = frozenset[str]().union(*{room.partitions for room in self._rooms.values()})
        known = not partition or not self._partitions.isdisjoint(partition.split(","))
        if not self._rooms or not known or self._outdated:
            await self._read(asyncio.get_running_loop().time())
        return self._rooms

    async def even_share(self, partition: str) -> Callable[[PerTask, int, int], int]:
        """How many tasks of a job each node of a partition is to have: see `capacity.even_share`. Raises SlurmError."""
        wanted = set(partition.split(","))
        rooms = [room for room in (await self.rooms_of(partition)).values() if room.partitions & wanted]
        return partial(even_share, rooms)

    @property
    def have_slurmds(self) -> bool:
        """Of those that are known: others than ours may come and go, and nothing tells it."""
        return any(room.has_slurmd for room in self._rooms.values())

    async def refresh(self) -> None:
        """Raises SlurmError."""
        await self._read(asyncio.get_running_loop().time())

    def refused(self) -> None:
        """Slurm itself said no for want of a node: it is looked whether that changes."""
        self._refused_at = asyncio.get_running_loop().time()

    def outdate(self) -> None:
        """Something tells that Slurm has other nodes now, or will have in a moment."""
        self._outdated = True

    async def unknown(self, names: Iterable[str]) -> frozenset[str]:
        """Those of them that are no nodes of Slurm's, by a list that is not old."""
        asked = asyncio.get_running_loop().time()
        wanted = frozenset(names)
        old = asked - self._whole_at > LOOK_SECONDS
        if old or wanted - self._rooms.keys():
            await self._read(asked, whole=old)
        return wanted - self._rooms.keys()

    async def is_current(self) -> bool:
        """Ask Slurm whether nodes have come or gone; False while a list of all nodes was read a moment ago and must not be read again."""
        asked = asyncio.get_running_loop().time()
        await self._read(asked, whole=asked - self._whole_at > LOOK_SECONDS)
        return self._sure_at >= asked

    async def run(self) -> None:
        """For ever: while somebody was told no, look whether nodes have come. While nobody was, nothing is asked: a thousand nodes are three megabytes."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            await asyncio.sleep(BACKOFF.seconds(failures) if failures else LOOK_SECONDS)
            if loop.time() - self._refused_at > REMEMBERED_SECONDS:
                continue
            try:
                await self._read(loop.time())
                failures = 0
            except SlurmError as error:
                failures += 1
                log.warning("Slurm's nodes cannot be read (%s); again later, failure %d", error, failures)

    async def _read(self, asked: float, *, whole: bool = False) -> None:
        """The nodes as they are, or a list that is not old where a newer one would cost too much. `whole`: also without those that were deleted."""
        async with self._reading:
            if self._sure_at >= asked and (self._whole_at >= asked or not (whole or self._outdated)):
                return
            loop = asyncio.get_running_loop()
            until = min(self._rest_until, self._whole_at + MOST_OUTDATED) if self._outdated else self._rest_until
            if (rest := until - loop.time()) > LEAST_REST:
                return
            await asyncio.sleep(max(rest, 0.0))
            began = loop.time()
            anew = whole or self._outdated or began - self._whole_at > WHOLE_SECONDS
            nodes, self._update_time = await self._slurm.nodes.since(0 if anew else self._update_time)
            if nodes is not None:
                self._keep(nodes)
                self._outdated = False
                self._whole_at = began
                cost = loop.time() - began
                self._rest_until = loop.time() + min(max(cost / SHARE, LEAST_REST), LOOK_SECONDS)
            self._sure_at = began  # only now: an attempt that failed is no answer to those who wait

    def _judge(self, job: JobDescription) -> str:
        shape = _asked(job)
        if shape not in self._judged:
            if len(self._judged) >= MOST_JUDGED:
                self._judged.clear()
            self._judged[shape] = shortfall(job, self._allowed(job))
        return self._judged[shape]

    def _allowed(self, job: JobDescription) -> Iterable[NodeRoom]:
        excluded = {name for words in job.excluded_nodes or () for name in expand(words)}
        return self._rooms.values() if not excluded else [room for name, room in self._rooms.items() if name not in excluded]

    def _keep(self, nodes: Iterable[Node]) -> None:
        found = {node.name: node for node in nodes}
        if len(self._kinds) > 2 * len(found) + 16:  # most are of nodes that are gone
            self._kinds = {}
        for name in self._rooms.keys() - found.keys():
            self._change(name, None)
        for name, node in found.items():
            self._change(name, node)
        before, self._unused = self._unused, {name for name, node in found.items() if takes_no_jobs(node)}
        if (before - self._unused) & found.keys():
            self.on_resumed()

    def _change(self, name: str, node: Node | None) -> None:
        before = self._rooms.pop(name, None)
        if node is not None:
            self._rooms[name] = self._shared(room_of(node))
        self.names_version += (before is None) != (node is None)
        if self._rooms.get(name) != before:
            self._judged.clear()
            self._few.clear()
            self._partitions = None
            self.version += 1
            if self._told:
                self._told = False
                asyncio.get_running_loop().call_soon(self._tell)

    def _shared(self, room: NodeRoom) -> NodeRoom:
        kind = (
            room.partitions,
            room.cpus,
            room.memory,
            tuple(sorted(room.gres.items())),
            room.features,
            room.has_slurmd,
            room.registrar,
            room.departing,
        )
        return self._kinds.setdefault(kind, room)

    def _tell(self) -> None:
        """Once, however many nodes changed."""
        self._told = True
        self.on_room()


def _asked(job: JobDescription) -> tuple[object, ...]:
    """All that matters to whether nodes could hold it."""
    asked = (job.partition, job.tasks, job.cpus_per_task, job.memory_per_cpu, job.memory_per_node, job.tres_per_task, job.tres_per_node)
    return (*asked, job.tasks_per_node, job.maximum_nodes, *(job.excluded_nodes or ()))
