"""What the charts make of the original's values files, unchanged and as a site changes them."""

from typing import Any

import msgspec
import pytest
import yaml

from slinky.operator.kinds import GROUP, Written
from slinky.operator.kinds.reading import read
from slinky.operator.settings import Settings
from slinky.operator.validation import problems
from tests.charts.helm import Document, Helm, Values, named, of_kind
from tests.charts.originals import CHARTS, values_of

pytestmark = pytest.mark.sandbox

WORKERS = ("accounting", "controller", "loginset", "nodeset", "restapi", "slurmclient", "token")


def over(values: Values, changes: Values) -> Values:
    """`changes` laid over `values`, as helm lays one values file over another."""
    merged = dict(values)
    for key, value in changes.items():
        held = merged.get(key)
        deeper = isinstance(value, dict) and isinstance(held, dict)
        merged[key] = over(held, value) if deeper else value  # type: ignore[arg-type]
    return merged


def rendered(helm: Helm, chart: str, **changes: Any) -> list[Document]:
    return helm.template(chart, over(values_of(chart), changes))


def container(documents: list[Document], name: str) -> Any:
    return named(documents, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]


def config(documents: list[Document], chart: str) -> Any:
    found = named(documents, "ConfigMap", f"{chart}-config")["data"]["config.yaml"]
    return yaml.safe_load(found)


@pytest.mark.parametrize("chart", CHARTS)
def test_a_whole_values_file_of_the_original_is_taken(helm: Helm, chart: str) -> None:
    assert of_kind(rendered(helm, chart), "Deployment", "Controller")


@pytest.mark.parametrize(
    ("chart", "ignored"),
    [
        (
            "slurm-operator",
            [
                *(f"operator.{kind}Workers" for kind in WORKERS),
                "webhook.mutating",
                "webhook.leaderElection",
            ],
        ),
        (
            "slurm",
            [
                "asciiArt",
                "controller.reconfigure",
                "controller.logfile",
                "nodesetDefaults.logfile",
                "loginsetDefaults.initconf",
                "vendor.nvidia",
                "vendor.google",
            ],
        ),
        ("slurm-bridge", ["controllers"]),
    ],
)
def test_notes_name_what_has_no_effect(helm: Helm, chart: str, ignored: list[str]) -> None:
    said = helm.notes(chart, values_of(chart))
    [line] = [each for each in said.splitlines() if "have no effect here" in each]
    listed = line.partition("here: ")[2].rstrip(".").split(", ")
    assert sorted(listed) == sorted(ignored)
    assert "WARNING" not in helm.notes(chart)


def test_images_of_the_originals_programs_are_replaced_and_named(helm: Helm) -> None:
    for chart, parts, names in (
        ("slurm-operator", ("operator", "webhook"), ("slurm-operator", "slurm-operator-admission")),
        ("slurm-bridge", ("scheduler", "admission"), ("slurm-bridge", "slurm-bridge-admission")),
    ):
        ours = {"image": {"repository": "registry.example.com/slinky", "tag": "1"}}
        documents = rendered(helm, chart, **ours)
        for part, name in zip(parts, names, strict=True):
            assert container(documents, name)["image"] == "registry.example.com/slinky:1"
            assert f"{part}.image" in helm.notes(chart, over(values_of(chart), ours))
    mine = {"operator": {"image": {"repository": "registry.example.com/own", "tag": "2"}}}
    documents = rendered(helm, "slurm-operator", **mine)
    assert container(documents, "slurm-operator")["image"] == "registry.example.com/own:2"


def test_security_contexts_are_laid_over_the_charts_own(helm: Helm) -> None:
    for chart, part, name in (
        ("slurm-operator", "operator", "slurm-operator"),
        ("slurm-operator", "webhook", "slurm-operator-admission"),
        ("slurm-bridge", "scheduler", "slurm-bridge"),
        ("slurm-bridge", "admission", "slurm-bridge-admission"),
    ):
        said = {
            "podSecurityContext": {"runAsUser": None, "fsGroup": 7, "supplementalGroups": [8]},
            "securityContext": {"readOnlyRootFilesystem": False, "runAsUser": 9},
        }
        documents = rendered(helm, chart, **{part: said})
        pod = named(documents, "Deployment", name)["spec"]["template"]["spec"]
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsGroup": 65532,
            "fsGroup": 7,
            "supplementalGroups": [8],
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert container(documents, name)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsUser": 9,
        }


