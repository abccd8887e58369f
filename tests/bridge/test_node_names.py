"""Which of Slurm's nodes is which of Kubernetes': by label, or by the same name; and nobody's where two claim it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from slinky.bridge.capacity import NodeRoom, room_of
from slinky.bridge.directions import Directions
from slinky.bridge.hybrid_nodes import HybridNodes
from slinky.bridge.judgement import Opinion
from slinky.bridge.keys import SLURM_NODE, SLURM_NODE_NAME
from slinky.bridge.node_mark import mark_for
from slinky.bridge.node_names import NodeNames
from slinky.bridge.shadow import shadow_site
from slinky.bridge.strangers import strangers
from slinky.bridge.translate import Site
from slinky.bridge.whereabouts import Whereabouts, usable_of, where
from slinky.kube import Cache, Key, Meta, Node, Pod
from slinky.kube.objects import NodeStatus, PodSpec
from slinky.slurm import JobDescription
from slinky.slurm import Node as SlurmNode
from tests.bridge.both_sides import World, runs, told

ALLOCATABLE = {"cpu": "64", "memory": "64Gi", "pods": "110"}


def a_node(name: str, label: str | None = None) -> Node:
    labels = {} if label is None else {SLURM_NODE_NAME: label}
    return Node(metadata=Meta(name=name, uid=f"{name}-uid", labels=labels), status=NodeStatus(allocatable=ALLOCATABLE))


def names_of(**labels: str | None) -> NodeNames:
    nodes: Cache[Node] = Cache()
    names = NodeNames(nodes)
    for name, label in labels.items():
        nodes.put(a_node(name, label))
    return names


def test_a_node_goes_by_its_label_or_by_its_own_name() -> None:
    names = names_of(a="s1", b=None, c="")
    assert [names.in_slurm(node) for node in ("a", "b", "c")] == ["s1", "b", "c"]
    assert [names.in_kubernetes(name) for name in ("s1", "b", "c", "a", "s9")] == ["a", "b", "c", "", ""]
    assert names.problems() == {}


def test_a_name_that_two_claim_is_nobodys_and_both_are_told() -> None:
    names = names_of(a="s1", b="s1", s2=None, c="s2")
    assert [names.in_kubernetes(name) for name in ("s1", "s2")] == ["", ""]
    assert [names.in_slurm(node) for node in ("a", "b", "s2", "c")] == ["", "", "", ""]
    found = names.problems()
    assert sorted(found) == ["a", "b", "c", "s2"]
    assert found["a"].startswith(f"Node a is Slurm's node s1 by its label {SLURM_NODE_NAME}, and so is b: no pod is bound")
    assert found["s2"].startswith("Node s2 is Slurm's node s2 by its name, and so is c")
    assert names.why_unknown("s1") == "Slurm's node s1 is claimed by several Nodes of Kubernetes (a, b), and so by none"


def test_a_label_that_names_a_node_slurm_does_not_have_is_told() -> None:
    assert names_of(a="s1").problems({"s1"}) == {
        "a": f"Node a is Slurm's node s1 by its label {SLURM_NODE_NAME}, which Slurm does not have: no pod is sent here until it does"
    }


def test_labels_that_come_and_go_are_followed() -> None:
    nodes: Cache[Node] = Cache()
    nodes.put(a_node("a"))
    names = NodeNames(nodes)
    assert names.in_kubernetes("a") == "a"
    before = names.version
    nodes.put(msgspec.structs.replace(a_node("a"), status=NodeStatus()))
    assert names.version == before  # a heartbeat changes no name
    nodes.put(a_node("a", "s1"))
    assert (names.in_kubernetes("a"), names.in_kubernetes("s1"), names.version > before) == ("", "a", True)
    nodes.put(a_node("a"))
    assert (names.in_kubernetes("a"), names.in_kubernetes("s1")) == ("a", "")
    nodes.remove(Key("", "a"))
    assert names.in_kubernetes("a") == ""


LABELS = some.dictionaries(some.sampled_from("abcd"), some.none() | some.sampled_from(["", *"abcdef"]))


@given(some.lists(LABELS, min_size=1, max_size=4))
def test_both_directions_agree_and_no_two_nodes_have_one_name(histories: list[dict[str, str | None]]) -> None:
    nodes: Cache[Node] = Cache()
    names = NodeNames(nodes)
    for labels in histories:
        for name in "abcd":
            if name in labels:
                nodes.put(a_node(name, labels[name]))
            elif nodes.get(name):
                nodes.remove(Key("", name))
        fresh = names_of(**labels)
        for name in "abcdef":
            node = names.in_kubernetes(name)
            assert node == fresh.in_kubernetes(name)
            assert not node or names.in_slurm(node) == name
        for node in labels:
            name = names.in_slurm(node)
            assert not name or names.in_kubernetes(name) == node


def test_slurms_nodes_that_are_not_this_kubernetes_are_kept_out_but_for_our_own_that_leave() -> None:
    external = ["IDLE", "EXTERNAL"]
    slurm = {
        "kn1": SlurmNode(name="kn1", node_states=external, extra=mark_for("c1")),
        "leaving": SlurmNode(name="leaving", node_states=external, extra=mark_for("c1")),
        "theirs": SlurmNode(name="theirs", node_states=external, extra=mark_for("c2")),
        "sl1": SlurmNode(name="sl1", node_states=["IDLE"]),
        "hybrid": SlurmNode(name="hybrid", node_states=["IDLE"]),
    }
    rooms = {name: room_of(node) for name, node in slurm.items()}
    assert [rooms[name].has_slurmd for name in slurm] == [False, False, False, True, True]
    found = strangers(rooms, names_of(kn1=None, w="hybrid"), "c1")
    assert found == {name: f"Slurm's node {name} is no node of Kubernetes" for name in ("theirs", "sl1")}


def test_in_shadow_mode_a_node_that_leaves_is_not_named_either() -> None:
    """Its jobs are of a cluster of their own, and its nodes are the cluster's: named by a job that waits, one that leaves could not be removed."""
    site = shadow_site(Site(cluster="c1", partition="p"))
    assert site.cluster != "c1"
    leaving = SlurmNode(name="leaving", node_states=["IDLE", "EXTERNAL", "DRAIN"], extra=mark_for("c1"))
    assert not strangers({"leaving": room_of(leaving)}, names_of(kn1=None), site.registrar)


