"""Ports of the node that pods take for themselves.

Comes in: pods. Goes out: which ports of a node are taken, and whether another pod's would clash. What must stay true: the same port of another protocol is another port; on one address it clashes with that address and with all addresses
(`0.0.0.0`, which no address means); init containers count where they go on running. A port is free when the last pod that took it is gone.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slinky.kube.objects import Container, Pod

__all__ = ["HostPort", "PortsInUse", "host_ports", "port_refusal"]

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 what Kubernetes writes; nothing is opened here


class HostPort(NamedTuple):
    address: str
    protocol: str
    port: int

    def __str__(self) -> str:
        return f"{self.port}/{self.protocol}" + ("" if self.address == ALL_ADDRESSES else f" on {self.address}")


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    lasting = (container for container in pod.spec.init_containers if container.restart_policy == "Always")
    return tuple(port for container in (*lasting, *pod.spec.containers) if container.ports for port in _ports(container))


def _ports(container: Container) -> Iterable[HostPort]:
    for port in container.ports:
        if port.host_port > 0:
            yield HostPort(port.host_ip or ALL_ADDRESSES, port.protocol or "TCP", port.host_port)


_Holders = dict[str, dict[str, int]]  # address → pod → how often it has the port there


class PortsInUse:
    """By node, with the pods that have them. Counted, as pods that were bound past a scheduler may share one.

    *Invariants:* a port is found by protocol and number, so that a pod of many ports costs their number and
    not its square.
    """

    def __init__(self) -> None:
        self._taken: dict[str, dict[tuple[str, int], _Holders]] = {}

    def add(self, node: str, ports: Iterable[HostPort], pod: str) -> None:
        for address, protocol, number in ports:
            holders = self._taken.setdefault(node, {}).setdefault((protocol, number), {})
            pods = holders.setdefault(address, {})
            pods[pod] = pods.get(pod, 0) + 1

    def remove(self, node: str, ports: Iterable[HostPort], pod: str) -> None:
        for address, protocol, number in ports:
            here = self._taken[node]
            holders = here[protocol, number]
            pods = holders[address]
            pods[pod] -= 1
            if not pods[pod]:
                del pods[pod]
            if not pods:
                del holders[address]
            if not holders:
                del here[protocol, number]
            if not here:
                del self._taken[node]

    def taken(self, node: str, wanted: Iterable[HostPort]) -> tuple[HostPort, str] | None:
        """The first of `wanted` that cannot be had there, and a pod that has it."""
        here = self._taken.get(node)
        if not here:
            return None
        for port in wanted:
            if pods := _in_the_way(here.get((port.protocol, port.port)), port.address):
                return port, next(iter(pods))
        return None


def _in_the_way(holders: _Holders | None, address: str) -> Mapping[str, int] | None:
    if not holders:
        return None
    if address == ALL_ADDRESSES:
        return next(iter(holders.values()))
    return holders.get(address) or holders.get(ALL_ADDRESSES)


def port_refusal(node: str, port: HostPort, pod: str) -> str:
    return f"node {node} has no free port {port}: pod {pod} has it"
