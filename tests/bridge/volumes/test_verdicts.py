"""What storage says of nodes is judged once for all pods whose volumes say the same, and again only where it
has changed: with the same outcome as for each pod by itself.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slinky.bridge.directions import Asked, Directions
from slinky.bridge.eligibility import Surroundings
from slinky.bridge.judgement import KubernetesJudgement
from slinky.bridge.ledger import Ledger
from slinky.bridge.node_names import NodeNames
from slinky.bridge.pacing import Pace
from slinky.bridge.slurm_nodes import SlurmNodes
from slinky.bridge.volumes.claims import Judgement
from slinky.bridge.volumes.live import Volumes
from slinky.bridge.volumes.verdicts import VolumeVerdicts
from slinky.bridge.whereabouts import Whereabouts
from slinky.kube import (
    Cache,
    Key,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from slinky.kube.objects import CSIDriver, CSINode, CSIStorageCapacity, NodeStatus, VolumeAttachment
from slinky.kube.objects.storage import BIND_COMPLETED
from slinky.slurm import Node as SlurmNode
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
from tests.oracle.storage import StorageMaker

ZONE = "topology.kubernetes.io/zone"
DRIVER = "csi.example.com"
LINEAR = 1.4  # per node or pod, at twice the size; n² is 2
ASKED = Asked(partition="bridge", cpus_per_task=1, memory_per_cpu=1024)


class Slurm:
    """With these nodes."""

    def __init__(self, names: list[str]) -> None:
        self.nodes = self
        self._names = names

    async def since(self, _: int) -> tuple[list[SlurmNode], int]:
        return [
            SlurmNode(
                name=name,
                cpus=64,
                real_memory=256 * 1024,
                partitions=["bridge"],
                node_states=["IDLE", "EXTERNAL"],
            )
            for name in self._names
        ], 0


class Place(Shelves):
    """The bridge's judgement over nodes in two zones, each with a driver that has a limit."""

    def __init__(self, nodes: int = 0) -> None:
        super().__init__()
        self.volumes_known = Volumes(self.caches(), (self.pods,), self.woken.append)
        self.volumes_known.learned()
        self.surroundings = Surroundings([self.pods], self.nodes, Cache[Namespace]())
        self.surroundings.filters.append(self.volumes_known.judge)
        self.verdicts = self.surroundings.volumes = VolumeVerdicts(self.volumes_known, self.nodes)
        self.names = [f"n{number}" for number in range(nodes)]
        slurm: Any = Slurm(self.names)
        slurm_nodes = SlurmNodes(slurm)
        for number, name in enumerate(self.names):
            room = NodeStatus(allocatable={"cpu": "64", "memory": "256Gi", "pods": "110"})
            node = a_node(name, **{ZONE: f"z{number % 2}"})
            self.put(msgspec.structs.replace(node, status=room), a_csi_node(name))
        judgement = KubernetesJudgement(self.surroundings, Ledger([self.pods], self.nodes))
        self.directions = Directions(judgement, slurm_nodes, {}, NodeNames(self.nodes), cluster="c1")

    async def where(self, pods: Sequence[Pod]) -> Whereabouts:
        found = await self.directions.again(ASKED, pods)
        assert found is not None
        return found.where

    def refused(self, pod: Pod) -> set[str]:
        return set(self.surroundings.answer(pod).refused)


def a_csi_node(name: str, limit: int | None = 39, driver: str = DRIVER) -> CSINode:
    allocatable = {} if limit is None else {"allocatable": {"count": limit}}
    return made(
        CSINode,
        {
            "metadata": {"name": name},
            "spec": {"drivers": [{"name": driver, "nodeID": name, **allocatable}]},
        },
    )


def bound(name: str, zone: str = "", driver: str = "") -> tuple[PersistentVolumeClaim, PersistentVolume]:
    """A claim and its volume: where its affinity says, and of a driver, if any."""
    where: dict[str, Any] = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term(ZONE, zone)]}}} if zone else {}
    csi: dict[str, Any] = {"csi": {"driver": driver, "volumeHandle": name}} if driver else {}
    ref = {"namespace": "ns", "name": name, "uid": f"{name}-uid"}
    volume = a_volume(f"v-{name}", kind="csi", phase="Bound", claimRef=ref, **where, **csi)
    return a_claim(
        name,
        kind="csi",
        meta={"annotations": {BIND_COMPLETED: "yes"}},
        phase="Bound",
        volumeName=f"v-{name}",
    ), volume


