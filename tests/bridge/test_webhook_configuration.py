"""Webhook configurations: what is sent is ours only, kube-system and the bridge's own namespace never are, and no pod goes twice."""

from typing import Any

import pytest

from slinky.bridge.settings import AdmissionSettings, Settings
from slinky.bridge.webhook_configuration import mutating_configuration, others, validating_configuration
from slinky.kube import carried_over
from slinky.kube.objects import LabelSelector, SelectorRequirement

LISTED = Settings(managed_namespaces=["lab", "hpc"], namespace="slinky")
NAME = "kubernetes.io/metadata.name"


def selected(*requirements: SelectorRequirement, **labels: str) -> Settings:
    return Settings(managed_namespace_selector=LabelSelector(match_labels=labels, match_expressions=requirements), namespace="slinky")


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """As the API server does."""
    for wanted in selector["matchExpressions"]:
        value, values = labels.get(wanted["key"]), wanted.get("values", [])
        found = {"In": value in values, "NotIn": value not in values, "Exists": value is not None, "DoesNotExist": value is None}
        if not found[wanted["operator"]]:
            return False
    return True


def webhooks(settings: Settings) -> dict[str, dict[str, Any]]:
    both = [mutating_configuration(settings), validating_configuration(settings)]
    return {webhook["name"].partition(".")[0]: webhook for each in both for webhook in each["webhooks"]}


SELECTED = [
    LISTED,
    selected(team="hpc"),
    selected(SelectorRequirement(key="stage", operator="NotIn", values=("test",))),
    selected(SelectorRequirement(key="slurm", operator="Exists")),
    selected(SelectorRequirement(key="opt-out", operator="DoesNotExist")),
]
NAMESPACES = [
    {NAME: name, **labels}
    for name in ("lab", "hpc", "web")
    for labels in ({}, {"team": "hpc"}, {"team": "web", "stage": "test"}, {"slurm": ""}, {"opt-out": "yes"})
]


@pytest.mark.parametrize("settings", SELECTED)
@pytest.mark.parametrize("labels", NAMESPACES)
def test_a_namespace_is_either_managed_or_another(settings: Settings, labels: dict[str, str]) -> None:
    found = webhooks(settings)
    managed = settings.manages(labels[NAME], labels)
    assert matches(found["managed-pods"]["namespaceSelector"], labels) is managed
    assert matches(found["workloads"]["namespaceSelector"], labels) is managed
    assert matches(found["named-pods"]["namespaceSelector"], labels) is not managed


@pytest.mark.parametrize("settings", [*SELECTED, selected(team="hpc", stage="live"), selected(), Settings()])
@pytest.mark.parametrize("name", ["kube-system", "slinky", "slurm"])
def test_kube_system_and_the_namespaces_of_bridge_and_slurm_are_never_asked_about(settings: Settings, name: str) -> None:
    labels = {NAME: name, "team": "hpc", "stage": "live", "slurm": ""}
    assert not [key for key, webhook in webhooks(settings).items() if matches(webhook["namespaceSelector"], labels)]


def test_kube_system_is_not_managed_even_if_it_is_named() -> None:
    assert "managed-pods" not in webhooks(Settings(managed_namespaces=["kube-system"]))


def test_a_selector_of_several_parts_has_no_opposite_so_who_names_us_is_asked_about_everywhere() -> None:
    found = others(selected(team="hpc", stage="live"))
    assert found == {"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["kube-system", "slinky", "slurm"]}]}


def test_where_all_namespaces_are_managed_there_are_no_others() -> None:
    assert set(webhooks(selected())) == {"managed-pods", "changes", "resizes", "workloads"}


def test_where_none_is_managed_only_pods_that_name_us_are_asked_about() -> None:
    assert set(webhooks(Settings())) == {"named-pods", "changes", "resizes"}


def test_pods_that_name_us_are_looked_at_before_that_name_is_set_on_others() -> None:
    names = [webhook["name"].partition(".")[0] for webhook in mutating_configuration(LISTED)["webhooks"]]
    assert names == ["named-pods", "managed-pods"]


@pytest.mark.parametrize(("fail_open", "policy"), [(False, "Fail"), (True, "Ignore")])
def test_every_webhook_fails_as_it_is_set_and_soon(fail_open: bool, policy: str) -> None:
    settings = Settings(managed_namespaces=["lab"], admission=AdmissionSettings(fail_open=fail_open))
    for webhook in webhooks(settings).values():
        assert (webhook["failurePolicy"], webhook["timeoutSeconds"], webhook["sideEffects"]) == (policy, 5, "None")


def test_it_is_called_by_service_or_by_url() -> None:
    service = {"name": "slurm-bridge-admission", "namespace": "slinky", "port": 443, "path": "/pods"}
    assert webhooks(LISTED)["managed-pods"]["clientConfig"] == {"service": service}
    by_url = Settings(managed_namespaces=["lab"], admission=AdmissionSettings(url="https://10.0.0.1:9443/"))
    assert webhooks(by_url)["workloads"]["clientConfig"] == {"url": "https://10.0.0.1:9443/workloads"}
    assert mutating_configuration(by_url, authority="QUJD")["webhooks"][0]["clientConfig"]["caBundle"] == "QUJD"


def test_the_bridges_own_users_are_left_out_where_they_are_known() -> None:
    known = validating_configuration(LISTED, users=['a"b', "system:serviceaccount:slinky:bridge"])["webhooks"][0]["matchConditions"]
    assert {
        "name": "is-not-by-the-bridge",
        "expression": r'!(request.userInfo.username in ["a\"b", "system:serviceaccount:slinky:bridge"])',
    } in known
    unknown = validating_configuration(LISTED)["webhooks"][0]["matchConditions"]
    assert "is-not-by-the-bridge" not in {condition["name"] for condition in unknown}


def test_what_others_wrote_on_a_configuration_is_kept() -> None:
    wanted = mutating_configuration(LISTED)
    meta = {
        "name": "slurm-bridge",
        "resourceVersion": "7",
        "labels": {"theirs": "x"},
        "annotations": {"cert-manager.io/inject-ca-from": "y"},
    }
    before = [
        {"name": "managed-pods.bridge.slinky.slurm.net", "clientConfig": {"caBundle": "QUJD"}},
        {"name": "gone.bridge.slinky.slurm.net"},
    ]
    found = carried_over(wanted, {"metadata": meta, "webhooks": before})
    assert found["metadata"]["resourceVersion"] == "7"
    assert found["metadata"]["annotations"] == meta["annotations"]
    assert found["metadata"]["labels"]["theirs"] == "x"
    assert [webhook["name"] for webhook in found["webhooks"]] == [webhook["name"] for webhook in wanted["webhooks"]]
    assert {webhook["clientConfig"]["caBundle"] for webhook in found["webhooks"]} == {"QUJD"}
