"""What a pod needs, as kube-scheduler sums it: before it is on a node, and once it is there."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.needs import counted_of, needs_of
from slinky.kube import Pod

MI = 1 << 20
GI = 1 << 30


def a_pod(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec, "status": status or {}}, Pod)


def box(name: str = "c", restart: str = "", limits: Any = None, **requests: str) -> dict[str, Any]:
    return {"name": name, "restartPolicy": restart, "resources": {"requests": requests, "limits": limits or {}}}


def given_to(name: str, allocated: dict[str, str] | None = None, **actual: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": actual}, "allocatedResources": allocated or {}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"containers": [box(cpu="1"), box(cpu="500m", memory="1Gi")]}, {"cpu": Fraction(3, 2), "memory": GI}, id="side by side"
        ),
        pytest.param(
            {"initContainers": [box(cpu="4"), box(cpu="2", memory="2Gi")], "containers": [box(cpu="1", memory="1Gi")]},
            {"cpu": 4, "memory": 2 * GI},
            id="init containers one after the other",
        ),
        pytest.param(
            {"initContainers": [box(cpu="1", restart="Always"), box(cpu="4")], "containers": [box(cpu="2")]},
            {"cpu": 5},
            id="a sidecar beside the init containers after it",
        ),
        pytest.param(
            {"initContainers": [box(cpu="4"), box(cpu="1", restart="Always")], "containers": [box(cpu="2")]},
            {"cpu": 4},
            id="not beside those before it",
        ),
        pytest.param(
            {"containers": [box(cpu="1")], "overhead": {"cpu": "250m", "memory": "128Mi"}},
            {"cpu": Fraction(5, 4), "memory": 128 * MI},
            id="overhead",
        ),
        pytest.param({"containers": [box(limits={"cpu": "2"})]}, {"cpu": 2}, id="a limit is a request"),
        pytest.param(
            {"containers": [box(memory="1Gi", limits={"hugepages-2Mi": "512Mi"})]},
            {"memory": GI, "hugepages-2Mi": 512 * MI},
            id="huge pages are no memory",
        ),
        pytest.param(
            {"containers": [box(**{"ephemeral-storage": "1Gi"}), box(**{"ephemeral-storage": "2Gi"})]},
            {"ephemeral-storage": 3 * GI},
            id="ephemeral storage",
        ),
        pytest.param(
            {
                "containers": [box(cpu="1", **{"example.com/fpga": "1"})],
                "resources": {"requests": {"cpu": "3", "memory": "1Gi"}},
                "overhead": {"cpu": "1"},
            },
            {"cpu": 4, "memory": GI, "example.com/fpga": 1},
            id="pod level stands in for the containers, with overhead on top",
        ),
        pytest.param({"containers": [box()], "resources": {"limits": {"cpu": "3"}}}, {"cpu": 3}, id="a limit at pod level is a request"),
        pytest.param(
            {"containers": [box(cpu="1")], "resources": {"limits": {"cpu": "3"}}},
            {"cpu": 1},
            id="but not where the containers have requests",
        ),
        pytest.param(
            {"containers": [box(limits={"hugepages-2Mi": "2Mi"})], "resources": {"limits": {"hugepages-2Mi": "8Mi"}}},
            {"hugepages-2Mi": 8 * MI},
            id="huge pages at pod level",
        ),
    ],
)
def test_needs(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    assert needs_of(a_pod(spec)).amounts == expected
    assert counted_of(a_pod(spec)).amounts == expected


@pytest.mark.parametrize(
    ("spec", "status", "cpu"),
    [
        pytest.param(
            {"containers": [box(cpu="1")]}, {"containerStatuses": [given_to("c", {"cpu": "1"}, cpu="1")]}, 1, id="nothing is resized"
        ),
        pytest.param(
            {"containers": [box(cpu="3")]}, {"containerStatuses": [given_to("c", {"cpu": "1"}, cpu="1")]}, 3, id="it wants to grow"
        ),
        pytest.param(
            {"containers": [box(cpu="1")]}, {"containerStatuses": [given_to("c", {"cpu": "3"}, cpu="2")]}, 3, id="it is shrinking"
        ),
        pytest.param(
            {"containers": [box(cpu="1")]}, {"containerStatuses": [given_to("c", {"cpu": "1"}, cpu="2")]}, 2, id="it has not shrunk yet"
        ),
        pytest.param(
            {"containers": [box(cpu="9")]},
            {
                "containerStatuses": [given_to("c", {"cpu": "1"}, cpu="1")],
                "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
            },
            1,
            id="it can never grow so far",
        ),
        pytest.param(
            {"containers": [box(cpu="9")]},
            {
                "containerStatuses": [given_to("c", {"cpu": "1"}, cpu="1")],
                "conditions": [{"type": "PodResizePending", "reason": "Deferred"}],
            },
            9,
            id="it will when there is room",
        ),
        pytest.param(
            {"initContainers": [box("s", "Always", cpu="1")], "containers": [box(cpu="1")]},
            {"initContainerStatuses": [given_to("s", {"cpu": "2"}, cpu="2")]},
            3,
            id="a sidecar",
        ),
        pytest.param(
            {"initContainers": [box("i", cpu="1")], "containers": [box(cpu="1")]},
            {"initContainerStatuses": [given_to("i", {"cpu": "8"}, cpu="8")]},
            1,
            id="init containers are not resized",
        ),
        pytest.param(
            {"containers": [box(cpu="1")]},
            {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "5"}}]},
            1,
            id="no resources told",
        ),
        pytest.param(
            {"containers": [box()], "resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "1"}},
            {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}},
            4,
            id="at pod level",
        ),
    ],
)
def test_a_pod_on_its_node_counts_with_what_it_has_there(spec: dict[str, Any], status: dict[str, Any], cpu: int) -> None:
    assert counted_of(a_pod(spec, status)).cpu == cpu


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/fpga"]), st.integers(0, 100).map(str)
)
boxes = st.lists(st.tuples(amounts, st.sampled_from(["", "Always"])), max_size=4)


@given(boxes, boxes, amounts)
def test_never_less_than_any_moment_of_its_life(
    inits: list[tuple[dict[str, str], str]], mains: list[tuple[dict[str, str], str]], overhead: dict[str, str]
) -> None:
    """Played through: each init container in its turn beside the sidecars that were started, then all containers."""
    pod = a_pod(
        {
            "initContainers": [box(f"i{n}", restart, **requests) for n, (requests, restart) in enumerate(inits)],
            "containers": [box(f"c{n}", **requests) for n, (requests, _) in enumerate(mains)],
            "overhead": overhead,
        }
    )
    needs = needs_of(pod)
    moments: list[list[dict[str, str]]] = []
    sidecars: list[dict[str, str]] = []
    for requests, restart in inits:
        moments.append([*sidecars, requests])
        if restart:
            sidecars.append(requests)
    moments.append([*sidecars, *(requests for requests, _ in mains)])
    for name in ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/fpga"):
        sums = [sum(int(requests.get(name, "0")) for requests in moment) for moment in moments]
        assert needs.of(name) == max(sums) + int(overhead.get(name, "0"))
    assert all(needs.amounts.values()), "what is not asked for is not there"