def term(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def a_capacity(name: str, node: str, room: str = "100Gi", kind: str = "lvm") -> CSIStorageCapacity:
    meta = {"name": name, "namespace": "kube-system"}
    return made(
        CSIStorageCapacity,
        {
            "metadata": meta,
            "storageClassName": kind,
            "capacity": room,
            "nodeTopology": {"matchLabels": {HOST: node}},
        },
    )


def publishing(place: Shelves) -> None:
    """A class whose driver says where it has room."""
    place.put(
        a_class("lvm", "lvm.example.com"),
        made(CSIDriver, {"metadata": {"name": "lvm.example.com"}, "spec": {"storageCapacity": True}}),
    )


# Shared


def test_pods_whose_bound_volumes_are_everywhere_share_the_answer_of_pods_without_volumes() -> None:
    place = Place(20)
    for number in range(10):
        place.put(*bound(f"c{number}"))
    answers = {place.surroundings.answer(a_pod(f"p{number}", f"c{number}")).version for number in range(10)}
    assert answers == {place.surroundings.answer(a_pod("plain")).version}
    assert place.verdicts.judged == 0, "no node is looked at"


@pytest.mark.parametrize("driver", ["", DRIVER])
def test_pods_with_claims_of_their_own_share_one_answer_where_their_volumes_say_the_same(
    driver: str,
) -> None:
    place = Place(20)
    for number in range(30):
        place.put(*bound(f"c{number}", "z1", driver))
    answers = {place.surroundings.answer(a_pod(f"p{number}", f"c{number}")).version for number in range(30)}
    assert len(answers) == 1
    assert place.verdicts.judged == 20
    assert place.refused(a_pod("p", "c3")) == set(place.names[::2])


async def test_a_gang_whose_pods_have_a_claim_each_is_judged_once() -> None:
    place = Place(40)
    for number in range(200):
        place.put(*bound(f"c{number}", "z1", DRIVER))
    gang = [a_pod(f"p{number}", f"c{number}") for number in range(200)]
    assert set((await place.where(gang)).excluded) == set(place.names[::2])
    assert place.verdicts.judged == 40
    assert place.directions.judged == 1
    for pod in gang[:50]:
        await place.directions.again(ASKED, [pod])
    assert place.directions.judged == 1, "each of them alone asks for the same"


async def test_a_gang_whose_claims_are_bound_to_different_nodes_is_asked_about_until_no_node_is_left() -> None:
    place = Place(40)
    for number in range(200):
        claim, volume = bound(f"c{number}")
        pinned = msgspec.structs.replace(volume.spec, node_affinity=a_volume("v", node=f"n{number % 40}").spec.node_affinity)
        place.put(claim, msgspec.structs.replace(volume, spec=pinned))
    assert (await place.where([a_pod(f"p{number}", f"c{number}") for number in range(200)])).nowhere
    assert place.verdicts.judged == 80, "two of its pods are enough"


async def test_other_tasks_have_their_turn_while_a_gang_with_claims_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slinky.bridge.pacing.SLICE_SECONDS", 0.0)
    place, turns = Place(4), 0
    for number in range(50):
        place.put(*bound(f"c{number}", "z1"))
    step = Pace.turn

    async def counted(pace: Pace) -> None:
        nonlocal turns
        turns += 1
        await step(pace)

    monkeypatch.setattr(Pace, "turn", counted)
    await place.directions.again(ASKED, [a_pod(f"p{number}", f"c{number}") for number in range(50)])
    assert turns >= 50


def test_an_answer_names_no_claim_for_pods_of_another_namespace_share_it() -> None:
    place = Place(4)
    place.put(*bound("c", "z1", DRIVER))
    words = " ".join(place.surroundings.answer(a_pod("p", "c")).refused.values())
    assert "another zone" in words or "node affinity" in words
    assert "ns/c" not in words
    assert "v-c" not in words
    assert "v-c" in place.surroundings.refusal(a_pod("p", "c"), "n0"), "asked for one pod, it does"


# Again where something has changed


def test_a_pod_that_comes_or_goes_has_its_own_node_judged_again() -> None:
    place = Place(30)
    place.put(*bound("c", "z1", DRIVER), *bound("d", "", DRIVER), *bound("e", "", "other.example.com"))
    before = place.surroundings.answer(a_pod("p", "c"))
    place.put(a_csi_node("n3", limit=1))
    assert place.surroundings.answer(a_pod("p", "c")) == before
    assert place.verdicts.judged == 31
    place.put(a_pod("there", "d", node="n3", phase="Running"))
    assert place.refused(a_pod("p", "c")) == {*place.names[::2], "n3"}
    place.put(a_pod("there", "d", node="n3", phase="Succeeded"))
    assert place.surroundings.answer(a_pod("p", "c")).refused == before.refused
    assert place.verdicts.judged == 33


def test_what_a_node_has_is_counted_again_when_the_claims_and_volumes_there_change() -> None:
    place = Place(2)
    place.put(
        a_csi_node("n0", limit=1),
        a_csi_node("n1", limit=1),
        a_class("other", "other.example.com"),
        *bound("c", "", DRIVER),
    )
    place.put(a_claim("there", kind="other"), a_pod("x", "there", node="n0", phase="Running"))
    assert place.refused(a_pod("p", "c")) == set()
    claim, volume = bound("there", "", DRIVER)
    place.put(volume, claim)
    assert place.refused(a_pod("p", "c")) == {"n0"}
    source = {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "late"}}
    place.put(made(VolumeAttachment, {"metadata": {"name": "a"}, "spec": source}))
    assert place.refused(a_pod("p", "c")) == {"n0"}, "that volume is not known yet"
    place.put(a_volume("late", kind="csi", csi={"driver": DRIVER, "volumeHandle": "late"}))
    assert place.refused(a_pod("p", "c")) == {"n0", "n1"}


