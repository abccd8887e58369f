"""More of the cluster in examples/operator: what takes too long for every run."""

import subprocess
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.operator_sandbox import changes, claims, entering, leaving, lending, scaling
from tests.operator_sandbox.cluster import EXAMPLES, Cluster
from tests.operator_sandbox.connections import Connection, Place, Traffic, refused

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

COMPAT = sorted((CHECKOUT / "tests/operator/compat").glob("*.yaml"))
REFUSED = [
    ("Controller", "ha: {enabled: true, backups: 1}", "several slurmctld at once are not supported"),
    ("Controller", "sssdConfRef: {name: sssd, key: sssd.conf}", "give sssdConfRef to the LoginSets"),
    ("Controller", "service: {spec: {externalIPs: [192.0.2.1]}}", "externalIPs"),
    ("NodeSet", "taintKubeNodes: true", "taint the Kubernetes nodes yourself"),
    ("NodeSet", "updateStrategy: {type: ScheduledUpdate}", "ScheduledUpdate is not supported"),
    ("NodeSet", "updateStrategy: {scheduledUpdate: {startTime: now, duration: 30m}}", "ScheduledUpdate is not supported"),
    ("NodeSet", "replicaz: 3", "replicas"),
    ("Account", "name: physics", 'no matches for kind "Account"'),
]


def test_a_configuration_that_cannot_be_read_harms_nothing(cluster: Cluster) -> None:
    changes.unreadable_files(cluster)


def test_a_worker_with_a_job_is_not_evicted(cluster: Cluster) -> None:
    leaving.an_eviction_is_tried(cluster)


def test_a_kubernetes_node_is_drained_when_its_job_has_ended(cluster: Cluster) -> None:
    leaving.a_kubernetes_node_is_drained(cluster)


def test_an_edited_gres_is_what_slurm_counts(cluster: Cluster) -> None:
    changes.gres_is_edited(cluster)


def test_who_has_a_job_on_a_worker_gets_in_by_ssh_and_nobody_else(cluster: Cluster) -> None:
    entering.a_worker_lets_in_who_has_a_job(cluster)


def test_an_autoscaler_has_its_way(cluster: Cluster) -> None:
    scaling.an_autoscaler_has_its_way(cluster)


def test_volumes_of_workers_are_kept_as_the_policy_says(cluster: Cluster) -> None:
    claims.claims_are_kept_as_the_policy_says(cluster)


def test_a_state_folder_that_belongs_to_root_is_named(cluster: Cluster) -> None:
    claims.a_state_folder_of_roots_is_named(cluster)


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


def test_a_second_kind_of_login_node_is_another_host(cluster: Cluster) -> None:
    entering.login_nodes_of_two_kinds(cluster)


def test_no_connection_of_the_daemons_is_cut_by_the_network_policies(cluster: Cluster) -> None:
    """With metrics off, as slurmctld is open to all for those who read them. And whoever is no part of the cluster would be cut."""
    cluster.patch("controller", "slurm", {"spec": {"metrics": {"enabled": False}}})

    def is_narrow() -> bool:
        return "from" in cluster.get("networkpolicy", "slurm-controller")["spec"]["ingress"][0]

    cluster.until("slurmctld was for its own only", is_narrow)
    cluster.until("all ran that", lambda: cluster.condition("controller", "slurm", "Ready")[0] == "True")
    cluster.until_idle("compute-0", "compute-1")
    cluster.login("srun", "--nodes=2", "--ntasks=4", "mpi-ranks")
    cluster.login("sacct", "--allusers")
    cluster.until_job(cluster.submit("srun hostname", "--nodes=2"), "COMPLETED")
    assert entering.ssh(cluster, "erin@slurm-login", "id -un").split()[0] == "erin"
    traffic = Traffic(cluster)
    seen = traffic.connections()
    assert refused(seen, traffic.policies, traffic.pods) == []
    kinds = {(_daemon(traffic, each.source), _daemon(traffic, each.target)) for each in seen}
    assert {
        ("slurmctld", "slurmd"),
        ("slurmd", "slurmctld"),
        ("login", "slurmctld"),
        ("login", "slurmd"),
        ("slurmd", "login"),
        ("slurmd", "slurmd"),
        ("login", "slurmdbd"),
        ("slurmctld", "slurmdbd"),
        ("slurmdbd", "elsewhere"),
        ("slurmrestd", "slurmctld"),
        ("elsewhere", "slurmrestd"),
    } <= kinds
    stranger = next(Place(pod["status"]["podIP"], name) for name, pod in traffic.pods.items() if name.startswith("ldap-"))
    for each in (one for one in seen if one.target.pod and _daemon(traffic, one.target) in ("slurmctld", "slurmd", "slurmdbd")):
        assert refused([Connection(stranger, each.target, each.port)], traffic.policies, traffic.pods), each
    cluster.patch("controller", "slurm", {"spec": {"metrics": {"enabled": True}}})
    cluster.until("it was open again", lambda: not is_narrow())
    cluster.until("all ran that", lambda: cluster.condition("controller", "slurm", "Ready")[0] == "True")


