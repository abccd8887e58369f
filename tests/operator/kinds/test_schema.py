"""The CRDs are made from the types: the files are up to date, every field is there with its help, and nothing is pruned."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from slinky.operator.kinds import KINDS
from slinky.operator.kinds.schema import OFFERED, crd, crds
from tests.conftest import CHECKOUT, Cli


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def spec(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = schema(kind)["properties"]["spec"]
    return found


def parts(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, each in node.get("properties", {}).items():
        yield from parts(each, f"{path}.{name}")
    if "items" in node:
        yield from parts(node["items"], f"{path}[]")


def test_the_files_are_up_to_date() -> None:
    for document in crds():
        path = CHECKOUT / "crds" / f"slinky.slurm.net_{document['spec']['names']['plural']}.yaml"
        assert yaml.safe_load(path.read_text()) == document, "slinky operator crds --directory crds"


def test_the_command_prints_them(cli: Cli) -> None:
    assert list(yaml.safe_load_all(cli("operator", "crds").stdout)) == crds()


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_its_help(kind: str) -> None:
    bare = [path for path, node in parts(spec(kind), "spec") if not node.get("description") and not path.endswith("[]")]
    assert bare == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_written_in_a_spec_is_pruned(kind: str) -> None:
    for path, node in parts(spec(kind), "spec"):
        if node.get("type") == "object":
            assert node.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in node, path


def test_names_and_paths_are_those_that_other_tools_know() -> None:
    assert {kind: (offer.plural, offer.short) for kind, offer in OFFERED.items()} == {
        "Controller": ("controllers", ("slurmctld",)),
        "Accounting": ("accountings", ("slurmdbd",)),
        "RestApi": ("restapis", ("slurmrestd",)),
        "NodeSet": ("nodesets", ("nss", "slurmd")),
        "LoginSet": ("loginsets", ("lss", "sackd")),
        "Token": ("tokens", ("jwt",)),
    }
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}
    for kind in KINDS:
        found = crd(kind)["spec"]["versions"][0]["subresources"]
        assert found == ({"status": {}, "scale": scale} if kind in ("NodeSet", "LoginSet") else {"status": {}})


def test_defaults_that_people_and_autoscalers_want_to_see_are_the_api_servers() -> None:
    nodes = spec("NodeSet")["properties"]
    assert nodes["replicas"]["default"] == 1
    assert nodes["scalingMode"]["default"] == "StatefulSet"
    assert nodes["updateStrategy"]["properties"]["rollingUpdate"]["properties"]["maxUnavailable"]["default"] == "25%"
    assert nodes["workloadDisruptionProtection"]["default"] is True
    assert "default" not in nodes["pinToNode"]


def test_every_condition_is_shown_in_a_column() -> None:
    for kind in KINDS:
        columns = {each["name"] for each in crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]}
        assert columns >= {"READY", "REASON", "AGE"}
