"""The charts on real nodes, by the real helm, in the words of docs/install.md: installed, used, upgraded, uninstalled; and the pages whose every command is run, the quick start last. The tests follow one another.

What must be seen: what runs is what the charts say, two of each and one that leads; a job and a pod go through Slurm; an upgrade changes pods and keeps certificates, keys and state; afterwards nothing is left.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slinky.sandbox.charts import CHARTS, install, releases, uninstall
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.conftest import CHECKOUT, Starter
from tests.guides.pages import QUICKSTART, run_page

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

SECONDS = 300
WEBHOOKS = (("slurm-operator", "validatingwebhookconfiguration"), ("slurm-bridge", "mutatingwebhookconfiguration"))


class Site:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def run(self, *command: str, told: str = "", fails: bool = False) -> str:
        program = str(self.sandbox.folder / "bin" / command[0])
        done = subprocess.run(
            [program, *command[1:]],
            input=told,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            env=os.environ | self.sandbox.exports(),
        )
        assert (done.returncode != 0) == fails, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stderr if fails else done.stdout

    def kubectl(self, *words: str, told: str = "") -> str:
        return self.run("kubectl", *words, told=told)

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "--output=json", "--ignore-not-found") or "{}")

    def names(self, *words: str) -> set[str]:
        return set(self.kubectl("get", *words, "--output=name", "--ignore-not-found").split())

    async def until(self, what: str, probe: Callable[[], bool]) -> None:
        async def probed() -> bool:
            return probe()

        await self.sandbox.until("kube-apiserver", what, probed, SECONDS)

    def in_slurm(self, *words: str) -> str:
        return self.kubectl("--namespace=slurm", "exec", "deployment/slurm-login-slinky", "--", *words)


@pytest.fixture(scope="module")
def empty_site(start_sandbox: Starter) -> Site:
    return Site(start_sandbox("charts", Shape(nodes=0, real_nodes=2, operator=True)))


@pytest.fixture(scope="module")
def site(empty_site: Site) -> Site:
    said: list[str] = []
    install(empty_site.sandbox, said.append)
    assert [line.split()[:2] for line in said if line.startswith("helm")] == [["helm", "install"]] * len(releases())
    return empty_site


def test_two_of_each_run_and_one_leads(site: Site) -> None:
    for each in site.get("deployments", "--namespace=slinky")["items"]:
        assert each["status"]["readyReplicas"] == 2, each["metadata"]["name"]
    for name in ("slurm-operator", "slurm-bridge"):
        holder = site.get("lease", name, "--namespace=slinky")["spec"]["holderIdentity"]
        assert holder
        pods = site.names("pods", "--namespace=slinky", f"--selector=app.kubernetes.io/instance={name}")
        assert sum(pod.removeprefix("pod/") in holder for pod in pods) == 1
    nodes = {each["spec"]["nodeName"] for each in site.get("pods", "--namespace=slinky")["items"]}
    assert len(nodes) == 2


def test_helm_test_runs_a_job_and_a_pod_through_slurm(site: Site) -> None:
    assert "Succeeded" in site.run("helm", "test", "slurm", "--namespace=slurm")
    assert "Succeeded" in site.run("helm", "test", "slurm-bridge", "--namespace=slinky")
    jobs = site.in_slurm("sacct", "--allusers", "-X", "--noheader", "--parsable2", "--format=JobName%60,State,Partition")
    assert "helm-test|COMPLETED|all" in jobs
    assert "team/slurm-bridge-test|COMPLETED|slurm-bridge" in jobs


POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: sandbox/busybox:1
    command: [sh, -c, "{command}"]
    resources: {{requests: {{cpu: 100m, memory: 32Mi}}}}
"""


async def test_an_exit_code_reaches_slurm(site: Site) -> None:
    """By libslurm, which is in the image; the chart gives it a slurm.conf."""
    site.kubectl("apply", "--filename=-", told=POD.format(name="fails", command="exit 3"))

    def told() -> bool:
        return "team/fails|FAILED|3:0" in site.in_slurm("sacct", "-aXn", "--parsable2", "--format=JobName%60,State,ExitCode")

    await site.until("Slurm knew the pod's exit code", told)


