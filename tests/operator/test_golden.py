"""What is made of custom resources, case by case: `golden/NAME/in.yaml` holds what an administrator wrote, `out.yaml` what is made of it. `UPDATE_GOLDEN=1 pytest tests/operator/test_golden.py` writes the answers anew: read the diff.

The first document of `in.yaml` says what is shown (kinds, or kind/name) and what stands around the cluster; all others are Kubernetes objects: custom resources, the ConfigMaps they refer to, and nodes.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slinky.kube.objects import Node
from slinky.operator.kinds import KINDS, Accounting, Controller, LoginSet, NodeSet, RestApi, Token
from slinky.operator.objects.accounting import accounting_objects
from slinky.operator.objects.controller import controller_objects
from slinky.operator.objects.loginset import login_objects
from slinky.operator.objects.restapi import restapi_objects
from slinky.operator.objects.secrets import token_secret
from slinky.operator.objects.view import AccountingView, ClusterView
from slinky.operator.objects.worker_names import pod_name
from slinky.operator.objects.worker_pod import revision_of, worker_base, worker_claims, worker_pod
from slinky.operator.objects.workers import nodeset_objects

CASES = sorted(path.parent for path in (Path(__file__).parent / "golden").glob("*/in.yaml"))


class Around(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What stands around the cluster in a case."""

    show: list[str]
    why: str
    password: str = ""
    network_policies: bool = False
    service_monitors: bool = False
    cluster_domain: str = "cluster.local"
    digests: dict[str, str] = {}
    workers: list[dict[str, Any]] = []


class Case:
    def __init__(self, folder: Path) -> None:
        first, *rest = list(yaml.safe_load_all((folder / "in.yaml").read_text()))
        self.around = msgspec.convert(first, Around)
        self.objects: list[Any] = [msgspec.convert(one, KINDS[one["kind"]]) for one in rest if one["kind"] in KINDS]
        self.files = {one["metadata"]["name"]: one["data"] for one in rest if one["kind"] == "ConfigMap"}
        self.nodes = {one["metadata"]["name"]: msgspec.convert(one, Node) for one in rest if one["kind"] == "Node"}

    def of(self, kind: type[Any]) -> tuple[Any, ...]:
        return tuple(one for one in self.objects if isinstance(one, kind))

    def view(self) -> ClusterView:
        return ClusterView(
            controller=self.of(Controller)[0],
            accounting=next(iter(self.of(Accounting)), None),
            nodesets=self.of(NodeSet),
            restapis=self.of(RestApi),
            loginsets=self.of(LoginSet),
            files=self.files,
            digests=self.around.digests,
            cluster_domain=self.around.cluster_domain,
            network_policies=self.around.network_policies,
            service_monitors=self.around.service_monitors,
        )

    def made(self) -> Iterable[dict[str, Any]]:
        for accounting in self.of(Accounting):
            site = AccountingView(
                accounting=accounting,
                controllers=self.of(Controller),
                digests=self.around.digests,
                files=self.files,
                password_mark="p-1",
                network_policies=self.around.network_policies,
            )
            yield from accounting_objects(accounting, site, self.around.password)
        for token in self.of(Token):
            yield token_secret(token, "a.jwt.token")
        if not self.of(Controller):
            return
        view = self.view()
        yield from controller_objects(view.controller, view)
        for restapi in view.restapis:
            yield from restapi_objects(restapi, view)
        for loginset in view.loginsets:
            yield from login_objects(loginset, view)
        for nodeset in view.nodesets:
            yield from nodeset_objects(nodeset, view)
        yield from self.workers(view)

    def workers(self, view: ClusterView) -> Iterable[dict[str, Any]]:
        for worker in self.around.workers:
            nodeset = next(one for one in view.nodesets if one.metadata.name == worker["nodeset"])
            node, ordinal = self.nodes.get(worker.get("node", "")), worker.get("ordinal")
            yield from worker_claims(nodeset, pod_name(nodeset, ordinal, node))
            yield worker_pod(nodeset, worker_base(nodeset, view), ordinal=ordinal, node=node, revision=revision_of(nodeset, view))

    def shown(self) -> list[dict[str, Any]]:
        return [one for one in self.made() if {one["kind"], f"{one['kind']}/{one['metadata']['name']}"} & set(self.around.show)]


class Readable(yaml.SafeDumper):
    """Files line by line; nothing by reference."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Readable.add_representer(str, _text)


def written(objects: Iterable[Mapping[str, Any]]) -> str:
    return "---\n".join(yaml.dump(one, Dumper=Readable, sort_keys=False, width=200) for one in objects)


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_what_was_written_becomes_this(folder: Path) -> None:
    told = written(Case(folder).shown())
    answer = folder / "out.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        answer.write_text(told)
    assert told == answer.read_text()


def test_there_are_cases_enough() -> None:
    assert len(CASES) >= 20


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_no_two_objects_of_a_case_have_one_name_and_none_holds_a_null(folder: Path) -> None:
    made = list(Case(folder).made())
    keys = [(one["kind"], one["metadata"]["name"]) for one in made]
    assert len(keys) == len(set(keys))
    assert not any("null" in line.split(": ")[1:] for line in written(made).splitlines())


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_a_password_stands_in_a_secret_and_nowhere_else(folder: Path) -> None:
    case = Case(folder)
    if case.around.password:
        assert case.around.password not in written(one for one in case.made() if one["kind"] != "Secret")


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_no_pod_has_a_token_of_kubernetes_unless_an_administrator_says_so(folder: Path) -> None:
    for one in Case(folder).made():
        spec = one["spec"] if one["kind"] == "Pod" else one.get("spec", {}).get("template", {}).get("spec")
        assert spec is None or spec["automountServiceAccountToken"] is False
