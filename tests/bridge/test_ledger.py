"""What Kubernetes counts on a node: from the moment we bind until the containers are gone, whoever scheduled it."""

import datetime as dt

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slinky.bridge.keys import DEVICES
from slinky.bridge.ledger import Ledger
from slinky.kube import Cache, Key, Meta, Node, Pod
from slinky.kube.objects import Container, NodeStatus, PodSpec, PodStatus, ResourceNeeds


def a_pod(name: str, cpu: int = 1, node: str = "", phase: str = "Pending", *, deleting: bool = False) -> Pod:
    deleted = dt.datetime.now(dt.UTC) if deleting else None
    meta = Meta(name=name, namespace="ns", uid=f"{name}-uid", deletion_timestamp=deleted)
    box = Container(name="c", resources=ResourceNeeds(requests={"cpu": str(cpu), "memory": "1Gi"}))
    return Pod(metadata=meta, spec=PodSpec(node_name=node, containers=(box,)), status=PodStatus(phase=phase))


def a_node(name: str, **allocatable: str) -> Node:
    return Node(metadata=Meta(name=name), status=NodeStatus(allocatable={"cpu": "4", "memory": "8Gi", "pods": "3"} | allocatable))


class World:
    def __init__(self) -> None:
        self.own: Cache[Pod] = Cache()
        self.foreign: Cache[Pod] = Cache()
        self.nodes: Cache[Node] = Cache()
        self.nodes.put(a_node("n"))
        self.ledger = Ledger([self.own], self.nodes, foreign=[self.foreign])
        self.freed: list[str] = []
        self.ledger.freed = self.freed.append

    def cpus_free(self) -> int:
        return max(cpus for cpus in range(6) if not cpus or not self.ledger.obstacle("n", [a_pod("probe", cpus)]))


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_pod_counts_from_our_binding_on_and_once(world: World) -> None:
    pod = a_pod("a", 3)
    assert world.ledger.obstacle("n", [pod]) == ""
    world.ledger.assume(pod, "n")
    assert world.ledger.obstacle("n", [pod]) == "", "it is counted there already"
    assert world.cpus_free() == 1
    world.own.put(a_pod("a", 3, "n"))
    assert world.cpus_free() == 1


async def test_a_binding_that_failed_gives_back_what_it_took(world: World) -> None:
    world.ledger.assume(a_pod("a", 3), "n")
    world.ledger.withdraw(a_pod("a", 3))
    assert world.cpus_free() == 4
    assert world.freed == ["n"]


async def test_others_pods_count_and_so_do_dying_ones_until_they_are_over(world: World) -> None:
    world.foreign.put(a_pod("daemon", 1, "n", "Running"))
    world.own.put(a_pod("a", 2, "n", "Running"))
    assert world.cpus_free() == 1
    world.own.put(a_pod("a", 2, "n", "Running", deleting=True))
    assert world.cpus_free() == 1
    world.own.put(a_pod("a", 2, "n", "Failed", deleting=True))
    assert world.cpus_free() == 3
    assert world.freed == ["n"]
    world.own.remove(Key("ns", "a"))
    world.foreign.remove(Key("ns", "daemon"))
    assert world.cpus_free() == 4
    assert world.freed == ["n", "n"]


async def test_what_is_in_the_way_is_named(world: World) -> None:
    for number in range(3):
        world.foreign.put(a_pod(f"d{number}", 1, "n", "Running"))
    assert world.ledger.obstacle("n", [a_pod("a", 2)]) == "node n has 1 of 2 cpu free: ns/d2, ns/d1, ns/d0 there"
    assert world.ledger.obstacle("n", [a_pod("a", 1)]) == "node n has 0 of 1 pods free: ns/d2, ns/d1, ns/d0 there"
    assert world.ledger.obstacle("m", [a_pod("a", 1)]) == "Kubernetes has no node m"


async def test_who_of_ours_is_left_on_a_node_is_told_and_whether_it_is_about_to_go(world: World) -> None:
    world.foreign.put(a_pod("daemon", 1, "n", "Running"))
    world.own.put(a_pod("a", 1, "n", "Running"))
    world.own.put(a_pod("b", 1, "n", "Running", deleting=True))
    assert world.ledger.others_on("n", {"nobody"}) == (["ns/b"], ["ns/a"])
    assert world.ledger.others_on("n", {a_pod("b", 1).metadata.uid}) == ([], ["ns/a"])
    world.own.put(a_pod("b", 1, "n", "Failed", deleting=True))
    assert world.ledger.others_on("n", {"nobody"}) == ([], ["ns/a"])
    assert world.ledger.others_on("elsewhere", set()) == ([], [])


async def test_a_resource_that_the_node_does_not_have_is_in_the_way(world: World) -> None:
    box = Container(name="c", resources=ResourceNeeds(limits={"nvidia.com/gpu": "1"}))
    pod = Pod(metadata=Meta(name="a", namespace="ns", uid="a"), spec=PodSpec(containers=(box,)))
    assert world.ledger.obstacle("n", [pod]) == "node n has 0 of 1 nvidia.com/gpu free"


async def test_pods_that_were_there_before_count() -> None:
    pods: Cache[Pod] = Cache()
    pods.put(a_pod("a", 4, "n", "Running"))
    nodes: Cache[Node] = Cache()
    nodes.put(a_node("n"))
    assert Ledger([pods], nodes).obstacle("n", [a_pod("b", 1)])


