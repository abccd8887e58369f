"""A workload that waits for its claims is woken by what can end its wait, and by nothing else."""

import pytest

from slinky.bridge.volumes.live import Volumes
from slinky.bridge.volumes.stock import SELECTED_NODE
from slinky.bridge.workload import WorkloadKey
from slinky.kube.objects import CSIDriver, CSINode, CSIStorageCapacity
from tests.bridge.counting import calls
from tests.bridge.volumes.storage import (
    HOST,
    Shelves,
    a_claim,
    a_class,
    a_node,
    a_pod,
    a_volume,
    made,
)

ONE, TWO = WorkloadKey("Pod", "ns", "one"), WorkloadKey("Pod", "ns", "two")
LINEAR = 1.4  # a pod, at twice as many; n² is 2


class Waiting(Shelves):
    """One workload waits for claim `c` of class `lvm`, another for claim `d` of class `local`."""

    def __init__(self) -> None:
        super().__init__()
        self.volumes_known = self.live()
        self.changes = 0
        self.put(
            a_class("lvm", "lvm.example.com"),
            a_class("local"),
            a_claim("c", "10Gi", kind="lvm"),
            a_claim("d"),
            room("50Gi"),
        )
        self.put(driver(), csi_node(39), a_volume("v", node="n1"))
        self.volumes_known.await_changes(ONE, [a_pod("p", "c")])
        self.volumes_known.await_changes(TWO, [a_pod("q", "d")])
        self.woken.clear()
        self.volumes_known.changed = self._count

    def _count(self) -> None:
        self.changes += 1


def room(capacity: str, name: str = "n1") -> CSIStorageCapacity:
    meta = {"name": f"cap-{name}", "namespace": "kube-system"}
    return made(
        CSIStorageCapacity,
        {
            "metadata": meta,
            "storageClassName": "lvm",
            "capacity": capacity,
            "nodeTopology": {"matchLabels": {HOST: name}},
        },
    )


def driver(*, publishes: bool = True) -> CSIDriver:
    return made(CSIDriver, {"metadata": {"name": "lvm.example.com"}, "spec": {"storageCapacity": publishes}})


def csi_node(limit: int) -> CSINode:
    drivers = [{"name": "lvm.example.com", "nodeID": "n1", "allocatable": {"count": limit}}]
    return made(CSINode, {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})


def test_what_changes_nothing_wakes_nothing() -> None:
    there = Waiting()
    for same in (
        room("50Gi"),
        driver(),
        csi_node(39),
        a_class("lvm", "lvm.example.com"),
        a_volume("v", node="n1"),
        a_claim("x", kind="lvm"),
    ):
        there.put(same)
    assert there.woken == []
    there.changes = 0
    there.put(
        room("50Gi"),
        driver(),
        csi_node(39),
        a_class("lvm", "lvm.example.com"),
        a_volume("v", node="n1"),
    )
    assert there.changes == 0


def test_room_and_drivers_have_jobs_judged_again_but_end_no_wait_for_a_claim() -> None:
    there = Waiting()
    for number, thing in enumerate((room("9Gi"), room("9Gi", "n2"), driver(publishes=False), csi_node(3)), 1):
        there.put(thing)
        assert there.changes == number
    assert there.woken == []


def test_a_class_wakes_only_those_that_wait_for_claims_of_it() -> None:
    there = Waiting()
    there.put(a_class("lvm", "lvm.example.com", "Immediate"))
    assert there.woken == [ONE]
    there.woken.clear()
    there.classes.remove(a_class("local").key)
    assert there.woken == [TWO]


def test_each_change_of_a_claim_or_its_volume_wakes_those_that_wait_for_it() -> None:
    there = Waiting()
    claim, volume = there.claims.get("c", "ns"), there.volumes.get("v")
    there.change(claim, {SELECTED_NODE: "n1"})
    assert there.woken == [ONE]
    there.woken.clear()
    assert volume
    there.controller_binds("d", "v")
    assert set(there.woken) == {TWO}


@pytest.mark.parametrize("act", ["wait", "choose"])
def test_a_gang_with_local_volumes_costs_as_much_a_pod_however_large_it_is(act: str) -> None:
    def work(size: int) -> float:
        shelves, nodes = Shelves(), [a_node(f"n{number}") for number in range(size)]
        shelves.put(a_class("local"), *[a_volume(f"v{number}", node=f"n{number}") for number in range(size)])
        shelves.put(*[a_claim(f"c{number}") for number in range(size)])
        pods, volumes = (
            [a_pod(f"p{number}", f"c{number}") for number in range(size)],
            shelves.live(),
        )
        acts = {
            "wait": lambda: volumes.waits(pods),
            "choose": lambda: [volumes.judgement(pod).find(node) for pod, node in zip(pods, nodes, strict=True)],
        }
        return calls(acts[act]) / size

    assert work(200) < LINEAR * work(100)


def test_volumes_that_are_everywhere_are_given_to_a_gang_without_a_look_at_those_given_before() -> None:
    def work(size: int) -> float:
        shelves = Shelves()
        shelves.put(
            a_class("local"),
            *[a_volume(f"v{number}") for number in range(size)],
            *[a_claim(f"c{number}") for number in range(size)],
        )
        volumes: Volumes = shelves.live()
        node, given = a_node("n1"), set()

        def choose_all() -> None:
            for number in range(size):
                found = volumes.judgement(a_pod(f"p{number}", f"c{number}")).find(node)
                assert not isinstance(found, str)
                [(volume, key)] = found.static
                claim = volumes.stock.claim(key)
                assert claim
                volumes.stock.give(volume, claim)
                given.add(volume)

        count = calls(choose_all)
        assert len(given) == size
        return count / size

    assert work(200) < LINEAR * work(100)
