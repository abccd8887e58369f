"""What is wrong with the names of hybrid nodes, told to people: an Event on each Node whose name in Slurm two claim, or that Slurm does not have.

Comes in: the names that labels say, and Slurm's nodes, asked for only where there is such a label or a node with a slurmd. Goes out: Events, each when it begins to be so, and one when it is over. What must stay true: nothing is decided here: who has no name on the other side gets no pods by that alone.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from slinky.bridge.node_names import NodeNames
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.kube import Cache, EventRecorder, Node, reference
from slinky.slurm import SlurmError

__all__ = ["HybridNodes"]

log = logging.getLogger(__name__)

LABELS_SECONDS = 1.0  # how soon another label is looked at
SLURM_SECONDS = 30.0  # how often Slurm is asked: it also brings nodes that the site added to a partition to the knowledge of all


class HybridNodes:
    def __init__(
        self,
        names: NodeNames,
        nodes: Cache[Node],
        slurm_nodes: SlurmNodes,
        events: EventRecorder | None,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._names, self._nodes, self._slurm_nodes, self._events, self._may_act = names, nodes, slurm_nodes, events, may_act
        self._told: dict[str, str] = {}
        self._failing = False

    async def run(self) -> None:
        """For ever."""
        seen, due = -1, 0.0
        while True:
            now = asyncio.get_running_loop().time()
            if self._may_act() and (self._names.version != seen or now >= due):
                seen, due = self._names.version, now + SLURM_SECONDS
                await self._look()
            await asyncio.sleep(LABELS_SECONDS)

    async def _look(self) -> None:
        said = set(self._names.said.values())
        try:
            if said or self._slurm_nodes.have_slurmds:
                await self._slurm_nodes.refresh()
            unknown = await self._slurm_nodes.unknown(said) if said else frozenset[str]()
        except SlurmError as error:
            if not self._failing:
                log.warning("Slurm's nodes cannot be read (%s), which labels may name; again every %g s", error, SLURM_SECONDS)
            self._failing = True
            return
        self._failing = False
        self.tell(self._names.problems(unknown))

    def tell(self, problems: Mapping[str, str]) -> None:
        for node, why in problems.items():
            if self._told.get(node) != why:
                self._say(node, "SlurmNodeRefused", why, warning=True)
        for node in self._told.keys() - problems.keys():
            self._say(node, "SlurmNodeFound", f"Node {node} is Slurm's node {self._names.in_slurm(node)}")
        self._told = dict(problems)

    def _say(self, name: str, reason: str, note: str, *, warning: bool = False) -> None:
        log.log(logging.WARNING if warning else logging.INFO, "node %s: %s: %s", name, reason, note)
        node = self._nodes.get(name)
        if self._events is not None and node is not None:
            self._events.record(reference(node, "v1", "Node"), reason, note, warning=warning)
