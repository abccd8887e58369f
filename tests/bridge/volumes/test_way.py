"""A pod with claims through the whole loop, with both sides in memory: what it waits for, and that nothing of it stays behind."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from slinky.bridge.keys import FINALIZER
from slinky.bridge.volumes.binder import VolumeBinder
from slinky.bridge.volumes.live import Volumes
from slinky.bridge.volumes.stock import SELECTED_NODE
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Key
from tests.bridge.both_sides import World, told
from tests.bridge.volumes.storage import Shelves, a_claim, a_class, a_pod, a_volume

KEY = WorkloadKey("Pod", "ns", "p-uid")


class Place(Shelves):
    """The world's pods and nodes, and storage beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.put(a_class("made", "disks.example.com"), a_class("now", "disks.example.com", "Immediate"))

    def __call__(self, world: World) -> VolumeBinder:
        self.volumes_here = Volumes(self.caches(), (world.pods,), lambda key: world.loop.queue.add(key))
        self.volumes_here.learned()
        self.binder = VolumeBinder(self.volumes_here, world.nodes, self, 600.0)
        return self.binder

    def selected(self, name: str = "c") -> str | None:
        claim = self.claims.get(name, "ns")
        assert claim
        return claim.metadata.annotations.get(SELECTED_NODE)


def a_pod_with_claims(world: World, *claims: str) -> None:
    pod = a_pod("p", *claims)
    world.pods.put(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, finalizers=(FINALIZER,))))


def story(told_of: Callable[[World, Place], Any]) -> None:
    place = Place()
    told(lambda world: told_of(world, place), place)


def test_a_pod_whose_claim_is_not_bound_is_submitted_when_it_is() -> None:
    async def way(world: World, place: Place) -> None:
        place.put(a_claim("c", kind="now"))
        a_pod_with_claims(world, "c")
        await world.until(lambda: KEY in world.loop.known and world.loop.known[KEY].waits)
        await asyncio.sleep(100)
        assert world.acts == []
        place.put(a_volume("v", kind="now"))
        place.controller_binds("c", "v")
        await world.until(lambda: 1 in world.held, seconds=1)
        world.set_job(1, "RUNNING")
        await world.until(lambda: world.pod("p").spec.node_name)
        assert world.loop.known[KEY].waits == ""

    story(way)


def test_a_pod_is_bound_after_its_volume() -> None:
    async def way(world: World, place: Place) -> None:
        place.put(a_claim("c", kind="made"))
        a_pod_with_claims(world, "c")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: place.selected() == "n")
        await asyncio.sleep(60)
        assert not world.pod("p").spec.node_name
        assert "waits for its volume to be made" in world.loop.known[KEY].waits
        place.put(a_volume("v", kind="made"))
        place.controller_binds("c", "v")
        await world.until(lambda: world.pod("p").spec.node_name, seconds=1)
        assert not place.binder.holds(KEY)

    story(way)


def test_a_job_that_ends_while_volumes_are_made_leaves_the_claim_free() -> None:
    async def way(world: World, place: Place) -> None:
        place.put(a_claim("c", kind="made"))
        a_pod_with_claims(world, "c")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: place.selected() == "n")
        world.set_job(1, "CANCELLED")
        await world.until(lambda: world.pods.by_key(Key("ns", "p")) is None)
        await world.until(lambda: place.selected() is None)
        await world.until(world.is_empty)
        assert not place.binder.holds(KEY)

    story(way)


def test_a_node_that_did_not_work_out_sends_the_workload_back_with_its_claims_as_they_were() -> None:
    async def way(world: World, place: Place) -> None:
        place.put(a_claim("c", kind="made"), a_claim("d", kind="made"))
        a_pod_with_claims(world, "c", "d")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: place.selected("c") == place.selected("d") == "n")
        place.change(place.claims.get("c", "ns"), {SELECTED_NODE: None})
        await world.until(lambda: "end 1 None" in world.acts)
        assert "n" in world.loop.known[KEY].avoided
        assert (place.selected("c"), place.selected("d")) == (None, None)
        assert not place.binder.holds(KEY)
        assert not world.pod("p").spec.node_name

    story(way)
