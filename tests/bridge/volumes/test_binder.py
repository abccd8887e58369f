"""A workload's claims bound before its pods: begun once, waited for, undone where it did not work out."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from slinky.bridge import pacing
from slinky.bridge.volumes.binder import VolumeBinder
from slinky.bridge.volumes.outcomes import NodeRefused, Underway
from slinky.bridge.volumes.stock import SELECTED_NODE
from slinky.bridge.workload import WorkloadKey
from slinky.kube import ConflictError, Key, Node, PersistentVolume, PersistentVolumeClaim, Pod
from slinky.kube.errors import Status
from tests.bridge.volumes.storage import HOST, Shelves, a_claim, a_class, a_node, a_pod, a_volume, made
from tests.kube.virtual_time import run_in_virtual_time

ONE, TWO = WorkloadKey("Pod", "ns", "one"), WorkloadKey("Pod", "ns", "two")
SECONDS = 600.0


class Bench(Shelves):
    def __init__(self) -> None:
        super().__init__()
        self.put(a_class("local"), a_class("made", "disks.example.com"), a_node("n1"), a_node("n2"))
        self.binder = VolumeBinder(self.live(), self.nodes, self, SECONDS)

    async def bind(self, key: WorkloadKey, *places: tuple[Pod, str]) -> Any:
        return await self.binder.bind(key, places)

    def selected(self, claim: str) -> str | None:
        found = self.claims.get(claim, "ns")
        assert found
        return found.metadata.annotations.get(SELECTED_NODE)

    def owner(self, volume: str) -> str:
        found = self.volumes.get(volume)
        assert found
        return found.spec.claim_ref.name if found.spec.claim_ref else ""

    def provisioner_makes(self, claim: str, node: str = "") -> None:
        self.put(a_volume(f"made-{claim}", kind="made", node=node))
        self.controller_binds(claim, f"made-{claim}")


def in_the_bench(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def inside() -> None:
            await test(Bench())

        run_in_virtual_time(inside())

    run.__name__ = test.__name__
    return run


@in_the_bench
async def test_a_pod_without_claims_waits_for_nothing(bench: Bench) -> None:
    assert await bench.bind(ONE, (a_pod("p"), "n1")) is None
    assert not bench.binder.holds(ONE)


@in_the_bench
async def test_bound_claims_need_nothing_to_be_done(bench: Bench) -> None:
    bench.put(a_claim("c"), a_volume("v", node="n1"))
    bench.controller_binds("c", "v")
    assert await bench.bind(ONE, (a_pod("p", "c"), "n1")) is None
    assert bench.acts == []


@in_the_bench
async def test_a_free_volume_is_given_once_and_waited_for(bench: Bench) -> None:
    bench.put(a_claim("c"), a_volume("v", node="n1"))
    place = a_pod("p", "c"), "n1"
    waits = await bench.bind(ONE, place)
    assert isinstance(waits, Underway)
    assert "claim ns/c waits to be bound" in waits.why
    assert ONE in bench.woken  # by the change of the volume
    assert isinstance(await bench.bind(ONE, place), Underway)
    assert bench.acts == ["give v to c"]
    bench.controller_binds("c", "v")
    assert await bench.bind(ONE, place) is None
    bench.binder.bound(ONE)
    assert not bench.binder.holds(ONE)
    assert bench.acts == ["give v to c"]


@in_the_bench
async def test_a_volume_is_made_for_the_node_and_waited_for(bench: Bench) -> None:
    bench.put(a_claim("c", kind="made"))
    place = a_pod("p", "c"), "n2"
    assert isinstance(await bench.bind(ONE, place), Underway)
    assert bench.selected("c") == "n2"
    waits = await bench.bind(ONE, place)
    assert isinstance(waits, Underway)
    assert "made by disks.example.com" in waits.why
    bench.provisioner_makes("c", "n2")
    assert await bench.bind(ONE, place) is None


@in_the_bench
async def test_a_driver_that_gives_the_node_back_refuses_it_and_the_rest_is_undone(bench: Bench) -> None:
    bench.put(a_claim("c", kind="made"), a_claim("d"), a_volume("v", node="n1"))
    place = a_pod("p", "c", "d"), "n1"
    assert isinstance(await bench.bind(ONE, place), Underway)
    assert bench.owner("v") == "d"
    claim = bench.claims.get("c", "ns")
    bench.change(claim, {SELECTED_NODE: None})
    outcome = await bench.bind(ONE, place)
    assert isinstance(outcome, NodeRefused)
    assert outcome.node == "n1"
    assert "no volume could be made for claim ns/c" in outcome.why
    assert bench.owner("v") == ""
    assert not bench.binder.holds(ONE)


@in_the_bench
async def test_a_volume_that_goes_to_somebody_else_refuses_the_node(bench: Bench) -> None:
    bench.put(a_claim("c"), a_claim("thief"), a_volume("v", node="n1"))
    place = a_pod("p", "c"), "n1"
    await bench.bind(ONE, place)
    bench.controller_binds("thief", "v")
    outcome = await bench.bind(ONE, place)
    assert isinstance(outcome, NodeRefused)
    assert "went to ns/thief" in outcome.why


@in_the_bench
async def test_a_volume_that_was_made_elsewhere_refuses_the_node(bench: Bench) -> None:
    bench.put(a_claim("c", kind="made"))
    place = a_pod("p", "c"), "n1"
    await bench.bind(ONE, place)
    bench.provisioner_makes("c", "n2")
    outcome = await bench.bind(ONE, place)
    assert isinstance(outcome, NodeRefused)
    assert "cannot be had on node n1" in outcome.why


@in_the_bench
async def test_after_the_deadline_all_is_undone(bench: Bench) -> None:
    bench.put(a_claim("c", kind="made"))
    place = a_pod("p", "c"), "n1"
    waits = await bench.bind(ONE, place)
    await asyncio.sleep(SECONDS - 1)
    assert isinstance(await bench.bind(ONE, place), Underway)
    await asyncio.sleep(waits.until - asyncio.get_running_loop().time())
    outcome = await bench.bind(ONE, place)
    assert isinstance(outcome, NodeRefused)
    assert "for 600 s now" in outcome.why
    assert bench.selected("c") is None
    assert isinstance(await bench.bind(ONE, (place[0], "n2")), Underway)  # and elsewhere it begins anew
    assert bench.selected("c") == "n2"


@in_the_bench
async def test_a_node_where_the_claims_cannot_be_had_is_refused_and_nothing_is_begun(bench: Bench) -> None:
    bench.put(a_claim("c"), a_volume("v", node="n2"), a_claim("d"), a_volume("w", node="n1"))
    outcome = await bench.bind(ONE, (a_pod("p", "d"), "n1"), (a_pod("q", "c"), "n1"))
    assert isinstance(outcome, NodeRefused)
    assert bench.acts == []
    assert isinstance(await bench.bind(TWO, (a_pod("r", "d"), "n1")), Underway)  # nothing is kept from others


@in_the_bench
async def test_one_volume_is_promised_to_one_pod(bench: Bench) -> None:
    bench.put(a_claim("c"), a_claim("d"), a_volume("v", node="n1"))
    outcome = await bench.bind(ONE, (a_pod("p", "c"), "n1"), (a_pod("q", "d"), "n1"))
    assert isinstance(outcome, NodeRefused)
    bench.put(a_volume("w", node="n1"))
    assert isinstance(await bench.bind(ONE, (a_pod("p", "c"), "n1"), (a_pod("q", "d"), "n1")), Underway)
    assert sorted(bench.acts) == ["give v to c", "give w to d"]


@in_the_bench
async def test_members_of_a_gang_that_share_a_claim_wait_for_the_first_of_them(bench: Bench) -> None:
    bench.put(a_claim("shared", kind="made"))
    places = (a_pod("p", "shared"), "n1"), (a_pod("q", "shared"), "n2")
    assert isinstance(await bench.bind(ONE, *places), Underway)
    assert bench.acts == ["select n1 for shared"]
    bench.provisioner_makes("shared")
    assert await bench.bind(ONE, *places) is None


@in_the_bench
async def test_another_workload_waits_for_a_claim_that_is_on_its_way_and_hears_of_it(bench: Bench) -> None:
    bench.put(a_claim("shared", kind="made"))
    await bench.bind(ONE, (a_pod("p", "shared"), "n1"))
    waits = await bench.bind(TWO, (a_pod("q", "shared"), "n2"))
    assert isinstance(waits, Underway)
    assert "being bound for another pod" in waits.why
    bench.woken.clear()
    await bench.binder.give_back(ONE)  # the first one's pod was deleted
    assert TWO in bench.woken
    assert isinstance(await bench.bind(TWO, (a_pod("q", "shared"), "n2")), Underway)
    assert bench.selected("shared") == "n2"


@in_the_bench
async def test_what_was_begun_for_a_pod_that_goes_elsewhere_is_undone(bench: Bench) -> None:
    bench.put(a_claim("c"), a_volume("v", node="n1"), a_volume("w", node="n2"), a_claim("d", kind="made"))
    await bench.bind(ONE, (a_pod("p", "c"), "n1"), (a_pod("q", "d"), "n1"))
    await bench.bind(ONE, (a_pod("p", "c"), "n2"), (a_pod("q", "d"), "n1"))
    assert (bench.owner("v"), bench.owner("w"), bench.selected("d")) == ("", "c", "n1")
    await bench.binder.give_back(ONE, {"q-uid": "n1"})
    assert (bench.owner("w"), bench.selected("d")) == ("", "n1")


@in_the_bench
async def test_after_a_restart_it_goes_on_where_it_was(bench: Bench) -> None:
    bench.put(a_claim("c"), a_volume("v", node="n1"), a_claim("d", kind="made"))
    place = a_pod("p", "c", "d"), "n1"
    await bench.bind(ONE, place)
    bench.acts.clear()
    bench.binder = VolumeBinder(bench.live(), bench.nodes, bench, SECONDS)
    assert isinstance(await bench.bind(ONE, place), Underway)
    bench.controller_binds("c", "v")
    bench.provisioner_makes("d", "n1")
    assert await bench.bind(ONE, place) is None
    assert bench.acts == []


class Contested(Bench):
    """Somebody else changes each object once, just before us."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[str] = set()

    def _first(self, thing: PersistentVolume | PersistentVolumeClaim) -> None:
        if thing.metadata.name not in self.changed:
            self.changed.add(thing.metadata.name)
            self.change(thing, {"touched": "yes"})
            raise ConflictError("PATCH", "/path", Status(code=409, reason="Conflict", message="it has changed"))

    async def select(self, claim: PersistentVolumeClaim, node: str) -> str:
        self._first(claim)
        return await super().select(claim, node)

    async def give(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
        self._first(volume)
        return await super().give(volume, claim)


def test_what_somebody_changed_meanwhile_is_decided_anew() -> None:
    async def inside() -> None:
        bench = Contested()
        bench.put(a_claim("c"), a_volume("v", node="n1"), a_claim("d", kind="made"))
        place = a_pod("p", "c", "d"), "n1"
        for _ in range(2):
            with pytest.raises(ConflictError):
                await bench.bind(ONE, place)
        assert isinstance(await bench.bind(ONE, place), Underway)
        assert (bench.owner("v"), bench.selected("d")) == ("c", "n1")

    run_in_virtual_time(inside())


@in_the_bench
async def test_a_pod_whose_claim_cannot_be_used_yet_is_held_and_hears_of_the_change(bench: Bench) -> None:
    bench.put(a_class("now", "disks.example.com", "Immediate"), a_claim("c", kind="now"))
    assert bench.binder.hold(ONE, [a_pod("p", "c")]) == "claim ns/c is not bound yet"
    bench.woken.clear()
    bench.provisioner_makes("c")
    assert ONE in bench.woken
    assert bench.binder.hold(ONE, [a_pod("p", "c")]) == ""
    bench.woken.clear()
    bench.change(bench.claims.get("c", "ns"), {"whatever": "yes"})
    assert bench.woken == []  # it waits no longer


@in_the_bench
async def test_a_claim_for_one_pod_alone_is_taken_from_the_decision_on(bench: Bench) -> None:
    bench.put(a_claim("c", accessModes=["ReadWriteOncePod"]), a_volume("v", accessModes=["ReadWriteOncePod"]))
    bench.controller_binds("c", "v")
    first, second = a_pod("first", "c"), a_pod("second", "c")
    bench.put(first, second)
    assert await bench.bind(ONE, (first, "n1")) is None
    bench.binder.bound(ONE)
    assert "pod ns/first uses it" in bench.binder.hold(TWO, [second])
    bench.put(a_pod("first", "c", node="n1", phase="Running"))
    bench.woken.clear()
    bench.put(a_pod("first", "c", node="n1", phase="Succeeded"))
    assert TWO in bench.woken
    assert bench.binder.hold(TWO, [second]) == ""


@in_the_bench
async def test_a_workload_that_is_gone_waits_for_no_claim(bench: Bench) -> None:
    assert bench.binder.hold(ONE, [a_pod("p", "c")])
    bench.binder.forget(ONE)
    bench.binder.forget(TWO)  # which never waited
    bench.woken.clear()
    bench.put(a_claim("c"), a_class("another"))
    assert ONE not in bench.woken


# Large gangs


async def gang(bench: Bench, size: int) -> tuple[tuple[Pod, str], ...]:
    """Whose claims are bound to a volume on a node each."""
    for number in range(size):
        bench.put(a_node(f"g{number}"), a_claim(f"c{number}"), a_volume(f"v{number}", node=f"g{number}"))
        bench.controller_binds(f"c{number}", f"v{number}")
    return tuple((a_pod(f"p{number}", f"c{number}"), f"g{number}") for number in range(size))


@in_the_bench
async def test_the_pods_of_a_gang_are_decided_on_in_short_turns(bench: Bench) -> None:
    places, turns, done = await gang(bench, 30), 0, False

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    pacing.SLICE_SECONDS, before = 0.0, pacing.SLICE_SECONDS
    try:
        assert await bench.bind(ONE, *places) is None
    finally:
        pacing.SLICE_SECONDS, done = before, True
    await task
    assert turns >= 30
    assert bench.binder.still_fits(ONE, places)


@pytest.mark.parametrize("change", ["claim", "node", "volume", "no change", "another's"])
def test_what_has_changed_since_a_pods_turn_is_looked_at_in_the_tick_in_which_the_gang_is_bound(change: str) -> None:
    async def inside() -> None:
        bench = Bench()
        places = await gang(bench, 5)
        assert await bench.bind(ONE, *places) is None
        bench.woken.clear()
        match change:
            case "claim":
                bench.claims.remove(Key("ns", "c3"))
            case "node":
                bench.put(made(Node, {"metadata": {"name": "g3", "labels": {HOST: "renamed"}}}))
            case "volume":
                bench.volumes.remove(Key("", "v3"))
            case "another's":
                bench.put(a_claim("more"), a_volume("more", node="n1"), a_pod("r", "c2", node="n2", phase="Running"))
        fits = change in ("no change", "another's")
        assert bench.binder.still_fits(ONE, places) is fits
        assert (ONE in bench.woken) is not fits
        if not fits:  # the next look finds what is wrong
            assert await bench.bind(ONE, *places) is not None
            assert len(bench.binder._stock.listeners) == 1, "nothing is followed any more but for the waiting"

    run_in_virtual_time(inside())


@in_the_bench
async def test_pods_of_a_gang_whose_nodes_have_not_changed_are_not_looked_at_twice(bench: Bench) -> None:
    looked: list[str] = []
    judgement = bench.binder._volumes.judgement

    def counted(pod: Pod) -> Any:
        looked.append(pod.metadata.name)
        return judgement(pod)

    bench.binder._volumes.judgement = counted  # type: ignore[method-assign]
    places = await gang(bench, 20)
    assert await bench.bind(ONE, *places) is None
    looked.clear()
    bench.put(a_claim("more"), a_volume("w", node="g7"), a_pod("r", "more", node="g7", phase="Running"))
    assert bench.binder.still_fits(ONE, places)
    assert looked == ["p7"]
