"""The charts on real nodes, by the real helm, in the words of docs/install.md: installed, used, upgraded, uninstalled; and the pages whose every command is run, the quick start last. The tests follow one another.

What must be seen: what runs is what the charts say, two of each and one that leads; a job and a pod go through Slurm; an upgrade changes pods and keeps certificates, keys and state; afterwards nothing is left.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slinky.sandbox.addons import CERT_MANAGER
from slinky.sandbox.charts import CHARTS, install, releases, uninstall
from slinky.sandbox.shape import Shape
from tests.charts.certificates import Tries, authority_of, bundles, renew
from tests.charts.site import POD, WEBHOOKS, WRONG, Site
from tests.conftest import CHECKOUT, Starter
from tests.guides.pages import QUICKSTART, run_page

pytestmark = [pytest.mark.sandbox, pytest.mark.long]


@pytest.fixture(scope="module")
def empty_site(start_sandbox: Starter) -> Site:
    return Site(start_sandbox("charts", Shape(nodes=0, real_nodes=2, operator=True, addons=(CERT_MANAGER,))))


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


def test_the_exported_configuration_is_that_of_the_installed_bridge(site: Site) -> None:
    """Its Lease is in a namespace of its own, and its Slurm runs in pods."""
    shell = os.environ | site.sandbox.exports()
    words = [sys.executable, "-m", "slinky"]
    told = subprocess.run([*words, "top", "--once"], env=shell, capture_output=True, text=True, timeout=90, check=False)
    assert "bridge: led by" in told.stdout, told.stdout + told.stderr
    assert "slurm-unreachable" not in told.stdout
    looked = subprocess.run([*words, "doctor", "--part", "bridge"], env=shell, capture_output=True, text=True, timeout=90, check=False)
    assert "unreachable" not in looked.stdout and "leader-" not in looked.stdout, looked.stdout + looked.stderr


def test_helm_test_runs_a_job_and_a_pod_through_slurm(site: Site) -> None:
    assert "Succeeded" in site.run("helm", "test", "slurm", "--namespace=slurm")
    assert "Succeeded" in site.run("helm", "test", "slurm-bridge", "--namespace=slinky")
    jobs = site.in_slurm("sacct", "--allusers", "-X", "--noheader", "--parsable2", "--format=JobName%60,State,Partition")
    assert "helm-test|COMPLETED|all" in jobs
    assert "team/slurm-bridge-test|COMPLETED|slurm-bridge" in jobs


async def test_an_exit_code_reaches_slurm(site: Site) -> None:
    """By libslurm, which is in the image; the chart gives it a slurm.conf."""
    site.kubectl("apply", "--filename=-", told=POD.format(name="fails", command="exit 3"))

    def told() -> bool:
        return "team/fails|FAILED|3:0" in site.in_slurm("sacct", "-aXn", "--parsable2", "--format=JobName%60,State,ExitCode")

    await site.until("Slurm knew the pod's exit code", told)


def test_what_could_not_work_is_refused_by_the_webhook(site: Site) -> None:
    assert "spec.replica" in site.run("kubectl", "apply", "--filename=-", told=json.dumps(WRONG), fails=True)


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


async def test_cert_manager_takes_the_certificates_over_and_renews_them_and_gives_them_back(site: Site) -> None:
    """Its own controllers, another authority each time, two replicas of each webhook that see it at different moments: and nothing is refused."""
    names = ("slurm-operator-admission", "slurm-bridge-admission")
    chosen = {"slurm-operator": "certManager.enabled", "slurm-bridge": "admission.certManager.enabled"}

    def upgrade(by_cert_manager: bool) -> None:
        for release in releases():
            if release.name in chosen:
                site.run(*release.command("upgrade"), f"--set={chosen[release.name]}={str(by_cert_manager).lower()}")

    with Tries(site) as tries:
        upgrade(by_cert_manager=True)
        for each in site.get("certificates", "--namespace=slinky")["items"]:
            assert {c["type"]: c["status"] for c in each["status"]["conditions"]}["Ready"] == "True", each["metadata"]["name"]
        first = [authority_of(site, f"{name}-tls") for name in names]
        assert all(first)
        assert [sum(authority in bundle for bundle in bundles(site)) for authority in first] == [1, len(bundles(site)) - 1]

        for name in names:
            before = authority_of(site, f"{name}-ca")
            renew(site, f"{name}-ca")
            await site.until("there was another authority", lambda name=name, old=before: authority_of(site, f"{name}-ca") not in ("", old))  # type: ignore[misc]
            renew(site, name)
            await site.until("it had signed", lambda name=name, old=before: authority_of(site, f"{name}-tls") not in ("", old))  # type: ignore[misc]
        second = [authority_of(site, f"{name}-tls") for name in names]

        def all_show_it() -> bool:
            pods = site.names("pods", "--namespace=slinky", "--selector=app.kubernetes.io/component=admission")
            if len(pods) != 4:
                return False  # of those before, some are still leaving
            return all(site.kubectl("logs", pod, "--namespace=slinky").count("webhook certificate loaded") == 2 for pod in pods)

        await site.until("all replicas showed the new certificates", all_show_it)
        assert [sum(authority in bundle for bundle in bundles(site)) for authority in second] == [1, len(bundles(site)) - 1]
        assert "Succeeded" in site.run("helm", "test", "slurm-bridge", "--namespace=slinky")

        upgrade(by_cert_manager=False)
        assert "Succeeded" in site.run("helm", "test", "slurm-bridge", "--namespace=slinky")
    assert not tries.refused, f"{len(tries.refused)} of {tries.count}: {tries.refused[0]}"
    assert tries.count > 50
    assert not site.names("certificates,issuers", "--namespace=slinky")
    # cert-manager keeps what it issued, unless it is told otherwise.
    site.kubectl("delete", "secret", "--namespace=slinky", *(f"{name}-{ending}" for name in names for ending in ("ca", "tls")))


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
    done = site.done("kubectl", *words, seconds=60)
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