def test_what_makes_no_difference_makes_no_work() -> None:
    place = Place(10)
    publishing(place)
    place.put(
        *[a_capacity(f"cap{name}", name) for name in place.names[:5]],
        *bound("c", "z1", DRIVER),
        a_claim("new", "10Gi", kind="lvm"),
    )
    pods = a_pod("p", "c"), a_pod("q", "new")
    versions = [place.surroundings.answer(pod).version for pod in pods]
    judged = place.verdicts.judged
    for name in place.names[:5]:
        place.put(a_capacity(f"cap{name}", name, "55Gi"))
    node, claim, volume = (
        place.nodes.get("n1"),
        place.claims.get("c", "ns"),
        place.volumes.get("v-c"),
    )
    assert node
    place.put(node)
    place.change(claim)
    place.change(volume)
    place.put(a_pod("no-disk", node="n1", phase="Running"))
    assert [place.surroundings.answer(pod).version for pod in pods] == versions
    assert place.verdicts.judged == judged
    place.put(a_capacity("capn1", "n1", "9Gi"))
    assert place.refused(a_pod("q", "new")) == {"n1", *place.names[5:]}
    assert place.verdicts.judged == judged + 10


def test_room_for_volumes_is_found_by_the_labels_of_each_node() -> None:
    def work(size: int) -> float:
        place = Shelves()
        publishing(place)
        place.put(
            a_claim("new", "10Gi", kind="lvm"),
            *[a_capacity(f"cap{number}", f"n{number}") for number in range(size)],
        )
        nodes, judgement = (
            [a_node(f"n{number}") for number in range(size)],
            Judgement(a_pod("p", "new"), place.stock()),
        )
        return calls(lambda: [judgement.refusal(node) for node in nodes]) / size

    assert work(400) < LINEAR * work(200)


def test_what_a_node_has_is_counted_once_for_all_pods_that_ask() -> None:
    place = Place(50)
    place.put(*[thing for number in range(200) for thing in bound(f"c{number}", "", DRIVER)])
    place.put(*[a_pod(f"there{number}", f"c{number}", node=f"n{number % 50}", phase="Running") for number in range(200)])
    place.put(*bound("one", "", DRIVER), *bound("two", "", DRIVER))
    first = calls(lambda: place.surroundings.answer(a_pod("p", "one")))
    assert calls(lambda: place.surroundings.answer(a_pod("q", "one", "two"))) < first / 2


def test_the_users_of_a_claim_that_thousands_share_are_not_walked_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(10)
    place.put(*bound("shared", "", DRIVER), a_pod("there", "shared", node="n1", phase="Running"))
    walked: list[Key] = []

    def users(claim: Key) -> list[Pod]:
        walked.append(claim)
        return []

    monkeypatch.setattr(place.volumes_known.stock, "users", users)
    assert place.refused(a_pod("p", "shared")) == set()
    assert walked == []


# The same as for each pod by itself