def metrics_of(documents: list[Document], name: str) -> tuple[list[str], list[int], list[Any]]:
    """The arguments, container ports and Service ports that metrics have."""
    found = container(documents, name)
    arguments = [each for each in found["args"] if each.startswith("--metrics-port")]
    ports = [each["containerPort"] for each in found["ports"] if each["name"] == "metrics"]
    services = [
        (port["port"], port["targetPort"])
        for each in of_kind(documents, "Service")
        if each["metadata"]["name"] == f"{name}-metrics"
        for port in each["spec"]["ports"]
    ]
    return arguments, ports, services


@pytest.mark.parametrize("port", [9090, "9090"])
def test_metrics_are_on_the_port_that_is_asked_for(helm: Helm, port: int | str) -> None:
    policy = {"enabled": True}
    changes = {"operator": {"metricsPort": port}, "networkPolicy": policy}
    documents = rendered(helm, "slurm-operator", **changes)
    asked = (["--metrics-port=9090"], [9090], [(9090, "metrics")])
    assert metrics_of(documents, "slurm-operator") == asked
    [ingress, *_] = named(documents, "NetworkPolicy", "slurm-operator")["spec"]["ingress"]
    assert ingress["ports"] == [{"port": "health"}, {"port": "metrics"}]


def test_metrics_by_default_here_and_there(helm: Helm) -> None:
    theirs = rendered(helm, "slurm-operator")
    on_their_port = (["--metrics-port=8080"], [8080], [(8080, "metrics")])
    assert metrics_of(theirs, "slurm-operator") == on_their_port
    assert metrics_of(theirs, "slurm-operator-admission") == (["--metrics-port=0"], [], [])
    ours = helm.template("slurm-operator")
    for name in ("slurm-operator", "slurm-operator-admission"):
        assert metrics_of(ours, name) == ([], [], [(8081, "health")])
    same = rendered(helm, "slurm-operator", operator={"metricsPort": 8081})
    assert metrics_of(same, "slurm-operator") == ([], [], [(8081, "health")])


def test_the_webhook_is_as_the_values_ask_for(helm: Helm) -> None:
    theirs = config(rendered(helm, "slurm-operator"), "slurm-operator")["admission"]
    assert (theirs["timeoutSeconds"], theirs["failOpen"]) == (10, False)
    assert theirs["namespaceSelector"] == {}
    conditions = [{"name": "n", "expression": "true"}]
    selector = {"matchLabels": {"a": "b"}}
    said = {"failurePolicy": "Ignore", "matchPolicy": "Exact", "matchConditions": conditions}
    changes = {"namespaces": "a, b", "validating": said, "timeoutSeconds": 30}
    found = config(rendered(helm, "slurm-operator", webhook=changes), "slurm-operator")["admission"]
    assert (found["timeoutSeconds"], found["failOpen"]) == (30, True)
    assert (found["matchPolicy"], found["matchConditions"]) == ("Exact", conditions)
    named_ones = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert found["namespaceSelector"] == {"matchExpressions": [named_ones]}
    changes["validating"] = {"namespaceSelector": selector}
    found = config(rendered(helm, "slurm-operator", webhook=changes), "slurm-operator")["admission"]
    assert found["namespaceSelector"] == selector


@pytest.mark.parametrize(
    ("level", "verbose"),
    [("info", False), ("error", False), ("debug", True), (0, False), (1, True), ("5", True)],
)
def test_log_levels_as_the_original_has_them(
    helm: Helm,
    level: int | str,
    verbose: bool,
) -> None:
    documents = rendered(helm, "slurm-operator", operator={"logLevel": level})
    assert ("--verbose" in container(documents, "slurm-operator")["args"]) is verbose


def cluster(helm: Helm, *words: str, **changes: Any) -> dict[str, Document]:
    """The custom resources of chart slurm, by kind and name."""
    documents = helm.template("slurm", over(values_of("slurm"), changes), *words)
    theirs = [each for each in documents if each["apiVersion"].startswith(GROUP)]
    found: list[Any] = [read(each["kind"], msgspec.convert(each, Written)) for each in theirs]
    assert not [str(problem) for each in found if isinstance(each, list) for problem in each]
    return {f"{each['kind']}/{each['metadata']['name']}": each["spec"] for each in theirs}


def test_the_operator_takes_the_cluster_of_a_whole_values_file(helm: Helm) -> None:
    sets = {
        "nodesets": {"gpu": {}},
        "loginsets": {"l": {}},
        "partitions": {"all": {"enabled": True}},
    }
    for each in helm.template("slurm", over(values_of("slurm"), sets)):
        if each["apiVersion"].startswith(GROUP):
            found: Any = read(each["kind"], msgspec.convert(each, Written))
            assert [str(problem) for problem in problems(found, Settings())] == []


