"""Which nodes a pod must not be sent to for want of something: for ever, or while others have it and Slurm does not know."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.bridge import ledger
from slinky.bridge.ledger import Ledger
from slinky.bridge.needs import needs_of
from slinky.bridge.room import counted_by_slurm, room_refusal
from slinky.kube import Cache, Key, Node, Pod
from slinky.kube.quantities import quantity
from tests.bridge.test_needs import a_pod, box

COUNTED = counted_by_slurm({"nvidia.com/gpu"})
ALLOCATABLE = {
    "cpu": "8",
    "memory": "16Gi",
    "pods": "3",
    "ephemeral-storage": "10Gi",
    "hugepages-2Mi": "1Gi",
    "nvidia.com/gpu": "4",
    "example.com/fpga": "2",
}


def a_node(name: str = "n", **other: str) -> Node:
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": ALLOCATABLE | other}}, Node)


def asking(**requests: str) -> Pod:
    return a_pod({"containers": [box(**requests)]})


def in_use(**amounts: int) -> dict[str, Fraction]:
    return {name: Fraction(amount) for name, amount in amounts.items()}


def refusal(pod: Pod, used: dict[str, Fraction] | None = None, foreign: dict[str, Fraction] | None = None) -> str:
    return room_refusal(needs_of(pod), a_node(), used or {}, foreign or {}, COUNTED)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({"cpu": "9"}, "node n has 8 cpu in total, but the pod requests 9"),
        ({"memory": "17Gi"}, "node n has 16Gi memory in total, but the pod requests 17Gi"),
        ({"memory": "17179869185"}, "node n has 17179869184 bytes memory in total, but the pod requests 17179869185 bytes"),
        ({"ephemeral-storage": "11Gi"}, "ephemeral-storage in total"),
        ({"hugepages-2Mi": "2Gi"}, "hugepages-2Mi in total"),
        ({"hugepages-1Gi": "1Gi"}, "node n has 0 hugepages-1Gi in total"),
        ({"nvidia.com/gpu": "5"}, "node n has 4 nvidia.com/gpu in total"),
        ({"example.com/fpga": "3"}, "example.com/fpga in total"),
        (
            {"example.com/none": "1"},
            "node n offers no example.com/none, but the pod requests 1 (resources of a DeviceClass are not supported)",
        ),
    ],
)
def test_a_node_that_could_never_hold_it_is_refused_whoever_counts(requests: dict[str, str], words: str) -> None:
    assert words in refusal(asking(**requests), {}, {})


@pytest.mark.parametrize("name", ["ephemeral-storage", "hugepages-2Mi", "example.com/fpga"])
def test_what_slurm_does_not_count_is_refused_while_it_is_in_use(name: str) -> None:
    most = ALLOCATABLE[name]
    pod = asking(**{name: most})
    assert refusal(pod, {}, {}) == ""
    assert f"{name} free" in refusal(pod, {name: quantity(most) / 2}, {})


def test_a_node_with_as_many_pods_as_it_takes_is_refused() -> None:
    assert refusal(asking(), in_use(pods=2), {}) == ""
    assert refusal(asking(), in_use(pods=3), {}) == "node n has 0 of 1 pods free"


def test_of_what_slurm_counts_only_others_pods_are_held_against_a_node() -> None:
    pod = asking(cpu="2", **{"nvidia.com/gpu": "2"})
    full = {"cpu": Fraction(8), "nvidia.com/gpu": Fraction(4)}
    assert refusal(pod, full, {}) == "", "Slurm queues for it"
    assert "besides other schedulers' pods" in refusal(pod, full, {"cpu": Fraction(7)})


def placed(name: str, node: str, **requests: str) -> Pod:
    pod = asking(**requests)
    meta = msgspec.structs.replace(pod.metadata, name=name, uid=f"{name}-uid")
    return msgspec.structs.replace(pod, metadata=meta, spec=msgspec.structs.replace(pod.spec, node_name=node))


class World:
    def __init__(self) -> None:
        self.own: Cache[Pod] = Cache()
        self.foreign: Cache[Pod] = Cache()
        self.nodes: Cache[Node] = Cache()
        self.nodes.put(a_node("n"))
        self.nodes.put(a_node("m"))
        self.ledger = Ledger([self.own], self.nodes, foreign=[self.foreign], mapped=["nvidia.com/gpu"])
        self.freed: list[str] = []
        self.ledger.freed = self.freed.append

    def refused(self, **requests: str) -> set[str]:
        pod = asking(**requests)
        found = self.ledger.refusals(pod)
        assert all(self.ledger.refusal(pod, name) == found.get(name, "") for name in ("n", "m"))
        return set(found)


@pytest.fixture
async def world() -> World:
    return World()


async def test_the_answers_follow_what_happens_on_the_nodes(world: World) -> None:
    assert world.refused(**{"example.com/fpga": "2"}) == set()
    world.own.put(placed("a", "n", **{"example.com/fpga": "1"}))
    assert world.refused(**{"example.com/fpga": "2"}) == {"n"}
    assert world.refused(**{"example.com/fpga": "1"}) == set()
    world.own.remove(Key("ns", "a"))
    assert world.refused(**{"example.com/fpga": "2"}) == set()


HAPPENS = ("own pod", "foreign pod", "pod goes", "node comes", "node goes", "ask")


@pytest.mark.parametrize("few", [0, 1000])
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(HAPPENS), st.sampled_from("abcd"), st.integers(1, 4)), max_size=40))
def test_nodes_are_refused_as_if_each_was_judged_for_each_pod(few: int, steps: list[tuple[str, str, int]]) -> None:
    """One by one, and those together that have the same left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "FEW_PLACES", few)
        world = World()
        for what, name, number in [*steps, ("ask", "a", 1), ("ask", "a", 4)]:
            node = f"node-{name}"
            wanted = {"cpu": str(number), "example.com/fpga": str(number % 3)}
            match what:
                case "own pod":
                    world.own.put(placed(f"{name}{number}", node, **wanted))
                case "foreign pod":
                    world.foreign.put(placed(f"{name}{number}", node, **wanted))
                case "pod goes":
                    world.own.remove(Key("ns", f"{name}{number}"))
                    world.foreign.remove(Key("ns", f"{name}{number}"))
                case "node comes":
                    world.nodes.put(a_node(node))
                case "node goes":
                    world.nodes.remove(Key("", node))
                case _:
                    pod = asking(**wanted)
                    there = [each.metadata.name for each in world.nodes.list()]
                    found = world.ledger.refusals(pod)
                    assert dict(found) == {one: why for one in there if (why := world.ledger.refusal(pod, one))}


