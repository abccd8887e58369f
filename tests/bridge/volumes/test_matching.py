"""Which volume suits which claim, and which node which volume: as Kubernetes' own controller has it."""

from collections.abc import Sequence
from typing import Any

import pytest

from slinky.bridge.volumes.matching import Candidates, Shelf, node_suits, topology_admits, zones_admit
from slinky.kube import PersistentVolume
from slinky.kube.objects.storage import AllowedTopology
from tests.bridge.volumes.storage import HOST, a_claim, a_volume, made


def name_of(volume: PersistentVolume | None) -> str:
    return volume.metadata.name if volume else ""


def candidates(claim: Any, volumes: Sequence[PersistentVolume]) -> Candidates:
    named = [volume for volume in volumes if volume.spec.claim_ref is not None]
    return Candidates(claim, named, Shelf(volume for volume in volumes if volume.spec.claim_ref is None))


def best(claim: Any, *volumes: PersistentVolume, node: str = "n1") -> str:
    return name_of(candidates(claim, volumes).best({HOST: node}))


def test_of_volumes_that_fit_the_smallest_is_taken() -> None:
    assert best(a_claim("c", "2Gi"), a_volume("big", "10Gi"), a_volume("fits", "3Gi"), a_volume("small", "1Gi")) == "fits"


def test_of_equal_volumes_always_the_same_is_taken() -> None:
    assert best(a_claim("c"), a_volume("b"), a_volume("a")) == "a"


@pytest.mark.parametrize(
    "volume",
    [
        a_volume("v", "999Mi"),
        a_volume("v", kind="other"),
        a_volume("v", volumeMode="Block"),
        a_volume("v", accessModes=["ReadOnlyMany"]),
        a_volume("v", volumeAttributesClassName="gold"),
        a_volume("v", phase="Released"),
        a_volume("v", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        a_volume("v", claimRef={"namespace": "ns", "name": "another"}),
        a_volume("v", claimRef={"namespace": "elsewhere", "name": "c"}),
        a_volume("v", claimRef={"namespace": "ns", "name": "c", "uid": "of one that is gone"}),
        a_volume("v", node="n2"),
    ],
)
def test_what_does_not_fit_is_not_taken(volume: PersistentVolume) -> None:
    assert best(a_claim("c"), volume) == ""


def test_a_selector_chooses_among_volumes() -> None:
    claim = a_claim("c", selector={"matchLabels": {"disk": "fast"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]})
    old, fast = a_volume("a-old", meta={"labels": {"disk": "fast", "old": "1"}}), a_volume("b-fast", meta={"labels": {"disk": "fast"}})
    assert best(claim, a_volume("a"), old, fast) == "b-fast"


def test_a_volume_reserved_for_the_claim_goes_before_all_others_even_smaller_ones() -> None:
    assert best(a_claim("c"), a_volume("a"), a_volume("mine", "9Gi", claimRef={"namespace": "ns", "name": "c"})) == "mine"


def test_a_reserved_volume_that_is_elsewhere_leaves_none_here() -> None:
    assert best(a_claim("c"), a_volume("a"), a_volume("mine", node="n2", claimRef={"namespace": "ns", "name": "c"})) == ""


def test_local_volumes_are_found_by_their_node_among_thousands() -> None:
    found = candidates(a_claim("c"), [a_volume(f"v{index}", node=f"n{index}") for index in range(2000)])
    assert [name_of(found.best({HOST: f"n{index}"})) for index in range(2000)] == [f"v{index}" for index in range(2000)]


def test_a_pinned_volume_of_the_same_size_does_not_hide_a_smaller_one_for_all_nodes() -> None:
    assert best(a_claim("c"), a_volume("here", "5Gi", node="n1"), a_volume("everywhere", "2Gi")) == "everywhere"
    assert best(a_claim("c"), a_volume("here", "2Gi", node="n1"), a_volume("everywhere", "5Gi")) == "here"


def affine(*terms: dict[str, Any]) -> PersistentVolume:
    return a_volume("v", nodeAffinity={"required": {"nodeSelectorTerms": list(terms)}})


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("volume", "suits"),
    [
        (a_volume("v"), True),
        (affine(term("disk", "In", "ssd", "hdd")), True),
        (affine(term("disk", "NotIn", "ssd")), False),
        (affine(term("rack", "NotIn", "r1")), True),
        (affine(term("disk", "Exists")), True),
        (affine(term("disk", "DoesNotExist")), False),
        (affine(term("slots", "Gt", "3")), True),
        (affine(term("slots", "Lt", "4")), False),
        (affine(term("disk", "Gt", "3")), False),
        (affine(term("slots", "Gt", "many")), False),
        (affine(term("rack", "In", "r1"), term("disk", "In", "ssd")), True),
        (affine({}), False),
        (
            affine({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}),
            True,
        ),  # not looked at, as in kube-scheduler
    ],
)
def test_node_affinity_of_a_volume(volume: PersistentVolume, *, suits: bool) -> None:
    assert node_suits(volume, {"disk": "ssd", "slots": "4"}) is suits


ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("volume", "node", "admitted"),
    [
        ({ZONE: "a"}, {ZONE: "a"}, True),
        ({ZONE: "a__b"}, {ZONE: "b"}, True),
        ({ZONE: "a"}, {ZONE: "b"}, False),
        ({ZONE: "a"}, {}, True),  # a cluster without zones
        ({ZONE: "a"}, {"topology.kubernetes.io/region": "r"}, False),
        ({OLD_ZONE: "a"}, {ZONE: "a"}, True),
        ({OLD_ZONE: "a"}, {OLD_ZONE: "a"}, True),
        ({ZONE: "a"}, {OLD_ZONE: "a"}, False),
        ({ZONE: "a__"}, {ZONE: "b"}, True),  # not readable
        ({}, {ZONE: "b"}, True),
    ],
)
def test_zone_labels_of_a_volume(volume: dict[str, str], node: dict[str, str], *, admitted: bool) -> None:
    assert zones_admit(a_volume("v", meta={"labels": volume}), node) is admitted


def test_allowed_topologies() -> None:
    def allowed(*terms: dict[str, list[str]]) -> list[AllowedTopology]:
        return [
            made(AllowedTopology, {"matchLabelExpressions": [{"key": key, "values": values} for key, values in term.items()]})
            for term in terms
        ]

    here = {"zone": "a", "rack": "1"}
    assert topology_admits([], here)
    assert topology_admits(allowed({"zone": ["b"]}, {"zone": ["a"], "rack": ["1", "2"]}), here)
    assert not topology_admits(allowed({"zone": ["a"], "rack": ["3"]}), here)
    assert not topology_admits(allowed({}), here)
