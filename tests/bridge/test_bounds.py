"""A pod's spec has limits: the webhook refuses a pod above them, and the scheduler parks it unjudged.

What pods say that are bound already costs other pods little.

Work is counted in function calls, not in seconds: see `counting`.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from slinky.bridge.admission import admit_pod, admit_root
from slinky.bridge.eligibility import bounds, within_gang
from slinky.bridge.eligibility.forbidders import BUDGET
from slinky.bridge.eligibility.ports import HostPort, PortsInUse
from slinky.bridge.keys import GANG
from slinky.bridge.settings import Settings
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Node
from slinky.kube.objects import PodSpec
from tests.bridge.both_sides import World as BothSides
from tests.bridge.both_sides import runs, told
from tests.bridge.counting import calls
from tests.bridge.eligibility.things import HOSTNAME, REQUIRED, World, a_node, a_pod, anti, port, spread

SITE = Settings(managed_namespaces=["ns"])
EXISTS = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}


def term(selector: dict[str, Any] = EXISTS, **more: Any) -> dict[str, Any]:
    return {"topologyKey": HOSTNAME, "labelSelector": selector, "namespaceSelector": {}, **more}


def terms(count: int, kind: str = "podAntiAffinity") -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [term() for _ in range(count)]}}}


def values(count: int) -> list[dict[str, Any]]:
    return [{"key": "app", "operator": "NotIn", "values": [f"v{number}" for number in range(count)]}]


def near_nodes(count: int, expressions: list[dict[str, Any]]) -> dict[str, Any]:
    choice = [{"matchExpressions": expressions} for _ in range(count)]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": choice}}}}


def containers(count: int, **each: Any) -> dict[str, Any]:
    return {"containers": [{"name": f"c{number}", **each} for number in range(count)]}


# A spec with so many of something, and how many a pod may have.
LIMITS: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "nodeSelector": (lambda count: {"nodeSelector": {f"k{number}": "v" for number in range(count)}}, bounds.MOST_SELECTORS),
    "tolerations": (lambda count: {"tolerations": [{"key": f"k{number}"} for number in range(count)]}, bounds.MOST_TOLERATIONS),
    "podAffinity": (lambda count: terms(count, "podAffinity"), bounds.MOST_TERMS),
    "podAntiAffinity": (terms, bounds.MOST_TERMS),
    "topologySpread": (
        lambda count: {"topologySpreadConstraints": [spread("zone", {"a": "b"}) for _ in range(count)]},
        bounds.MOST_TERMS,
    ),
    "affinity and spread together": (
        lambda count: terms(count - 2) | {"topologySpreadConstraints": [spread("zone", {"a": "b"}) for _ in range(2)]},
        bounds.MOST_TERMS,
    ),
    "labels of one term": (
        lambda count: {"affinity": anti("zone", {f"k{number}": "v" for number in range(count)})},
        bounds.MOST_CONDITIONS,
    ),
    "values about pods": (
        lambda count: {"affinity": {"podAntiAffinity": {REQUIRED: [term({"matchExpressions": values(count)})]}}},
        bounds.MOST_VALUES,
    ),
    "namespaces": (
        lambda count: {"affinity": {"podAffinity": {REQUIRED: [term(namespaces=[f"n{number}" for number in range(count)])]}}},
        bounds.MOST_VALUES,
    ),
    "nodeAffinity": (lambda count: near_nodes(count, EXISTS["matchExpressions"]), bounds.MOST_RULES),
    "values about nodes": (lambda count: near_nodes(1, values(count)), bounds.MOST_VALUES),
    "values in all": (lambda count: near_nodes(count // 100, values(100)), bounds.MOST_VALUES_IN_ALL),
    "containers": (containers, bounds.MOST_CONTAINERS),
    "host ports": (lambda count: containers(1, ports=[port(1000 + number) for number in range(count)]), bounds.MOST_HOST_PORTS),
    "resources": (
        lambda count: containers(1, resources={"requests": {f"example.com/r{number}": "1" for number in range(count)}}),
        bounds.MOST_RESOURCES,
    ),
    "volumes": (
        lambda count: {"volumes": [{"name": f"v{number}", "iscsi": {"iqn": "x"}} for number in range(count)]},
        bounds.MOST_VOLUMES,
    ),
}


def sent(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [{"name": "c"}]} | spec}


@pytest.mark.parametrize("name", LIMITS)
def test_the_webhook_refuses_what_is_above_a_limit_and_says_the_limit(name: str) -> None:
    make, most = LIMITS[name]
    assert admit_pod(sent(make(most)), SITE, managed=True).refusal == ""
    refusal = admit_pod(sent(make(most + 100)), SITE, managed=True).refusal
    assert "at most" in refusal
    assert str(most) in refusal
    template = sent(make(most + 100))
    job = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"template": template, "parallelism": 2}}
    assert f"spec.template: {refusal.split('; ')[0]}" in admit_root(job, SITE).refusal


@pytest.mark.parametrize("name", LIMITS)
def test_the_scheduler_parks_what_came_past_the_webhook_before_it_judges_a_node_for_it(name: str) -> None:
    make, most = LIMITS[name]
    asked = []

    async def story(world: BothSides) -> None:
        world.opinion = lambda pod: asked.append(pod)  # type: ignore[assignment,method-assign,return-value]
        world.make("a")
        pod = msgspec.structs.replace(world.pod("a"), spec=msgspec.convert(make(most + 100), PodSpec))
        world.pods.put(pod)
        key = WorkloadKey("Pod", "ns", "a-uid")
        await world.until(lambda: key in world.loop.known and world.loop.known[key].parked)
        assert "at most" in world.loop.known[key].parked
        assert "pod ns/a: " in world.loop.known[key].parked
        assert not world.tries
        assert not asked

    told(story)


def test_a_pod_that_runs_already_is_left_in_peace() -> None:
    """It was admitted before there were limits."""

    async def story(world: BothSides) -> None:
        world.make("a")
        await runs(world, 1, "a")
        bound = world.pod("a")
        spec = msgspec.convert(terms(500) | {"nodeName": bound.spec.node_name}, PodSpec)
        world.pods.put(msgspec.structs.replace(bound, spec=spec))
        world.ends("a", "Succeeded")
        await world.until(lambda: not world.pod("a").metadata.finalizers)
        assert world.acts == ["submit 1 x1", "bind a", "end 1 0"]

    told(story)


def test_the_size_of_a_term_counts_when_it_is_the_label_selector_of_a_namespace() -> None:
    wide = {"matchLabels": {f"k{number}": "v" for number in range(200)}}
    affinity = {"podAntiAffinity": {REQUIRED: [term(namespaceSelector=wide)]}}
    assert "labels and expressions" in admit_pod(sent({"affinity": affinity}), SITE, managed=True).refusal


def test_what_is_written_as_a_rule_is_no_problem() -> None:
    labels = {f"app.kubernetes.io/{name}": "shop" for name in ("name", "instance", "component", "part-of", "managed-by")}
    spec = {
        "affinity": anti(HOSTNAME, labels) | near_nodes(1, values(200))["affinity"],
        "topologySpreadConstraints": [spread(HOSTNAME, labels), spread("zone", labels)],
        "tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(12)],
    }
    assert admit_pod(sent(spec), SITE, managed=True).refusal == ""


# Host ports


def test_host_ports_cost_their_number_and_not_its_square() -> None:
    """2,000 ports beside 2,000 took 0.7 s."""

    def work(count: int) -> int:
        ports = [HostPort(f"10.0.{number // 250}.{number % 250}", "TCP", 80) for number in range(count)]
        others = [HostPort("0.0.0.0", "TCP", 1000 + number) for number in range(count)]
        taken = PortsInUse()
        taken.add("n", [*ports, *others], "ns/a")
        wanted = [HostPort("10.1.0.0", "TCP", 80), *(each._replace(protocol="UDP") for each in others)]
        assert taken.taken("n", ports[-1:]) == (ports[-1], "ns/a")
        return calls(lambda: taken.taken("n", wanted))

    assert work(2000) <= 11 * work(200)


def test_the_host_ports_of_a_gang_cost_their_number_and_not_its_square() -> None:
    def work(count: int) -> int:
        pods = [
            a_pod(
                f"p{which}",
                **containers(1, ports=[port(80, address=f"10.{which}.{number // 250}.{number % 250}") for number in range(count)]),
            )
            for which in range(2)
        ]
        assert not within_gang(pods).one_per_node
        return calls(lambda: within_gang(pods))

    assert work(2000) <= 11 * work(200)


# What bound pods say


@pytest.fixture
async def world() -> World:
    return World(*(a_node(f"n{number}", zone="a") for number in range(50)))


def hostile(name: str, namespace: str, count: int, *, node: str = "n1", key: str = HOSTNAME) -> Any:
    """A pod that wants every pod of the cluster away, in many different ways."""
    ways = [[{"key": f"{name}-{number}", "operator": "DoesNotExist"}] for number in range(count)]
    return a_pod(
        name,
        namespace,
        node=node,
        affinity={"podAntiAffinity": {REQUIRED: [term({"matchExpressions": way}, topologyKey=key) for way in ways]}},
    )


async def test_a_bound_pod_of_thousands_of_terms_costs_other_pods_little(world: World) -> None:
    """Ten of them made each answer for an innocent pod cost 32 ms."""
    innocent = a_pod("innocent", labels={"app": "web"})
    for number in range(10):
        world.foreign.put(hostile(f"evil{number}", "evil", 5000))
    made = calls(lambda: world.judge.answer(innocent))
    assert made <= 10 * bounds.MOST_TERMS * 60 + 50 * 60
    assert world.judge.refusal(innocent, "n1"), "the first terms of each are heeded"


async def test_the_budget_of_a_namespace_bounds_what_all_its_pods_cost_others(world: World, caplog: pytest.LogCaptureFixture) -> None:
    innocent = a_pod("innocent", labels={"app": "web"})
    pods = [hostile(f"evil{number}", "evil", bounds.MOST_TERMS) for number in range(2 * BUDGET // bounds.MOST_TERMS)]
    for pod in pods:
        world.foreign.put(pod)
    residents = world.judge._residents
    assert len(residents.forbidding("ns", {"app": "web"}, {})) <= BUDGET
    assert caplog.text.count("anti-affinity of pods of namespace evil") == 1
    fair = a_pod("fair", "other", node="n2", affinity=anti(HOSTNAME, {"app": "web"}, namespaces=["ns"]))
    world.foreign.put(fair)
    assert world.judge.refusal(innocent, "n2"), "another namespace has a budget of its own"
    for pod in pods:
        world.foreign.remove(pod.key)
    assert not world.judge.refusal(innocent, "n1")
    assert world.judge.refusal(innocent, "n2")
    world.foreign.remove(fair.key)
    assert not residents._forbidding
    assert not residents._unheeded
    assert not residents._forbidders._spent
    assert not residents._forbidders._within


async def test_the_many_terms_within_a_namespace_that_name_a_value_cost_nothing_of_its_budget(world: World) -> None:
    """As `matchLabelKeys` makes them: one for each Job, or each revision."""
    for number in range(BUDGET):
        own = {"job-name": f"j{number}"}
        world.foreign.put(a_pod(f"p{number}", labels=own, node="n1", affinity=anti(HOSTNAME, own)))
    assert world.judge.refusal(a_pod("late", labels={"job-name": f"j{BUDGET - 1}"}), "n1")
    assert calls(lambda: world.judge.answer(a_pod("innocent", labels={"app": "web"}))) <= 50 * 60


async def test_terms_that_ask_for_a_label_cost_only_pods_that_have_it(world: World) -> None:
    """As JobSet makes them for exclusive placement."""
    for number in range(500):
        others = {
            "matchExpressions": [
                {"key": "job-key", "operator": "Exists"},
                {"key": "job-key", "operator": "NotIn", "values": [f"j{number}"]},
            ]
        }
        world.foreign.put(a_pod(f"p{number}", "sets", node="n1", affinity={"podAntiAffinity": {REQUIRED: [term(others)]}}))
    assert calls(lambda: world.judge.answer(a_pod("innocent", labels={"app": "web"}))) <= 50 * 60
    assert world.judge.refusal(a_pod("next", labels={"job-key": "j900"}), "n1")
    assert not world.judge.refusal(a_pod("next", labels={"job-key": "j900"}), "n2")


async def test_many_terms_of_bound_pods_are_joined_before_nodes_are_judged() -> None:
    def work(count: int) -> int:
        world = World(*(a_node(f"n{number}") for number in range(1000)))
        for number in range(count):
            world.foreign.put(hostile(f"evil{number}", "evil", bounds.MOST_TERMS))
        return calls(lambda: world.judge.answer(a_pod("innocent")))

    assert work(100) <= work(1) + 100 * bounds.MOST_TERMS * 60


# Nodes


def test_a_node_selector_and_a_node_affinity_cost_their_sum_and_not_their_product() -> None:
    labels: dict[str, Any] = {f"k{number}": "v" for number in range(bounds.MOST_SELECTORS)}
    both = near_nodes(bounds.MOST_RULES, [{"key": "k0", "operator": "DoesNotExist"}])

    def work(**spec: Any) -> int:
        world = World(*(a_node(f"n{number}", **labels) for number in range(20)))
        return calls(lambda: world.judge.answer(a_pod(**spec)))

    assert work(nodeSelector=labels, **both) <= work(nodeSelector=labels) + 2 * work(**both)


def test_several_spread_constraints_ask_once_whether_a_node_follows_the_node_affinity() -> None:
    labels: dict[str, Any] = {f"k{number}": "v" for number in range(bounds.MOST_TERMS)}
    wide = near_nodes(bounds.MOST_RULES - 1, [{"key": "k0", "operator": "DoesNotExist"}])
    wide["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].append({"matchExpressions": [{"key": "k0", "operator": "Exists"}]})

    def work(count: int) -> int:
        world = World(*(a_node(f"n{number}", **labels) for number in range(20)))
        constraints = [spread(f"k{number}", {"a": "b"}) for number in range(count)]
        return calls(lambda: world.judge.answer(a_pod(topologySpreadConstraints=constraints, **wide)))

    assert work(bounds.MOST_TERMS) <= 2 * work(1) + 20 * bounds.MOST_TERMS * 30


async def test_a_node_that_changes_is_asked_again_whether_it_counts_for_a_spread_constraint() -> None:
    world = World(a_node("n1", zone="a", disk="ssd"), a_node("n2", zone="b", disk="hdd"))
    zone = "topology.kubernetes.io/zone"
    pod = a_pod(labels={"a": "b"}, nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[spread(zone, {"a": "b"})])
    world.own.put(a_pod("there", labels={"a": "b"}, node="n1"))
    assert world.accepted(pod) == {"n1"}, "n2 does not count"
    world.nodes.put(a_node("n2", zone="b", disk="ssd"))
    assert world.accepted(pod) == {"n2"}
    changed: Node = a_node("n2", zone="b", disk="hdd")
    world.nodes.put(changed)
    assert world.accepted(pod) == {"n1"}


def test_a_gang_of_a_template_above_the_limits_is_refused_for_that_alone() -> None:
    job = {
        "metadata": {"name": "j", "namespace": "ns", "annotations": {GANG: "true"}},
        "spec": {"template": sent(terms(5000)), "parallelism": 8},
    }
    assert calls(lambda: admit_root(job, SITE)) <= 200_000
    assert "5,000 required terms" in admit_root(job, SITE).refusal
    assert "judged together" not in admit_root(job, SITE).refusal


# Containers


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_pod_of_very_many_containers_is_refused_before_anything_is_made_for_each(kind: str) -> None:
    """A manifest of 1.8 MB became an answer of 179 MB."""
    many = [{"name": "c", "image": "i"} for _ in range(60_000)]
    pod = sent({kind: many})
    settings = Settings(managed_namespaces=["ns"], task_environment="all")
    assert calls(lambda: admit_pod(pod, settings, managed=True)) <= 1000
    verdict = admit_pod(pod, settings, managed=True)
    assert "at most 256 are supported" in verdict.refusal
    assert "60,00" in verdict.refusal
    assert not verdict.patches
    job = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"template": pod}}
    assert calls(lambda: admit_root(job, settings)) <= 1000
    assert "spec.template: spec has 60,00" in admit_root(job, settings).refusal


def test_a_pod_of_very_many_variables_is_refused() -> None:
    def with_variables(count: int) -> dict[str, Any]:
        return sent(containers(4, env=[{"name": "A", "value": "1"}] * count))

    assert admit_pod(with_variables(500), SITE, managed=True).refusal == ""
    assert "2,004 variables in all, and at most 2,000" in admit_pod(with_variables(501), SITE, managed=True).refusal
