"""What the members of a gang ask of one another: told to Slurm, or refused in words."""

from typing import Any

import pytest

from slinky.bridge.eligibility import GangRules, within_gang
from slinky.kube import Pod
from tests.bridge.eligibility.things import HOSTNAME, ZONE, a_pod, anti, near, port, spread

JOB = {"job": "train"}
FREE = GangRules()


def gang(size: int = 3, labels: dict[str, str] | None = None, **spec: Any) -> list[Pod]:
    return [a_pod(f"m{index}", labels={**(labels or JOB), "rank": str(index)}, **spec) for index in range(size)]


def test_members_that_ask_nothing_of_one_another_are_free() -> None:
    assert within_gang(gang()) == FREE
    assert within_gang([]) == FREE
    assert within_gang(gang(affinity=anti(HOSTNAME, {"app": "somebody-else"}))) == FREE
    assert within_gang(gang(affinity=near(ZONE, {"app": "somebody-else"}))) == FREE
    assert within_gang(gang(1, affinity=anti(ZONE, JOB))) == FREE, "one alone has nobody to clash with"


def test_members_kept_apart_by_hostname_or_host_ports_get_a_node_each() -> None:
    assert within_gang(gang(affinity=anti(HOSTNAME, JOB))) == GangRules(one_per_node=True)
    assert within_gang(gang(containers=[{"name": "c", "ports": [port(29500)]}])) == GangRules(one_per_node=True)
    assert within_gang([*gang(2), a_pod("leader", affinity=anti(HOSTNAME, JOB))]) == GangRules(one_per_node=True), (
        "it is enough that one asks"
    )


def test_different_ports_and_a_term_that_means_only_its_own_pod_keep_nobody_apart() -> None:
    apart = [a_pod(f"m{index}", containers=[{"name": "c", "ports": [port(29500 + index)]}]) for index in range(3)]
    assert within_gang(apart) == FREE
    alone = [*gang(2), a_pod("leader", labels={"role": "leader"}, affinity=anti(HOSTNAME, {"role": "leader"}))]
    assert within_gang(alone) == FREE


def test_members_kept_apart_by_another_label_are_refused() -> None:
    rules = within_gang(gang(affinity=anti(ZONE, JOB)))
    assert rules.refusal == (
        f"the pods of this gang are to be kept apart by {ZONE}, which Slurm cannot be told; by {HOSTNAME} it can, "
        "and single pods can be kept apart by any label"
    )


def test_members_that_want_one_another_near_get_one_domain() -> None:
    assert within_gang(gang(affinity=near(ZONE, JOB))) == GangRules(same_domain=ZONE)
    assert within_gang(gang(affinity=near(HOSTNAME, JOB))) == GangRules(same_domain=HOSTNAME)
    workers = gang(2, affinity=near(ZONE, {"role": "leader"}))
    assert within_gang([a_pod("leader", labels={"role": "leader"}), *workers]) == GangRules(same_domain=ZONE)
    both = {**near(ZONE, JOB), **anti(HOSTNAME, JOB)}
    assert within_gang(gang(affinity=both)) == GangRules(one_per_node=True, same_domain=ZONE)


def test_one_pod_must_match_all_terms_to_be_wanted_near() -> None:
    affinity = near(ZONE, JOB)
    affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] += near("rack", {"app": "db"})["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert within_gang(gang(affinity=affinity)) == FREE


def test_what_cannot_be_told_at_once_is_refused() -> None:
    affinity = near(ZONE, JOB)
    terms = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms += near("rack", JOB)["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert "together by rack and topology.kubernetes.io/zone at once" in within_gang(gang(affinity=affinity)).refusal
    torn = {**near(HOSTNAME, JOB), **anti(HOSTNAME, JOB)}
    assert "are to share one node, and are kept apart on it" in within_gang(gang(affinity=torn)).refusal
    broken = anti(HOSTNAME, {}, labelSelector={"matchExpressions": [{"key": "a", "operator": "Like"}]})
    assert "malformed" in within_gang(gang(affinity=broken)).refusal


def test_a_spread_of_more_members_than_may_be_in_one_place_is_one_a_node_or_refused() -> None:
    assert within_gang(gang(topologySpreadConstraints=[spread(HOSTNAME, JOB)])) == GangRules(one_per_node=True)
    assert within_gang(gang(topologySpreadConstraints=[spread(HOSTNAME, JOB, 3)])) == FREE
    assert within_gang(gang(topologySpreadConstraints=[spread(ZONE, {"app": "else"})])) == FREE
    assert "kept apart by topology.kubernetes.io/zone" in within_gang(gang(topologySpreadConstraints=[spread(ZONE, JOB)])).refusal


def test_label_keys_count_as_they_will_once_the_pods_are_created() -> None:
    everyone = {"labelSelector": {}, "matchLabelKeys": ["rank"]}
    assert within_gang(gang(affinity=anti(HOSTNAME, {}, **everyone))) == FREE, "each means its own rank only"
    others = {"labelSelector": {}, "mismatchLabelKeys": ["job"]}
    assert within_gang(gang(affinity=anti(HOSTNAME, {}, **others))) == FREE, "other jobs only"
    assert within_gang(gang(affinity=anti(HOSTNAME, {}, labelSelector={}, matchLabelKeys=["job"]))) == GangRules(one_per_node=True)


@pytest.mark.parametrize(("labels", "apart"), [(None, True), ({"team": "red"}, True), ({"team": "blue"}, False)])
def test_a_namespace_selector_is_taken_to_mean_the_gangs_namespace_unless_its_labels_say_otherwise(
    labels: dict[str, str] | None, apart: bool
) -> None:
    red = {"namespaceSelector": {"matchLabels": {"team": "red"}}}
    assert within_gang(gang(affinity=anti(HOSTNAME, JOB, **red)), labels).one_per_node is apart