def test_what_could_not_work_is_refused_by_the_webhook(site: Site) -> None:
    wrong = '{"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "metadata": {"name": "x", "namespace": "slurm"}, "spec": {"controllerRef": {"name": "slurm"}, "replica": 1}}'
    assert "spec.replica" in site.run("kubectl", "apply", "--filename=-", told=wrong, fails=True)


def kept(site: Site) -> dict[str, Any]:
    """What an upgrade must not change."""
    secrets = [
        ("slinky", "slurm-operator-admission"),
        ("slinky", "slurm-bridge-admission"),
        ("slurm", "slurm-auth-slurm"),
        ("slurm", "slurm-auth-jwt"),
    ]
    found: dict[str, Any] = {name: site.get("secret", name, f"--namespace={where}")["data"] for where, name in secrets}
    for name, kind in WEBHOOKS:
        found[kind] = [each["clientConfig"]["caBundle"] for each in site.get(kind, name)["webhooks"]]
    found["workers"] = [
        each["metadata"]["uid"] for each in site.get("pods", "--namespace=slurm", "--selector=app.kubernetes.io/name=slurmd")["items"]
    ]
    return found


async def test_an_upgrade_replaces_pods_and_keeps_certificates_keys_and_pods_that_run(site: Site) -> None:
    site.kubectl("apply", "--filename=-", told=POD.format(name="stays", command="while :; do sleep 1; done"))
    site.kubectl("--namespace=team", "wait", "--for=condition=Ready", "pod/stays", "--timeout=120s")
    uid = site.get("pod", "stays", "--namespace=team")["metadata"]["uid"]
    before, pods = kept(site), site.names("pods", "--namespace=slinky")
    assert all(before.values())
    for release in releases():
        more = []
        if release.namespace == "slinky":
            parts = ("operator", "webhook") if release.name == "slurm-operator" else ("scheduler", "admission")
            more = [f"--set={part}.podAnnotations.upgraded=yes" for part in parts]
        site.run(*release.command("upgrade"), *more)

    await site.until("all pods were others", lambda: not site.names("pods", "--namespace=slinky") & pods)
    assert kept(site) == before
    pod = site.get("pod", "stays", "--namespace=team")
    assert (pod["metadata"]["uid"], pod["status"]["phase"]) == (uid, "Running")
    assert "stays" in site.in_slurm("squeue", "--noheader", "--Format=Name:60,State:20")
    assert "Succeeded" in site.run("helm", "test", "slurm-bridge", "--namespace=slinky")
    site.kubectl("--namespace=team", "delete", "pod", "stays", "fails")


async def test_an_uninstall_leaves_nothing(site: Site) -> None:
    site.kubectl("apply", "--filename=-", told=POD.format(name="runs-on", command="while :; do sleep 1; done"))
    site.kubectl("--namespace=team", "wait", "--for=condition=Ready", "pod/runs-on", "--timeout=120s")
    bridge = releases()[-1]
    site.run(*bridge.command("uninstall"))
    pod = site.get("pod", "runs-on", "--namespace=team")
    assert pod["status"]["phase"] == "Running"
    assert not pod["metadata"].get("finalizers")
    assert site.in_slurm("squeue", "--noheader", "--partition=slurm-bridge").strip() == ""
    assert "node-0" not in site.in_slurm("sinfo", "--Node", "--noheader").split()
    site.kubectl("--namespace=team", "delete", "pod", "runs-on")

    for release in reversed(releases()[:-1]):
        site.run(*release.command("uninstall"))
    everywhere = "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,customresourcedefinitions,priorityclasses"
    assert not [name for name in site.names(everywhere) if "slurm" in name or "slinky" in name]
    inside = "deployments,statefulsets,services,configmaps,leases,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,jobs,secrets,pods"
    theirs = {"configmap/kube-root-ca.crt", "serviceaccount/default", "secret/slurm-bridge-jwt-token"}

    def nothing_is_left() -> bool:
        return site.names(inside, "--namespace=slinky") - theirs == set()

    await site.until("nothing was left in namespace slinky", nothing_is_left)
    prepared = {
        "secret/mariadb",
        "secret/slurm-key",
        "secret/slurm-jwt",
        "service/mariadb",
        "service/slurmctld",
        "service/slurmdbd",
        "service/slurmrestd",
    }

    def no_cluster_is_left() -> bool:
        return site.names(inside, "--namespace=slurm") - theirs - prepared == set()

    await site.until("nothing was left in namespace slurm", no_cluster_is_left)
    assert site.names("persistentvolumeclaims", "--namespace=slurm") == {"persistentvolumeclaim/statesave-slurm-controller-0"}
    for node in site.get("nodes")["items"]:
        assert not node["spec"].get("taints")
        assert not [each for each in node["status"]["conditions"] if "slinky" in each["type"]]


