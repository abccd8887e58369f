"""A cluster put together from what was written, also where some of it cannot be read."""

from typing import Any

import pytest

from slinky.kube import Key, Meta
from slinky.operator.assembling import Assembler, with_image
from slinky.operator.files import Content
from slinky.operator.kinds import Controller, NodeSet, NodeSetSpec, Written
from slinky.operator.settings import ImageSettings, Settings
from slinky.operator.trouble import Trouble
from slinky.operator.watching import RESOURCES


class Kind(dict[str, Written]):
    def list(self, _namespace: str) -> list[Written]:
        return [*self.values()]

    def get(self, name: str, _namespace: str = "") -> Written | None:  # type: ignore[override]
        return dict.get(self, name)


class World:
    def __init__(self) -> None:
        self.kinds = {kind: Kind() for kind in RESOURCES}
        self.files = self
        self.children: dict[str, Any] = {}
        self.contents: dict[tuple[str, str], Content] = {}
        self._version = 0
        self.assembler = Assembler(self, Settings(), "cluster.local")  # type: ignore[arg-type]

    def get(self, kind: str, key: Key) -> Content | None:
        return self.contents.get((kind, key.name))

    async def content(self, kind: str, name: str, _namespace: str) -> Content | None:
        return self.contents.get((kind, name))

    def write(self, kind: str, name: str, uid: str = "", **spec: Any) -> Written:
        self._version += 1
        meta = Meta(name=name, namespace="lab", uid=uid or f"uid-{name}", resource_version=str(self._version))
        self.kinds[kind][name] = Written(metadata=meta, spec=spec)
        return self.kinds[kind][name]

    def controller(self) -> Controller:
        return self.assembler.read(Controller, self.kinds["Controller"]["c"])

    async def nodesets(self) -> list[tuple[str, int]]:
        view = await self.assembler.view(self.controller())
        return [(each.metadata.name, each.spec.replicas) for each in view.nodesets]


@pytest.fixture
def world() -> World:
    found = World()
    found.write("Controller", "c")
    found.contents["ConfigMap", "c-config"] = Content()
    return found


MEMBER: dict[str, Any] = {"controllerRef": {"name": "c"}}


async def test_a_nodeset_that_cannot_be_read_any_more_stands_as_it_was(world: World) -> None:
    world.write("NodeSet", "w", replicas=3, **MEMBER)
    assert await world.nodesets() == [("w", 3)]
    world.write("NodeSet", "w", replicas=5, typo=1, **MEMBER)
    assert await world.nodesets() == [("w", 3)]


async def test_one_that_never_could_be_read_holds_the_configuration_of_a_cluster_that_runs(world: World) -> None:
    world.write("NodeSet", "w", typo=1, **MEMBER)
    with pytest.raises(Trouble, match="NodeSet w cannot be read"):
        await world.nodesets()
    del world.contents["ConfigMap", "c-config"]
    assert await world.nodesets() == []


async def test_another_of_the_same_name_is_not_taken_for_the_one_before(world: World) -> None:
    world.write("NodeSet", "w", replicas=3, **MEMBER)
    await world.nodesets()
    world.write("NodeSet", "w", uid="another", typo=1, **MEMBER)
    with pytest.raises(Trouble, match="NodeSet w cannot be read"):
        await world.nodesets()


async def test_a_file_that_is_named_has_to_be_there(world: World) -> None:
    world.write("Controller", "c", configFileRefs=[{"name": "files"}])
    with pytest.raises(Trouble, match="no ConfigMap files"):
        await world.nodesets()
    world.contents["ConfigMap", "files"] = Content(data={"gres.conf": "x"})
    view = await world.assembler.view(world.controller())
    assert view.files == {"files": {"gres.conf": "x"}}
    world.contents["ConfigMap", "files"] = Content(binary_data={"a": "AA=="})
    with pytest.raises(Trouble, match="binary"):
        await world.nodesets()


async def test_of_secrets_there_are_digests_only(world: World) -> None:
    world.contents["Secret", "c-auth-slurm"] = Content(data={"slurm.key": "c2VjcmV0"})
    view = await world.assembler.view(world.controller())
    assert set(view.digests) == {"c-auth-slurm"} and "c2VjcmV0" not in str(view)
    world.contents["Secret", "c-auth-slurm"] = Content(data={"slurm.key": "b3RoZXI="})
    assert (await world.assembler.view(world.controller())).digests != view.digests


def test_what_is_wrong_with_an_object_is_trouble_that_names_the_field(world: World) -> None:
    found = world.write("Controller", "d", extraconf="x")
    with pytest.raises(Trouble, match="extraconf") as trouble:
        world.assembler.read(Controller, found)
    assert (trouble.value.reason, trouble.value.lasting) == ("UnknownField", True)


def test_an_image_is_the_settings_unless_it_is_named() -> None:
    images = ImageSettings(slurmd="usual:1", pull_policy="Always")
    plain = NodeSet(metadata=Meta(name="w"), spec=NodeSetSpec(slurmd={"tty": False}))
    assert with_image(plain, images).spec.slurmd == {"imagePullPolicy": "Always", "tty": False, "image": "usual:1"}
    named = NodeSet(metadata=Meta(name="w"), spec=NodeSetSpec(slurmd={"image": "mine:2"}))
    assert with_image(named, images) == named
