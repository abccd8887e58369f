"""Disks that two pods on a node cannot have at once."""

from typing import Any

import pytest

from slinky.bridge.volumes.disks import disk_refusal
from slinky.kube import Pod
from tests.bridge.volumes.storage import Shelves, made


def a_pod(name: str, disk: dict[str, Any], node: str = "") -> Pod:
    meta = {"name": name, "namespace": "ns", "uid": name}
    return made(Pod, {"metadata": meta, "spec": {"nodeName": node, "volumes": [{"name": "disk", **disk}]}, "status": {"phase": "Running"}})


def rbd(*monitors: str, image: str = "i", read: bool = False) -> dict[str, Any]:
    return {"rbd": {"monitors": monitors, "pool": "rbd", "image": image, "readOnly": read}}


@pytest.mark.parametrize(
    ("mine", "theirs", "refused"),
    [
        ({"awsElasticBlockStore": {"volumeID": "a"}}, {"awsElasticBlockStore": {"volumeID": "a"}}, True),
        ({"awsElasticBlockStore": {"volumeID": "a"}}, {"awsElasticBlockStore": {"volumeID": "b"}}, False),
        ({"gcePersistentDisk": {"pdName": "a"}}, {"gcePersistentDisk": {"pdName": "a", "readOnly": True}}, True),
        ({"gcePersistentDisk": {"pdName": "a", "readOnly": True}}, {"gcePersistentDisk": {"pdName": "a", "readOnly": True}}, False),
        ({"iscsi": {"iqn": "a"}}, {"iscsi": {"iqn": "a"}}, True),
        ({"iscsi": {"iqn": "a", "readOnly": True}}, {"iscsi": {"iqn": "a", "readOnly": True}}, False),
        (rbd("m1", "m2"), rbd("m2", "m3"), True),
        (rbd("m1"), rbd("m2"), False),
        (rbd("m1"), rbd("m1", image="j"), False),
        (rbd("m1", read=True), rbd("m1", read=True), False),
        ({"iscsi": {"iqn": "a"}}, {"awsElasticBlockStore": {"volumeID": "a"}}, False),
    ],
)
def test_who_has_a_disk_keeps_others_from_the_node(mine: dict[str, Any], theirs: dict[str, Any], *, refused: bool) -> None:
    stock = Shelves().put(a_pod("there", theirs, "n1")).stock()
    assert bool(disk_refusal(a_pod("new", mine), "n1", stock)) is refused
    assert disk_refusal(a_pod("new", mine), "n2", stock) == ""
    assert disk_refusal(a_pod("there", theirs), "n1", stock) == ""
