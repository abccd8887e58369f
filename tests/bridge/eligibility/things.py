"""Nodes and pods for these tests, as the API writes them: read by the same types that read the API server's answers."""

from collections.abc import Iterable
from typing import Any

import msgspec

from slinky.bridge.eligibility import Surroundings
from slinky.kube import Cache, Namespace, Node, Pod

__all__ = ["World", "a_namespace", "a_node", "a_pod", "anti", "near", "port", "spread"]

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def a_node(name: str, *, taints: Iterable[str] = (), cordoned: bool = False, **labels: str) -> Node:
    """A taint is written `key=value:Effect`; a label `zone` is the well-known one."""
    named = {HOSTNAME: name, **{ZONE if key == "zone" else key: value for key, value in labels.items()}}
    spec = {"unschedulable": cordoned, "taints": [_taint(text) for text in taints]}
    return msgspec.convert({"metadata": {"name": name, "labels": named}, "spec": spec}, Node)


def _taint(text: str) -> dict[str, str]:
    said, _, effect = text.partition(":")
    key, _, value = said.partition("=")
    return {"key": key, "value": value, "effect": effect}


def a_pod(name: str = "p", namespace: str = "ns", *, labels: dict[str, str] | None = None, node: str = "", **spec: Any) -> Pod:
    meta = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": labels or {}}
    if spec.pop("deleting", False):
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    phase = spec.pop("phase", "Pending")
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node, **spec}, "status": {"phase": phase}}, Pod)


def a_namespace(name: str, **labels: str) -> Namespace:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)


def _terms(kind: str, key: str, labels: dict[str, str], more: dict[str, Any]) -> dict[str, Any]:
    return {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more}]}}


def near(key: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    return _terms("podAffinity", key, labels, more)


def anti(key: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    return _terms("podAntiAffinity", key, labels, more)


def spread(key: str, labels: dict[str, str], skew: int = 1, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels}, **more}


def port(number: int, protocol: str = "TCP", address: str = "") -> dict[str, Any]:
    return {"containerPort": number, "hostPort": number, "protocol": protocol, "hostIP": address}


class World:
    """Caches that a test writes, and the judge on them."""

    def __init__(self, *nodes: Node, release: tuple[int, int] = (1, 36)) -> None:
        self.own: Cache[Pod] = Cache()
        self.foreign: Cache[Pod] = Cache()
        self.nodes: Cache[Node] = Cache()
        self.namespaces: Cache[Namespace] = Cache()
        for node in nodes:
            self.nodes.put(node)
        self.release = release
        self.judge = self.fresh()

    def fresh(self) -> Surroundings:
        """Another judge, that has seen none of the past."""
        return Surroundings([self.own, self.foreign], self.nodes, self.namespaces, release=self.release)

    def accepted(self, pod: Pod) -> set[str]:
        refused = self.judge.refusals(pod)
        one_by_one = {name for name in self.judge.nodes if not self.judge.refusal(pod, name)}
        assert one_by_one == set(self.judge.nodes) - refused.keys(), "asked for one node, it says the same as for all"
        return one_by_one
