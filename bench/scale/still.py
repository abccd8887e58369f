"""Nodes of a cloud: names that hardly compress, two kinds, and still: nothing sends heartbeats.

kwok runs their pods, and renews no Lease: 5,000 of them would be 500 writes a second. So the
controller manager, which would mark the nodes NotReady, is stopped first, and the taint of a new
node is taken off by hand.
"""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from bench.scale.site import Site
from slinky.sandbox.kwoknodes import side_by_side
from slinky.slurm import NodeDescription, NodeGres

__all__ = ["CloudNode", "cloud_nodes", "make", "without_heartbeats"]

CPUS, MEMORY_MIB, GPUS = 64, 256 * 1024, 8
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of which generated names are made in Kubernetes
GROUPS = ("1f7c2b90", "9d03e5aa")  # of instances, in GKE's node names
IN_ONE_CALL = 250


class CloudNode:
    """One node, as Kubernetes and as Slurm are told of it."""

    def __init__(self, name: str, number: int, *, gpus: int) -> None:
        self.name, self.gpus = name, gpus
        self.address = f"10.201.{number // 250}.{number % 250 + 1}"

    def as_node(self) -> dict[str, Any]:
        kind = "a3-highgpu-8g" if self.gpus else "c5.16xlarge"
        amounts = {
            "cpu": str(CPUS),
            "memory": f"{MEMORY_MIB}Mi",
            "pods": "250",
            "ephemeral-storage": "500Gi",
        }
        if self.gpus:
            amounts["nvidia.com/gpu"] = str(self.gpus)
        labels = {
            "type": "kwok",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": kind,
            "topology.kubernetes.io/zone": f"zone-{'abc'[len(self.address) % 3]}",
        }
        addresses = [
            {"type": "InternalIP", "address": self.address},
            {"type": "Hostname", "address": self.name},
        ]
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Still",
            "message": "nothing sends heartbeats",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "addresses": addresses,
                "conditions": [ready],
            },
        }


def cloud_nodes(count: int, *, gpus: bool, seed: int, first: int = 0) -> list[CloudNode]:
    """Names as GKE and AWS make them, the same in each run."""
    chance = random.Random(seed)
    names: dict[str, None] = {}
    while len(names) < count:
        names[_name(chance, gpus=gpus)] = None
    each = GPUS if gpus else 0
    return [CloudNode(name, number, gpus=each) for number, name in enumerate(names, first)]


def _name(chance: random.Random, *, gpus: bool) -> str:
    if gpus:
        suffix = "".join(chance.choices(LETTERS, k=4))
        return f"gke-train-a100-pool-{chance.choice(GROUPS)}-{suffix}"
    return f"ip-10-{chance.randrange(256)}-{chance.randrange(256)}-{chance.randrange(256)}"


async def without_heartbeats(site: Site) -> None:
    """From now on no node's Lease is renewed, and none is missed."""
    await site.sandbox.stop("kube-controller-manager")
    kwok = await site.sandbox.stop("kwok")
    command = [*kwok.command, "--node-lease-duration-seconds=0"]
    await site.sandbox.link.start(msgspec.structs.replace(kwok, command=command))


async def make(site: Site, nodes: Sequence[CloudNode]) -> None:
    """On both sides, after `without_heartbeats`."""
    kube = site.ground.kube
    await side_by_side(32, (kube.post("/api/v1/nodes", node.as_node()) for node in nodes))
    site.say(f"{len(nodes):,} nodes are made in Kubernetes")
    await side_by_side(32, (_untaint(site, node) for node in nodes))
    async with site.sandbox.slurm_client() as slurm:
        described = itertools.chain(
            (_described([node]) for node in nodes if node.gpus),
            map(_described, _batches([n for n in nodes if not n.gpus])),
        )
        await side_by_side(8, (slurm.nodes.create(each) for each in described))
    site.say(f"{len(nodes):,} nodes are made in Slurm")


async def _untaint(site: Site, node: CloudNode) -> None:
    path, change = f"/api/v1/nodes/{node.name}", {"spec": {"taints": None}}
    await site.ground.kube.call("PATCH", path, change, "application/merge-patch+json")


def _batches(nodes: Sequence[CloudNode]) -> list[Sequence[CloudNode]]:
    return [nodes[start : start + IN_ONE_CALL] for start in range(0, len(nodes), IN_ONE_CALL)]


def _described(nodes: Sequence[CloudNode]) -> NodeDescription:
    """Of one kind; Slurm takes only one node with GPUs in a call."""
    return NodeDescription(
        name=",".join(node.name for node in nodes),
        address=",".join(node.address for node in nodes),
        cpus=CPUS,
        boards=1,
        sockets_per_board=2,
        cores_per_socket=CPUS // 2,
        threads_per_core=1,
        real_memory=MEMORY_MIB,
        features=["bridge"],
        gres=[NodeGres(name="gpu", count=nodes[0].gpus)] if nodes[0].gpus else [],
    )
