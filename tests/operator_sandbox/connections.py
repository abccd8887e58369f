"""Connections that a cluster's daemons really have, held against its NetworkPolicies.

The sandbox's network enforces no policy, so each is judged here as Kubernetes defines it. Comes in: the sockets of all daemons' pods, as `ss` shows them in each (those that were closed within the last minute too), with Services resolved to the pods behind them.
Goes out: every connection that the policies would cut.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.operator_sandbox.cluster import Cluster

__all__ = ["Connection", "Place", "Traffic", "refused"]

Body = dict[str, Any]
DAEMONS = (22, 389, 6817, 6818, 6819, 6820)


@dataclass(frozen=True)
class Place:
    """A pod, by name, or an address beyond all pods."""

    address: str
    pod: str = ""

    def __str__(self) -> str:
        return self.pod or self.address


@dataclass(frozen=True)
class Connection:
    source: Place
    target: Place
    port: int
    back: int = 0  # the other end's port, where either may have listened

    @property
    def turned(self) -> "Connection":
        return Connection(self.target, self.source, self.back)

    def __str__(self) -> str:
        return f"{self.source} → {self.target}:{self.port}"


class Traffic:
    """What there is in a namespace at one moment, and who speaks with whom."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.pods = {pod["metadata"]["name"]: pod for pod in self._list("pods") if pod["status"].get("podIP")}
        self.policies = self._list("networkpolicies")
        self._places = {pod["status"]["podIP"]: Place(pod["status"]["podIP"], name) for name, pod in self.pods.items()}
        self._services = {
            service["spec"]["clusterIP"]: service["metadata"]["name"]
            for service in self._list("services")
            if service["spec"]["clusterIP"] != "None"
        }
        self._slices = self._list("endpointslices")

    def _list(self, what: str) -> list[Body]:
        found: list[Body] = json.loads(self._cluster.kubectl("get", what, "--output=json"))["items"]
        return found

    def connections(self) -> set[Connection]:
        """Of all pods with a daemon of Slurm's; not those of their own hosts, whose probes no policy can cut."""
        found: set[Connection] = set()
        for name, pod in self.pods.items():
            if "app.kubernetes.io/component" in pod["metadata"]["labels"]:
                own = {pod["status"]["hostIP"], pod["status"]["podIP"].rpartition(".")[0] + ".1"}
                sockets = [line.split() for line in self._cluster.on(name, "ss", "-Htan").splitlines()]
                found.update(each for each in self._of(self._place(pod["status"]["podIP"]), sockets) if each.source.address not in own)
        return {each for each in found if not (self._is_gone(each.source) or self._is_gone(each.target))}

    def _is_gone(self, place: Place) -> bool:
        """A pod's address, of a pod that is no more."""
        network = next(iter(self._places)).split(".")[:2]
        return not place.pod and place.address.split(".")[:2] == network

    def _of(self, here: Place, sockets: list[list[str]]) -> Iterator[Connection]:
        listening = {_port(words[3]) for words in sockets if words[0] == "LISTEN"}
        for words in sockets:
            local, (there, port) = _port(words[3]), _end(words[4])
            if words[0] == "LISTEN" or there.startswith("127.") or there == here.address:
                continue
            if local in listening:
                yield Connection(self._place(there), here, local)
            elif there in self._places and port not in DAEMONS:  # of two ports that somebody chose, either may have listened
                yield Connection(here, self._place(there), port, back=local)
            else:
                yield from (Connection(here, target, to) for target, to in self._behind(there, port))

    def _place(self, address: str) -> Place:
        return self._places.get(address, Place(address))

    def _behind(self, address: str, port: int) -> Iterator[tuple[Place, int]]:
        """Where a Service leads to; policies are about that."""
        service = self._services.get(address)
        if service is None:
            yield self._place(address), port
            return
        for each in self._slices:
            if each["metadata"]["labels"].get("kubernetes.io/service-name") == service:
                for end in each["endpoints"]:
                    yield from ((self._place(where), int(to["port"])) for where in end["addresses"] for to in each["ports"])


def _end(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address.strip("[]").removeprefix("::ffff:"), int(port) if port.isdecimal() else 0


def _port(text: str) -> int:
    return _end(text)[1]


def refused(connections: Iterable[Connection], policies: list[Body], pods: dict[str, Body]) -> list[str]:
    """Those that some policy about either end would cut, in words."""
    return sorted(
        str(each) for each in connections if _is_cut(each, policies, pods) and not (each.back and not _is_cut(each.turned, policies, pods))
    )


def _is_cut(each: Connection, policies: list[Body], pods: dict[str, Body]) -> bool:
    ends = (("in", each.target, each.source, "from"), ("out", each.source, each.target, "to"))
    return any(end.pod and not _passes(each, way, pods[end.pod], other, key, policies, pods) for way, end, other, key in ends)


def _passes(each: Connection, way: str, pod: Body, other: Place, key: str, policies: list[Body], pods: dict[str, Body]) -> bool:
    kind, rules = ("Ingress", "ingress") if way == "in" else ("Egress", "egress")
    about = [one["spec"] for one in policies if kind in one["spec"]["policyTypes"] and _selects(one["spec"]["podSelector"], pod)]
    target = pods.get(each.target.pod)
    return not about or any(
        _fits_port(rule, each.port, target) and _fits_peer(rule.get(key), pods.get(other.pod))
        for spec in about
        for rule in spec.get(rules) or []
    )


def _fits_port(rule: Body, port: int, target: Body | None) -> bool:
    wanted = {one["port"] for one in rule.get("ports") or [] if one.get("protocol", "TCP") == "TCP"}
    containers = target["spec"]["containers"] if target else []
    named = {one["containerPort"] for each in containers for one in each.get("ports") or [] if one.get("name") in wanted}
    return "ports" not in rule or port in wanted | named


def _fits_peer(peers: list[Body] | None, pod: Body | None) -> bool:
    if peers is None:
        return True
    for peer in peers:
        assert set(peer) <= {"podSelector", "namespaceSelector"} and not peer.get("namespaceSelector"), f"not judged here: {peer}"
        if pod is not None and _selects(peer.get("podSelector") or {}, pod):
            return True
    return False


def _selects(selector: Body, pod: Body) -> bool:
    labels = pod["metadata"].get("labels") or {}
    for each in selector.get("matchExpressions") or []:
        assert each["operator"] == "In", f"not judged here: {each}"
        if labels.get(each["key"]) not in each["values"]:
            return False
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
