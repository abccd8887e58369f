"""The webhook's decisions: everything that is wrong is said at once, with the object's name; what does not change the spec is never refused."""

import json
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from slinky.kube import AdmissionMetrics, AdmissionRequest, AdmissionResponse
from slinky.operator.admission import Validator, convert
from slinky.operator.admission_service import configuration
from slinky.operator.kinds import KINDS
from slinky.operator.settings import AdmissionSettings, Settings
from slinky.operator.validation import Neighbours
from tests.operator.validation.things import LEAST, made

Document = dict[str, Any]


class Site:
    """What is beside the object, in a test."""

    def __init__(
        self, settings: Settings | None = None, neighbours: Neighbours | None = None, files: dict[str, list[str]] | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self._neighbours, self._files = neighbours or Neighbours(controllers=[made("Controller", "slurm")]), files or {}
        self._validator = Validator(settings or Settings(), self, AdmissionMetrics(self.registry, KINDS))

    async def neighbours(self, namespace: str) -> Neighbours:
        assert namespace == "site"
        return self._neighbours

    async def accountings(self, namespace: str) -> frozenset[str]:
        assert namespace == "site"
        return frozenset({"db"})

    async def files(self, names: list[str], namespace: str) -> dict[str, list[str]]:
        assert namespace == "site"
        return {name: self._files[name] for name in names if name in self._files}

    async def ask(self, kind: str, spec: Any, before: Any = None, **meta: Any) -> AdmissionResponse:
        document = {"metadata": {"name": "one", "namespace": "site", **meta}, "spec": spec}
        request: Document = {
            "uid": "u",
            "kind": {"kind": kind},
            "namespace": "site",
            "name": "one",
            "operation": "CREATE" if before is None else "UPDATE",
            "object": document,
            "oldObject": None if before is None else {**document, "spec": before},
        }
        return await self._validator.handle(msgspec.json.decode(json.dumps(request), type=AdmissionRequest))


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_right_is_let_in_without_a_word(kind: str) -> None:
    answer = await Site().ask(kind, LEAST[kind])
    assert (answer.allowed, list(answer.warnings)) == (True, [])


async def test_one_problem_is_one_sentence_with_the_objects_name() -> None:
    answer = await Site().ask("NodeSet", {"controlerRef": {"name": "slurm"}})
    assert answer.message == "NodeSet site/one: spec.controlerRef: there is no such field; the nearest is controllerRef"
    assert (answer.allowed, answer.code) == (False, 422)


async def test_several_are_said_together() -> None:
    answer = await Site().ask("NodeSet", LEAST["NodeSet"] | {"taintKubeNodes": True, "partition": {"config": "a\nb"}})
    assert answer.message.startswith("NodeSet site/one:\n  spec.taintKubeNodes: ")
    assert "\n  spec.partition.config: " in answer.message


async def test_a_refusal_is_not_longer_than_people_read() -> None:
    answer = await Site().ask("NodeSet", {f"mistake{number}": 1 for number in range(50)})
    assert answer.message.endswith("… and 30 more")


async def test_a_change_that_leaves_the_spec_alone_is_not_refused() -> None:
    wrong: Document = {"controlerRef": {}}
    assert (await Site().ask("NodeSet", wrong, before=wrong, labels={"a": "b"})).allowed


async def test_an_object_that_is_being_deleted_may_lose_its_finalizers() -> None:
    assert (await Site().ask("NodeSet", {"mistake": 1}, before={}, deletionTimestamp="2026-01-01T00:00:00Z")).allowed


async def test_what_may_not_be_changed_is_not() -> None:
    claims = [{"metadata": {"name": "scratch"}, "spec": {}}]
    answer = await Site().ask("NodeSet", LEAST["NodeSet"] | {"volumeClaimTemplates": claims}, before=LEAST["NodeSet"])
    assert "spec.volumeClaimTemplates: cannot be changed" in answer.message


async def test_an_object_that_could_not_be_read_before_may_be_mended() -> None:
    assert (await Site().ask("NodeSet", LEAST["NodeSet"], before={"mistake": 1})).allowed


async def test_a_spec_that_is_none_is_told_so() -> None:
    answer = await Site().ask("NodeSet", "much")
    assert "spec: cannot be read" in answer.message
    assert "controllerRef.name: is empty" in (await Site().ask("NodeSet", None)).message


async def test_a_neighbour_is_looked_at() -> None:
    beside = Neighbours(nodesets=[made("NodeSet", "other", template={"spec": {"hostname": "one-"}})])
    assert "NodeSet other of the same cluster" in (await Site(neighbours=beside).ask("NodeSet", LEAST["NodeSet"])).message


async def test_a_change_is_refused_for_a_neighbour_only_if_it_brings_the_trouble() -> None:
    site = Site(neighbours=Neighbours(nodesets=[made("NodeSet", "other", template={"spec": {"hostname": "one-"}})]))
    assert (await site.ask("NodeSet", LEAST["NodeSet"] | {"replicas": 3}, before=LEAST["NodeSet"])).allowed
    elsewhere = LEAST["NodeSet"] | {"template": {"spec": {"hostname": "two-"}}}
    assert not (await site.ask("NodeSet", LEAST["NodeSet"], before=elsewhere)).allowed


async def test_a_controllers_files_are_looked_at_and_missing_ones_are_told() -> None:
    spec = {"configFileRefs": [{"name": "files"}, {"name": "later"}], "accountingRef": {"name": "nowhere"}}
    answer = await Site(files={"files": ["gres.conf"]}).ask("Controller", spec)
    assert answer.allowed
    assert list(answer.warnings) == [
        "there is no Accounting nowhere in namespace site yet",
        "there is no ConfigMap later in namespace site yet",
    ]
    assert "ConfigMap files has a file slurm.conf" in (await Site(files={"files": ["slurm.conf"]}).ask("Controller", spec)).message


async def test_users_outside_the_list_get_no_token() -> None:
    answer = await Site(Settings(allowed_token_users={"site": ["bob"]})).ask("Token", LEAST["Token"])
    assert "spec.username: is alice, and Tokens in namespace site are not allowed for that user" in answer.message


async def test_decisions_are_counted() -> None:
    site = Site()
    await site.ask("NodeSet", LEAST["NodeSet"])
    await site.ask("NodeSet", {"mistake": 1})
    count = site.registry.get_sample_value
    for outcome in ("allowed", "refused"):
        labels = {"kind": "NodeSet", "operation": "CREATE", "outcome": outcome}
        assert count("slinky_admission_requests_total", labels) == 1


# The configuration, and versions


def test_only_our_group_is_sent_and_a_webhook_that_is_down_refuses() -> None:
    (webhook,) = configuration(Settings(namespace="here"))["webhooks"]
    (rule,) = webhook["rules"]
    assert (rule["apiGroups"], rule["operations"], webhook["failurePolicy"]) == (["slinky.slurm.net"], ["CREATE", "UPDATE"], "Fail")
    assert webhook["clientConfig"]["service"] == {"name": "slurm-operator-admission", "namespace": "here", "port": 443, "path": "/validate"}
    assert "namespaceSelector" not in webhook
    (condition,) = webhook["matchConditions"]
    assert "object.spec != oldObject.spec" in condition["expression"]


def test_with_a_list_of_namespaces_no_others_are_sent() -> None:
    (webhook,) = configuration(Settings(namespaces=["b", "a"], admission=AdmissionSettings(fail_open=True)))["webhooks"]
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert webhook["namespaceSelector"] == {"matchExpressions": [named]}
    assert webhook["failurePolicy"] == "Ignore"


def test_the_configuration_says_what_the_settings_ask_for() -> None:
    conditions = [{"name": "not-ours", "expression": "request.userInfo.username != 'me'"}]
    selector = {"matchLabels": {"team": "hpc"}}
    admission = AdmissionSettings(
        timeout_seconds=10,
        match_policy="Exact",
        match_conditions=conditions,
        namespace_selector=selector,
    )
    (webhook,) = configuration(Settings(namespaces=["a"], admission=admission))["webhooks"]
    assert (webhook["timeoutSeconds"], webhook["matchPolicy"]) == (10, "Exact")
    assert (webhook["matchConditions"], webhook["namespaceSelector"]) == (conditions, selector)


def test_the_one_version_there_is_passes_through_and_others_are_refused() -> None:
    ours = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "Token", "metadata": {"name": "t"}, "spec": {"mistake": 1}}
    assert convert(ours, "slinky.slurm.net/v1beta1") == ours
    with pytest.raises(ValueError, match=r"Token t: there is no version slinky\.slurm\.net/v2; there is slinky\.slurm\.net/v1beta1"):
        convert(ours, "slinky.slurm.net/v2")
    with pytest.raises(ValueError, match=r"there is no version slinky\.slurm\.net/v1alpha1"):
        convert(ours | {"apiVersion": "slinky.slurm.net/v1alpha1"}, "slinky.slurm.net/v1beta1")
