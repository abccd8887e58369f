"""What keeps a node from taking pods, from both sides' records of it."""

from typing import Any

import pytest

from slinky.explain.facts import Facts
from slinky.explain.nodes import devices_in_slurm, node_findings
from tests.explain.worlds import facts, kube_node, node, reservation


def at(kube: Any = "as it should be", slurm: Any = "as it should be", **more: Any) -> Facts:
    """Node w1, as each side has it."""
    here = kube_node() if kube == "as it should be" else kube
    there = node() if slurm == "as it should be" else slurm
    return facts({"node": here, "nodes": (here,) if here else ()}, {"nodes": (there,) if there else (), **more}, name="w1")


CASES: dict[str, tuple[Facts, str, str]] = {
    "node-not-found": (at(None, None), "neither", "kubectl get nodes"),
    "node-not-in-kubernetes": (at(None), "no Node of that name", "slurm-nodename=w1"),
    "node-not-registered": (at(slurm=None), "Slurm has no node w1", "kubectl get events"),
    "node-not-ready": (at(kube_node(ready=False)), "Ready is Unknown: kubelet stopped posting", "kubelet"),
    "node-cordoned": (at(kube_node(spec={"unschedulable": True})), "somebody cordoned it", "kubectl uncordon w1"),
    "node-cordoned-for-slurm": (at(kube_node(spec={"unschedulable": True}, annotations={"slinky.slurm.net/cordoned-for-slurm": "x"})), "the bridge cordoned it", "NodeName=w1 State=RESUME"),
    "node-drained": (at(slurm=node(states="IDLE+EXTERNAL+DRAIN", reason="bad disk", reason_set_by_user="eve")), "reason: bad disk, by eve", "NodeName=w1 State=RESUME"),
    "node-drained-by-bridge": (at(slurm=node(states="IDLE+EXTERNAL+DRAIN", reason="slurm-bridge: cordoned")), "slurm-bridge: cordoned", "Kubernetes"),
    "node-down": (at(slurm=node(states="DOWN", reason="Not responding")), "DOWN", "State=RESUME"),
    "node-not-responding": (at(slurm=node(states="IDLE+EXTERNAL+NOT_RESPONDING")), "NOT_RESPONDING", "sink"),
    "node-address-missing": (at(slurm=node(address="w1")), "NodeAddr is w1", "NodeAddr=10.0.0.1"),
    "node-without-partition": (at(slurm=node(partitions=[])), "no partition has it", "Nodes=+w1"),
    "node-gres-mismatch": (at(kube_node(gpus=4)), "gpu: 4 allocatable in Kubernetes, 2 in Slurm", "external-node off"),
    "node-reserved": (at(reservations=(reservation(starts=-60),)), "reservation maint", "show reservation maint"),
    "node-full": (at(slurm=node(alloc_cpus=8)), "all its 8 CPUs", ""),
    "node-fine": (at(), "nothing is wrong", ""),
}  # fmt: skip


@pytest.mark.parametrize("code", CASES)
def test_it_is_found_with_the_advice_that_helps(code: str) -> None:
    situation, seen, change = CASES[code]
    found = {each.code: each for each in node_findings(situation)}
    assert code in found, sorted(found)
    assert seen in found[code].seen
    assert change in found[code].change


def test_a_node_with_a_slurmd_is_mended_there() -> None:
    silent = {each.code: each for each in node_findings(at(slurm=node(states="IDLE+NOT_RESPONDING")))}
    assert "start slurmd on w1" in silent["node-not-responding"].change
    fewer = {each.code: each for each in node_findings(at(kube_node(gpus=8), node(states="IDLE", address="w1")))}
    assert "gres.conf" in fewer["node-gres-mismatch"].change
    assert "node-address-missing" not in fewer


def test_a_node_that_nobody_labelled_is_to_be_labelled() -> None:
    bare = kube_node(metadata={"labels": {}})
    assert "kubectl label node w1" in node_findings(at(bare, None))[0].change


@pytest.mark.parametrize(
    ("gres", "counted"),
    [
        ("gpu:8", {"gpu": 8}),
        ("gpu:h100:8(S:0-1),nic:2", {"gpu": 8, "nic": 2}),
        ("gpu:a:1,gpu:b:2", {"gpu": 3}),
        ("shard:4K", {"shard": 4096}),
        ("", {}),
    ],
)
def test_devices_as_slurm_writes_them(gres: str, counted: dict[str, int]) -> None:
    assert devices_in_slurm(node(gres=gres)) == counted