def lines(found: dict[str, Document]) -> list[str]:
    return str(found["Controller/slurm"].get("extraConf", "")).splitlines()


@pytest.mark.parametrize("values", [{}, values_of("slurm")], ids=["ours", "theirs"])
def test_without_sets_there_are_no_workers_logins_or_partitions(
    helm: Helm,
    values: Values,
) -> None:
    documents = helm.template("slurm", values)
    kinds = sorted(each["kind"] for each in documents if each["apiVersion"].startswith(GROUP))
    assert kinds == ["Controller", "RestApi"]
    assert not [line for line in lines(cluster(helm)) if "PartitionName" in line]
    assert not of_kind(documents, "Pod"), "helm test would wait for a worker"


@pytest.mark.parametrize("values", [{}, values_of("slurm")], ids=["ours", "theirs"])
def test_a_set_that_is_named_is_made_with_the_defaults(helm: Helm, values: Values) -> None:
    sets = {
        "nodesets": {"gpu": {"replicas": 4}, "plain": None, "off": {"enabled": False}},
        "loginsets": {"l": {}, "off": {"enabled": False}},
        "partitions": {"p": {"enabled": True, "nodesets": ["gpu", "plain"]}},
    }
    documents = helm.template("slurm", over(values, sets))
    found = {}
    for each in of_kind(documents, "NodeSet", "LoginSet"):
        found[each["kind"], each["metadata"]["name"]] = each["spec"]
    assert {name: spec["replicas"] for name, spec in found.items()} == {
        ("NodeSet", "slurm-worker-gpu"): 4,
        ("NodeSet", "slurm-worker-plain"): 1,
        ("LoginSet", "slurm-login-l"): 1,
    }
    [controller] = of_kind(documents, "Controller")
    assert "PartitionName=p Nodes=gpu,plain" in controller["spec"]["extraConf"]


def test_defaults_can_disable_all_and_a_set_can_enable_itself(helm: Helm) -> None:
    sets = {
        "nodesetDefaults": {"enabled": False},
        "nodesets": {"a": {}, "b": {"enabled": True, "replicas": 0}},
    }
    found = cluster(helm, **sets)
    assert found["NodeSet/slurm-worker-b"]["replicas"] == 0
    assert "NodeSet/slurm-worker-a" not in found
    wanted = {"p": {"enabled": True, "nodesets": ["a"]}}
    values = over(values_of("slurm"), {**sets, "partitions": wanted})
    assert "partitions.p.nodesets names a" in helm.refusal("slurm", values)


NUMBERS = {
    "MaxJobCount": 1000000,
    "MaxArraySize": 4000001,
    "ReturnToService": 0,
    "Ratio": 0.5,
    "SchedulerParameters": ["defer", {"bf_window": 2000000, "bf_continue": True}, "x=1"],
    "Ids": [1000000, 2],
    "DisableRootJobs": True,
    "TrackWCKey": False,
    "PreemptMode": False,
    "Nothing": None,
    "Empty": [],
    "Blank": "",
}
WRITTEN = [
    "DisableRootJobs=YES",
    "Ids=1000000,2",
    "MaxArraySize=4000001",
    "MaxJobCount=1000000",
    "PreemptMode=OFF",
    "Ratio=0.5",
    "ReturnToService=0",
    "SchedulerParameters=defer,bf_continue=YES,bf_window=2000000,x=1",
    "TrackWCKey=NO",
]


def test_numbers_keep_their_digits_in_every_map(helm: Helm) -> None:
    few = {"Weight": 1000000, "Features": ["a", 3000000]}
    found = cluster(
        helm,
        "--set",
        "controller.extraConfMap.FromSet=5000000",
        controller={"extraConfMap": NUMBERS},
        accounting={"enabled": True, "extraConfMap": {"CommitDelay": 1000000}},
        nodesets={
            "w": {
                "extraConfMap": few,
                "replicas": 1000000,
                "partition": {"enabled": True, "configMap": {"MaxTime": 7000000}},
                "podSpec": {"terminationGracePeriodSeconds": 8000000},
            }
        },
        partitions={"all": {"enabled": True, "configMap": {"MaxNodes": 9000000}}},
    )
    said = lines(found)
    partition = said.pop()
    assert sorted(said) == sorted([*WRITTEN, "FromSet=5000000"])
    assert partition == "PartitionName=all Nodes=ALL Default=YES MaxNodes=9000000 MaxTime=UNLIMITED"
    worker = found["NodeSet/slurm-worker-w"]
    assert worker["extraConf"] == "Features=a,3000000 Weight=1000000"
    assert worker["partition"]["config"] == "MaxTime=7000000"
    assert (worker["replicas"], worker["template"]["spec"]["terminationGracePeriodSeconds"]) == (
        1000000,
        8000000,
    )
    assert found["Accounting/slurm"]["extraConf"].strip() == "CommitDelay=1000000"


