"""Pods that want to be near others or apart from them, and host ports: what they say to one another on the nodes."""

import pytest

from slinky.bridge.foreign import shrunk
from tests.bridge.eligibility.things import HOSTNAME, ZONE, World, a_namespace, a_node, a_pod, anti, near, port

WEB, DB = {"app": "web"}, {"app": "db"}


@pytest.fixture
async def world() -> World:
    """Two nodes in zone a, one in b, one in none."""
    return World(a_node("a1", zone="a"), a_node("a2", zone="a"), a_node("b1", zone="b"), a_node("x"))


def test_who_wants_to_be_near_goes_where_one_that_matches_all_terms_is(world: World) -> None:
    world.own.put(a_pod("w", labels=WEB, node="a1"))
    assert world.accepted(a_pod(affinity=near(ZONE, WEB))) == {"a1", "a2"}
    assert world.accepted(a_pod(affinity=near(HOSTNAME, WEB))) == {"a1"}
    assert world.accepted(a_pod(affinity=near(ZONE, DB))) == set()
    both = near(ZONE, WEB)
    both["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] += near(ZONE, DB)["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    world.own.put(a_pod("d", labels=DB, node="a2"))
    assert world.accepted(a_pod(affinity=both)) == set(), "no single pod is both"
    world.own.put(a_pod("wd", labels={**WEB, **DB}, node="b1"))
    assert world.judge.refusal(a_pod(affinity=near(ZONE, WEB)), "b1") != ""
    assert "has none of the pods with app=web" in world.judge.refusal(a_pod(affinity=near(ZONE, WEB)), "b1")
    assert (
        world.judge.refusal(a_pod(affinity=near(ZONE, WEB)), "x") == f"node x has no label {ZONE}, by which the pod wants to be near others"
    )


def test_the_first_of_a_group_that_wants_itself_near_may_go_anywhere_its_label_is(world: World) -> None:
    first = a_pod(labels=WEB, affinity=near(ZONE, WEB))
    assert world.accepted(first) == {"a1", "a2", "b1"}
    world.judge.assume(a_pod("q", labels=WEB), "b1")
    assert world.accepted(first) == {"b1"}
    assert world.accepted(a_pod(labels=WEB, affinity=near(HOSTNAME, WEB))) == {"b1"}


def test_one_that_is_where_no_topology_is_does_not_found_a_group(world: World) -> None:
    world.own.put(a_pod("lost", labels=WEB, node="x"))
    world.own.put(a_pod("gone", labels=WEB, node="no-such-node"))
    assert world.accepted(a_pod(labels=WEB, affinity=near(ZONE, WEB))) == {"a1", "a2", "b1"}


def test_who_wants_to_be_apart_is_refused_where_one_is_also_while_that_one_is_being_deleted(world: World) -> None:
    world.own.put(a_pod("w", labels=WEB, node="a1"))
    pod = a_pod(affinity=anti(ZONE, WEB))
    assert world.accepted(pod) == {"b1", "x"}, "a node without the label violates nothing"
    assert world.judge.refusal(pod, "a2") == f"node a2 ({ZONE}=a) is where 1 pod has app=web, from which the pod must stay apart"
    world.own.put(a_pod("w", labels=WEB, node="a1", deleting=True))
    assert world.accepted(pod) == {"b1", "x"}
    world.own.put(a_pod("w", labels=WEB, node="a1", phase="Succeeded"))
    assert world.accepted(pod) == {"a1", "a2", "b1", "x"}


def test_anti_affinity_of_pods_that_are_there_holds_against_the_newcomer_whoever_scheduled_them(world: World) -> None:
    lonely = a_pod("lonely", labels=DB, node="a1", affinity=anti(ZONE, WEB), containers=[{"name": "c"}])
    world.foreign.put(shrunk(lonely))
    newcomer = a_pod(labels=WEB)
    assert world.accepted(newcomer) == {"b1", "x"}
    assert world.judge.refusal(newcomer, "a2") == f"node a2 ({ZONE}=a) is where a pod runs whose anti-affinity keeps pods with app=web away"
    assert world.accepted(a_pod(labels=DB)) == {"a1", "a2", "b1", "x"}
    world.foreign.remove(lonely.key)
    assert world.accepted(newcomer) == {"a1", "a2", "b1", "x"}


def test_terms_mean_their_own_namespace_unless_they_name_others(world: World) -> None:
    world.namespaces.put(a_namespace("ns"))
    world.namespaces.put(a_namespace("red", team="red"))
    world.namespaces.put(a_namespace("blue", team="blue"))
    world.own.put(a_pod("r", "red", labels=WEB, node="a1"))
    world.own.put(a_pod("b", "blue", labels=WEB, node="b1"))
    assert world.accepted(a_pod(affinity=anti(HOSTNAME, WEB))) == {"a1", "a2", "b1", "x"}
    assert world.accepted(a_pod(affinity=anti(HOSTNAME, WEB, namespaces=["red"]))) == {"a2", "b1", "x"}
    assert world.accepted(a_pod(affinity=anti(HOSTNAME, WEB, namespaceSelector={}))) == {"a2", "x"}
    blue = {"matchLabels": {"team": "blue"}}
    assert world.accepted(a_pod(affinity=anti(HOSTNAME, WEB, namespaceSelector=blue, namespaces=["red"]))) == {"a2", "x"}
    assert world.accepted(a_pod(affinity=anti(HOSTNAME, WEB, namespaceSelector=blue))) == {"a1", "a2", "x"}
    world.namespaces.put(a_namespace("red", team="blue"))
    assert world.accepted(a_pod(affinity=anti(HOSTNAME, WEB, namespaceSelector=blue))) == {"a2", "x"}


@pytest.mark.parametrize(("release", "accepted"), [((1, 36), {"a2", "b1", "x"}), ((1, 37), {"a1", "a2", "b1", "x"})])
async def test_a_namespace_selector_that_asks_for_no_label_is_read_as_the_release_reads_it(
    release: tuple[int, int], accepted: set[str]
) -> None:
    world = World(a_node("a1", zone="a"), a_node("a2", zone="a"), a_node("b1", zone="b"), a_node("x"), release=release)
    world.namespaces.put(a_namespace("red", team="red"))
    world.own.put(a_pod("r", "red", labels=WEB, node="a1"))
    not_red = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}
    assert world.accepted(a_pod(affinity=anti(HOSTNAME, WEB, namespaceSelector=not_red))) == accepted


