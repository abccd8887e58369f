"""Many nodes, known to both sides."""

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.conftest import Cli, Starter

pytestmark = [pytest.mark.sandbox, pytest.mark.long]


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_sinfo_lists_all_external_nodes_idle(start_sandbox: Starter, cli: Cli, count: int) -> None:
    large: Sandbox = start_sandbox("large", Shape(nodes=count))
    name = ["--name", large.record.name]
    told = cli("sandbox", "slurm", *name, "sinfo", "--noheader", "--partition=bridge", "--format=%D %t %N").stdout
    assert told.split() == [str(count), "idle", f"kwok-[{'0' * len(str(count - 1))}-{count - 1}]"]
    ready = cli(
        "sandbox", "kubectl", *name, "get", "nodes", '--output=jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
    ).stdout
    assert ready.split() == ["True"] * count
    assert cli("sandbox", "down", *name).returncode == 0
