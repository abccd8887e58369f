"""Two namespaces that lend workers to one slurmctld elsewhere under one host name."""

import datetime as dt
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import msgspec

from slinky.kube import Key, Meta, Pod
from slinky.kube.objects import OwnerReference
from slinky.operator.kinds import Written
from slinky.operator.labels import CLUSTER
from slinky.operator.nodesets.acts import CreatePod, Drain, SetComment
from slinky.operator.nodesets.lending import external_head, held_elsewhere
from slinky.operator.nodesets.looking import Look
from slinky.operator.nodesets.memory import Memory
from slinky.operator.nodesets.plan import choose, plan
from slinky.operator.nodesets.status import standing
from tests.operator.nodesets.scene import EARLIER, a_node, a_nodeset, a_pod, ago, cordoned, in_slurm, only, scene
from tests.operator.nodesets.test_daemons import daemons

HEAD = {"external": True, "externalConfig": {"host": "head.example.org"}}


def foreign(name: str = "workers-0", created: dt.datetime = EARLIER, namespace: str = "b") -> Pod:
    """A worker of NodeSet `burst` there."""
    pod = a_pod(name=name, created=created, labels={CLUSTER: "theirs"})
    owner = OwnerReference(kind="NodeSet", name="burst", uid="theirs", controller=True)
    meta = msgspec.structs.replace(pod.metadata, namespace=namespace, owner_references=(owner,))
    return msgspec.structs.replace(pod, metadata=meta)


def test_the_pod_that_came_first_has_the_name() -> None:
    mine = [a_pod(0, created=ago(hours=2)), a_pod(1, created=ago(minutes=1))]
    others = [foreign(f"workers-{number}", ago(hours=1)) for number in range(3)]
    assert held_elsewhere(mine, others) == {
        "workers-1": "burst of namespace b",
        "workers-2": "burst of namespace b",
    }
    assert held_elsewhere(mine, [a_pod(3)]) == {}, "a pod of no NodeSet says nothing"


def test_heads_are_one_where_their_address_is_one() -> None:
    def head(**spec: Any) -> tuple[str, int] | None:
        return external_head(Written(metadata=Meta(name="c"), spec=spec))

    assert head(**HEAD) == head(external=True, externalConfig={"host": "HEAD.example.org."}) == ("head.example.org", 0)
    assert head(**HEAD) != head(external=True, externalConfig={"host": "head.example.org", "port": 7000})
    assert head() is head(externalConfig={"host": "x"}) is external_head(None) is None


def test_no_second_worker_of_a_name_is_made_and_the_nodeset_says_whose_it_is() -> None:
    seen = scene(a_nodeset(replicas=2), lent={"workers-1": "burst of namespace b"})
    assert [act.name for act in only(plan(seen), CreatePod)] == ["workers-0"]
    ready = standing(seen, choose(seen))["Degraded"]
    assert (ready.status, ready.reason) == (True, "NameTaken")
    assert "Slurm node workers-1 is a worker of NodeSet burst of namespace b" in ready.message
    assert "another template.spec.hostname" in ready.message
    assert only(plan(scene(a_nodeset(replicas=2), lent={"workers-7": "x"})), CreatePod)[1].name == "workers-1"
    on_nodes = scene(daemons(), nodes=[a_node("a"), a_node("b")], lent={"b": "burst of namespace b"})
    assert [act.node for act in only(plan(on_nodes), CreatePod)] == ["a"]
    assert choose(on_nodes).taken == {"b": "burst of namespace b"}


def test_a_worker_whose_name_anothers_has_leaves_the_record_in_slurm_alone() -> None:
    """It neither takes the comment back nor drains the other's node when its own pod is cordoned."""
    pod, node = a_pod(0, annotations=cordoned("scale-in")), in_slurm("workers-0", comment="")
    alone = scene(a_nodeset(replicas=0), [pod], [node])
    assert only(plan(alone), Drain) and only(plan(alone), SetComment)
    meets = scene(a_nodeset(replicas=0), [pod], [node], lent={"workers-0": "burst of namespace b"})
    assert not [act for act in plan(meets) if isinstance(act, Drain | SetComment)]


class Followed:
    def __init__(self, *found: Any) -> None:
        self.found = found

    def by_key(self, key: Key) -> Any:
        return next((one for one in self.found if one.key == key), None)

    def list(self, namespace: str = "") -> list[Any]:
        return [one for one in self.found if namespace in ("", one.metadata.namespace)]

    def get(self, _name: str, _namespace: str = "") -> None:
        return None

    def by_index(self, _index: str, _value: str) -> Iterable[Any]:
        return ()


async def test_all_namespaces_that_lend_to_the_same_head_are_looked_at() -> None:
    def controller(namespace: str, name: str, **spec: Any) -> Written:
        return Written(metadata=Meta(name=name, namespace=namespace), spec=spec)

    pods = Followed(foreign(), foreign("workers-1", namespace="elsewhere"), foreign("workers-2", namespace="d"))
    heads = [
        controller("hpc", "c", **HEAD),
        controller("b", "theirs", **HEAD),
        controller("elsewhere", "theirs"),
        controller("d", "own", **HEAD),
    ]
    kinds = {kind: Followed() for kind in ("NodeSet", "RestApi")} | {"Controller": Followed(*heads)}
    watches = SimpleNamespace(kinds=kinds, pods=pods, nodes=Followed())
    settings = SimpleNamespace(propagated_node_conditions=(), slurm=None)
    site = SimpleNamespace(watches=watches, clusters=SimpleNamespace(get=lambda *_: None), settings=settings)
    snapshot = await Look(site).at(a_nodeset(), None, Memory())  # type: ignore[arg-type]
    assert snapshot.lent == {"workers-0": "burst of namespace b"}
