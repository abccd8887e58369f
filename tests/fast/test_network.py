"""The sandbox's network: chosen beside what the host has, never assumed."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.sandbox.errors import CircumstanceError
from slinky.sandbox.network import POOL, Addresses, choose

HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


def route(network: str) -> str:
    parsed = ipaddress.ip_network(network)
    words = [int(a).to_bytes(4, "little").hex().upper() for a in (parsed.network_address, parsed.netmask)]
    return f"eth0\t{words[0]}\t00000000\t0001\t0\t0\t0\t{words[1]}\t0\t0\t0\n"


def test_the_default_route_is_in_nobodys_way() -> None:
    assert choose(HEADER + route("0.0.0.0/0")).network == "198.18.0.0/24"


@given(st.lists(st.integers(0, 511), max_size=20), st.booleans())
def test_a_network_is_chosen_that_the_host_has_no_route_to(used: list[int], wide: bool) -> None:
    subnets = list(POOL.subnets(new_prefix=24))
    taken = [str(subnets[index]) for index in used] + (["198.18.0.0/20"] if wide else [])
    chosen = ipaddress.IPv4Network(choose(HEADER + "".join(map(route, taken))).network)
    assert chosen.subnet_of(POOL)
    assert not any(chosen.overlaps(ipaddress.ip_network(network)) for network in taken)


def test_a_full_pool_is_said() -> None:
    with pytest.raises(CircumstanceError, match="take a sandbox down first"):
        choose(HEADER + route(str(POOL)))


def test_addresses() -> None:
    addresses = Addresses("198.18.7.0/24")
    assert (addresses.host, addresses.head, addresses.node(0), addresses.node_pods(1)) == (
        "198.18.7.1",
        "198.18.7.2",
        "198.18.7.11",
        "10.244.2.0/24",
    )
