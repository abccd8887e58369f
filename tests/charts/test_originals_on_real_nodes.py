"""The original's whole values files, installed on real nodes: the pods run, and Slurm runs jobs.

The images that the files name are there under those names, as they are our own ones tagged.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from slinky.sandbox.addons import CERT_MANAGER
from slinky.sandbox.realnodes import node_name
from slinky.sandbox.shape import Shape
from tests.charts.helm import CHARTS as CHARTS_FOLDER
from tests.charts.originals import file_of, values_of
from tests.charts.site import WRONG, Site
from tests.conftest import Starter

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

HOME, CLUSTER, MANAGED = "slinky", "slurm", "slurm-bridge"
LOGIN = "deployment/slurm-login-slinky"
TOKEN = "slurm-bridge-token"
# What a site of this kind writes over the file: its nodes, and how Slurm follows processes here.
OWN_CLUSTER: dict[str, Any] = {
    "controller": {
        "persistence": {"storageClassName": "local"},
        "extraConfMap": {
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "MaxJobCount": 1000000,
            "SchedulerParameters": ["batch_sched_delay=0", {"sched_min_interval": 0}],
            "NodeSet": f"{MANAGED} Feature={MANAGED}",
            "PartitionName": f"{MANAGED} Nodes={MANAGED} MaxTime=INFINITE",
        },
    },
    "configFiles": {"cgroup.conf": "CgroupPlugin=disabled\n"},
    "nodesets": {"slinky": {"replicas": 2}},
    "loginsets": {"slinky": {"service": {"spec": {"type": "ClusterIP"}}}},
    "partitions": {"all": {"enabled": True, "nodesets": ["slinky"]}},
}
POD = """
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: slurm-bridge}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: sandbox/busybox:1
    command: [sh, -c, "echo job $SLURM_JOB_ID"]
    resources: {requests: {cpu: 100m, memory: 32Mi}}