class Rooms:
    """In place of what is known of Slurm's nodes."""

    def __init__(self, **slurmd: bool) -> None:
        self.version = 0
        self.rooms = {
            name: NodeRoom(partitions=frozenset({"p"}), cpus=8, memory=1000, gres={"gpu": 4}, has_slurmd=has)
            for name, has in slurmd.items()
        }

    async def rooms_of(self, _: str) -> dict[str, NodeRoom]:
        return self.rooms


class Refuses:
    """In place of Kubernetes' judgement."""

    def __init__(self, **refused: str) -> None:
        self.refused = refused

    async def prepare(self, *_: object) -> None: ...

    def opinion(self, _: Pod) -> Opinion:
        return Opinion(self.refused)


async def directed(names: NodeNames, rooms: Rooms, refused: Refuses, job: JobDescription, **more: Any) -> Whereabouts:
    directions = Directions(refused, rooms, {}, names, cluster="c1", **more)  # type: ignore[arg-type]
    return (await directions.of([job], [[Pod(metadata=Meta(name="p"), spec=PodSpec())]], {}))[0]


async def test_what_kubernetes_refuses_is_told_to_slurm_by_slurms_names() -> None:
    names, rooms = names_of(w1="s1", w2="s2"), Rooms(s1=True, s2=True, pure=True)
    found = await directed(names, rooms, Refuses(w2="node w2 has a taint"), JobDescription(partition="p"))
    assert found.excluded == ("pure", "s2")
    none_left = await directed(names, rooms, Refuses(w1="node w1 has a taint", w2="node w2 has a taint"), JobDescription(partition="p"))
    assert "Slurm's node pure is no node of Kubernetes" in none_left.nowhere


async def test_who_asks_for_devices_is_kept_from_nodes_with_a_slurmd_unless_the_site_allows_it() -> None:
    names, rooms = names_of(w1="s1", kn=None), Rooms(s1=True, kn=False)
    gpu = JobDescription(partition="p", tres_per_task="gres/gpu:1")
    assert (await directed(names, rooms, Refuses(), gpu, hybrid_devices=False)).excluded == ("s1",)
    assert (await directed(names, rooms, Refuses(), gpu, hybrid_devices=True)).excluded == ()
    assert (await directed(names, rooms, Refuses(), JobDescription(partition="p"), hybrid_devices=False)).excluded == ()


@pytest.mark.parametrize(("has_slurmd", "said"), [(False, Whereabouts("disk=ssd")), (True, Whereabouts("", ("c",)))])
def test_a_hybrid_node_with_the_label_but_not_the_feature_is_not_kept_out(has_slurmd: bool, said: Whereabouts) -> None:
    """Its features are the site's to set: the rest is left out by name instead."""

    def room(*features: str, slurmd: bool = False) -> NodeRoom:
        return NodeRoom(partitions=frozenset({"p"}), cpus=8, memory=1000, gres={}, features=frozenset(features), has_slurmd=slurmd)

    rooms = {"a": room("disk=ssd"), "b": room(slurmd=has_slurmd), "c": room()}
    pod = Pod(metadata=Meta(name="p"), spec=PodSpec(node_selector={"disk": "ssd"}))
    assert where([pod], [{"c": "has no ssd"}], usable_of(rooms, "p"), mapped={"disk": "disk"}) == said


def test_a_pod_is_bound_to_the_node_and_finds_slurms_name_in_its_annotation() -> None:
    async def story(world: World) -> None:
        world.nodes.put(a_node("worker", "s1"))
        world.loop.binder._names = NodeNames(world.nodes)
        world.given = ["s1"]
        world.make("a")
        await runs(world, 1, "a")
        pod = world.pod("a")
        assert pod.spec.node_name == "worker"
        assert pod.metadata.annotations[SLURM_NODE] == "s1"

    told(story)


def test_a_job_that_got_a_node_which_is_not_kubernetes_goes_back_at_once_and_keeps_away_from_it() -> None:
    async def story(world: World) -> None:
        world.loop.binder._names = NodeNames(world.nodes)
        world.slurm_nodes, world.given = ["n", "pure"], ["pure"]
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: 2 in world.held, seconds=20)
        known = next(iter(world.loop.known.values()))
        assert list(known.avoided) == ["pure"]
        world.given = ["n"]
        await runs(world, 2, "a")
        assert world.pod("a").spec.node_name == "n"

    told(story)


def test_what_is_wrong_is_said_once_and_so_is_its_end() -> None:
    said: list[tuple[str, str]] = []

    class Events:
        def record(self, about: Any, reason: str, _: str, *, warning: bool = False) -> None:
            said.append((about.name, reason + "!" * warning))

    nodes: Cache[Node] = Cache()
    names = NodeNames(nodes)
    nodes.put(a_node("a", "s1"))
    hybrid = HybridNodes(names, nodes, Rooms(), Events())  # type: ignore[arg-type]
    hybrid.tell(names.problems({"s1"}))
    hybrid.tell(names.problems({"s1"}))
    hybrid.tell(names.problems())
    assert said == [("a", "SlurmNodeRefused!"), ("a", "SlurmNodeFound")]
