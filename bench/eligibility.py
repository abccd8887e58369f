"""What a verdict on eligibility costs: 1,000 nodes and 30,000 pods on them, against the same nodes with a hundredth of the pods.

No server is needed: caches are written by hand. The goal is that a verdict does not depend on how many pods there are, as nobody looks at them all: its time stands beside the one in the emptier cluster, measured in turn.
"""

import time
from typing import Any

import msgspec

from bench.rows import Row, against
from slinky.bridge.eligibility import Surroundings
from slinky.kube import Cache, Namespace, Node, Pod

__all__ = ["measure"]

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NODES = 1000
ROUNDS = 9


class _Cluster:
    """Pods of many jobs, every third of which keeps its pods apart."""

    def __init__(self, pods: int) -> None:
        self.pods: Cache[Pod] = Cache()
        nodes: Cache[Node] = Cache()
        for index in range(NODES):
            labels = {HOSTNAME: f"n{index}", ZONE: f"z{index % 10}"}
            nodes.put(msgspec.convert({"metadata": {"name": f"n{index}", "labels": labels}}, Node))
        self.judge = Surroundings([self.pods], nodes, Cache[Namespace]())
        self._count = 0
        for _ in range(pods):
            self.add()

    def add(self) -> None:
        index = self._count = self._count + 1
        job = f"j{index // 100}"
        affinity = _apart({"job": job}) if index // 100 % 3 == 0 else {}
        self.pods.put(_pod(f"p{index}", {"app": "train", "job": job}, {"nodeName": f"n{index * 7919 % NODES}", "affinity": affinity}))


def measure(quick: bool) -> list[Row]:
    few, many = (30, 3_000) if quick else (300, 30_000)
    clusters = _Cluster(few), _Cluster(many)
    app = {"app": "train"}
    spread = {"topologyKey": ZONE, "maxSkew": 100, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": app}}
    asked = {
        "that asks for labels only": _pod("x", app, {"nodeSelector": {ZONE: "z1"}}),
        "that keeps apart from its like": _pod("x", {**app, "job": "j1"}, {"affinity": _apart({"job": "j1"})}),
        "that is spread over zones": _pod("x", app, {"topologySpreadConstraints": [spread]}),
    }
    return [_row(f"verdict on {NODES:,} nodes for a pod {what}, {many:,} pods there", pod, clusters) for what, pod in asked.items()]


def _row(what: str, pod: Pod, clusters: tuple[_Cluster, _Cluster]) -> Row:
    """Each time something has changed before, and the change is in the time."""
    for cluster in clusters:
        cluster.judge.answer(pod)
    limits, figures = zip(*([_milliseconds(cluster, pod) for cluster in clusters] for _ in range(ROUNDS)), strict=True)
    return against(what, figures, limits, "ms", at_most=3.0)


def _milliseconds(cluster: _Cluster, pod: Pod) -> float:
    started = time.process_time()
    for _ in range(20):
        cluster.add()
        cluster.judge.answer(pod)
    return (time.process_time() - started) * 1000 / 20


def _apart(labels: dict[str, str]) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _pod(name: str, labels: dict[str, str], spec: dict[str, Any]) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "namespace": "team", "uid": name, "labels": labels}, "spec": spec}, Pod)
