"""Addresses of a sandbox. The host has one end of a cable into it, and nothing else: no bridge, no firewall rule, no forwarding.

The head's end of that cable is a port of a bridge inside the head's own network namespace; real nodes are plugged into the same
bridge. So everything on it disappears with the head. The sandbox's network is chosen among those the host has no route to.
"""

import ipaddress
from contextlib import suppress
from pathlib import Path

import msgspec

from slinky.sandbox.errors import CircumstanceError

__all__ = ["POOL", "Addresses", "choose", "interface", "plug_head", "plug_node"]

POOL = ipaddress.IPv4Network("198.18.0.0/15")  # set aside for tests of network devices: no site uses it


class Addresses(msgspec.Struct, frozen=True):
    """`network` is the sandbox's own /24; pods and services live behind it and never reach the host."""

    network: str
    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/16"

    def _at(self, number: int) -> str:
        return str(ipaddress.ip_network(self.network)[number])

    @property
    def host(self) -> str:
        return self._at(1)

    @property
    def head(self) -> str:
        return self._at(2)

    def node(self, index: int) -> str:
        return self._at(11 + index)

    def node_pods(self, index: int) -> str:
        return f"10.244.{index + 1}.0/24"

    @property
    def kubernetes_service(self) -> str:
        return "10.96.0.1"

    @property
    def dns_service(self) -> str:
        return "10.96.0.10"


def choose(routes: str | None = None) -> Addresses:
    """The first /24 of the pool that overlaps nothing the host routes (its default route aside)."""
    taken = list(_routed(routes if routes is not None else Path("/proc/net/route").read_text()))
    for candidate in POOL.subnets(new_prefix=24):
        if not any(candidate.overlaps(network) for network in taken):
            return Addresses(str(candidate))
    raise CircumstanceError(f"no free network in {POOL}: take a sandbox down first (slinky sandbox list)")


def _routed(table: str) -> list[ipaddress.IPv4Network]:
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        with suppress(ValueError, IndexError):
            address, mask = (int.from_bytes(bytes.fromhex(fields[i])[::-1], "big") for i in (1, 7))
            if mask:
                found.append(ipaddress.IPv4Network((address, mask.bit_count())))
    return found


def interface(identity: str) -> str:
    """The host's end of the cable."""
    return f"slk-{identity}"


def plug_head(identity: str, addresses: Addresses) -> str:
    """Script for the head: a bridge, and a cable to the host (whose namespace is that of the keeper, PID 1)."""
    name = interface(identity)
    return f"""
        ip link add lan type bridge
        ip link set lan up
        ip addr add {addresses.head}/24 dev lan
        ip route add {addresses.services} dev lan
        ip link add host type veth peer name {name} netns 1
        ip link set host master lan
        ip link set host up
        nsenter --target 1 --net ip addr add {addresses.host}/24 dev {name}
        nsenter --target 1 --net ip link set {name} up
        sysctl -q -w net.ipv4.ip_forward=1
        """


def plug_node(index: int, holder: int, addresses: Addresses) -> str:
    """Script for the head: a cable from the bridge to a real node, and the way to the pods there."""
    inside = f"nsenter --target {holder} --net"
    return f"""
        ip link add node{index} type veth peer name eth0 netns {holder}
        ip link set node{index} master lan
        ip link set node{index} up
        {inside} ip addr add {addresses.node(index)}/24 dev eth0
        {inside} ip link set eth0 up
        {inside} ip route add default via {addresses.head}
        {inside} sysctl -q -w net.ipv4.ip_forward=1
        ip route add {addresses.node_pods(index)} via {addresses.node(index)}
        """
