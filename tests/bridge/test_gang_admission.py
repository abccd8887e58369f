"""Gangs whose members ask of one another what Slurm cannot be told: refused when the object is applied."""

from typing import Any

import msgspec
import pytest

from slinky.bridge.admission import admit_root
from slinky.bridge.keys import GANG
from slinky.bridge.settings import GangSettings, NodeSettings, Settings

ZONE = "topology.kubernetes.io/zone"
SETTINGS = Settings(managed_namespaces=["ns"])
MAPPED = Settings(managed_namespaces=["ns"], nodes=NodeSettings(feature_labels={ZONE: "zone"}))


def template(key: str, kind: str = "podAntiAffinity") -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": key}
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "affinity": affinity}}


def job(pods: dict[str, Any], gang: str = "true", parallelism: int = 4) -> dict[str, Any]:
    return {
        "metadata": {"name": "j", "namespace": "ns", "annotations": {GANG: gang}},
        "spec": {"parallelism": parallelism, "template": pods},
    }


def jobset(pods: dict[str, Any], **annotations: str) -> dict[str, Any]:
    replicated = [{"name": "w", "replicas": 2, "template": {"spec": {"template": pods}}}]
    return {"metadata": {"name": "s", "namespace": "ns", "annotations": annotations}, "spec": {"replicatedJobs": replicated}}


def lws(pods: dict[str, Any], size: int = 4) -> dict[str, Any]:
    return {"metadata": {"name": "l", "namespace": "ns"}, "spec": {"leaderWorkerTemplate": {"size": size, "workerTemplate": pods}}}


@pytest.mark.parametrize(
    ("root", "place"),
    [
        (job(template(ZONE)), "spec.template: "),
        (jobset(template(ZONE)), "spec.replicatedJobs[0].template.spec.template: "),
        (lws(template(ZONE)), "spec.leaderWorkerTemplate.workerTemplate: "),
    ],
)
def test_members_that_are_to_be_kept_apart_by_zone_are_refused(root: dict[str, Any], place: str) -> None:
    refusal = admit_root(root, SETTINGS).refusal
    assert refusal.startswith(place)
    assert f"kept apart by {ZONE}, which Slurm cannot be told" in refusal
    assert not admit_root(root, SETTINGS, before=root).refusal


@pytest.mark.parametrize(
    "root",
    [
        job(template("kubernetes.io/hostname")),
        job(template(ZONE), gang="false"),
        job(template(ZONE), parallelism=1),
        jobset(template(ZONE), **{GANG: "false"}),
        lws(template(ZONE), size=1),
    ],
)
def test_what_can_be_told_or_is_no_gang_is_not_refused(root: dict[str, Any]) -> None:
    assert not admit_root(root, SETTINGS).refusal


def test_members_that_are_to_be_together_need_the_label_as_a_feature() -> None:
    root = job(template(ZONE, "podAffinity"))
    assert "map it with nodes.featureLabels" in admit_root(root, SETTINGS).refusal
    assert not admit_root(root, MAPPED).refusal


PLAIN: dict[str, Any] = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
TOO_MANY = "a gang of 2,000,000,000 pods, above the limit of 20,000 (gangs.maxPods)"


def many(pods: dict[str, Any], count: int = 2_000_000_000) -> list[dict[str, Any]]:
    several = jobset(pods)
    several["spec"]["replicatedJobs"][0]["replicas"] = count
    return [several, lws(pods, size=count), job(pods, parallelism=count)]


def groups(count: int) -> list[dict[str, Any]]:
    meta = {"name": "g", "namespace": "ns"}
    specs = [
        {"minMember": count},
        {"schedulingPolicy": {"gang": {"minCount": count}}},
        {"podGroups": [{"name": "a", "policy": {"basic": {}}}, {"name": "b", "policy": {"gang": {"minCount": count}}}]},
    ]
    return [{"metadata": meta, "spec": spec} for spec in specs]


@pytest.mark.parametrize("root", many(PLAIN) + groups(2_000_000_000))
def test_a_gang_of_more_pods_than_one_may_have_is_refused(root: dict[str, Any]) -> None:
    assert TOO_MANY in admit_root(root, SETTINGS).refusal
    assert not admit_root(root, SETTINGS, before=root).refusal
    large = msgspec.structs.replace(SETTINGS, gangs=GangSettings(max_pods=2_000_000_000))
    assert not admit_root(root, large).refusal


@pytest.mark.parametrize("root", many(PLAIN, 20_000) + groups(20_000))
def test_a_gang_of_as_many_pods_as_one_may_have_is_not(root: dict[str, Any]) -> None:
    assert not admit_root(root, SETTINGS).refusal


def test_what_is_no_gang_may_have_any_number_of_pods() -> None:
    """Each group of a LeaderWorkerSet is a gang, and so is each part of a JobSet that starts in order. (The whole of a set was limited while each part of it was looked at whenever it changed.)"""
    single, in_order = lws(PLAIN, size=1), jobset(PLAIN)
    single["spec"]["replicas"] = 2_000_000_000
    in_order["spec"] |= {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    in_order["spec"]["replicatedJobs"] = [
        {"name": f"r{number}", "replicas": 15_000, "template": {"spec": {"template": PLAIN}}} for number in range(3)
    ]
    no_gang, plain_job = jobset(PLAIN, **{GANG: "false"}), job(PLAIN, gang="false", parallelism=10**6)
    no_gang["spec"]["replicatedJobs"][0]["replicas"] = 2_000_000_000
    for root in (single, in_order, no_gang, plain_job):
        assert not admit_root(root, SETTINGS).refusal


@pytest.mark.parametrize("root", many({"spec": {**PLAIN["spec"], "schedulerName": "another"}}))
def test_a_set_for_another_scheduler_may_have_as_many_as_it_likes(root: dict[str, Any]) -> None:
    assert not admit_root(root, SETTINGS).refusal
