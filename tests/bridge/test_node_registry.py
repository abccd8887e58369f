"""How few requests many nodes need: those that want the same at the same moment go together."""

import asyncio

from slinky.bridge.node_registry import MANY, NodeRegistry
from slinky.slurm import Node, NodeChange, NotFoundError


class Slurm:
    """Nodes that remember what was asked for; each request takes a turn of the loop."""

    def __init__(self, *names: str) -> None:
        self.nodes = self
        self.calls: list[tuple[str, list[str]]] = []
        self.known = {name: Node(name=name) for name in names}
        self.refuses = ""

    async def _asked(self, what: str, names: list[str]) -> None:
        self.calls.append((what, sorted(names)))
        await asyncio.sleep(0)
        if self.refuses in names:
            raise NotFoundError(f"no node {self.refuses}")

    async def drain(self, names: list[str], reason: str) -> None:
        await self._asked(f"drain {reason}", names)

    async def undrain(self, names: list[str]) -> None:
        await self._asked("undrain", names)

    async def update(self, names: list[str], change: NodeChange) -> None:
        await self._asked(f"mark {change.extra}", names)

    async def all(self) -> list[Node]:
        await self._asked("all", [])
        return list(self.known.values())

    async def get(self, name: str) -> Node:
        await self._asked("get", [name])
        try:
            return self.known[name]
        except KeyError:
            raise NotFoundError(name) from None


def registry_of(slurm: Slurm) -> NodeRegistry:
    return NodeRegistry(slurm, "c1")  # type: ignore[arg-type]


async def test_many_are_drained_in_two_requests_each_for_its_own_reason() -> None:
    names = [f"n{index}" for index in range(100)]
    slurm = Slurm(*names)
    registry = registry_of(slurm)
    await asyncio.gather(*(registry.drain(name, "a" if index % 2 else "b") for index, name in enumerate(names)))
    assert len(slurm.calls) <= 4
    for reason, start in (("drain b", 0), ("drain a", 1)):
        told = [name for what, some in slurm.calls if what == reason for name in some]
        assert sorted(told) == sorted(names[start::2]), "each of them once"
    await asyncio.gather(*(registry.undrain(name) for name in names))
    assert sum(what == "undrain" for what, _ in slurm.calls) <= 2


async def test_one_that_slurm_refuses_holds_up_nobody_for_good() -> None:
    names = [f"n{index}" for index in range(5)]
    slurm = Slurm(*names)
    registry, slurm.refuses = registry_of(slurm), "n3"
    first = await asyncio.gather(*(registry.drain(name, "a") for name in names), return_exceptions=True)
    assert isinstance(first[3], NotFoundError)
    failed = [name for name, outcome in zip(names, first, strict=True) if outcome is not None and name != "n3"]
    await asyncio.gather(*(registry.drain(name, "a") for name in failed))


async def test_few_are_looked_at_one_by_one_and_many_in_one_list() -> None:
    names = [f"n{index}" for index in range(5 * MANY)]
    slurm = Slurm(*names[1:])
    registry = registry_of(slurm)
    registry.held = {"n0": Node(name="n0")}
    await asyncio.gather(*map(registry.refresh, names))
    assert set(registry.held) == set(names[1:]), "and who is gone is forgotten"
    asked = [what for what, _ in slurm.calls]
    assert asked.count("all") <= 2
    assert asked.count("get") < MANY
    slurm.calls.clear()
    await registry.refresh("n7")
    assert slurm.calls == [("get", ["n7"])]