def test_it_can_be_installed_again(site: Site) -> None:
    said: list[str] = []
    install(site.sandbox, said.append)
    assert "Succeeded" in site.run("helm", "test", "slurm-bridge", "--namespace=slinky")
    uninstall(site.sandbox, said.append)
    assert CHARTS.is_dir()


@pytest.fixture
def newcomer(empty_site: Site) -> Iterator[Site]:
    """The cluster of somebody who has never met us: nothing of ours is there, and the default StorageClass is one whose volumes heed fsGroup. Afterwards, where something failed, what was there is told."""
    site = empty_site
    assert not site.run("helm", "list", "--all-namespaces", "--short").split(), "the tests before have uninstalled all of it"
    site.kubectl("delete", "namespace", "slinky", "team", "--ignore-not-found")
    site.kubectl("delete", "persistentvolumeclaims", "--all", "--namespace=slurm")
    site.kubectl("label", "node", "--all", "scheduler.slinky.slurm.net/external-node-")
    for name in ("standard", "local"):
        default = f"storageclass.kubernetes.io/is-default-class={str(name == 'local').lower()}"
        site.kubectl("annotate", "storageclass", name, default, "--overwrite")
    yield site
    if site.run("helm", "list", "--all-namespaces", "--short").split():
        tell(site, "get", "pods", "--all-namespaces", "--output=wide")
        tell(site, "get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
        tell(site, "describe", "nodesets,controllers,restapis", "--namespace=slurm")
        tell(site, "logs", "--namespace=slinky", "--tail=60", "--prefix", "--selector=app.kubernetes.io/component in (operator, scheduler)")


def tell(site: Site, *words: str) -> None:
    program, environment = str(site.sandbox.folder / "bin/kubectl"), os.environ | site.sandbox.exports()
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60, env=environment)
    print("kubectl", *words, done.stdout[-8000:], done.stderr[-1000:], sep="\n")


def environment(site: Site, home: Path) -> dict[str, str]:
    """Images are there under the names that the charts have unless told otherwise."""
    found = site.sandbox.exports()
    return {**found, "PATH": f"{Path(sys.executable).resolve().parent}:{found['PATH']}", "HOME": str(home), "REGISTRY": "slinky"}


def test_the_guide_to_slurm_on_bare_metal_as_written(newcomer: Site, tmp_path: Path) -> None:
    """The sandbox's own Slurm is outside of Kubernetes; but for a site's names nothing is replaced."""
    names = [
        ("SlurmctldHost=slurm-head(slurm-head.example.com)", "SlurmctldHost=head(slurmctld.slurm)"),
        ("slurm-head.example.com:6820", "slurmrestd.slurm:6820"),
        ("ClusterName=cluster", "ClusterName=sandbox"),
        ("busybox:1.36", "sandbox/busybox:1"),
        ("label node NAME", "label node node-1"),
    ]
    (tmp_path / "charts").symlink_to(CHARTS)
    for path in (CHECKOUT / "examples/guides").glob("*.yaml"):
        text = path.read_text()
        for old, new in names:
            text = text.replace(old, new)
        copy = tmp_path / path.relative_to(CHECKOUT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    run_page(CHECKOUT / "docs/guides/bare-metal-slurm.md", environment(newcomer, tmp_path), names, folder=tmp_path)
    newcomer.run(*releases()[-1].command("uninstall"))


def test_the_quick_start_as_written(newcomer: Site, tmp_path: Path) -> None:
    """From nothing to nothing; what is pulled from a registry is there already."""
    run_page(QUICKSTART, environment(newcomer, tmp_path))
    everywhere = "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,customresourcedefinitions,namespaces"
    assert not [name for name in newcomer.names(everywhere) if "slurm" in name or "slinky" in name]
    assert not (tmp_path / "slinky").exists()
