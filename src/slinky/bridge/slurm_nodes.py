"""Slurm's nodes, as they are now: one watch for all who need them; and the judgement of what they could hold, remembered until they change."""

from collections.abc import Callable

from slinky.bridge.capacity import NodeRoom, room_of, shortfall
from slinky.slurm import JobDescription, Node, NodeTransition, Pace, SlurmClient

__all__ = ["SlurmNodes"]

MOST_JUDGED = 1000


class SlurmNodes:
    """Subscribers are told each transition; `on_room` is called when what nodes have in all is other than before."""

    def __init__(self, slurm: SlurmClient, pace: Pace | None = None) -> None:
        self._slurm = slurm
        self._pace = pace or Pace(fastest=1.0, slowest=5.0)
        self._subscribers: list[Callable[[NodeTransition], None]] = []
        self._rooms: dict[str, NodeRoom] = {}
        self._judged: dict[object, str] = {}
        self.nodes: dict[str, Node] = {}
        self.on_room: Callable[[], None] = lambda: None

    def subscribe(self, told: Callable[[NodeTransition], None]) -> None:
        self._subscribers.append(told)

    @property
    def is_synced(self) -> bool:
        return bool(self.nodes)

    def shortfall(self, job: JobDescription) -> str:
        """Empty where the job could run on nodes that there are, or none is known yet."""
        if not self.nodes:
            return ""
        asked = (job.partition, job.tasks, job.cpus_per_task, job.memory_per_cpu, job.memory_per_node, job.tres_per_task, job.tres_per_node)
        shape = (*asked, job.maximum_nodes)
        if shape not in self._judged:
            if len(self._judged) >= MOST_JUDGED:
                self._judged.clear()
            self._judged[shape] = shortfall(job, self._rooms.values())
        return self._judged[shape]

    async def run(self) -> None:
        """For ever."""
        async for transition in self._slurm.nodes.watch(self._pace):
            self._keep(transition.name, transition.after)
            for told in self._subscribers:
                told(transition)

    def _keep(self, name: str, node: Node | None) -> None:
        before = self._rooms.pop(name, None)
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node
            self._rooms[name] = room_of(node)
        if self._rooms.get(name) != before:
            self._judged.clear()
            self.on_room()
