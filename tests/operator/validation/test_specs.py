"""What is wrong with one object by itself: each sentence says what was asked, what is wrong and what would be right."""

from typing import Any

import pytest

from slinky.operator.kinds import KINDS
from slinky.operator.settings import Settings
from slinky.operator.validation import change_problems, file_problems
from tests.operator.validation.things import made, told

KEY = {"name": "keys", "key": "slurm.key"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_that_can_be_written_is_right(kind: str) -> None:
    assert told(made(kind)) == []


@pytest.mark.parametrize(
    ("kind", "spec", "path", "said"),
    [
        ("Controller", {"ha": {"enabled": True}}, "spec.ha.enabled", "several slurmctld at once are not supported; leave it false"),
        ("Controller", {"clusterName": "x" * 41}, "spec.clusterName", "41 characters; the accounting database takes 40"),
        ("Controller", {"clusterName": "my cluster"}, "spec.clusterName", "Slurm takes letters, digits, _ and -"),
        (
            "Controller",
            {"external": True, "slurmKeyRef": KEY, "jwtKeyRef": KEY},
            "spec.externalConfig.host",
            "is missing; external is true",
        ),
        ("Controller", {"external": True, "externalConfig": {"host": "h"}, "jwtKeyRef": KEY}, "spec.slurmKeyRef", "has to name the Secret"),
        ("Controller", {"slurmKeyRef": {"name": "k"}}, "spec.slurmKeyRef.key", "is empty; a reference to a key says both"),
        ("Controller", {"slurmKeyRef": KEY | {"optional": True}}, "spec.slurmKeyRef.optional", "nothing works without it"),
        ("Controller", {"jwtKeyRef": KEY, "jwtHs256KeyRef": KEY | {"name": "b"}}, "spec.jwtHs256KeyRef", "another key than jwtKeyRef"),
        ("Controller", {"accountingRef": {"name": "a", "namespace": "b"}}, "spec.accountingRef.namespace", "own namespace (site)"),
        ("Controller", {"configFileRefs": [{"name": "a"}, {"name": ""}]}, "spec.configFileRefs[1].name", "is empty"),
        ("Controller", {"service": {"spec": {"externalIPs": ["1.2.3.4"]}}}, "spec.service.spec.externalIPs", "CVE-2020-8554"),
        ("Controller", {"extraConf": "SlurmctldHost=other"}, "spec.extraConf", "sets SlurmctldHost, which is the operator's to say"),
        ("Controller", {"extraConf": "clustername=other"}, "spec.extraConf", "take it out: set clusterName"),
        ("Controller", {"extraConf": "SchedulerType sched/backfill"}, "spec.extraConf", "cannot be read at `SchedulerType sched/backfill`"),
        ("Accounting", {"storageConfig": None}, "spec.storageConfig.host", "is missing; it has to say where the database is"),
        ("Accounting", {"external": True}, "spec.externalConfig.host", "is missing; external is true"),
        (
            "Accounting",
            {"extraConf": "StoragePass=secret"},
            "spec.extraConf",
            "set storageConfig.passwordKeyRef, so that it stands in a Secret",
        ),
        ("Accounting", {"storageConfig": {"host": "h", "tls": {"keyRef": KEY}}}, "spec.storageConfig.tls", "give both, or none"),
        (
            "Accounting",
            {"storageConfig": {"host": "h", "passwordKeyRef": {"name": "p"}}},
            "spec.storageConfig.passwordKeyRef.key",
            "is empty",
        ),
        ("RestApi", {"controllerRef": {"name": ""}}, "spec.controllerRef.name", "it has to name a Controller"),
        ("LoginSet", {"controllerRef": {"name": "slurm", "namespace": "b"}}, "spec.controllerRef.namespace", "leave it out"),
        ("RestApi", {"service": {"spec": {"selector": {"a": "b"}}}}, "spec.service.spec.selector", "take it out"),
        ("LoginSet", {"service": {"spec": {"externalIPs": ["1.2.3.4"]}}}, "spec.service.spec.externalIPs", "type LoadBalancer or NodePort"),
        ("NodeSet", {"taintKubeNodes": True}, "spec.taintKubeNodes", "give template.spec.tolerations"),
        (
            "NodeSet",
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}},
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            "is 0",
        ),
        (
            "NodeSet",
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "0%"}}},
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            "is 0%",
        ),
        (
            "NodeSet",
            {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "3"}}},
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
            "is 3",
        ),
        ("NodeSet", {"template": {"spec": {"hostname": "gpu.example"}}}, "spec.template.spec.hostname", "no dots, such as gpu-"),
        ("NodeSet", {"template": {"spec": {"hostname": "x" * 60}}}, "spec.template.spec.hostname", "is 60 characters long"),
        ("NodeSet", {"extraConf": "Gres=gpu:8 Weight"}, "spec.extraConf", "cannot be read at `Weight`"),
        ("NodeSet", {"extraConf": "NodeName=x Gres=gpu:8"}, "spec.extraConf", "template.spec.hostname begins it"),
        ("NodeSet", {"extraConf": "Include nodes.conf"}, "spec.extraConf", "a node's parameters only"),
        ("NodeSet", {"partition": {"config": "Default=YES\nMaxTime=1"}}, "spec.partition.config", "has 2 lines; a partition is one line"),
        ("NodeSet", {"partition": {"config": "Default=YES Nodes=ALL"}}, "spec.partition.config", "they are the NodeSet's own"),
        ("NodeSet", {"volumeClaimTemplates": [{"spec": {}}]}, "spec.volumeClaimTemplates[0].metadata.name", 'is ""'),
        ("NodeSet", {"volumeClaimTemplates": [{"metadata": {"name": "a"}}]}, "spec.volumeClaimTemplates[0].spec", "is missing"),
        (
            "NodeSet",
            {"volumeClaimTemplates": [{"metadata": {"name": "a"}, "spec": {}}] * 2},
            "spec.volumeClaimTemplates[1].metadata.name",
            "as of another",
        ),
        ("Token", {"jwtKeyRef": None}, "spec.jwtKeyRef", "is missing; it has to name the Secret and the key"),
        ("Token", {"username": ""}, "spec.username", "it has to name a Slurm user"),
        ("Token", {"username": "root"}, "spec.username", "only the operator's settings can allow that, by name (allowedTokenUsers.site)"),
        ("Token", {"lifetime": "a while"}, "spec.lifetime", '"a while" is no time; it would look like 15m, 1h30m or 24h'),
        ("Token", {"lifetime": "5s"}, "spec.lifetime", "is 5s; it has to be 60s or more"),
        ("Token", {"username": "alice_b"}, "spec.secretRef.name", 'would be called "one-jwt-alice_b", which Kubernetes does not allow'),
        ("Token", {"secretRef": {"name": "keys"}}, "spec.secretRef.name", "the token would be written over the key"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(kind: str, spec: dict[str, Any], path: str, said: str) -> None:
    found = told(made(kind, **spec))
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}: ")
    assert said in found[0]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Controller", {"clusterName": "Site_A-1"}),
        ("Controller", {"accountingRef": {"name": "a", "namespace": "site"}}),
        ("Controller", {"external": True, "externalConfig": {"host": "h", "port": 6817}, "slurmKeyRef": KEY, "jwtHs256KeyRef": KEY}),
        (
            "Controller",
            {"extraConf": "# comment\nPartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED\nSlurmctldParameters=idle_on_node_suspend"},
        ),
        ("Controller", {"extraConf": "NodeName=tux Port=7000 CPUs=4\nInclude more.conf\nJobSubmitPlugins=lua"}),
        ("Accounting", {"external": True, "externalConfig": {"host": "h"}, "storageConfig": None}),
        ("NodeSet", {"template": {"spec": {"hostname": "gpu-"}}, "extraConf": "Gres=gpu:h100:8 Features=a,b Weight=10"}),
        ("NodeSet", {"partition": {"enabled": True, "config": "State=UP MaxTime=UNLIMITED"}}),
        ("NodeSet", {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}),
        ("NodeSet", {"taintKubeNodes": False}),
        ("Token", {"username": "alice_b", "secretRef": {"name": "token", "key": "T"}, "lifetime": "1h30m0s"}),
    ],
)
def test_what_is_right_is_let_pass(kind: str, spec: dict[str, Any]) -> None:
    assert told(made(kind, **spec)) == []


