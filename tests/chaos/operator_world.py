"""The operator's processes of a run, and who watches Slurm's nodes past them.

What must stay true: two may lead, each with lines of its own to the servers; who is killed is started again; nodes are asked for by a client that no fault strikes.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from slinky.kube import Client
from slinky.slurm import Node, SlurmClient, SlurmError
from tests.chaos.lines import Lines, kubeconfig
from tests.chaos.operator_history import NodeSample
from tests.chaos.processes import CLUSTER, LEASE_SECONDS, RUNNERS, Runners, Unhurried

__all__ = ["NAMESPACE", "Operators", "sample_of", "watched_nodes"]

NAMESPACE = "chaos"
SAMPLE_SECONDS = 0.25


class _Operator(Unhurried):
    def __init__(self, folder: Path, kube_url: str, slurm_url: str) -> None:
        super().__init__("operator", folder)
        settings = {
            "namespace": "kube-system",
            "namespaces": [NAMESPACE],
            "leader": {"name": CLUSTER, "seconds": LEASE_SECONDS},
            "slurm": {"address": slurm_url, "fastestPoll": 0.3, "slowestPoll": 2.0, "currentSeconds": 6.0, "requestSeconds": 4.0},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        (folder / "kubeconfig").write_text(kubeconfig(kube_url))

    async def start(self, part: str) -> None:
        await self.start_part(part, "--config", str(self.folder / "config.yaml"), "--kubeconfig", str(self.folder / "kubeconfig"))


class Operators(Runners):
    def __init__(self, folder: Path, lines: Lines, kube: Client) -> None:
        super().__init__(kube)
        self._all = {name: _Operator(folder / name, lines.kube[name].url, lines.slurm[name].url) for name in RUNNERS}


def sample_of(node: Node, asked: float, at: float) -> NodeSample:
    return NodeSample(asked=asked, at=at, name=node.name, states=tuple(node.states), reason=node.reason, comment=node.comment)


@asynccontextmanager
async def watched_nodes(slurm: SlurmClient) -> AsyncIterator[list[NodeSample]]:
    """Grows with each node that says something else than before."""
    told: list[NodeSample] = []
    last: dict[str, NodeSample] = {}

    async def look() -> None:
        while True:
            asked = time.time()
            try:
                nodes = await slurm.nodes.all()
            except SlurmError:
                nodes = None
            now = time.time()
            if nodes is not None:
                seen = {node.name: sample_of(node, asked, now) for node in nodes}
                gone = [NodeSample(asked=asked, at=now, name=name, gone=True) for name in last.keys() - seen.keys()]
                told.extend([sample for sample in seen.values() if _says(last.get(sample.name)) != _says(sample)] + gone)
                last.clear()
                last.update(seen)
            await asyncio.sleep(SAMPLE_SECONDS)

    task = asyncio.create_task(look(), name="observer of Slurm's nodes")
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _says(sample: NodeSample | None) -> object:
    return None if sample is None else (sample.states, sample.reason, sample.comment)
