"""Nodes: look, make, change, remove. Names may be hostlists wherever several nodes make sense."""

import time
from collections.abc import AsyncIterator, Iterable

import msgspec

from slinky.slurm.connection import Connection
from slinky.slurm.descriptions import NodeChange, NodeDescription
from slinky.slurm.errors import NotFoundError
from slinky.slurm.hostlists import compress, expand
from slinky.slurm.lanes import Lane
from slinky.slurm.models.nodes import Node, NodeList
from slinky.slurm.numbers import Envelope
from slinky.slurm.pace import Pace
from slinky.slurm.paths import segment
from slinky.slurm.watch import NodeTransition, watch_nodes

__all__ = ["Nodes"]

_NODES = msgspec.json.Decoder(NodeList)
_DONE = msgspec.json.Decoder(Envelope)


class Nodes:
    """`client.nodes`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self) -> list[Node]:
        """All nodes (about 3 KB each)."""
        return (await self._connection.read("slurm/nodes/", _NODES)).nodes or []

    async def get(self, name: str) -> Node:
        """One node. NotFoundError where there is none of that name."""
        nodes = (await self._connection.read(f"slurm/node/{segment(name, 'node')}", _NODES)).nodes
        if not nodes:
            raise NotFoundError(f"there is no node {name}", request=f"node/{name}")
        return nodes[0]

    async def create(self, node: NodeDescription) -> list[str]:
        """Make a node, or several of one shape, and return their names. Slurm 25.11 and later.

        Without GRES several are made in one request, all or none; with GRES slurmctld takes one at a time, and a refusal leaves those before it.
        """
        await self._connection.require("new/node/")
        for node_conf in node.calls():
            await self._connection.change("POST", "slurm/new/node/", _DONE, {"node_conf": node_conf})
        return expand(node.name)

    async def update(self, names: str | Iterable[str], change: NodeChange) -> None:
        """Change one or many, in one request."""
        written = compress(expand(names) if isinstance(names, str) else names)
        if not written:
            return
        sent = msgspec.structs.replace(change, other={**(change.other or {}), "name": [written]})
        await self._connection.change("POST", "slurm/nodes/", _DONE, sent, repeatable=True)

    async def drain(self, names: str | Iterable[str], reason: str) -> None:
        """No new jobs; those there run on."""
        await self.update(names, NodeChange(state=["DRAIN"], reason=reason))

    async def undrain(self, names: str | Iterable[str]) -> None:
        """Take back a drain, and nothing else."""
        await self.update(names, NodeChange(state=["UNDRAIN"]))

    async def down(self, names: str | Iterable[str], reason: str) -> None:
        """Out of use at once; the jobs there end as NODE_FAIL."""
        await self.update(names, NodeChange(state=["DOWN"], reason=reason))

    async def resume(self, names: str | Iterable[str]) -> None:
        """Back in use, from drained or down. Where one of several was in use already, Slurm does it for the others and refuses all the same (2180)."""
        await self.update(names, NodeChange(state=["RESUME"]))

    async def delete(self, names: str | Iterable[str]) -> None:
        """Remove a run-time node, or several in one request: slurmctld makes its tables anew for each request. Where one of several is refused, the others are gone all the same. Not while a live job names one in `excluded_nodes`: Slurm then refuses every update of that job."""
        written = names if isinstance(names, str) else compress(names)
        if written or isinstance(names, str):
            await self._connection.change("DELETE", f"slurm/node/{segment(written, 'node')}", _DONE)

    async def since(self, update_time: int) -> tuple[list[Node] | None, int]:
        """All nodes, or None where nothing changed since the last answer, whose second value is `update_time`; 0 asks for all."""
        lane = Lane.URGENT if update_time else Lane.NORMAL  # a list of all is not small
        answer = await self._connection.read("slurm/nodes/", _NODES, {"update_time": update_time or None}, lane=lane)
        if answer.nodes is None:
            return None, update_time
        # Slurm's clock has seconds: ask again for the second in which this was written.
        return answer.nodes, max(answer.last_update - 1, 0) if isinstance(answer.last_update, int) else 0

    def watch(self, pace: Pace | None = None) -> AsyncIterator[NodeTransition]:
        """Transitions of all nodes, for ever; the first word on each is its state at the start. Slurm answers in 100 bytes while nothing changed; that one was deleted is seen when another changes, or all are asked for (`Pace.whole`)."""
        pace = pace or Pace()
        last_update, whole_at = 0, float("-inf")

        async def look() -> list[Node] | None:
            nonlocal last_update, whole_at
            now = time.monotonic()
            is_whole = now - whole_at >= pace.whole
            nodes, last_update = await self.since(0 if is_whole else last_update)
            whole_at = now if is_whole else whole_at
            return nodes

        return watch_nodes(look, pace)
