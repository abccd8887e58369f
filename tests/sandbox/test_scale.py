"""A thousand nodes, known to both sides."""

import pytest

from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.conftest import Cli, Starter

pytestmark = pytest.mark.sandbox


def test_sinfo_lists_a_thousand_external_nodes_idle(start_sandbox: Starter, cli: Cli) -> None:
    large: Sandbox = start_sandbox("large", Shape(nodes=1000))
    name = ["--name", large.record.name]
    told = cli("sandbox", "slurm", *name, "sinfo", "--noheader", "--partition=bridge", "--format=%D %t %N").stdout
    assert told.split() == ["1000", "idle", "kwok-[000-999]"]
    ready = cli(
        "sandbox", "kubectl", *name, "get", "nodes", '--output=jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
    ).stdout
    assert ready.split() == ["True"] * 1000
    assert cli("sandbox", "down", *name).returncode == 0