class Books(RuleBasedStateMachine):
    """`there` is what must count: by UID the node and the CPUs."""

    @initialize()
    def begin(self) -> None:
        self.pods: Cache[Pod] = Cache()
        self.ledger = Ledger([self.pods], Cache())
        self.there: dict[str, tuple[str, int]] = {}
        self.assumed: set[str] = set()
        self.unseen: set[str] = set()

    @rule(name=st.sampled_from("abcde"), node=st.sampled_from(["n", "m"]), cpu=st.integers(1, 4))
    def bind(self, name: str, node: str, cpu: int) -> None:
        self.ledger.assume(a_pod(name, cpu), node)
        if name not in self.there:
            self.unseen.add(name)
        elif name in self.unseen:
            self.there[name] = (node, cpu)
        if self.there.setdefault(name, (node, cpu)) == (node, cpu) and Key("ns", name) not in self.pods:
            self.assumed.add(name)

    @rule(name=st.sampled_from("abcde"))
    def give_up(self, name: str) -> None:
        if name in self.assumed:
            self.ledger.withdraw(a_pod(name))
            self.assumed.discard(name)
            del self.there[name]

    @rule(name=st.sampled_from("abcde"), phase=st.sampled_from(["Pending", "Running", "Failed", "Succeeded"]), deleting=st.booleans())
    @precondition(lambda self: self.there)
    def the_watch_shows(self, name: str, phase: str, deleting: bool) -> None:
        if name in self.there:
            node, cpu = self.there[name]
            self.pods.put(a_pod(name, cpu, node, phase, deleting=deleting))
            self.assumed.discard(name)
            self.unseen.discard(name)
            if phase in ("Failed", "Succeeded"):
                del self.there[name]

    @rule(name=st.sampled_from("abcde"))
    def it_goes_away(self, name: str) -> None:
        if Key("ns", name) in self.pods:
            self.pods.remove(Key("ns", name))
            if name not in self.assumed:
                self.there.pop(name, None)
            else:
                self.ledger.withdraw(a_pod(name))
                self.assumed.discard(name)
                self.there.pop(name, None)

    @invariant()
    def the_sums_are_those_of_what_is_there(self) -> None:
        if not hasattr(self, "there"):
            return
        for node in ("n", "m"):
            here = [cpu for where, cpu in self.there.values() if where == node]
            used = self.ledger._used.get(node, {})
            assert used.get("cpu", 0) == sum(here)
            assert used.get("pods", 0) == len(here)

    def teardown(self) -> None:
        if hasattr(self, "there"):
            for name in "abcde":
                self.it_goes_away(name)
                self.give_up(name)
            assert not self.ledger._used
            assert not self.ledger._on
            assert not self.ledger._names


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def with_devices(pod: Pod, text: str) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations={DEVICES: text}))


async def test_a_device_is_its_pods_until_the_containers_are_gone_though_others_are_free(world: World) -> None:
    world.own.put(with_devices(a_pod("old", node="n", phase="Running"), '{"gpu":[0]}'))
    coming = a_pod("new")
    assert world.ledger.obstacle("n", [coming], [{"gpu": (1, 2)}]) == ""
    assert world.ledger.obstacle("n", [coming], [{"hca": (0,)}]) == ""
    assert "gpu 0 of node n is still that of pod ns/old" in world.ledger.obstacle("n", [coming], [{"gpu": (0, 1)}])
    assert not world.ledger.passes("n", [coming], [{"gpu": (0,)}]), "nothing says that it goes"
    world.own.put(with_devices(a_pod("old", node="n", phase="Running", deleting=True), '{"gpu":[0]}'))
    assert world.ledger.obstacle("n", [coming], [{"gpu": (0, 1)}])
    assert world.ledger.passes("n", [coming], [{"gpu": (0,)}])
    world.own.put(with_devices(a_pod("old", node="n", phase="Failed", deleting=True), '{"gpu":[0]}'))
    assert world.ledger.obstacle("n", [coming], [{"gpu": (0, 1)}]) == ""


async def test_devices_count_from_our_binding_on_and_not_against_their_own_pod(world: World) -> None:
    first, second = a_pod("a"), a_pod("b")
    world.ledger.assume(first, "n", {"gpu": (3,)})
    assert world.ledger.obstacle("n", [first], [{"gpu": (3,)}]) == ""
    assert "gpu 3" in world.ledger.obstacle("n", [second], [{"gpu": (3,)}])
    world.ledger.withdraw(first)
    assert world.ledger.obstacle("n", [second], [{"gpu": (3,)}]) == ""


async def test_a_pod_that_is_bound_elsewhere_in_the_end_counts_there_alone(world: World) -> None:
    """The outcome of the first Binding was not known, and so it went on counting."""
    world.nodes.put(a_node("m"))
    world.ledger.assume(a_pod("a", 3), "m")
    world.ledger.assume(a_pod("a", 3), "n")
    assert world.cpus_free() == 1
    assert world.ledger.obstacle("m", [a_pod("b", 4)]) == ""


async def test_a_pod_that_is_bound_for_another_job_in_the_end_has_that_ones_devices_alone(world: World) -> None:
    pod, other = a_pod("a", 1), a_pod("b", 1)
    world.ledger.assume(pod, "n", {"gpu": (0,)})
    world.ledger.assume(pod, "n", {"gpu": (1,)})
    assert world.ledger.obstacle("n", [other], [{"gpu": (0,)}]) == ""
    assert "gpu 1" in world.ledger.obstacle("n", [other], [{"gpu": (1,)}])
    assert world.cpus_free() == 3


async def test_a_pod_that_may_have_been_bound_elsewhere_needs_its_room_all_the_same(world: World) -> None:
    world.nodes.put(a_node("m"))
    world.own.put(a_pod("b", 2, "n"))
    world.ledger.assume(a_pod("a", 3), "m")  # and nobody knows whether that was done
    assert "2 of 3 cpu" in world.ledger.obstacle("n", [a_pod("a", 3)])
    assert not world.ledger.passes("n", [a_pod("a", 3)])
