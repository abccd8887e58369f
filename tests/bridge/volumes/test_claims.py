"""Where a pod's claims let it run, and when they let it run nowhere yet."""

from typing import Any

import pytest

from slinky.bridge.volumes.claims import Found, Judgement
from slinky.bridge.volumes.stock import SELECTED_NODE
from slinky.kube import Key, Pod
from slinky.kube.objects import CSIDriver, CSIStorageCapacity
from tests.bridge.volumes.storage import Shelves, a_claim, a_class, a_node, a_pod, a_volume, made

BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
HERE, THERE = a_node("n1"), a_node("n2")


def bound(name: str, volume: str, **spec: Any) -> Any:
    return a_claim(name, meta=BOUND, phase="Bound", volumeName=volume, **spec)


def waits(shelves: Shelves, pod: Pod) -> str:
    return Judgement(pod, shelves.stock()).waits


def nodes(shelves: Shelves, pod: Pod) -> list[str]:
    judgement = Judgement(pod, shelves.stock())
    return [node.metadata.name for node in (HERE, THERE) if not judgement.refusal(node)]


@pytest.fixture
def shelves() -> Shelves:
    return Shelves().put(a_class("local"), a_class("made", "disks.example.com"), a_class("now", "disks.example.com", "Immediate"))


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (None, "claim ns/c does not exist"),
        (a_claim("c", kind="now"), "claim ns/c is not bound yet"),
        (a_claim("c", storageClassName=None), "claim ns/c is not bound yet"),
        (a_claim("c", kind="none"), "claim ns/c is not bound yet, and its storage class none does not exist"),
        (a_claim("c", volumeName="v"), "claim ns/c is not bound yet to volume v, which it asks for"),
        (a_claim("c", phase="Lost", volumeName="v", meta=BOUND), "claim ns/c has lost its volume v"),
        (a_claim("c", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "claim ns/c is being deleted"),
        (a_claim("c"), ""),
        (bound("c", "v"), ""),
    ],
)
def test_why_a_pod_waits(shelves: Shelves, claim: Any, why: str) -> None:
    shelves.put(*([claim] if claim else []))
    assert waits(shelves, a_pod("p", "c")) == why


def test_an_ephemeral_volume_waits_for_its_own_claim(shelves: Shelves) -> None:
    pod = a_pod("p", ephemeral=("scratch",))
    assert "claim ns/p-scratch is not there yet" in waits(shelves, pod)
    shelves.put(a_claim("p-scratch"))
    assert "was not made for this pod" in waits(shelves, pod)
    shelves.put(a_claim("p-scratch", meta={"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "p-uid", "controller": True}]}))
    assert waits(shelves, pod) == ""


def test_a_bound_claim_decides_by_its_volume(shelves: Shelves) -> None:
    shelves.put(bound("c", "v"), a_volume("v", node="n2", phase="Bound"))
    assert nodes(shelves, a_pod("p", "c")) == ["n2"]


def test_a_bound_claim_whose_volume_is_gone_fits_nowhere(shelves: Shelves) -> None:
    shelves.put(bound("c", "v"))
    assert nodes(shelves, a_pod("p", "c")) == []


def test_a_volume_in_a_zone_keeps_pods_there(shelves: Shelves) -> None:
    zone = "topology.kubernetes.io/zone"
    shelves.put(bound("c", "v"), a_volume("v", phase="Bound", meta={"labels": {zone: "a"}}))
    judgement = Judgement(a_pod("p", "c"), shelves.stock())
    assert judgement.refusal(made(type(HERE), {"metadata": {"name": "n", "labels": {zone: "a"}}})) == ""
    assert "another zone" in judgement.refusal(made(type(HERE), {"metadata": {"name": "n", "labels": {zone: "b"}}}))


def test_all_claims_of_a_pod_must_be_had_on_one_node(shelves: Shelves) -> None:
    shelves.put(
        a_claim("c"),
        a_claim("d", "5Gi"),
        a_volume("small1", node="n1"),
        a_volume("small2", node="n2"),
        a_volume("large2", "5Gi", node="n2"),
    )
    assert nodes(shelves, a_pod("p", "c")) == ["n1", "n2"]
    assert nodes(shelves, a_pod("p", "c", "d")) == ["n2"]


def test_two_claims_do_not_get_the_same_volume_and_the_smaller_one_chooses_first(shelves: Shelves) -> None:
    shelves.put(a_claim("large", "4Gi"), a_claim("small", "1Gi"), a_volume("v5", "5Gi", node="n1"), a_volume("v9", "9Gi", node="n1"))
    found = Judgement(a_pod("p", "large", "small"), shelves.stock()).find(HERE)
    assert found == Found((("v5", Key("ns", "small")), ("v9", Key("ns", "large"))))
    assert "no free volume" in Judgement(a_pod("p", "large", "small"), shelves.stock()).refusal(THERE)


def test_where_no_volume_fits_one_is_made(shelves: Shelves) -> None:
    shelves.put(a_claim("c", kind="made"), a_volume("v", kind="made", node="n1"))
    judgement = Judgement(a_pod("p", "c"), shelves.stock())
    assert judgement.find(HERE) == Found((("v", Key("ns", "c")),))
    assert judgement.find(THERE) == Found((), (Key("ns", "c"),))


def test_volumes_are_made_only_where_their_class_allows(shelves: Shelves) -> None:
    allowed = [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["n2"]}]}]
    shelves.put(a_class("picky", "disks.example.com", allowedTopologies=allowed), a_claim("c", kind="picky"))
    assert nodes(shelves, a_pod("p", "c")) == ["n2"]


