"""Every chart with every option: what helm makes of it is whole, safe, and understood by the programs that read it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slinky.bridge.key_policy import key_policy
from slinky.bridge.settings_file import load_settings as load_bridge_settings
from slinky.bridge.webhook_configuration import policy_for_pods
from slinky.exporter.alerts import ALERTS, rule_file
from slinky.exporter.dashboards import dashboards
from slinky.exporter.settings import load_settings as load_exporter_settings
from slinky.operator.kinds import GROUP, Controller, LoginSet, NodeSet, Written
from slinky.operator.kinds.reading import read
from slinky.operator.settings import Settings
from slinky.operator.settings import load_settings as load_operator_settings
from slinky.operator.validation import Neighbours, problems
from tests.charts.helm import CHARTS, NAMESPACES, Document, Helm, Values, is_hook, named, of_kind
from tests.charts.variants import CASES, VARIANTS

pytestmark = pytest.mark.sandbox  # helm itself is built for the sandbox

CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
}


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def documents(helm: Helm, case: tuple[str, str]) -> list[Document]:
    chart, name = case
    return helm.template(chart, VARIANTS[chart][name])


@pytest.mark.parametrize("chart", sorted(NAMESPACES))
def test_lint_has_nothing_to_say(helm: Helm, chart: str) -> None:
    done = helm.run("lint", str(CHARTS / chart), "--strict", values=VARIANTS.get(chart, {}).get("everything", {}))
    assert done.returncode == 0, done.stdout


def test_all_has_a_place_and_none_is_made_twice(documents: list[Document], case: tuple[str, str]) -> None:
    chart, _ = case
    keys = [(each["apiVersion"], each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in documents]
    assert len(keys) == len(set(keys))
    for _, kind, namespace, name in keys:
        if kind in CLUSTER_WIDE:
            assert namespace is None
        elif not name.endswith(("-extra", "-text")):  # the test's own
            assert namespace, (kind, name)
    assert of_kind(documents, "Deployment", "Controller"), chart


def pods(documents: list[Document]) -> list[tuple[str, Document]]:
    found = [(each["metadata"]["name"], each["spec"]["template"]["spec"]) for each in of_kind(documents, "Deployment", "Job")]
    return found + [(each["metadata"]["name"], each["spec"]) for each in of_kind(documents, "Pod")]


@pytest.mark.parametrize(("chart", "variant"), [case for case in CASES if case[0] != "slurm"])  # its pods are made by the operator
def test_no_process_of_ours_is_root_or_may_write(helm: Helm, chart: str, variant: str) -> None:
    for name, pod in pods(helm.template(chart, VARIANTS[chart][variant])):
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            said = container["securityContext"]
            assert said == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
            assert container["image"].count(":") >= 1


def test_selectors_find_what_they_are_for(documents: list[Document]) -> None:
    deployments = of_kind(documents, "Deployment")
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in deployments]

    def found(selector: dict[str, str]) -> int:
        return sum(selector.items() <= each.items() for each in labels)

    for each in deployments:
        assert found(each["spec"]["selector"]["matchLabels"]) == 1
    for each in of_kind(documents, "Service"):
        assert found(each["spec"]["selector"]) == 1
    for each in of_kind(documents, "NetworkPolicy"):
        assert found(each["spec"]["podSelector"]["matchLabels"]) == 1
    for each in of_kind(documents, "ServiceMonitor"):
        wanted = each["spec"]["selector"]["matchLabels"]
        services = [service for service in of_kind(documents, "Service") if wanted.items() <= service["metadata"]["labels"].items()]
        assert len([1 for service in services for port in service["spec"]["ports"] if port["name"] == "metrics"]) == 1
    if deployments:
        for each in of_kind(documents, "PodDisruptionBudget"):
            assert found(each["spec"]["selector"]["matchLabels"]) == 1


def test_what_is_bound_and_mounted_is_there(documents: list[Document], case: tuple[str, str]) -> None:
    roles = {(each["kind"], each["metadata"]["name"]) for each in of_kind(documents, "Role", "ClusterRole")}
    accounts = {each["metadata"]["name"] for each in of_kind(documents, "ServiceAccount")}
    if case[0] != "slurm":  # its role is the operator's
        for each in of_kind(documents, "RoleBinding", "ClusterRoleBinding"):
            assert (each["roleRef"]["kind"], each["roleRef"]["name"]) in roles
            assert each["subjects"][0]["name"] in accounts
        for name, pod in pods(documents):
            if "serviceAccountName" in pod and pod["serviceAccountName"] != "there":
                assert pod["serviceAccountName"] in accounts, name
    for name, pod in pods(documents):
        for volume in pod.get("volumes", []):
            if "configMap" in volume:
                assert named(documents, "ConfigMap", volume["configMap"]["name"]), name


@pytest.mark.parametrize("name", VARIANTS["slurm-exporter"])
def test_the_exporter_understands_its_configuration(helm: Helm, tmp_path: Path, name: str) -> None:
    documents = helm.template("slurm-exporter", VARIANTS["slurm-exporter"][name])
    file = tmp_path / "config.yaml"
    file.write_text(named(documents, "ConfigMap", "slurm-exporter-config")["data"]["config.yaml"])
    found = load_exporter_settings(file)
    assert found.slurm_rest_api == "http://slurm-restapi.slurm:6820"
    [volume] = named(documents, "Deployment", "slurm-exporter")["spec"]["template"]["spec"]["volumes"][-1:]
    assert volume["secret"]["secretName"]
    assert found.slurm.token_file.startswith("/run/slinky/token/")


KNOWS_POD_POLICIES = ("--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",)
KNOWS_RULES = "--api-versions=monitoring.coreos.com/v1/PrometheusRule"


def test_the_policy_for_the_bridges_keys_is_that_of_the_code(helm: Helm) -> None:
    def rendered(**values: Any) -> list[Document]:
        found = helm.template("slurm-bridge", values, release="b", namespace="ns")
        return of_kind(found, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")

    accounts = [f"system:serviceaccount:ns:b-slurm-bridge{part}" for part in ("", "-uninstall")]
    found = rendered()
    assert [each["spec"] for each in found] == [each["spec"] for each in key_policy("b-slurm-bridge-keys", accounts)]
    assert {each["metadata"]["name"] for each in found} == {"b-slurm-bridge-keys"}
    others = rendered(keyPolicy={"extraUsers": ["system:serviceaccount:other:bridge"]})
    assert [each["spec"] for each in others] == [
        each["spec"] for each in key_policy("b-slurm-bridge-keys", [*accounts, "system:serviceaccount:other:bridge"])
    ]
    assert not rendered(keyPolicy={"enabled": False})
    assert not rendered(shadow=True)  # the original, which a shadow runs beside, writes the same keys


POD_POLICY_VALUES: list[Values] = [
    {},
    {"schedulerConfig": {"schedulerName": "other-scheduler"}, "admission": {"managedNamespaces": ["b", "a"]}},
    {"admission": {"managedNamespaceSelector": {"matchLabels": {"team": "hpc"}}}, "config": {"taskEnvironment": "all"}},
    {"admission": {"managedNamespaceSelector": {"matchExpressions": [{"key": "slurm", "operator": "Exists"}]}}},
    {"config": {"priorityClasses": [{"name": "urgent", "nice": 1}, {"name": "low", "nice": 2}], "slurm": {"namespaces": ["slurm", "hpc"]}}},
    {"config": {"policy": {"default": {"maxGraceSeconds": 20}, "rules": [{"namespaces": ["a"], "maxGraceSeconds": 7}]}}},
    {"config": {"policy": {"default": {"maxGraceSeconds": 0}}}},
]


@pytest.mark.parametrize("values", POD_POLICY_VALUES)
def test_the_policy_for_plain_pods_is_that_of_the_code(helm: Helm, tmp_path: Path, values: Values) -> None:
    documents = helm.template("slurm-bridge", values, *KNOWS_POD_POLICIES, release="b", namespace="ns")
    found = of_kind(documents, "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    file = tmp_path / "config.yaml"
    file.write_text(named(documents, "ConfigMap", "b-slurm-bridge-config")["data"]["config.yaml"])
    wanted = policy_for_pods(load_bridge_settings(file))
    assert [each["spec"] for each in found] == [each["spec"] for each in wanted]
    assert [each["metadata"]["name"] for each in found] == [each["metadata"]["name"] for each in wanted]


@pytest.mark.parametrize(
    "values",
    [
        {"podPolicy": {"enabled": False}},
        {"shadow": True},
        {"admission": {"enabled": False}},
        {"admission": {"managedNamespaces": ["kube-system"]}},
        {"config": {"taskEnvironment": "none"}},
        {"config": {"policy": {"default": {"fromLabels": ["user"], "group": "users"}}}},
    ],
)
def test_there_is_no_policy_for_plain_pods_where_no_pod_is_plain(helm: Helm, values: Values) -> None:
    assert not of_kind(
        helm.template("slurm-bridge", values, *KNOWS_POD_POLICIES), "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
    )


def test_the_exporters_dashboards_are_those_of_the_code(helm: Helm) -> None:
    documents = helm.template("slurm-exporter", {"dashboards": {"enabled": True, "namespace": "grafana", "annotations": {"a": "b"}}})
    found = [each for each in of_kind(documents, "ConfigMap") if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert {key: json.loads(text) for each in found for key, text in each["data"].items()} == {
        f"{name}.json": dashboard for name, dashboard in dashboards().items()
    }
    for each in found:
        assert each["metadata"]["namespace"] == "grafana"
        assert each["metadata"]["annotations"] == {"a": "b"}
    off = of_kind(helm.template("slurm-exporter"), "ConfigMap")
    assert [each["metadata"]["name"] for each in off] == ["slurm-exporter-config"]


def test_the_exporters_rules_are_those_of_the_code(helm: Helm) -> None:
    def rules(*words: str, **values: Any) -> list[Document]:
        return of_kind(helm.template("slurm-exporter", {"metrics": {"prometheusRule": values}}, *words), "PrometheusRule")

    assert rules(KNOWS_RULES) == []
    assert rules(enabled=True) == [], "the API server does not know the kind"
    [found] = rules(KNOWS_RULES, enabled=True, labels={"release": "prometheus"}, annotations={"a": "b"})
    assert found["spec"] == rule_file()
    assert found["metadata"]["labels"]["release"] == "prometheus"
    assert found["metadata"]["annotations"] == {"a": "b"}
    [fewer] = rules(KNOWS_RULES, enabled=True, without=["SlurmJobsWaitLong", "SlurmDown"])
    left = {rule["alert"] for rule in fewer["spec"]["groups"][0]["rules"]}
    assert left == {alert.name for alert in ALERTS} - {"SlurmJobsWaitLong", "SlurmDown"}


@pytest.mark.parametrize(("chart", "name"), [case for case in CASES if case[0] in ("slurm-operator", "slurm-bridge")])
def test_the_program_understands_its_configuration(helm: Helm, tmp_path: Path, chart: str, name: str) -> None:
    """And it speaks of objects that the chart makes."""
    documents = helm.template(chart, VARIANTS[chart][name])
    file = tmp_path / "config.yaml"
    file.write_text(named(documents, "ConfigMap", f"{chart}-config")["data"]["config.yaml"])
    found: Any = (load_operator_settings if chart == "slurm-operator" else load_bridge_settings)(file)
    assert found.namespace == "slinky"
    if found.leader.elect:
        suffix = "-shadow" if getattr(found, "shadow", False) else ""
        assert named(documents, "Lease", found.leader.name + suffix)
    if not of_kind(documents, "ValidatingWebhookConfiguration"):
        return
    ours = found.admission
    assert named(documents, "ValidatingWebhookConfiguration", ours.configuration)
    assert named(documents, "Service", ours.service)["spec"]["ports"][0]["port"] == 443
    if ours.certificate_file:
        [volume] = [
            each for each in named(documents, "Deployment", ours.service)["spec"]["template"]["spec"]["volumes"] if each["name"] == "tls"
        ]
        assert volume["secret"]["secretName"]
        assert ours.ca_file
    else:
        assert "data" not in named(documents, "Secret", ours.secret)  # so that an upgrade leaves what the webhook has put there


@pytest.mark.parametrize("name", VARIANTS["slurm"])
def test_the_operator_accepts_the_cluster(helm: Helm, name: str) -> None:
    documents = [each for each in helm.template("slurm", VARIANTS["slurm"][name]) if each["apiVersion"].startswith(GROUP)]
    found: list[Any] = [read(each["kind"], msgspec.convert(each, Written)) for each in documents]
    assert not [str(problem) for each in found if isinstance(each, list) for problem in each]
    beside = Neighbours(
        controllers=[each for each in found if isinstance(each, Controller)],
        nodesets=[each for each in found if isinstance(each, NodeSet)],
        loginsets=[each for each in found if isinstance(each, LoginSet)],
    )
    assert [str(problem) for each in found for problem in problems(each, Settings(), beside)] == []


@pytest.mark.parametrize(
    ("chart", "values", "word"),
    [
        ("slurm-operator-crds", {"replicas": 2}, "replicas"),
        ("slurm-operator", {"replica": 2}, "replica"),
        ("slurm-operator", {"operator": {"nodesetWorker": 4}}, "nodesetWorker"),
        ("slurm-operator", {"webhook": {"timeoutSeconds": 31}}, "/webhook/timeoutSeconds"),
        ("slurm-operator", {"operator": {"metricsPort": "http"}}, "/operator/metricsPort"),
        ("slurm-operator", {"config": {"metricsPort": 1}}, "metricsPort"),
        ("slurm-operator", {"operator": {"replicas": "two"}}, "/operator/replicas"),
        ("slurm-operator", {"config": {"slurm": {"usr": "x"}}}, "usr"),
        ("slurm-operator", {"config": {"namespaces": ["a"]}}, "namespaces"),  # operator.namespaces says it, for the rights follow from it
        ("slurm-operator", {"webhook": {"failurePolicy": "Maybe"}}, "failurePolicy"),
        ("slurm-operator", {"certManager": {"duration": "90m"}}, "/certManager/duration"),
        ("slurm-bridge", {"controller": {"replicas": 2}}, "controller"),
        ("slurm-bridge", {"sharedConfig": {"slurmRestAPI": "x"}}, "slurmRestAPI"),
        ("slurm-bridge", {"config": {"policy": {"default": {"acount": "a"}}}}, "acount"),
        ("slurm-bridge", {"uninstall": {"running": "kill"}}, "running"),
        ("slurm-exporter", {"config": {"limits": {"user": 1}}}, "user"),
        ("slurm-exporter", {"config": {"snapshot": {"second": 1}}}, "second"),
        ("slurm-exporter", {"config": {"slurm": {"tokenFile": "/x"}}}, "tokenFile"),  # sharedConfig.slurmJwtSecret says it
        ("slurm-exporter", {"dashboard": {"enabled": True}}, "dashboard"),
        ("slurm-exporter", {"metrics": {"prometheusRule": {"without": ["SlurmDwn"]}}}, "/metrics/prometheusRule/without"),
        ("slurm", {"nodeset": {}}, "nodeset"),
        ("slurm", {"nodesets": {"gpu": {"enabled": True, "partitions": {}}}}, "partitions"),
        ("slurm", {"controller": {"extraconf": "x"}}, "extraconf"),
        ("slurm", {"nodesets": {"gpu": {"taintKubeNodes": True}}}, "taintKubeNodes"),
        ("slurm", {"partitions": {"p": {"enabled": True, "nodesets": ["nowhere"]}}}, "nodesets names nowhere"),
        ("slurm", {"partitions": {"p": {"enabled": True, "nodesets": []}}}, "p.nodesets is empty"),
        ("slurm", {"controller": {"ha": {"enabled": True}}}, "controller.ha.enabled"),
        ("slurm", {"vendor": {"nvidia": {"dcgm": {"enabled": True}}}}, "nvidia.dcgm.enabled"),
        ("slurm", {"vendor": {"google": {"a3mega": [{"nodePool": "p"}]}}}, "vendor.google.a3mega"),
        ("slurm", {"slurmKey": {"create": False}, "accounting": {"enabled": True}}, "slurmKey.secretRef"),
    ],
)
def test_a_value_that_is_not_known_is_refused_by_its_name(helm: Helm, chart: str, values: Document, word: str) -> None:
    assert word in helm.refusal(chart, values)


def hours(duration: str) -> int:
    return int(duration.split("h")[0])


@pytest.mark.parametrize("duration", ["43800h0m0s", "24h"])
def test_an_authority_made_by_cert_manager_outlives_what_it_signs(helm: Helm, duration: str) -> None:
    """Whenever it signs, it lasts for longer than the certificate: it is renewed when as much is left."""
    values = {"certManager": {"enabled": True, "duration": duration, "renewBefore": "8h"}}
    found = {each["metadata"]["name"]: each["spec"] for each in of_kind(helm.template("slurm-operator", values), "Certificate")}
    authority, certificate = found["slurm-operator-admission-ca"], found["slurm-operator-admission"]
    assert authority["isCA"]
    assert hours(certificate["duration"]) <= hours(authority["renewBefore"]) < hours(authority["duration"])


def test_notes_have_the_users_own_names(helm: Helm) -> None:
    said = helm.notes("slurm-operator", {"rbac": {"secrets": "namespaced"}}, release="ours", namespace="ops")
    for word in (
        "--namespace=ops get deployments",
        "operator.namespace=ops",
        "ours-slurm-operator-secrets",
        "uninstall --namespace=ops ours",
    ):
        assert word in said
    said = helm.notes("slurm-operator", {"crds": {"enabled": True}})
    assert "with them every cluster" in said and "clusters run on" not in said
    values: Values = {"loginsets": {"slinky": {}}, "nodesets": {"w": {}}, "clusterName": "blue"}
    said = helm.notes("slurm", values, release="my-slurm", namespace="hpc")
    for word in (
        "cluster blue",
        "--namespace=hpc get controllers",
        "deployment/my-slurm-login-slinky",
        "helm test --namespace=hpc my-slurm",
    ):
        assert word in said
    said = helm.notes("slurm")
    assert "There are no workers yet" in said and "helm test" not in said
    said = helm.notes("slurm-bridge", {"admission": {"managedNamespaces": ["team"]}})
    for word in (
        "create secret generic slurm-bridge-jwt-token",
        "auth-token",
        "create namespace team",
        "helm uninstall --namespace=slinky",
    ):
        assert word in said
    said = helm.notes("slurm-exporter", release="ours", namespace="ops")
    for word in (
        "--namespace=ops port-forward service/ours-slurm-exporter-metrics 8080",
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        "dashboards.enabled=true",
    ):
        assert word in said
    on = {"metrics": {"prometheusRule": {"enabled": True}}, "dashboards": {"enabled": True, "namespace": "grafana"}}
    said = helm.notes("slurm-exporter", on)
    for word in ("NO alert rules were made", "ConfigMaps in namespace grafana", "label grafana_dashboard=1"):
        assert word in said


def test_another_release_beside_it_shares_nothing(helm: Helm) -> None:
    for chart in ("slurm-operator", "slurm-bridge"):
        keys = [
            {(each["kind"], each["metadata"]["name"]) for each in helm.template(chart, release=release) if not is_hook(each)}
            for release in (chart, "other")
        ]
        assert not keys[0] & keys[1]


def test_a_change_of_the_configuration_makes_new_pods(helm: Helm) -> None:
    def templates(values: Document) -> str:
        return yaml.safe_dump([each["spec"]["template"] for each in of_kind(helm.template("slurm-bridge", values), "Deployment")])

    assert templates({}) == templates({})
    assert templates({}) != templates({"schedulerConfig": {"partition": "other"}})
