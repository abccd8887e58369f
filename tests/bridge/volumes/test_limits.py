"""How many volumes of a driver a node can have."""

from typing import Any

import pytest

from slinky.bridge.volumes.limits import limit_refusal
from slinky.kube.objects import CSIDriver, CSINode, Pod, VolumeAttachment
from tests.bridge.volumes.storage import Shelves, a_claim, a_class, a_pod, a_volume, made

DRIVER = "disks.example.com"


def limited(count: int | None, driver: str = DRIVER) -> Any:
    return made(CSINode, {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": driver, "allocatable": {"count": count}}]}})


def attached(volume: str) -> Any:
    spec = {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": volume}}
    return made(VolumeAttachment, {"metadata": {"name": f"of-{volume}"}, "spec": spec})


def disk(claim: str, handle: str = "") -> list[Any]:
    meta = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    volume = a_volume(f"pv-{claim}", kind="made", phase="Bound", csi={"driver": DRIVER, "volumeHandle": handle or claim})
    return [a_claim(claim, kind="made", meta=meta, volumeName=f"pv-{claim}"), volume]


@pytest.fixture
def shelves() -> Shelves:
    return Shelves().put(a_class("made", DRIVER), *disk("a"), *disk("b"), *disk("c"), a_claim("new", kind="made"))


def refusal(shelves: Shelves, *claims: str) -> str:
    return limit_refusal(a_pod("p", *claims), "n1", shelves.stock())


def test_without_a_limit_there_is_room(shelves: Shelves) -> None:
    assert refusal(shelves, "a", "b", "c") == ""
    shelves.put(limited(None))
    assert refusal(shelves, "a", "b", "c") == ""


def test_a_pod_with_more_volumes_than_the_node_can_have_is_refused(shelves: Shelves) -> None:
    shelves.put(limited(2))
    assert refusal(shelves, "a", "b") == ""
    assert refusal(shelves, "a", "b", "c") == f"node n1 can have 2 volumes of CSI driver {DRIVER}: 0 are there, 3 more would come"
    assert "3 more" in refusal(shelves, "a", "b", "new")  # one that is yet to be made


def test_volumes_that_others_use_there_count_once_and_shared_ones_not_again(shelves: Shelves) -> None:
    shelves.put(limited(2), a_pod("x", "a", "b", node="n1", phase="Running"), a_pod("y", "a", node="n1", phase="Running"))
    assert refusal(shelves, "a") == ""
    assert "2 are there, 1 more" in refusal(shelves, "a", "c")


def test_two_volumes_that_are_one_disk_count_once(shelves: Shelves) -> None:
    shelves.put(limited(1), *disk("same", handle="a"), a_pod("x", "a", node="n1", phase="Running"))
    assert refusal(shelves, "same") == ""


def test_volumes_of_pods_that_are_over_or_elsewhere_do_not_count(shelves: Shelves) -> None:
    shelves.put(limited(1), a_pod("x", "a", node="n1", phase="Succeeded"), a_pod("y", "b", node="n2", phase="Running"))
    assert refusal(shelves, "c") == ""


def test_what_is_still_attached_counts(shelves: Shelves) -> None:
    shelves.put(limited(2), attached("pv-a"))
    assert refusal(shelves, "b") == ""
    shelves.put(attached("pv-b"))
    assert "2 are there, 1 more" in refusal(shelves, "c")


def test_a_pod_that_is_on_its_way_there_counts(shelves: Shelves) -> None:
    shelves.put(limited(1))
    stock = shelves.stock()
    stock.expect(a_pod("x", "a"), "n1")
    assert "1 are there" in limit_refusal(a_pod("p", "b"), "n1", stock)
    assert limit_refusal(a_pod("x", "a"), "n1", stock) == ""


def test_limits_of_other_drivers_do_not_matter(shelves: Shelves) -> None:
    shelves.put(limited(0, "other.example.com"))
    assert refusal(shelves, "a") == ""


def test_an_old_plugin_counts_as_the_driver_that_took_its_place(shelves: Shelves) -> None:
    meta = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    shelves.put(
        limited(0, "ebs.csi.aws.com"),
        a_claim("old", meta=meta, volumeName="ebs"),
        a_volume("ebs", awsElasticBlockStore={"volumeID": "vol-1"}),
    )
    assert "ebs.csi.aws.com" in refusal(shelves, "old")


def test_disks_that_pods_name_themselves_count_as_well(shelves: Shelves) -> None:
    pod = made(
        Pod,
        {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"volumes": [{"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}]}},
    )
    assert limit_refusal(pod, "n1", shelves.stock()) == ""
    shelves.put(limited(0, "ebs.csi.aws.com"))
    assert "ebs.csi.aws.com" in limit_refusal(pod, "n1", shelves.stock())


def test_a_driver_may_ask_to_be_there_first(shelves: Shelves) -> None:
    shelves.put(made(CSIDriver, {"metadata": {"name": DRIVER}, "spec": {"preventPodSchedulingIfMissing": True}}))
    assert refusal(shelves, "a") == f"CSI driver {DRIVER} is not on node n1"
    shelves.put(limited(None))
    assert refusal(shelves, "a") == ""