def test_users_outside_the_settings_list_have_no_tokens() -> None:
    settings = Settings(allowed_token_users={"site": ["bob", "root"]})
    assert "Tokens in namespace site are not allowed for that user" in told(made("Token"), settings=settings)[0]
    assert told(made("Token", username="root"), settings=settings) == []


def test_a_cluster_name_that_nobody_gave_may_be_too_long_as_well() -> None:
    (found,) = told(made("Controller", "a" * 40))
    assert "is not given, so it would be site_aaaa" in found


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Controller", "a" * 44), ("Controller", "my.cluster"), ("LoginSet", "1st"), ("NodeSet", "a.b"), ("NodeSet", "a" * 58)],
)
def test_a_name_from_which_no_service_or_host_can_be_made_is_refused(kind: str, name: str) -> None:
    assert any(each.startswith("metadata.name: is ") for each in told(made(kind, name)))


def test_a_nodesets_name_may_begin_with_a_digit() -> None:
    assert told(made("NodeSet", "4gpu")) == []


# Changes


@pytest.mark.parametrize(
    ("kind", "before", "after", "path"),
    [
        ("Controller", {"clusterName": "a"}, {"clusterName": "b"}, "spec.clusterName"),
        ("Controller", {"slurmKeyRef": KEY}, {}, "spec.slurmKeyRef"),
        ("Controller", {"persistence": {"enabled": False}}, {}, "spec.persistence.enabled"),
        ("Controller", {"persistence": {"existingClaim": "a"}}, {"persistence": {"existingClaim": "b"}}, "spec.persistence.existingClaim"),
        ("Accounting", {"jwtKeyRef": KEY}, {"jwtKeyRef": KEY | {"key": "b"}}, "spec.jwtKeyRef"),
        ("NodeSet", {}, {"controllerRef": {"name": "b"}}, "spec.controllerRef"),
        ("NodeSet", {}, {"volumeClaimTemplates": [{"metadata": {"name": "a"}, "spec": {}}]}, "spec.volumeClaimTemplates"),
        ("LoginSet", {}, {"controllerRef": {"name": "b"}}, "spec.controllerRef"),
        ("RestApi", {}, {"controllerRef": {"name": "b"}}, "spec.controllerRef"),
        ("Token", {}, {"jwtKeyRef": KEY | {"name": "other"}}, "spec.jwtKeyRef"),
    ],
)
def test_what_may_not_be_changed_is_named(kind: str, before: dict[str, Any], after: dict[str, Any], path: str) -> None:
    (found,) = change_problems(made(kind, **before), made(kind, **after))
    assert found.path == path
    assert "cannot be changed" in found.message


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("Controller", {"jwtHs256KeyRef": KEY}, {"jwtKeyRef": KEY}),
        ("Controller", {}, {"clusterName": "site_one"}),
        ("NodeSet", {"volumeClaimTemplates": None}, {"volumeClaimTemplates": []}),
        ("NodeSet", {"replicas": 1}, {"replicas": 0}),
    ],
)
def test_a_change_that_changes_nothing_of_that_is_let_pass(kind: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    assert change_problems(made(kind, **before), made(kind, **after)) == []


# Files


def test_files_of_the_operators_own_may_not_come_from_a_configmap() -> None:
    controller = made("Controller", configFileRefs=[{"name": "files"}, {"name": "more"}], prologScriptRefs=[{"name": "prolog"}])
    files = {"files": ["gres.conf", "slurm.conf"], "more": ["slurmdbd.conf"], "prolog": ["10-gpu.sh"]}
    found = [str(each) for each in file_problems(controller, files)]
    assert found == [
        "spec.configFileRefs[0]: ConfigMap files has a file slurm.conf, which the operator makes; put lines into extraConf instead",
        "spec.configFileRefs[1]: ConfigMap more has a file slurmdbd.conf, which the operator makes; put lines into the Accounting's extraConf instead",
    ]


def test_two_files_of_one_name_are_refused_and_a_configmap_named_twice_is_not() -> None:
    controller = made("Controller", configFileRefs=[{"name": "a"}, {"name": "b"}, {"name": "a"}])
    (found,) = file_problems(controller, {"a": ["x.conf"], "b": ["x.conf"]})
    assert "ConfigMap b has a file x.conf, and so has a" in found.message


def test_a_configmap_that_is_not_there_yet_is_no_problem_of_the_spec() -> None:
    assert list(file_problems(made("Controller", configFileRefs=[{"name": "later"}]), {})) == []