class Storm(Place):
    """Storage made at random, and changes of all kinds, one after another."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.maker = StorageMaker(chance.randrange(10**6), "r")
        self.pods_made: list[Pod] = []
        maker = self.maker
        for _ in range(6):
            self.add(Node, maker.node())
        self.limited = maker.drivers[0]
        for driver in maker.drivers:
            self.add(CSIDriver, maker.driver(driver))
        for name in maker.nodes[:4]:
            self.put(a_csi_node(name, chance.choice([None, 0, 1, 2, 3]), self.limited))
        for _ in range(4):
            self.add(StorageClass, maker.storage_class())
        for _ in range(8):
            self.add(CSIStorageCapacity, maker.capacity())
        for _ in range(20):
            self.add(PersistentVolume, maker.volume() | {"status": {"phase": "Available"}})
        for _ in range(10):
            self.add(PersistentVolumeClaim, maker.claim())
        for _ in range(14):
            self.a_bound_pair()
        for _ in range(6):
            self.a_resident()

    def add(self, kind: type[Any], document: dict[str, Any]) -> Any:
        if kind in (PersistentVolumeClaim, Pod, CSIStorageCapacity):
            document["metadata"]["namespace"] = self.maker.namespace
        document["metadata"] |= {
            "uid": document["metadata"]["name"],
            "resourceVersion": self.version(),
        }
        thing = made(kind, document)
        self.put(thing)
        return thing

    def a_bound_pair(self) -> None:
        volume = self.maker.volume() | {"status": {"phase": "Bound"}}
        claim = self.maker.claim(volume)
        claim["metadata"]["annotations"][BIND_COMPLETED] = "yes"
        claim["status"] = {"phase": "Bound"}
        name = claim["metadata"]["name"]
        volume["spec"]["claimRef"] = {"namespace": self.maker.namespace, "name": name, "uid": name}
        self.add(PersistentVolume, volume)
        self.add(PersistentVolumeClaim, claim)

    def a_resident(self) -> Any:
        return self.add(
            Pod,
            self.maker.pod(self.chance.choice(self.maker.nodes)) | {"status": {"phase": "Running"}},
        )

    def any_of(self, cache: Cache[Any]) -> Any:
        return self.chance.choice(cache.list())

    def happen(self) -> None:
        stock, chance = self.volumes_known.stock, self.chance
        node = chance.choice(self.maker.nodes)
        claim: PersistentVolumeClaim = self.any_of(self.claims)
        volume: PersistentVolume = self.any_of(self.volumes)
        happenings: list[Callable[[], object]] = [
            self.a_resident,
            self.a_bound_pair,
            lambda: self.pods.remove(self.any_of(self.pods).key),
            lambda: self.put(msgspec.structs.replace(one := self.any_of(self.pods), status=type(one.status)(phase="Succeeded"))),
            lambda: self.volumes.remove(volume.key),
            lambda: self.claims.remove(claim.key),
            lambda: self.add(PersistentVolume, self.maker.volume() | {"status": {"phase": "Available"}}),
            lambda: self.add(
                PersistentVolume,
                self.maker.volume(claim.metadata.name) | {"status": {"phase": "Available"}},
            ),
            lambda: self.add(PersistentVolumeClaim, self.maker.claim()),
            lambda: self.change(claim, {"volume.kubernetes.io/selected-node": chance.choice([node, None])}),
            lambda: self.change(volume, status={"phase": chance.choice(["Available", "Released", "Bound"])}),
            lambda: self.change(volume, spec={"claim_ref": None}),
            lambda: self.add(CSIStorageCapacity, self.maker.capacity()),
            lambda: self.capacities.remove(self.any_of(self.capacities).key),
            lambda: self.put(msgspec.structs.replace(self.any_of(self.capacities), capacity=chance.choice(["1Gi", "5Gi", None]))),
            lambda: self.put(a_csi_node(node, chance.choice([None, 0, 1, 2]), chance.choice(self.maker.drivers))),
            lambda: self.add(CSIDriver, self.maker.driver(chance.choice(self.maker.drivers))),
            lambda: self.classes.remove(self.any_of(self.classes).key) if len(self.classes) > 2 else None,
            lambda: self.put(a_node(node, disk=chance.choice(["ssd", "hdd"]), **{ZONE: chance.choice(["z0", "z1"])})),
            lambda: self.nodes.remove(Key("", node)),
            lambda: stock.select(claim.key, node),
            lambda: stock.unselect(claim.key),
            lambda: stock.give(volume.metadata.name, claim) if volume.spec.claim_ref is None else None,
            lambda: stock.take_back(volume.metadata.name),
            lambda: stock.expect(chance.choice(self.pods_made), node) if self.pods_made else None,
            lambda: stock.expect_no_more(chance.choice(self.pods_made)) if self.pods_made else None,
            lambda: self.add(
                VolumeAttachment,
                self.maker.attachment(
                    {volume.metadata.name: self.limited for volume in self.volumes.list()} | dict.fromkeys(self.maker.volumes, self.limited)
                ),
            ),
            stock.forget_decisions,
        ]
        chance.choice(happenings)()

    def new_pod(self) -> None:
        document = self.maker.pod()
        document["metadata"]["uid"] = document["metadata"]["name"]
        self.pods_made.append(made(Pod, document))


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_an_answer_that_is_shared_and_kept_is_the_one_that_a_pod_by_itself_gets_now(
    chance: random.Random,
) -> None:
    storm = Storm(chance)
    for _ in range(12):
        for _ in range(4):
            storm.new_pod()
        for pod in storm.pods_made[-12:]:
            assert storm.refused(pod) == set(storm.surroundings.refusals(pod)), pod
        for _ in range(chance.randrange(1, 4)):
            storm.happen()