"""


def images() -> dict[str, str]:
    """The images of the file, each with ours that takes its place."""
    values = values_of("slurm")
    places = [
        values["controller"]["slurmctld"],
        values["restapi"]["slurmrestd"],
        values["nodesetDefaults"]["slurmd"],
        values["loginsetDefaults"]["login"],
    ]
    found = {}
    for each in places:
        repository = each["image"]["repository"]
        name = repository.rpartition("/")[2]
        found[f"{repository}:{each['image']['tag']}"] = f"docker.io/slinky/{name}:26.05"
    return found


@pytest.fixture(scope="module")
def empty(start_sandbox: Starter) -> Site:
    shape = Shape(nodes=0, real_nodes=2, operator=True, addons=(CERT_MANAGER,))
    return Site(start_sandbox("originals", shape))


async def prepare(site: Site) -> None:
    for index in range(2):
        for theirs, ours in images().items():
            words = ("ctr", "--namespace=k8s.io", "images", "tag", ours, theirs)
            await site.sandbox.link.run(node_name(index), *words)
    for name in (HOME, MANAGED):
        site.kubectl("create", "namespace", name)


def install(site: Site, chart: str, namespace: str, own: dict[str, Any]) -> str:
    place = str(CHARTS_FOLDER / chart)
    given = (f"--values={file_of(chart)}", "--values=-")
    words = ("install", chart, place, f"--namespace={namespace}", *given, "--wait")
    return site.run("helm", *words, told=yaml.safe_dump(own))


def in_slurm(site: Site, *words: str) -> str:
    return site.kubectl(f"--namespace={CLUSTER}", "exec", LOGIN, "--", *words)


def uids(site: Site, namespace: str) -> set[str]:
    found = site.get("pods", f"--namespace={namespace}")["items"]
    return {each["metadata"]["uid"] for each in found}


@pytest.fixture
async def site(empty: Site) -> Site:
    """All three releases, installed once for all tests."""
    if empty.run("helm", "list", "--all-namespaces", "--short").split():
        return empty
    await prepare(empty)
    crds = str(CHARTS_FOLDER / "slurm-operator-crds")
    empty.run("helm", "install", "slurm-operator-crds", crds, "--wait")
    assert "have no effect here" in install(empty, "slurm-operator", HOME, {})
    install(empty, "slurm", CLUSTER, OWN_CLUSTER)
    kinds = ("controller/slurm", "restapi/slurm", "nodeset/slurm-worker-slinky")
    wait = ("wait", "--for=condition=Ready", "--timeout=300s")
    empty.kubectl(f"--namespace={CLUSTER}", *wait, *kinds, "loginset/slurm-login-slinky")
    # The bridge taints its nodes: one stays free for pods that Slurm does not schedule.
    empty.kubectl("label", "node", node_name(1), "scheduler.slinky.slurm.net/external-node=true")
    head = ("exec", "statefulset/slurm-controller", "--", "scontrol", "token")
    token = empty.kubectl(f"--namespace={CLUSTER}", *head, "username=slurm", "lifespan=infinite")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TOKEN, "namespace": HOME},
        "stringData": {"auth-token": token.strip()},
    }
    empty.kubectl("apply", "--filename=-", told=json.dumps(secret))
    install(empty, "slurm-bridge", HOME, {})
    return empty


def test_the_operator_serves_its_metrics_where_the_file_says(site: Site) -> None:
    path = f"/api/v1/namespaces/{HOME}/services/slurm-operator-metrics:metrics/proxy/metrics"
    assert "slinky_kube_requests_total" in site.kubectl("get", f"--raw={path}")
    [pod] = site.get(
        "pods",
        f"--namespace={HOME}",
        "--selector=app.kubernetes.io/component=operator",
    )["items"]
    name = pod["metadata"]["name"]
    said = site.run(
        "kubectl",
        "get",
        f"--raw=/api/v1/namespaces/{HOME}/pods/{name}:8081/proxy/metrics",
        fails=True,
    )
    assert "not find" in said or "404" in said


def test_the_webhook_refuses_within_the_time_that_the_file_says(site: Site) -> None:
    [webhook] = site.get("validatingwebhookconfiguration", "slurm-operator")["webhooks"]
    assert (webhook["timeoutSeconds"], webhook["failurePolicy"]) == (10, "Fail")
    said = site.run("kubectl", "apply", "--filename=-", told=json.dumps(WRONG), fails=True)
    assert "spec.replica" in said


def test_jobs_run_in_the_partition_of_the_file(site: Site) -> None:
    said = in_slurm(site, "scontrol", "show", "config")
    assert re.search(r"^MaxJobCount\s*= 1000000$", said, re.MULTILINE)
    told = in_slurm(site, "srun", "--nodes=2", "--chdir=/tmp", "hostname").split()
    assert sorted(told) == ["slinky-0", "slinky-1"]
    assert "Succeeded" in site.run("helm", "test", "slurm", f"--namespace={CLUSTER}")


async def test_a_pod_of_the_managed_namespace_goes_through_slurm(site: Site) -> None:
    site.kubectl("apply", "--filename=-", told=POD)

    def is_over() -> bool:
        phase = site.get("pod", "first", f"--namespace={MANAGED}")["status"]["phase"]
        return bool(phase == "Succeeded")

    await site.until("the pod had run", is_over)
    told = site.kubectl("logs", "first", f"--namespace={MANAGED}")
    assert re.fullmatch(r"job [0-9]+", told.strip())


async def test_a_new_version_of_the_cluster_chart_restarts_nothing(
    site: Site,
    tmp_path: Path,
) -> None:
    newer = tmp_path / "slurm"
    shutil.copytree(CHARTS_FOLDER / "slurm", newer, symlinks=False)
    file = newer / "Chart.yaml"
    file.write_text(re.sub(r"(?m)^version: .*$", "version: 9.9.9", file.read_text()))
    before = uids(site, CLUSTER)
    words = ("upgrade", "slurm", str(newer), f"--namespace={CLUSTER}", "--reuse-values", "--wait")
    site.run("helm", *words)

    def has_arrived() -> bool:
        found = site.get("statefulset", "slurm-controller", f"--namespace={CLUSTER}")
        return bool(found["metadata"]["labels"]["helm.sh/chart"] == "slurm-9.9.9")

    await site.until("the StatefulSet had the new chart's label", has_arrived)
    for kind, name in (
        ("statefulset", "slurm-controller"),
        ("deployment", "slurm-restapi"),
        ("deployment", "slurm-login-slinky"),
    ):
        template = site.get(kind, name, f"--namespace={CLUSTER}")["spec"]["template"]
        assert "9.9.9" not in json.dumps(template["metadata"])
        done = ("rollout", "status", f"{kind}/{name}", "--timeout=60s")
        site.kubectl(f"--namespace={CLUSTER}", *done)
    assert uids(site, CLUSTER) == before
