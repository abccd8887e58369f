"""A look at one node, where Slurm's jobs have a say in what may be done to it. The rest is tried on real servers, in tests/bridge_sandbox."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from slinky.bridge.keys import EXTERNAL_NODE
from slinky.bridge.node_controller import NodeController
from slinky.bridge.node_mark import mark_for
from slinky.bridge.node_reasons import LEAVING, RENEWING
from slinky.bridge.settings import Settings
from slinky.kube import Cache
from slinky.kube import Node as KubeNode
from slinky.slurm import Job, Node


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

    async def stream(self) -> AsyncIterator[Job]:
        yield Job(job_id=7, job_states=["PENDING"], excluded_nodes=self._excluded)

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
    controller = NodeController(nodes, slurm, Settings(partition="bridge"), "c1")  # type: ignore[arg-type]
    await controller._registry.load()
    controller._look_at_all()
    if excluded == "n":
        assert not await controller._look("n")  # it is looked at again
    else:
        with pytest.raises(RuntimeError, match="far enough"):
            await controller._look("n")
    assert slurm.deleted == ([] if excluded == "n" else ["n"])
