"""A cluster without a volume on real nodes: slurmctld forgets all, a template never becomes ready, the
Kubernetes node under slurmctld is cut off. What each of them looks like, and how it ends."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from slinky.operator.standings import OUT_OF_SERVICE
from tests.conftest import Cli
from tests.operator_sandbox.cluster import Cluster
from tests.sandbox.processes import Started

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

MANIFESTS = """
apiVersion: slinky.slurm.net/v1beta1
kind: Controller
metadata: {name: slurm, namespace: slurm}
spec:
  clusterName: forgetful
  slurmctld: {image: "sandbox/slurmctld:1"}
  persistence: {enabled: false}
  configFileRefs: [{name: files}]
  extraConf: |
    ProctrackType=proctrack/linuxproc
    TaskPlugin=task/none
    JobAcctGatherType=jobacct_gather/none
    SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
---
apiVersion: v1
kind: ConfigMap
metadata: {name: files, namespace: slurm}
data: {cgroup.conf: "CgroupPlugin=disabled\\n"}
---
apiVersion: slinky.slurm.net/v1beta1
kind: RestApi
metadata: {name: slurm, namespace: slurm}
spec: {controllerRef: {name: slurm}, slurmrestd: {image: "sandbox/slurmrestd:1"}}
---
apiVersion: slinky.slurm.net/v1beta1
kind: NodeSet
metadata: {name: w, namespace: slurm}
spec:
  controllerRef: {name: slurm}
  replicas: 2
  slurmd: {image: "sandbox/slurmd:1"}
  partition: {enabled: true, config: "Default=YES"}
  oversubscribeNode: true
  extraConf: Weight=7
  updateStrategy: {rollingUpdate: {maxUnavailable: 25%}}
---
apiVersion: slinky.slurm.net/v1beta1
kind: LoginSet
metadata: {name: slurm-login, namespace: slurm}
spec: {controllerRef: {name: slurm}, login: {image: "sandbox/login:1"}}
"""
WORKERS = ("w-0", "w-1")
DEAF = {"slurmd": {"command": ["/bin/sh", "-c", "exec sleep infinity"]}}


@pytest.fixture(scope="module")
def forgetful(bare: Cluster, operator: Started) -> Cluster:
    assert "the operator runs" in operator.said
    bare.kubectl("apply", "--filename=-", written=MANIFESTS)
    ready(bare)
    return bare


def ready(cluster: Cluster) -> None:
    for kind, name in (("controller", "slurm"), ("nodeset", "w"), ("loginset", "slurm-login")):
        wait = ("wait", "--for=condition=Ready", f"{kind}/{name}", "--timeout=180s")
        cluster.kubectl(*wait, seconds=200)
    cluster.until_idle(*WORKERS)


def uids(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.workers("w").values()}


def test_workers_register_again_when_slurmctld_has_forgotten_them(forgetful: Cluster) -> None:
    """Their pods stay. What ran for a job that Slurm has forgotten is ended by Slurm."""
    cluster, before = forgetful, uids(forgetful)
    cluster.until_job(cluster.submit("sleep 4321", "--nodelist=w-0"), "RUNNING")
    cluster.until("it ran", lambda: "sleep 4321" in cluster.on("w-0", "ps", "ax"))
    cluster.kubectl("delete", "pod", "slurm-controller-0")
    cluster.until_idle(*WORKERS)
    assert uids(cluster) == before
    cluster.until("no other node was left", lambda: set(cluster.states()) == set(WORKERS))
    cluster.until("the job's end", lambda: "sleep 4321" not in cluster.on("w-0", "ps", "ax"))
    assert "WorkersForgotten" in cluster.events("controller/slurm")
    assert "Weight=7" in cluster.login("scontrol", "show", "node", "w-0")
    ready(cluster)


def test_a_worker_that_never_became_ready_does_not_hold_its_correction_up(
    forgetful: Cluster,
) -> None:
    """And meanwhile nothing says that the NodeSet is ready, not even right after the change."""
    cluster = forgetful
    cluster.kubectl("scale", "nodeset", "w", "--replicas=1")
    cluster.until("one was left", lambda: set(cluster.workers("w")) == {"w-0"})
    cluster.kubectl("wait", "--for=condition=Ready", "nodeset/w", "--timeout=60s")
    cluster.patch("nodeset", "w", {"spec": DEAF})
    no = cluster.refused("wait", "--for=condition=Ready", "nodeset/w", "--timeout=8s")
    assert "timed out" in no
    cluster.until("the deaf one was there", lambda: cluster.get("pod", "w-0")["status"]["phase"])
    assert cluster.condition("nodeset", "w", "Available")[0] == "False"
    cluster.patch("nodeset", "w", {"spec": {"slurmd": {"command": None}, "replicas": 2}})
    assert cluster.condition("nodeset", "w", "Ready")[0] == "False"
    cluster.kubectl("wait", "--for=condition=Ready", "nodeset/w", "--timeout=100s", seconds=110)
    ready(cluster)


@contextmanager
def cut_off(cluster: Cluster, machine: str) -> Iterator[None]:
    """From the network, as by a broken switch; at the end it is back."""

    def run(script: str) -> str:
        return asyncio.run(cluster.sandbox.link.script(machine, script))

    routes = [line for line in run("ip route").splitlines() if " via " in line]
    run("ip link set eth0 down")
    try:
        yield
    finally:
        again = "; ".join(f"ip route replace {line}" for line in routes)
        run(f"ip link set eth0 up; {again}")
        cluster.kubectl("taint", "nodes", machine, f"{OUT_OF_SERVICE}-", check=False)


def test_a_lost_node_under_slurmctld_is_an_error_everywhere_and_the_taint_moves_the_pod(
    forgetful: Cluster, cli: Cli, tmp_path: Path
) -> None:
    cluster = forgetful
    node = cluster.get("pod", "slurm-controller-0")["spec"]["nodeName"]
    with cut_off(cluster, node):
        cluster.until(
            "the Controller named the node",
            lambda: f"Kubernetes node {node}" in cluster.condition("controller", "slurm", "Degraded")[1],
        )
        said = cluster.condition("controller", "slurm", "Degraded")[1]
        assert f"kubectl taint nodes {node} {OUT_OF_SERVICE}=nodeshutdown:NoExecute" in said
        for type_ in ("Ready", "Available"):
            assert cluster.condition("controller", "slurm", type_)[0] == "False"
        found = doctors_findings(cluster, cli, tmp_path)
        assert {"object-degraded", "cluster-daemon-lost"} <= found
        cluster.kubectl("taint", "nodes", node, f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")
        cluster.until(
            "the pod ran on another node",
            lambda: cluster.get("pod", "slurm-controller-0")["spec"].get("nodeName") not in (node, None, ""),
            60,
        )
        ready(cluster)
        assert doctors_findings(cluster, cli, tmp_path) == set()


def doctors_findings(cluster: Cluster, cli: Cli, folder: Path) -> set[str]:
    """Errors only; its exit code has to agree."""
    settings = yaml.safe_load((cluster.sandbox.folder / "operator/config.yaml").read_text())
    (folder / "operator.yaml").write_text(yaml.safe_dump(settings))
    words = ("--part", "operator", "--operator-config", str(folder / "operator.yaml"))
    kubeconfig = ("--kubeconfig", str(cluster.sandbox.kubeconfig))
    done = cli("doctor", *words, *kubeconfig, "-o", "json")
    findings = json.loads(done.stdout)["findings"]
    errors = {each["code"] for each in findings if each["severity"] == "error"}
    assert done.returncode == (1 if errors else 0), done.stdout
    return errors
