"""The charts give the rights of examples/*rbac*.yaml, and no others: but for making what the chart makes itself, and by name what has one."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.charts.helm import Document, Helm, Values, is_hook, of_kind
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.sandbox  # helm itself is built for the sandbox

Right = tuple[str, str, str]
# Made by the chart, so that they go with it. Of these the process may do what it does to one that is there, and of that name only. (ConfigMaps of clusters are the operator's to make, everywhere.)
MADE = ("leases", "secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "configmaps")
CASES: list[tuple[str, Values, str, str]] = [
    ("slurm-operator", {"rbac": {"secrets": "namespaced", "secretsNamespaces": ["slurm"]}}, "operator/rbac.yaml", "slurm-operator"),
    ("slurm-operator", {"operator": {"namespaces": ["slurm"]}}, "operator/rbac-namespaced.yaml", "slurm-operator"),
    ("slurm-operator", {}, "operator/admission-rbac.yaml", "slurm-operator-admission"),
    ("slurm-bridge", {}, "bridge-rbac.yaml", "slurm-bridge"),
    ("slurm-bridge", {}, "bridge-rbac.yaml", "slurm-bridge-admission"),
    ("slurm-bridge", {"shadow": True, "admission": {"enabled": False}}, "bridge-shadow-rbac.yaml", "slurm-bridge-shadow"),
]


def rights(documents: list[Document], account: str) -> dict[str, set[Right]]:
    """By where they hold: in a namespace, or everywhere (an empty name)."""
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in of_kind(documents, "Role", "ClusterRole")
    }
    found: dict[str, set[Right]] = {}
    for each in of_kind(documents, "RoleBinding", "ClusterRoleBinding"):
        if any(subject["name"] == account for subject in each["subjects"]):
            where = each["metadata"].get("namespace", "")
            kind, name = each["roleRef"]["kind"], each["roleRef"]["name"]
            role = roles[kind, where if kind == "Role" else "", name]
            found.setdefault(where, set()).update(_each(role["rules"]))
    return found


def _each(rules: list[dict[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield group, resource, verb


@pytest.mark.parametrize(("chart", "values", "file", "account"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_charts_rights_are_those_of_the_example(helm: Helm, chart: str, values: Values, file: str, account: str) -> None:
    documents = [each for each in helm.template(chart, values) if not is_hook(each)]
    example = [each for each in yaml.safe_load_all((CHECKOUT / "examples" / file).read_text()) if each]
    ours, theirs = rights(documents, account.removesuffix("-shadow")), rights(example, account)
    own = {"", "slinky"}  # the process's own namespace, and what belongs to none
    for where in own:
        made = {
            right for right in theirs.get(where, set()) if right[1] in MADE and right[2] == "create" and (where or right[1] != "configmaps")
        }
        assert ours.get(where, set()) == theirs.get(where, set()) - made
    assert {where: found for where, found in ours.items() if where not in own} == {
        where: found for where, found in theirs.items() if where not in own
    }


def test_what_a_process_may_do_in_its_own_namespace_has_a_name(helm: Helm) -> None:
    for chart in ("slurm-operator", "slurm-bridge"):
        for role in of_kind(helm.template(chart), "Role"):
            if not is_hook(role):
                assert all(rule["resourceNames"] for rule in role["rules"]), role["metadata"]["name"]
