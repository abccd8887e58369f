"""The original's whole values files, installed by helm on a real API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from slinky.operator.kinds.schema import crds
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.charts.helm import CHARTS as CHARTS_FOLDER
from tests.charts.originals import CHARTS, file_of
from tests.charts.serving import serve
from tests.charts.site import Site
from tests.conftest import Starter

pytestmark = pytest.mark.sandbox

NAMESPACE = "from-the-original"
# What a site changes in them.
OWN = {
    "operator": {
        "podSecurityContext": {"fsGroup": 7},
        "securityContext": {"runAsUser": 9},
        "metricsPort": 9090,
    },
    "webhook": {
        "podSecurityContext": {"runAsUser": None},
        "securityContext": {"readOnlyRootFilesystem": False},
        "timeoutSeconds": 20,
        "validating": {"matchPolicy": "Exact"},
    },
    "controller": {
        "extraConfMap": {"MaxJobCount": 1000000},
        "persistence": {"storageClassName": "-"},
        "podSpec": {"securityContext": {"fsGroup": 7}},
    },
    "nodesets": {"gpu": {"replicas": 4}},
    "loginsets": {"login": {}},
    "partitions": {"all": {"enabled": True}},
}
PARTS = {
    "slurm-operator": ("operator", "webhook"),
    "slurm": ("controller", "nodesets", "loginsets", "partitions"),
    "slurm-bridge": (),
}


@pytest.fixture(scope="module")
def sandbox(start_sandbox: Starter) -> Sandbox:
    """Of its own: other tests leave webhooks under the names of these releases."""
    return start_sandbox("originals", Shape(nodes=0))


@pytest.fixture
async def site(sandbox: Sandbox) -> AsyncIterator[Site]:
    """With the three releases; they go at the end, without the hooks that need running pods."""
    found = Site(sandbox)
    await serve(sandbox, crds())
    where = f"--namespace={NAMESPACE}"
    try:
        for chart in CHARTS:
            words = [chart, str(CHARTS_FOLDER / chart), where, "--create-namespace", "--no-hooks"]
            own = yaml.safe_dump({part: OWN[part] for part in PARTS[chart]})
            files = [f"--values={file_of(chart)}", "--values=-"]
            found.run("helm", "install", *words, *files, told=own)
        yield found
    finally:
        for chart in reversed(CHARTS):
            found.done("helm", "uninstall", chart, where, "--no-hooks", "--ignore-not-found")
        found.done("kubectl", "delete", "namespace", NAMESPACE, "--wait=false")


def got(site: Site, kind: str, name: str) -> Any:
    found = site.get(kind, name, f"--namespace={NAMESPACE}")
    assert found, f"{kind} {name} is not there"
    return found


def config(site: Site, chart: str) -> Any:
    return yaml.safe_load(got(site, "configmap", f"{chart}-config")["data"]["config.yaml"])


@pytest.mark.usefixtures("foreign")
async def test_the_api_server_keeps_what_the_values_ask_for(site: Site) -> None:
    operator_is_as_asked(site)
    webhook_is_as_asked(site)
    bridge_is_as_asked(site)
    cluster_is_as_asked(site)


def operator_is_as_asked(site: Site) -> None:
    deployment = got(site, "deployment", "slurm-operator")["spec"]
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]
    assert deployment["replicas"] == 1
    assert pod["securityContext"]["fsGroup"] == 7
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["runAsUser"] == 9
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"health": 8081, "metrics": 9090}
    [port] = got(site, "service", "slurm-operator-metrics")["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("metrics", 9090, "metrics")
    assert config(site, "slurm-operator")["leader"]["elect"] is True
    assert not site.names("poddisruptionbudgets", f"--namespace={NAMESPACE}")


def webhook_is_as_asked(site: Site) -> None:
    pod = got(site, "deployment", "slurm-operator-admission")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert "runAsUser" not in pod["securityContext"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is False
    assert {each["name"] for each in container["ports"]} == {"health", "webhook"}
    assert "--metrics-port=0" in container["args"]
    admission = config(site, "slurm-operator")["admission"]
    assert (admission["timeoutSeconds"], admission["matchPolicy"]) == (20, "Exact")
    certificate = got(site, "certificate", "slurm-operator-admission")["spec"]
    assert certificate["duration"] == "43800h0m0s"
    assert certificate["secretName"] == "slurm-operator-webhook-ca"
    [volume] = [each["secret"] for each in pod["volumes"] if "secret" in each]
    assert volume["secretName"] == "slurm-operator-webhook-ca"


def bridge_is_as_asked(site: Site) -> None:
    scheduler = got(site, "deployment", "slurm-bridge")["spec"]
    assert scheduler["replicas"] == 1
    volumes = scheduler["template"]["spec"]["volumes"]
    [token] = [each["secret"] for each in volumes if "secret" in each]
    assert token["secretName"] == "slurm-bridge-token"
    found = config(site, "slurm-bridge")
    assert found["leader"]["elect"] is False
    assert found["slurm"]["tokenFile"] == "/run/slinky/token/auth-token"
    assert found["managedNamespaces"] == ["slurm-bridge"]
    assert got(site, "certificate", "slurm-bridge-admission")
    images = {
        container["image"].partition(":")[0]
        for each in site.get("deployments", f"--namespace={NAMESPACE}")["items"]
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"slinky/slinky"}


def cluster_is_as_asked(site: Site) -> None:
    controller = got(site, "controller", "slurm")["spec"]
    assert controller["persistence"]["storageClassName"] == ""
    assert controller["template"]["spec"]["securityContext"] == {"fsGroup": 7}
    assert controller["extraConf"].splitlines() == [
        "MaxJobCount=1000000",
        "PartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED",
    ]
    workers = got(site, "nodeset", "slurm-worker-gpu")["spec"]
    assert (workers["replicas"], workers["template"]["spec"]["hostname"]) == (4, "gpu-")
    assert workers["slurmd"]["image"] == "ghcr.io/slinkyproject/slurmd:26.05-ubuntu26.04"
    login = got(site, "loginset", "slurm-login-login")["spec"]
    assert login["service"]["spec"]["type"] == "LoadBalancer"
    assert login["sssdConfRef"] == {"name": "slurm-sssd-conf", "key": "sssd.conf"}
    assert got(site, "secret", "slurm-sssd-conf")["data"]["sssd.conf"]
    assert site.names("nodesets,loginsets", f"--namespace={NAMESPACE}") == {
        "nodeset.slinky.slurm.net/slurm-worker-gpu",
        "loginset.slinky.slurm.net/slurm-login-login",
    }