def _daemon(traffic: Traffic, place: Place) -> str:
    labels = traffic.pods[place.pod]["metadata"]["labels"] if place.pod else {}
    return str(labels.get("app.kubernetes.io/name", "elsewhere"))


@pytest.mark.parametrize("path", COMPAT, ids=lambda path: path.stem)
def test_what_the_originals_examples_use_is_accepted(cluster: Cluster, path: Path) -> None:
    """By the API server's schema and by the webhook; nothing is kept."""
    cluster.kubectl("create", "namespace", "compat", check=False)
    written = path.read_text().replace("namespace: slurm", "namespace: compat")
    cluster.kubectl("apply", "--namespace=compat", "--dry-run=server", "--filename=-", written=written)


@pytest.mark.parametrize(("kind", "field", "why"), REFUSED, ids=lambda text: text[:40])
def test_what_the_original_has_and_we_do_not_is_refused_in_words(cluster: Cluster, kind: str, field: str, why: str) -> None:
    spec = "{controllerRef: {name: slurm}, " if kind == "NodeSet" else "{"
    written = f"apiVersion: slinky.slurm.net/v1beta1\nkind: {kind}\nmetadata: {{name: other}}\nspec: {spec}{field}}}\n"
    said = cluster.refused("apply", "--dry-run=server", "--filename=-", written=written)
    assert why in said


def test_the_accounting_may_be_elsewhere(cluster: Cluster) -> None:
    """The sandbox's own slurmdbd, which is asked on its own host too."""
    cluster.apply(EXAMPLES / "external-accounting.yaml")
    for kind, name in (("controller", "branch"), ("accounting", "elsewhere"), ("nodeset", "office"), ("loginset", "branch-login")):
        cluster.until(f"{kind} {name} was ready", lambda kind=kind, name=name: cluster.condition(kind, name, "Ready")[0] == "True", 180)  # type: ignore[misc]

    def branch(*command: str) -> str:
        return cluster.kubectl("exec", "deploy/branch-login", "--", "env", "--chdir=/tmp", *command)

    job = branch("sbatch", "--parsable", "--output=/dev/null", "--job-name=far", "--wrap=hostname").strip()
    told = ("--allusers", "--allocations", "--noheader", "--parsable2", f"--jobs={job}", "--format=JobName,State,NodeList,Cluster")
    cluster.until("sacct showed it", lambda: branch("sacct", *told).strip() == "far|COMPLETED|office-0|branch")
    there = subprocess.run(
        [str(cluster.sandbox.folder / "bin/sacct"), "--clusters=branch", *told], capture_output=True, text=True, timeout=60, check=True
    )
    assert there.stdout.strip() == "far|COMPLETED|office-0|branch"
    cluster.kubectl("delete", f"--filename={EXAMPLES / 'external-accounting.yaml'}", "--wait=false")


async def test_workers_in_pods_join_a_slurm_that_runs_elsewhere(cluster: Cluster) -> None:
    cluster.apply(EXAMPLES / "external.yaml")
    cluster.until("the workers were ready", lambda: cluster.condition("nodeset", "burst", "Ready")[0] == "True")
    srun = ["srun", "--partition=all", "--constraint=burst", "--nodes=2", "hostname"]
    assert sorted((await cluster.sandbox.link.run("head", *srun)).split()) == ["burst-0", "burst-1"]
    lending.another_namespace_lends_workers_of_the_same_names(cluster)
    cluster.kubectl("delete", f"--filename={EXAMPLES / 'external.yaml'}", "--wait=false")
    cluster.until("the workers were gone, and what they belonged to", lambda: not cluster.get("controller", "head"))


def test_a_cluster_that_is_deleted_whole_lets_its_jobs_end(cluster: Cluster) -> None:
    """The last of them all: by `kubectl delete -f`, all objects at once."""
    leaving.everything_is_deleted(cluster)
