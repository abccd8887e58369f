"""Ports of the node that pods take for themselves.

Comes in: pods. Goes out: which ports of a node are taken, and whether another pod's would clash. What must stay true: the same port of another protocol is another port; on one address it clashes with that address and with all addresses
(`0.0.0.0`, which no address means); init containers count where they go on running. A port is free when the last pod that took it is gone.
"""

from collections.abc import Iterable
from typing import NamedTuple

from slinky.kube.objects import Container, Pod

__all__ = ["HostPort", "PortsInUse", "clash", "host_ports", "port_refusal"]

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


def clash(one: HostPort, other: HostPort) -> bool:
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return one.address == other.address or ALL_ADDRESSES in (one.address, other.address)


class PortsInUse:
    """By node, with the pods that have them. Counted, as pods that were bound past a scheduler may share one."""

    def __init__(self) -> None:
        self._taken: dict[str, dict[HostPort, dict[str, int]]] = {}

    def add(self, node: str, ports: Iterable[HostPort], pod: str) -> None:
        for port in ports:
            pods = self._taken.setdefault(node, {}).setdefault(port, {})
            pods[pod] = pods.get(pod, 0) + 1

    def remove(self, node: str, ports: Iterable[HostPort], pod: str) -> None:
        for port in ports:
            here = self._taken[node]
            pods = here[port]
            pods[pod] -= 1
            if not pods[pod]:
                del pods[pod]
            if not pods:
                del here[port]
            if not here:
                del self._taken[node]

    def taken(self, node: str, wanted: Iterable[HostPort]) -> tuple[HostPort, str] | None:
        """The first of `wanted` that cannot be had there, and a pod that has it."""
        here = self._taken.get(node)
        if not here:
            return None
        return next(((port, next(iter(pods))) for port in wanted for other, pods in here.items() if clash(port, other)), None)


def port_refusal(node: str, port: HostPort, pod: str) -> str:
    return f"node {node} has no free port {port}: pod {pod} has it"