def test_a_claim_whose_volume_is_being_made_for_a_node_stays_there(shelves: Shelves) -> None:
    shelves.put(a_claim("c", kind="made", meta={"annotations": {SELECTED_NODE: "n2"}}), a_volume("v", kind="made", node="n1"))
    assert nodes(shelves, a_pod("p", "c")) == ["n2"]


def test_a_claim_that_is_on_its_way_is_no_reason_to_refuse_a_node(shelves: Shelves) -> None:
    """When it is bound, its volume decides; others who share it are not to be kept from all nodes until then."""
    shelves.put(a_claim("c", kind="made"), a_claim("d"), a_volume("v", node="n1"))
    stock = shelves.stock()
    stock.select(Key("ns", "c"), "n2")
    claim = stock.claim(Key("ns", "d"))
    assert claim
    stock.give("v", claim)
    judgement = Judgement(a_pod("another", "c", "d"), stock)
    assert [judgement.refusal(node) for node in (HERE, THERE)] == ["", ""]
    stock.take_back("v")
    judgement = Judgement(a_pod("another", "c", "d"), stock)
    assert judgement.refusal(HERE) == ""
    assert "no free volume" in judgement.refusal(THERE)


@pytest.mark.parametrize(
    ("capacity", "fits"),
    [
        ({"capacity": "10Gi", "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "n1"}}}, ["n1"]),
        ({"capacity": "10Gi", "nodeTopology": {}}, ["n1", "n2"]),
        ({"capacity": "10Gi"}, []),
        ({"capacity": "1Gi", "nodeTopology": {}}, []),
        ({"capacity": "10Gi", "maximumVolumeSize": "1Gi", "nodeTopology": {}}, []),
        ({"nodeTopology": {}}, []),
        ({"capacity": "10Gi", "nodeTopology": {}, "storageClassName": "another"}, []),
    ],
)
def test_room_that_a_driver_publishes(shelves: Shelves, capacity: dict[str, Any], fits: list[str]) -> None:
    driver = made(CSIDriver, {"metadata": {"name": "disks.example.com"}, "spec": {"storageCapacity": True}})
    shelves.put(a_claim("c", "5Gi", kind="made"), driver)
    shelves.put(made(CSIStorageCapacity, {"metadata": {"name": "x", "namespace": "s"}, "storageClassName": "made"} | capacity))
    assert nodes(shelves, a_pod("p", "c")) == fits


def test_room_is_no_matter_for_a_driver_that_does_not_publish_it(shelves: Shelves) -> None:
    shelves.put(
        a_claim("c", "5Gi", kind="made"), made(CSIDriver, {"metadata": {"name": "disks.example.com"}, "spec": {"storageCapacity": False}})
    )
    assert nodes(shelves, a_pod("p", "c")) == ["n1", "n2"]


def test_a_claim_for_one_pod_alone_keeps_others_out_until_that_pod_is_over(shelves: Shelves) -> None:
    shelves.put(bound("c", "v", accessModes=["ReadWriteOncePod"]), a_volume("v", phase="Bound"))
    assert nodes(shelves, a_pod("second", "c")) == ["n1", "n2"]
    shelves.put(a_pod("first", "c", node="n1", phase="Running"))
    assert "pod ns/first uses it" in waits(shelves, a_pod("second", "c"))
    assert nodes(shelves, a_pod("second", "c")) == []
    assert waits(shelves, a_pod("first", "c")) == ""
    shelves.put(a_pod("first", "c", node="n1", phase="Succeeded"))
    assert nodes(shelves, a_pod("second", "c")) == ["n1", "n2"]


def test_a_claim_that_pods_share_does_not(shelves: Shelves) -> None:
    shelves.put(bound("c", "v"), a_volume("v", phase="Bound"), a_pod("first", "c", node="n1", phase="Running"))
    assert nodes(shelves, a_pod("second", "c")) == ["n1", "n2"]


def test_a_pod_without_claims_runs_anywhere(shelves: Shelves) -> None:
    assert nodes(shelves, a_pod("p")) == ["n1", "n2"]
