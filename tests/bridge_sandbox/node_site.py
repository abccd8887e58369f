"""Both sides of nodes, as tests of them wait for either: what Slurm's node, Kubernetes' Node and its Events say."""

from collections.abc import Awaitable, Callable

from slinky.kube import EVENTS, NODES, Client
from slinky.kube import Node as KubeNode
from slinky.sandbox.handle import Sandbox
from slinky.slurm import Node, NotFoundError, SlurmClient, SlurmError

__all__ = ["NodeSite"]


class NodeSite:
    def __init__(self, sandbox: Sandbox, kube: Client, slurm: SlurmClient) -> None:
        self.sandbox, self.kube, self.slurm = sandbox, kube, slurm

    async def until(self, what: str, probe: Callable[[], Awaitable[object]], seconds: float = 90) -> None:
        await self.sandbox.until("slurmrestd", what, probe, seconds)  # slurmctld is stopped at times

    async def until_slurm(self, name: str, is_so: Callable[[Node], bool], what: str) -> Node:
        found: list[Node] = []

        async def probe() -> bool:
            try:
                found[:] = [await self.slurm.nodes.get(name)]
            except SlurmError:
                return False
            return is_so(found[0])

        await self.until(f"node {name} was {what} in Slurm", probe)
        return found[0]

    async def until_node(self, name: str, is_so: Callable[[KubeNode], bool], what: str) -> KubeNode:
        found: list[KubeNode] = []

        async def probe() -> bool:
            found[:] = [await self.kube.get(NODES, name)]
            return is_so(found[0])

        await self.until(f"Node {name} was {what}", probe)
        return found[0]

    async def until_gone(self, name: str) -> None:
        async def gone() -> bool:
            try:
                await self.slurm.nodes.get(name)
            except NotFoundError:
                return True
            except SlurmError:
                return False
            return False

        await self.until(f"node {name} was gone from Slurm", gone)

    async def until_said(self, name: str, reason: str) -> str:
        notes: list[str] = []

        async def said() -> bool:
            found = (await self.kube.list(EVENTS, "default")).items
            notes[:] = [event.note for event in found if event.regarding.name == name and event.reason == reason]
            return bool(notes)

        await self.until(f"Event {reason} of node {name} was there", said)
        return notes[0]
