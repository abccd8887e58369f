"""A look at one node, where Slurm's jobs have a say in what may be done to it. The rest is tried on real servers, in tests/bridge_sandbox."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from slinky.bridge.keys import EXTERNAL_NODE, MANAGED_NODE, SLURM_NODE_NAME
from slinky.bridge.node_controller import NodeController
from slinky.bridge.node_mark import mark_for
from slinky.bridge.node_reasons import LEAVING, RENEWING
from slinky.bridge.settings import Settings
from slinky.kube import Cache
from slinky.kube import Node as KubeNode
from slinky.kube.objects import Taint
from slinky.slurm import Job, JobStatus, Node, NotFoundError


class Slurm:
    """One node, which is drained, and one job that waits."""

    def __init__(self, reason: str, excluded: str) -> None:
        self.nodes, self.jobs = self, self
        self.deleted: list[str] = []
        self._excluded = excluded
        self._node = Node(
            name="n",
            node_states=["IDLE", "EXTERNAL", "DRAIN"],
            address="10.0.0.1",
            cpus=8,
            real_memory=1000,
            features=["bridge"],
            extra=mark_for("c1"),
            reason=reason,
        )

    async def get(self, _: str) -> Node:
        return self._node

    async def all(self) -> list[Node]:
        return [self._node]

    async def states(self, _: Iterable[int] | None = None) -> list[JobStatus]:
        return [JobStatus("7", ["PENDING"])]

    async def live_ids(self) -> set[int]:
        return {7}

    async def records(self, job_ids: Iterable[int]) -> list[Job]:
        return [Job(job_id=job_id, job_states=["PENDING"], excluded_nodes=self._excluded) for job_id in job_ids]

    async def delete(self, name: str) -> None:
        self.deleted.append(name)
        raise RuntimeError("that is far enough")


def a_node(cpus: int) -> KubeNode:
    status = {"allocatable": {"cpu": str(cpus), "memory": "1000Mi"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
    return msgspec.convert({"metadata": {"name": "n", "labels": {EXTERNAL_NODE: "bridge"}}, "status": status}, KubeNode)


@pytest.mark.parametrize(("reason", "there"), [(f"{LEAVING} x", False), (f"{RENEWING} x", True)])
@pytest.mark.parametrize("excluded", ["n", "other"])
async def test_a_node_that_a_live_job_names_is_not_deleted(reason: str, there: bool, excluded: str) -> None:
    slurm, nodes = Slurm(reason, excluded), Cache[KubeNode]()
    if there:
        nodes.put(a_node(cpus=4))
    told: list[str] = []
    controller = NodeController(nodes, slurm, Settings(partition="bridge"), "c1", changed=lambda: told.append("changed"))  # type: ignore[arg-type]
    await controller._registry.load()
    controller._look_at_all()
    if excluded == "n":
        assert not await controller._look("n")  # it is looked at again
        assert told, "jobs are told that they need not name it"
    else:
        with pytest.raises(RuntimeError, match="far enough"):
            await controller._look("n")
    assert slurm.deleted == ([] if excluded == "n" else ["n"])


class Slurms:
    """Several nodes, to which what is done is done."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes, self.jobs = self, self
        self.held = {node.name: node for node in nodes}
        self.said: list[str] = []

    async def get(self, name: str) -> Node:
        if name not in self.held:
            raise NotFoundError("no such node")
        return self.held[name]

    async def all(self) -> list[Node]:
        return list(self.held.values())

    async def live_ids(self) -> set[int]:
        return set()

    async def records(self, _: Iterable[int]) -> list[Job]:
        return []

    async def drain(self, names: list[str], reason: str) -> None:
        self._change("drain", names, "DRAIN", reason=reason)

    async def undrain(self, names: list[str]) -> None:
        self._change("undrain", names, reason="")

    async def delete(self, name: str) -> None:
        self.said.append(f"delete {name}")
        del self.held[name]

    def _change(self, what: str, names: list[str], *states: str, reason: str) -> None:
        self.said += [f"{what} {name}" for name in names]
        for name in names:
            base = [state for state in self.held[name].node_states if state != "DRAIN"]
            self.held[name] = msgspec.structs.replace(self.held[name], node_states=[*base, *states], reason=reason)


