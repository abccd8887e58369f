"""A cluster of the original on real nodes comes over in place, while a job runs, and could go back: the way of docs/migrating.md. The tests follow one another."""

import asyncio
from typing import Any

import pytest

from slinky.sandbox.golang import build_program
from slinky.sandbox.operator import install_crds
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from tests.charts.coming import ORIGINAL, OURS, Release
from tests.charts.helm import CHARTS, Helm
from tests.conftest import Starter
from tests.operator_sandbox.original_cluster import RELEASED, VALUES, WORKERS, OriginalCluster

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

JOB = "while [ ! -e /tmp/end ]; do sleep 1; done; echo done"
PARTS = (*RELEASED.items(),)
DNS = "external-dns.alpha.kubernetes.io/hostname=login.example.com"  # by an administrator


@pytest.fixture(scope="module")
def release(start_sandbox: Starter, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Installed from the original's chart."""
    sandbox = start_sandbox("coming-over", Shape(nodes=0, real_nodes=2, operator=True))
    with Progress() as progress:
        helm = Helm(build_program("helm", progress), tmp_path_factory.mktemp("helm"))
    asyncio.run(install_crds(sandbox))
    found = Release(helm, sandbox, "slurm")
    found.done("install", "slurm", str(ORIGINAL), values=VALUES)
    return found


@pytest.fixture(scope="module")
def cluster(release: Release) -> OriginalCluster:
    """As the original leaves it: it runs, and no operator does."""
    found = OriginalCluster(release.sandbox)
    found.make_as_the_original()
    found.make_a_token()
    found.kubectl("annotate", "service", "slurm-login-slinky", DNS)
    return found


@pytest.fixture(scope="module")
def job(cluster: OriginalCluster) -> int:
    """It runs on slinky-0 until it is told to end."""
    found = cluster.submit(JOB, "--nodelist=slinky-0", "--job-name=survivor")
    cluster.until_job(found, "RUNNING")
    return found


@pytest.fixture(scope="module")
def before(release: Release, cluster: OriginalCluster, job: int) -> dict[str, Any]:
    """What has to be the same afterwards."""
    assert job
    return {"keys": release.keys(), "worker": uid(cluster, "slurm-worker-slinky-0"), "host keys": host_keys(cluster)}


@pytest.fixture(scope="module")
def operator(release: Release, before: dict[str, Any]) -> Release:
    """Ours by its chart, while the job runs."""
    assert before
    found = Release(release.program, release.sandbox, "slinky")
    install_operator(found)
    return found


def install_operator(operator: Release) -> None:
    operator.done("install", "slurm-operator", str(CHARTS / "slurm-operator"), "--create-namespace", "--wait")


def uid(cluster: OriginalCluster, pod: str) -> str:
    return str(cluster.get("pod", pod)["metadata"]["uid"])


def host_keys(cluster: OriginalCluster) -> dict[str, str]:
    return dict(cluster.get("secret", "slurm-login-slinky-ssh-host-keys")["data"])


def runs_on(cluster: OriginalCluster, job: int, before: dict[str, Any], release: Release) -> None:
    """The job on the worker that it began on; keys and host keys are the same."""
    told = cluster.job(job)
    assert (told["JobState"], told["Restarts"], told["NodeList"]) == ("RUNNING", "0", "slinky-0")
    assert uid(cluster, "slurm-worker-slinky-0") == before["worker"]
    assert (release.keys(), host_keys(cluster)) == (before["keys"], before["host keys"])


def until_ready(cluster: OriginalCluster) -> None:
    for kind, name in PARTS:
        if kind != "nodeset":  # it waits for the job
            cluster.until(f"{kind} {name} was ready", lambda kind=kind, name=name: is_ready(cluster, kind, name), 240)  # type: ignore[misc]


def is_ready(cluster: OriginalCluster, kind: str, name: str) -> bool:
    return cluster.condition(kind, name, "Ready")[0] == "True" and cluster.condition(kind, name, "Degraded")[0] == "False"


def is_theirs(pod: dict[str, Any]) -> bool:
    """Whether the original has made it: the operator's pods have no sidecar for logs."""
    return any(each["name"] == "logfile" for each in pod["spec"].get("initContainers", []))


def lacks(pod: dict[str, Any]) -> list[str]:
    """What a daemon's pod lacks."""
    spec = pod["spec"]
    main = spec["containers"][0]
    args, env = main.get("args", []), {each["name"] for each in main.get("env", [])}
    mounts, volumes = {each["mountPath"] for each in main["volumeMounts"]}, {each["name"] for each in spec["volumes"]}
    wanted: dict[str, bool] = {"/etc/slurm": "/etc/slurm" in mounts, "slurm-etc": "slurm-etc" in volumes}
    match pod["metadata"]["labels"]["app.kubernetes.io/name"]:
        case "slurmd":
            wanted |= {"-Z": "-Z" in args, "--conf-server": "--conf-server" in args, "POD_CPUS": "POD_CPUS" in env}
            wanted["search domain"] = bool(spec["dnsConfig"]["searches"])
        case "slurmrestd":
            wanted |= {"SLURM_JWT": "SLURM_JWT" in env, "address": "0.0.0.0:6820" in args}
        case "login":
            wanted |= {"SACKD_OPTIONS": "SACKD_OPTIONS" in env, "initconf": spec["initContainers"][0]["name"] == "initconf"}
            wanted["host keys"] = "ssh-host-keys" in volumes
        case "slurmctld":
            wanted["statesave"] = "statesave" in volumes
    return [what for what, there in wanted.items() if not there]


@pytest.mark.usefixtures("operator")
def test_the_cluster_is_taken_over_while_a_job_runs(cluster: OriginalCluster, release: Release, job: int, before: dict[str, Any]) -> None:
    """The idle worker is replaced at once, the busy one is not; head, slurmrestd and login are pods of ours."""
    until_ready(cluster)
    cluster.until("the idle worker was one of ours", lambda: not is_theirs(cluster.get("pod", "slurm-worker-slinky-1")), 240)
    cluster.until_idle("slinky-1", seconds=240)
    runs_on(cluster, job, before, release)
    for name, pod in cluster.daemons().items():
        assert not lacks(pod), (name, lacks(pod))
        assert is_theirs(pod) == (name == "slurm-worker-slinky-0"), name
    assert "active" not in str(cluster.get("service", "slurm-controller")["spec"]["selector"])
    assert cluster.login("srun", "--nodelist=slinky-1", "hostname").strip() == "slinky-1"


@pytest.mark.usefixtures("operator")
def test_a_token_is_refreshed_and_a_name_in_dns_stays(cluster: OriginalCluster) -> None:
    def is_new() -> bool:
        held = cluster.get("secret", "reports-jwt-alice")["data"]["SLURM_JWT"]
        return str(held) != "dGhlaXJz"

    cluster.until("the Token had a token of ours", is_new)
    [owner] = cluster.get("secret", "reports-jwt-alice")["metadata"]["ownerReferences"]
    assert owner["kind"] == "Token"
    assert cluster.condition("token", "reports", "Ready")[0] == "True"
    key, _, value = DNS.partition("=")
    assert cluster.get("service", "slurm-login-slinky")["metadata"]["annotations"][key] == value


@pytest.mark.usefixtures("operator")
def test_the_release_is_upgraded_with_our_chart(cluster: OriginalCluster, release: Release, job: int, before: dict[str, Any]) -> None:
    """With the same values. Its ConfigMap with files has another name: the old one goes when the new one is used."""
    release.done("upgrade", "slurm", str(OURS), values=VALUES)
    cluster.until("files were those of our chart", lambda: not cluster.get("configmap", "slurm-config-extra"))
    assert "CgroupPlugin=disabled" in cluster.get("configmap", "slurm-config")["data"].get("cgroup.conf", "")
    until_ready(cluster)
    cluster.until_idle("slinky-1", seconds=240)
    runs_on(cluster, job, before, release)
    for name, pod in cluster.daemons().items():
        assert not lacks(pod), (name, lacks(pod))


def test_the_cluster_can_go_back(cluster: OriginalCluster, release: Release, operator: Release, job: int, before: dict[str, Any]) -> None:
    """As far as it can be seen without the original: the release and the custom resources are the original's, nothing of ours holds them, and the job runs on."""
    operator.done("uninstall", "slurm-operator", "--wait")
    release.done("rollback", "slurm", "1")
    for kind in RELEASED:
        for name in cluster.kubectl("get", kind, "--output=name").split():
            cluster.kubectl("patch", name, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
    ours = "--selector=app.kubernetes.io/managed-by=slinky-operator"
    cluster.kubectl("label", "statefulsets,deployments,services,configmaps,poddisruptionbudgets", ours, "app.kubernetes.io/managed-by-")
    assert cluster.get("controller", "slurm")["spec"]["slurmctld"]["args"] == []
    assert cluster.get("configmap", "slurm-config-extra")
    assert cluster.kubectl("get", "services,statefulsets,deployments", ours, "--output=name") == ""
    for kind, name in RELEASED.items():
        assert not cluster.get(kind, name)["metadata"].get("finalizers")
    runs_on(cluster, job, before, release)
    cluster.until_idle("slinky-1")


def test_the_cluster_comes_over_again_and_the_job_ends_well(
    cluster: OriginalCluster, release: Release, operator: Release, job: int, before: dict[str, Any]
) -> None:
    install_operator(operator)
    until_ready(cluster)
    runs_on(cluster, job, before, release)
    release.done("upgrade", "slurm", str(OURS), values=VALUES)
    until_ready(cluster)
    runs_on(cluster, job, before, release)
    cluster.on("slurm-worker-slinky-0", "touch", "/tmp/end")
    ended = cluster.until_job(job, "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED")
    assert (ended["JobState"], ended["Restarts"], ended["ExitCode"]) == ("COMPLETED", "0", "0:0")
    cluster.until("its worker was one of ours then", lambda: not is_theirs(cluster.get("pod", "slurm-worker-slinky-0")), 240)
    cluster.until_idle(*WORKERS, seconds=240)
    cluster.until("there was one pod of each", lambda: len(cluster.daemons()) == 5)
    assert sorted(cluster.login("srun", "--nodes=2", "hostname").split()) == sorted(WORKERS)
    assert {name: lacks(pod) for name, pod in cluster.daemons().items() if lacks(pod)} == {}
    assert release.keys() == before["keys"]
