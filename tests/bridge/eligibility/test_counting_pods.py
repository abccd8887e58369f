"""Rules about other pods, as large as a pod may have them, in a cluster with many pods: what an answer costs, and for how long others wait."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.bit_places import mask_of
from slinky.bridge.eligibility.bounds import spec_problems
from slinky.bridge.eligibility.label_index import LabelIndex
from slinky.bridge.eligibility.selectors import Requirement, meets
from slinky.bridge.pacing import Pace
from slinky.kube import Pod
from tests.bridge.counting import calls
from tests.bridge.eligibility.things import HOSTNAME, REQUIRED, World, a_node, a_pod

NODES, TERMS, LABELS, VALUES = 20, 16, 6, 50


def world(pods: int) -> World:
    found = World()
    for number in range(NODES):
        found.nodes.put(a_node(f"n{number}", zone=f"z{number % 4}"))
    for number in range(pods):
        found.foreign.put(a_pod(f"p{number}", labels={"app": "train", "job": f"j{number // 50}"}, node=f"n{number % NODES}"))
    return found


def expressions(term: int) -> dict[str, Any]:
    """They hold for all pods, and no index leaves any of them out."""
    names = [f"{term}-{number}" for number in range(VALUES)]
    return {"matchExpressions": [{"key": f"k{label}", "operator": "NotIn", "values": names} for label in range(LABELS)]}


def largest(kind: str) -> Pod:
    """As much as a pod may say."""
    if kind == "spread":
        rules = [
            {"topologyKey": HOSTNAME, "maxSkew": 9999, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": expressions(term)}
            for term in range(TERMS)
        ]
        pod = a_pod("large", topologySpreadConstraints=rules)
    else:
        terms = [{"topologyKey": HOSTNAME, "namespaceSelector": {}, "labelSelector": expressions(term)} for term in range(TERMS)]
        pod = a_pod("large", affinity={kind: {REQUIRED: terms}})
    assert not spec_problems(pod.spec)
    return pod


KINDS = ["podAffinity", "podAntiAffinity", "spread"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_rules_cost_no_look_at_each_pod(kind: str) -> None:
    """16 terms with 96 expressions, asked of 500 pods and of 5,000: a look at each pod would be ten times the calls."""

    def cost(pods: int) -> int:
        site, pod = world(pods), largest(kind)
        return calls(lambda: site.judge.refusals(pod))

    few, many = cost(500), cost(5000)
    assert many < 1.5 * few + LABELS * 5000 * 3, "only the indexes by label are made by a look at each pod, once for all terms"


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_count_is_done_in_turns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `prepare`, the answer counts no pod."""
    monkeypatch.setattr("slinky.bridge.pacing.SLICE_SECONDS", 0.0)  # a turn after each step
    site, pod, pace = world(1000), largest(kind), Pace()
    asyncio.run(site.judge.prepare(pod, pace))
    assert pace.turns > TERMS
    counting = Mock(side_effect=AssertionError("pods were counted"))
    monkeypatch.setattr("slinky.bridge.eligibility.residents.chosen", counting)
    site.judge.answer(pod)
    counting.assert_not_called()


def test_a_pod_that_comes_costs_nothing_for_rules_that_are_not_asked_for() -> None:
    """A tenant leaves 1,000 different rules behind, which hold for every pod."""

    def cost(rules: int) -> int:
        site = world(100)
        for number in range(rules):
            selector = {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}
            terms = [{"topologyKey": HOSTNAME, "namespaceSelector": {}, "labelSelector": selector}]
            site.judge.refusals(a_pod("rule", affinity={"podAntiAffinity": {REQUIRED: terms}}))
        return calls(lambda: site.foreign.put(a_pod("new", labels={"app": "x"}, node="n1")))

    assert cost(1000) <= cost(1) + 10


@pytest.mark.parametrize("kind", KINDS)
def test_no_message_is_as_long_as_the_rules(kind: str) -> None:
    """It is kept for each node that is refused."""
    site, pod = world(200), largest(kind)
    site.nodes.put(a_node("bare"))
    assert all(len(said) < 600 for said in site.judge.refusals(pod).values())


VALUE = st.sampled_from(["a", "b", "c", "d"])
REQUIREMENTS = st.one_of(
    st.builds(
        lambda operator, values: Requirement("k", operator, tuple(sorted(values))),
        st.sampled_from(["In", "NotIn"]),
        st.sets(VALUE, min_size=1),
    ),
    st.sampled_from([Requirement("k", "Exists"), Requirement("k", "DoesNotExist")]),
)


@given(
    things=st.dictionaries(st.integers(0, 700), st.none() | VALUE, max_size=40),
    changes=st.lists(st.tuples(st.integers(0, 700), st.none() | VALUE), max_size=40),
    wanted=REQUIREMENTS,
)
def test_an_index_finds_what_a_look_at_each_thing_finds(
    things: dict[int, str | None], changes: list[tuple[int, str | None]], wanted: Requirement
) -> None:
    """Made at once or followed change by change."""
    index = LabelIndex((place, value) for place, value in things.items() if value is not None)
    for place, value in changes:
        if (before := things.get(place)) is not None:
            index.remove(place, before)
        if value is not None:
            index.add(place, value)
        things[place] = value
    right = [place for place, value in things.items() if meets({"k": value} if value is not None else {}, wanted)]
    assert index.meeting(wanted, mask_of(list(things))) == mask_of(right)