def test_a_selector_that_cannot_be_read_places_the_pod_nowhere_and_of_a_placed_pod_is_not_heeded(world: World) -> None:
    broken = anti(HOSTNAME, {}, labelSelector={"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w"]}]})
    assert world.accepted(a_pod(affinity=broken)) == set()
    assert "the pod's affinity is malformed: app Like" in world.judge.refusal(a_pod(affinity=broken), "a1")
    world.own.put(a_pod("there", node="a1", affinity=broken))
    assert world.accepted(a_pod(labels=WEB)) == {"a1", "a2", "b1", "x"}


def test_one_that_is_bound_elsewhere_in_the_end_is_a_neighbour_there_alone(world: World) -> None:
    """The outcome of the first Binding was not known, and so it went on counting."""
    pod, other = a_pod(labels=WEB), a_pod("q", affinity=anti(HOSTNAME, WEB))
    world.judge.assume(pod, "a1")
    world.judge.assume(pod, "a2")
    assert world.accepted(other) == {"a1", "b1", "x"}
    world.judge.withdraw(pod)
    assert world.accepted(other) == {"a1", "a2", "b1", "x"}


def test_a_pod_never_stands_in_its_own_way(world: World) -> None:
    pod = a_pod(labels=WEB, affinity=anti(ZONE, WEB), containers=[{"name": "c", "ports": [port(80)]}])
    world.judge.assume(pod, "a1")
    assert world.accepted(pod) == {"a1", "a2", "b1", "x"}
    other = a_pod("other", labels=WEB, affinity=anti(ZONE, WEB))
    assert world.accepted(other) == {"b1", "x"}
    world.judge.withdraw(pod)
    assert world.accepted(other) == {"a1", "a2", "b1", "x"}