class Kube:
    """Takes patches of Nodes."""

    def __init__(self, nodes: Cache[KubeNode], slurm: Slurms) -> None:
        self._nodes, self._slurm = nodes, slurm

    async def patch(self, _: object, name: str, change: dict[str, Any]) -> None:
        self._slurm.said.append(f"patch {name}")
        node = self._nodes.get(name)
        assert node is not None and "taints" in change["spec"]
        taints = tuple(msgspec.convert(change["spec"]["taints"] or [], list[Taint]))
        self._nodes.put(msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints)))


def external(name: str, *states: str) -> Node:
    described = {"address": "10.0.0.1", "cpus": 8, "real_memory": 1000, "features": ["bridge"], "extra": mark_for("c1")}
    return Node(name=name, node_states=["IDLE", "EXTERNAL", *states], **described)  # type: ignore[arg-type]


def in_kubernetes(name: str, *, cordoned: bool = False, taints: Sequence[Taint] = (), **labels: str) -> KubeNode:
    said = {SLURM_NODE_NAME if key == "called" else EXTERNAL_NODE: value for key, value in labels.items()}
    status = {
        "allocatable": {"cpu": "8", "memory": "1000Mi"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    spec = {"unschedulable": cordoned, "taints": msgspec.to_builtins(list(taints))}
    return msgspec.convert({"metadata": {"name": name, "labels": said}, "spec": spec, "status": status}, KubeNode)


async def looked_at(slurm: Slurms, *nodes: KubeNode, times: int = 1) -> Cache[KubeNode]:
    cache = Cache[KubeNode]()
    for node in nodes:
        cache.put(node)
    controller = NodeController(cache, slurm, Settings(partition="bridge"), "c1", kube=Kube(cache, slurm))  # type: ignore[arg-type]
    await controller._registry.load()
    controller._look_at_all()
    for _ in range(times):
        for node in nodes:
            await controller._look(node.metadata.name)
    return cache


@pytest.mark.parametrize("called", ["w1", "n", ""])
async def test_a_registered_node_that_is_said_to_have_a_slurmd_leaves_no_ghost_and_no_taint(called: str) -> None:
    """By label, under another name in Slurm or the same."""
    managed, other = Taint(MANAGED_NODE, Settings(partition="bridge").scheduler_name, "NoSchedule"), Taint("theirs", "", "NoSchedule")
    slurm = Slurms(external("n"), Node(name="w1", node_states=["IDLE"]))
    cache = await looked_at(slurm, in_kubernetes("n", called=called, external="", taints=[other, managed]))
    assert slurm.said == ["drain n", "patch n", "delete n"]
    assert set(slurm.held) == {"w1"}
    node = cache.get("n")
    assert node is not None and node.spec.taints == (other,)


async def test_another_clusters_node_of_that_name_is_left_alone() -> None:
    theirs = msgspec.structs.replace(external("n"), extra=mark_for("c2"))
    slurm = Slurms(theirs)
    await looked_at(slurm, in_kubernetes("n", called="n"))
    assert not slurm.said


async def test_a_node_that_two_claim_is_not_drained_for_the_one_and_undrained_for_the_other() -> None:
    slurm = Slurms(Node(name="w1", node_states=["IDLE"]))
    await looked_at(slurm, in_kubernetes("a", called="w1", cordoned=True), in_kubernetes("b", called="w1"), times=2)
    assert not slurm.said
    await looked_at(slurm, in_kubernetes("a", called="w1", cordoned=True), times=2)
    assert slurm.said == ["drain w1"]


async def test_a_node_whose_name_another_claims_is_neither_registered_nor_removed() -> None:
    for slurm in (Slurms(), Slurms(external("w1"))):
        await looked_at(slurm, in_kubernetes("a", called="w1"), in_kubernetes("w1", external=""), times=2)
        assert not slurm.said