async def test_own_pods_cpus_are_slurms_business_and_others_are_not(world: World) -> None:
    world.own.put(placed("a", "n", cpu="8"))
    world.foreign.put(placed("d", "m", cpu="8"))
    assert world.refused(cpu="1") == {"m"}
    world.foreign.remove(Key("ns", "d"))
    assert world.refused(cpu="1") == set()


async def test_a_node_that_gets_more_of_something_is_told_of(world: World) -> None:
    assert world.refused(cpu="9") == {"n", "m"}
    world.nodes.put(a_node("n", cpu="16"))
    assert world.refused(cpu="9") == {"m"}
    assert world.freed == ["n"]
    world.nodes.remove(Key("", "n"))
    assert "no node n" in world.ledger.refusal(asking(), "n")


async def test_what_is_assumed_counts_at_once(world: World) -> None:
    pod = placed("a", "", **{"ephemeral-storage": "6Gi"})
    world.ledger.assume(pod, "n")
    assert world.refused(**{"ephemeral-storage": "6Gi"}) == {"n"}
    world.ledger.withdraw(pod)
    assert world.refused(**{"ephemeral-storage": "6Gi"}) == set()


async def test_a_pod_that_is_resized_counts_anew(world: World) -> None:
    def daemon(cpu: str, **given: Any) -> Pod:
        spec = msgspec.structs.replace(a_pod({"containers": [box(cpu=cpu)]}).spec, node_name="n")
        return msgspec.structs.replace(a_pod({}, given), spec=spec)

    world.foreign.put(daemon("1"))
    assert world.refused(cpu="7") == set()
    world.foreign.put(daemon("2"))
    assert world.refused(cpu="7") == {"n"}
    world.foreign.put(daemon("1", containerStatuses=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}]))
    assert world.refused(cpu="7") == {"n"}, "it has not shrunk yet"
    world.foreign.put(daemon("1", containerStatuses=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}]))
    assert world.refused(cpu="7") == set()


async def test_huge_pages_are_not_taken_from_memory_and_count_at_binding(world: World) -> None:
    world.own.put(placed("a", "n", memory="15Gi", **{"hugepages-2Mi": "1Gi"}))
    assert world.ledger.obstacle("n", [placed("b", "", memory="1Gi")]) == "", "allocatable memory is without them"
    assert "0 of 2097152 hugepages-2Mi free" in world.ledger.obstacle("n", [placed("b", "", **{"hugepages-2Mi": "2Mi"})])
    assert world.refused(**{"hugepages-2Mi": "2Mi"}) == {"n"}


async def test_who_is_refused_for_what_others_take_is_to_be_asked_again_when_they_go(world: World) -> None:
    pod = asking(**{"ephemeral-storage": "6Gi"})
    assert not world.ledger.is_short(pod)
    world.own.put(placed("a", "n", **{"ephemeral-storage": "6Gi"}))
    assert world.ledger.is_short(pod)
    assert not world.ledger.is_short(asking(**{"ephemeral-storage": "60Gi"})), "nobody's going would help"