def test_what_we_bound_counts_until_the_watch_shows_what_became_of_it(world: World) -> None:
    pod, other = a_pod("w", labels=WEB), a_pod(affinity=anti(HOSTNAME, WEB))
    world.own.put(pod)
    world.judge.assume(pod, "a1")
    world.own.put(a_pod("w", labels={**WEB, "job": "7"}))
    assert world.accepted(other) == {"a2", "b1", "x"}, "an older state of it comes in after the binding"
    world.own.put(a_pod("w", labels=WEB, node="a1"))
    world.judge.withdraw(pod)
    assert world.accepted(other) == {"a2", "b1", "x"}, "what the API server shows is not taken back"
    world.own.remove(pod.key)
    assert world.accepted(other) == {"a1", "a2", "b1", "x"}


@pytest.mark.parametrize(
    ("taken", "wanted", "clashes"),
    [
        (port(80), port(80), True),
        (port(80), port(81), False),
        (port(80), port(80, "UDP"), False),
        (port(80, address="10.0.0.1"), port(80, address="10.0.0.2"), False),
        (port(80, address="10.0.0.1"), port(80, address="10.0.0.1"), True),
        (port(80, address="10.0.0.1"), port(80), True),
        (port(80, address="0.0.0.0"), port(80, address="10.0.0.1"), True),
        (port(80, address="::"), port(80, address="10.0.0.1"), False),
        ({"containerPort": 80}, port(80), False),
    ],
)
def test_host_ports_clash_by_number_protocol_and_address(
    world: World, taken: dict[str, object], wanted: dict[str, object], clashes: bool
) -> None:
    world.foreign.put(shrunk(a_pod("t", node="a1", containers=[{"name": "c", "ports": [taken]}])))
    pod = a_pod(containers=[{"name": "c", "ports": [wanted]}])
    assert world.accepted(pod) == ({"a2", "b1", "x"} if clashes else {"a1", "a2", "b1", "x"})


def test_ports_of_init_containers_count_where_they_go_on_running(world: World) -> None:
    passing = {"name": "i", "ports": [port(80)]}
    world.own.put(a_pod("i", node="a1", initContainers=[passing]))
    world.own.put(a_pod("s", node="a2", initContainers=[{**passing, "restartPolicy": "Always"}]))
    pod = a_pod(containers=[{"name": "c", "ports": [port(80)]}])
    assert world.accepted(pod) == {"a1", "b1", "x"}
    assert world.judge.refusal(pod, "a2") == "node a2 has no free port 80/TCP: pod ns/s has it"
    assert world.accepted(a_pod(initContainers=[passing])) == {"a1", "a2", "b1", "x"}


def test_a_port_is_free_when_the_last_that_took_it_is_gone(world: World) -> None:
    for name in ("one", "two"):
        world.own.put(a_pod(name, node="a1", containers=[{"name": "c", "ports": [port(80)]}]))
    pod = a_pod(containers=[{"name": "c", "ports": [port(80)]}])
    world.own.remove(a_pod("one").key)
    assert "a1" not in world.accepted(pod)
    world.own.remove(a_pod("two").key)
    assert "a1" in world.accepted(pod)


def test_several_pods_are_tried_in_any_order_and_nothing_of_it_stays(world: World) -> None:
    worker = a_pod("worker", labels=WEB, affinity=near(ZONE, DB))
    leader = a_pod("leader", labels=DB)
    assert world.judge.first_refusal([(worker, "a1"), (leader, "a2")]) is None
    assert world.judge.refusal(worker, "a1") != "", "the leader is not there really"
    refused = world.judge.first_refusal([(worker, "b1"), (leader, "a2")])
    assert refused
    assert refused[0] == worker
    assert "must be near" in refused[1]


def test_a_filter_of_somebody_elses_has_its_say_too(world: World) -> None:
    world.judge.filters.append(lambda pod: (lambda node: f"node {node.metadata.name} has no disk") if pod.metadata.name == "p" else None)
    assert world.accepted(a_pod()) == set()
    assert world.accepted(a_pod("q")) == {"a1", "a2", "b1", "x"}