def test_words_that_yaml_reads_as_booleans(helm: Helm, tmp_path: Any) -> None:
    """By a values file, as people write them: without quotes."""
    file = tmp_path / "values.yaml"
    words = "{OverSubscribe: NO, PreemptMode: OFF}"
    file.write_text(f"partitions: {{all: {{enabled: true, configMap: {words}}}}}")
    [controller] = of_kind(helm.template("slurm", {}, f"--values={file}"), "Controller")
    [line] = controller["spec"]["extraConf"].splitlines()
    assert {"OverSubscribe=NO", "PreemptMode=OFF", "Default=YES"} <= set(line.split())


@pytest.mark.parametrize(
    ("given", "written"),
    [("-", ""), ("", ""), (None, None), ("fast", "fast")],
    ids=["dash", "empty", "null", "name"],
)
def test_storage_classes(helm: Helm, given: str | None, written: str | None) -> None:
    said = {"persistence": {"storageClassName": given}}
    persistence = cluster(helm, controller=said)["Controller/slurm"]["persistence"]
    assert persistence.get("storageClassName") == written
    assert ("storageClassName" in persistence) == (written is not None)


def test_without_a_word_of_it_the_storage_class_is_the_default(helm: Helm) -> None:
    """An empty one would be no class: slurmctld's claim would wait for a volume for ever."""
    for said in ({}, {"controller": {"persistence": {"enabled": True}}}):
        [controller] = of_kind(helm.template("slurm", said), "Controller")
        assert "storageClassName" not in controller["spec"]["persistence"]


def test_what_a_cluster_says_of_its_pods_reaches_the_kinds(helm: Helm) -> None:
    """Security contexts, budgets and references, with the original's own defaults around them."""
    pod = {"securityContext": {"fsGroup": 7}}
    found = cluster(
        helm,
        controller={
            "podSpec": pod,
            "slurmctld": {"securityContext": {"runAsUser": 5}},
            "metrics": {"enabled": True, "serviceMonitor": {"enabled": True}},
            "service": {"port": 7000},
        },
        restapi={"podSpec": pod},
        loginsets={"l": {"login": {"securityContext": {"privileged": True}}}},
        nodesets={"w": {"slurmd": {"securityContext": {"privileged": False}}}},
        jwksKeys={"enabled": True},
    )
    controller = found["Controller/slurm"]
    assert controller["template"]["spec"]["securityContext"] == {"fsGroup": 7}
    assert controller["slurmctld"]["securityContext"] == {"runAsUser": 5}
    assert controller["slurmctld"]["image"] == ("ghcr.io/slinkyproject/slurmctld:26.05-ubuntu26.04")
    assert "args" not in controller["slurmctld"]
    assert controller["service"] == {"port": 7000}
    assert [each["path"] for each in controller["metrics"]["serviceMonitor"]["endpoints"]] == [
        f"/metrics/{part}" for part in ("jobs", "nodes", "partitions", "scheduler")
    ]
    assert controller["jwksKeyRef"] == {"name": "slurm-auth-jwks", "key": "jwks.json"}
    assert found["RestApi/slurm"]["template"]["spec"]["securityContext"] == {"fsGroup": 7}
    login, worker = found["LoginSet/slurm-login-l"], found["NodeSet/slurm-worker-w"]
    assert login["login"]["securityContext"] == {"privileged": True}
    assert login["sssdConfRef"] == {"name": "slurm-sssd-conf", "key": "sssd.conf"}
    assert worker["slurmd"]["securityContext"] == {"privileged": False}
    assert worker["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%"},
    }


@pytest.mark.parametrize(
    ("pdb", "spec"),
    [
        ({"enabled": True}, {"minAvailable": 1}),
        ({"enabled": True, "maxUnavailable": "50%"}, {"maxUnavailable": "50%"}),
        ({"enabled": False}, None),
    ],
)
def test_the_budget_of_slurmrestd(helm: Helm, pdb: Values, spec: Values | None) -> None:
    values = over(values_of("slurm"), {"restapi": {"replicas": 2, "pdb": pdb}})
    documents = helm.template("slurm", values)
    found = [each["spec"] for each in of_kind(documents, "PodDisruptionBudget")]
    selector = {"app.kubernetes.io/name": "slurmrestd", "app.kubernetes.io/instance": "slurm"}
    assert found == ([] if spec is None else [{**spec, "selector": {"matchLabels": selector}}])
