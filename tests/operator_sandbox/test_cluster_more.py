"""More of the cluster in examples/operator: what takes too long for every run."""

import pytest

from tests.operator_sandbox import changes, leaving
from tests.operator_sandbox.cluster import EXAMPLES, Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.long]


def test_a_configuration_that_cannot_be_read_harms_nothing(cluster: Cluster) -> None:
    changes.unreadable_files(cluster)


def test_a_worker_with_a_job_is_not_evicted(cluster: Cluster) -> None:
    leaving.an_eviction_is_tried(cluster)


def test_a_kubernetes_node_is_drained_when_its_job_has_ended(cluster: Cluster) -> None:
    leaving.a_kubernetes_node_is_drained(cluster)


def test_slurmctlds_own_metrics_are_read_from_its_service(cluster: Cluster) -> None:
    read = "import urllib.request as u; print(u.urlopen('http://slurm-controller:6817/metrics/nodes', timeout=5).read().decode())"
    assert "slurm_nodes" in cluster.login("python3", "-c", read)


def test_a_login_node_scaled_to_zero_and_back_is_the_same_host(cluster: Cluster) -> None:
    def host_key() -> str:
        return cluster.login("ssh-keyscan", "-t", "ed25519", "slurm-login").split()[-1]

    before = host_key()
    cluster.kubectl("scale", "loginset", "slurm-login", "--replicas=0")
    pods = ("get", "pods", "--selector=app.kubernetes.io/name=login", "--output=name")
    cluster.until("there was none", lambda: not cluster.kubectl(*pods).strip())
    cluster.kubectl("scale", "loginset", "slurm-login", "--replicas=1")
    cluster.until("it was back as the same host", lambda: host_key() == before)


async def test_workers_in_pods_join_a_slurm_that_runs_elsewhere(cluster: Cluster) -> None:
    cluster.apply(EXAMPLES / "external.yaml")
    cluster.until("the workers were ready", lambda: cluster.condition("nodeset", "burst", "Ready")[0] == "True")
    srun = ["srun", "--partition=all", "--constraint=burst", "--nodes=2", "hostname"]
    assert sorted((await cluster.sandbox.link.run("head", *srun)).split()) == ["burst-0", "burst-1"]
