"""A sandbox with two real nodes, the operator on it as a newcomer runs it, and the cluster of examples/operator: once for each module of this folder."""

from collections.abc import Iterator

import pytest

from slinky.sandbox.shape import Shape
from tests.conftest import Starter
from tests.operator_sandbox.cluster import EXAMPLES, Cluster
from tests.sandbox.processes import Started, started

WORKERS = ("compute-0", "compute-1", "small-0")


@pytest.fixture(scope="module")
def bare(start_sandbox: Starter, request: pytest.FixtureRequest) -> Cluster:
    """Before there is an operator. A module may say which `ADDONS` the sandbox has."""
    kind = str(request.module.__name__).rpartition("test_")[2].replace("_", "-")
    shape = Shape(nodes=0, real_nodes=2, operator=True, addons=getattr(request.module, "ADDONS", ()))
    return Cluster(start_sandbox(f"operator-{kind}", shape))


@pytest.fixture(scope="module")
def operator(bare: Cluster) -> Iterator[Started]:
    with started("sandbox", "operator", "--name", bare.sandbox.record.name) as process:
        process.until_said("ends with Ctrl-C")
        yield process


@pytest.fixture(scope="module")
def cluster(bare: Cluster, operator: Started) -> Cluster:
    """All of it ready, and all workers idle."""
    assert "the operator runs" in operator.said
    bare.apply(EXAMPLES / "ldap.yaml", EXAMPLES / "cluster.yaml")
    for kind, name in (
        ("controller", "slurm"),
        ("accounting", "slurm"),
        ("restapi", "slurm"),
        ("nodeset", "compute"),
        ("loginset", "slurm-login"),
    ):
        bare.until(f"{kind} {name} was ready", lambda kind=kind, name=name: bare.condition(kind, name, "Ready")[0] == "True", 240)  # type: ignore[misc]
    bare.until_idle(*WORKERS)
    return bare
