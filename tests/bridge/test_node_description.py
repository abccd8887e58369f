"""What Slurm is told of a Kubernetes node: pairs of what comes in and the line that slurmctld reads, and the sentences for nodes it must not be told of."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.keys import EXTERNAL_NODE, EXTERNAL_NODE_PARTITIONS, SLURM_NODE_NAME, TOPOLOGY
from slinky.bridge.node_description import Hybrid, Unregistrable, Wanted, wish_of
from slinky.bridge.settings import NodeSettings, Settings
from slinky.kube import Node

SETTINGS = Settings()


def a_node(
    name: str = "n1",
    allocatable: dict[str, str] | None = None,
    addresses: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Node:
    document: dict[str, Any] = {
        "metadata": {"name": name, "labels": {EXTERNAL_NODE: ""} if labels is None else labels, "annotations": annotations or {}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi"} | (allocatable or {}),
            "addresses": [
                {"type": kind, "address": address}
                for kind, address in ({"Hostname": "n1", "InternalIP": "10.0.0.1"} if addresses is None else addresses).items()
            ],
        },
    }
    return msgspec.convert(document, Node)


def line(node: Node, settings: Settings = SETTINGS) -> str:
    wish = wish_of(node, settings)
    assert isinstance(wish, Wanted), wish
    (words,) = wish.description.calls()
    return words


def refusal(node: Node, settings: Settings = SETTINGS) -> str:
    wish = wish_of(node, settings)
    assert isinstance(wish, Unregistrable), wish
    return wish.why


SHAPE = "Boards=1 SocketsPerBoard=1 CoresPerSocket={0} ThreadsPerCore=1"


@pytest.mark.parametrize(
    ("node", "settings", "expected"),
    [
        (
            a_node(),
            SETTINGS,
            f"NodeName=n1 State=EXTERNAL NodeAddr=10.0.0.1 CPUs=64 {SHAPE.format(64)} RealMemory=262144 Features=slurm-bridge",
        ),
        (
            a_node(
                "ip-10-0-0-1.eu-west-1.compute.internal",
                {"cpu": "3920m", "memory": "7097032Ki", "nvidia.com/gpu": "8"},
                annotations={EXTERNAL_NODE_PARTITIONS: " gpu, big ,gpu,"},
            ),
            SETTINGS,
            f"NodeName=ip-10-0-0-1.eu-west-1.compute.internal State=EXTERNAL NodeAddr=10.0.0.1 CPUs=3 {SHAPE.format(3)} RealMemory=6930 "
            'Features=gpu,big Gres=gpu:8 GresConf="count=8,name=gpu,file=gpu-[0-7]"',
        ),
        (
            a_node(allocatable={"nvidia.com/gpu": "1"}, annotations={TOPOLOGY: "topo-switch:s1,topo-block:b1"}),
            Settings(
                gres={"nvidia.com/gpu": "gpu:h100"}, nodes=NodeSettings(features=["a", "b"], reserved_cpus=4, reserved_memory_mib=1024)
            ),
            f"NodeName=n1 State=EXTERNAL NodeAddr=10.0.0.1 CPUs=60 {SHAPE.format(60)} RealMemory=261120 Features=a,b "
            'Topology=topo-switch:s1,topo-block:b1 Gres=gpu:h100:1 GresConf="count=1,name=gpu,type=h100,file=gpu-0"',
        ),
    ],
)
def test_the_line_that_slurmctld_reads(node: Node, settings: Settings, expected: str) -> None:
    assert line(node, settings) == expected


def test_two_kinds_of_device_that_are_one_gres_are_added_up() -> None:
    assert "Gres=gpu:5 " in line(a_node(allocatable={"nvidia.com/gpu": "4", "amd.com/gpu": "1"}))


def test_several_gres_and_several_types_of_one_are_told_with_devices_of_their_own() -> None:
    settings = Settings(
        gres={
            "nvidia.com/gpu": "gpu:h100",
            "nvidia.com/mig-1g.10gb": "mig:1g.10gb",
            "nvidia.com/mig-3g.40gb": "mig:3g.40gb",
            "rdma/hca": "hca",
        }
    )
    node = a_node(allocatable={"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb": "2", "rdma/hca": "8"})
    expected = (
        "Gres=gpu:h100:4,hca:8,mig:1g.10gb:7,mig:3g.40gb:2 "
        'GresConf="count=4,name=gpu,type=h100,file=gpu-[0-3]+count=8,name=hca,file=hca-[0-7]+count=7,name=mig,type=1g.10gb,file=mig-[0-6]+count=2,name=mig,type=3g.40gb,file=mig-[7-8]"'
    )
    assert line(node, settings).endswith(expected)


def test_one_gres_with_and_without_a_type_is_refused_as_slurm_would() -> None:
    why = refusal(
        a_node(allocatable={"nvidia.com/gpu": "4", "amd.com/gpu": "1"}), Settings(gres={"nvidia.com/gpu": "gpu:h100", "amd.com/gpu": "gpu"})
    )
    assert "GRES gpu would be some with a type (h100) and some without" in why
    assert "give each resource of `gres` that stands for gpu a type" in why


def test_of_more_than_slurm_can_count_it_is_told_as_much_as_it_can() -> None:
    settings = Settings(gres={"a/fuse": "hca:a", "b/fuse": "hca:b", "c/fuse": "hca:c"})
    node = a_node(allocatable={"a/fuse": "1000", "b/fuse": "5k", "c/fuse": "3"})
    assert "Gres=hca:a:1000,hca:b:24 " in line(node, settings)


def test_no_device_is_no_gres() -> None:
    assert "Gres" not in line(a_node(allocatable={"nvidia.com/gpu": "0"}))


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ({"Hostname": "h", "ExternalIP": "8.8.8.8", "InternalIP": "10.0.0.1"}, "10.0.0.1"),
        ({"Hostname": "h", "ExternalIP": "8.8.8.8"}, "8.8.8.8"),
        ({"Hostname": "h"}, "h"),
        ({"InternalIP": "fd00::1"}, "fd00::1"),
    ],
)
def test_the_address_is_the_nearest_one(addresses: dict[str, str], expected: str) -> None:
    assert f"NodeAddr={expected} " in line(a_node(addresses=addresses))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (a_node(addresses={}), "has no address"),
        (a_node("all"), "keeps the name all for itself"),
        (a_node("default"), "keeps the name default for itself"),
        (a_node("n[1-3]"), "letters, digits, dots"),
        (a_node(allocatable={"cpu": "900m"}), "leaves 0 CPUs"),
        (a_node(allocatable={"memory": "1000Ki"}), "leaves 0 MiB of memory"),
        (a_node(allocatable={"memory": "much"}), "not a quantity"),
        (a_node(annotations={EXTERNAL_NODE_PARTITIONS: "a&b"}), "'a&b' (annotation"),
        (a_node(annotations={TOPOLOGY: 'x" State=DOWN'}), "is no topology"),
    ],
)
def test_what_slurm_must_not_be_told_is_refused_with_a_sentence(node: Node, words: str) -> None:
    why = refusal(node)
    assert why.startswith(f"Node {node.metadata.name} cannot be registered in Slurm: ")
    assert words in why


def test_a_reserve_that_leaves_nothing_is_named() -> None:
    why = refusal(a_node(), Settings(nodes=NodeSettings(reserved_cpus=64)))
    assert "leaves 0 CPUs once nodes.reservedCpus (64) is taken off" in why


def test_without_the_label_nothing_is_wished_and_a_hybrid_node_is_left_alone() -> None:
    assert wish_of(None, SETTINGS) is None
    assert wish_of(a_node(labels={}), SETTINGS) is None
    assert wish_of(a_node(labels={EXTERNAL_NODE: "", SLURM_NODE_NAME: "s1"}), SETTINGS) == Hybrid("s1")


@given(cpu=st.integers(0, 300_000), memory=st.integers(0, 2**44), reserved=st.integers(0, 100))
def test_slurm_is_never_told_of_more_than_there_is(cpu: int, memory: int, reserved: int) -> None:
    settings = Settings(nodes=NodeSettings(reserved_cpus=reserved, reserved_memory_mib=reserved))
    wish = wish_of(a_node(allocatable={"cpu": f"{cpu}m", "memory": str(memory)}), settings)
    if isinstance(wish, Wanted):
        found = wish.description
        assert found.cpus and found.real_memory
        assert (found.cpus + reserved) * 1000 <= cpu
        assert (found.real_memory + reserved) * 1048576 <= memory
        assert found.cores_per_socket == found.cpus


LAYOUT = Settings(nodes=NodeSettings(sockets_label="example.com/sockets", threads_label="example.com/threads"))


@pytest.mark.parametrize(
    ("cpus", "labels", "expected"),
    [
        ("64", {}, "CPUs=64 Boards=1 SocketsPerBoard=1 CoresPerSocket=64 ThreadsPerCore=1"),
        ("64", {"sockets": "2"}, "CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1"),
        ("64", {"sockets": "2", "threads": "2"}, "CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2"),
        ("63", {"sockets": "2"}, "CPUs=63 Boards=1 SocketsPerBoard=1 CoresPerSocket=63 ThreadsPerCore=1"),
        ("63", {"sockets": "2", "threads": "2"}, "CPUs=62 Boards=1 SocketsPerBoard=1 CoresPerSocket=31 ThreadsPerCore=2"),
    ],
)
def test_sockets_and_threads_are_told_where_labels_tell_them(cpus: str, labels: dict[str, str], expected: str) -> None:
    named = {EXTERNAL_NODE: ""} | {f"example.com/{key}": value for key, value in labels.items()}
    assert expected in line(a_node(allocatable={"cpu": cpus}, labels=named), LAYOUT)
    assert f"CPUs={cpus} {SHAPE.format(cpus)}" in line(a_node(allocatable={"cpu": cpus}, labels=named)), "no setting names the labels"


@pytest.mark.parametrize("said", ["0", "two", "-1", "65", "²"])
def test_a_label_that_is_no_number_of_sockets_or_threads_is_refused(said: str) -> None:
    assert "which is no number from 1 to 64" in refusal(a_node(labels={EXTERNAL_NODE: "", "example.com/threads": said}), LAYOUT)


def test_topology_is_told_by_annotation_or_else_by_the_labels_that_the_site_names() -> None:
    settings = Settings(nodes=NodeSettings(topology_labels={"example.com/rack": "topo-switch", "example.com/block": "topo-block"}))
    labels = {EXTERNAL_NODE: "", "example.com/rack": "r1", "example.com/block": "b7"}
    assert "Topology=topo-switch:r1,topo-block:b7" in line(a_node(labels=labels), settings)
    assert "Topology=topo-switch:s9" in line(a_node(labels=labels, annotations={TOPOLOGY: "topo-switch:s9"}), settings)
    assert "Topology=topo-switch:r1 " in line(a_node(labels=labels | {"example.com/block": ""}), settings) + " "
    assert "Topology" not in line(a_node(labels=labels))
