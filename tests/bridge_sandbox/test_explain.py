"""`slinky explain`, `--whatif` and `top` on real servers: situations that are really brought about, and what a user is told of them by the program as she runs it."""

import asyncio
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from slinky.bridge.keys import JOB_ID
from slinky.bridge.settings_file import load_settings
from slinky.bridge.workload import COSCHEDULING_LABEL
from slinky.explain.gathering import gather_job, gather_node, gather_pod
from slinky.explain.report import explain_job, explain_node, explain_pod
from slinky.kube import NODES, PODS, Resource, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from slinky.slurm.credentials import mint
from tests.bridge_sandbox.conftest import Team
from tests.conftest import Cli

pytestmark = pytest.mark.sandbox


class Explains:
    """`slinky explain …` with the bridge's own configuration."""

    def __init__(self, cli: Cli, sandbox: Sandbox, config: Path, kubeconfig: Path | None = None) -> None:
        self.cli, self.sandbox, self.config, self._kubeconfig = cli, sandbox, config, kubeconfig or sandbox.kubeconfig

    async def run(self, *words: str) -> tuple[int, str]:
        where = ["--config", str(self.config), "--kubeconfig", str(self._kubeconfig)]
        done = await asyncio.to_thread(self.cli, *words, *where)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    async def __call__(self, kind: str, name: str) -> dict[str, str]:
        """What is seen and advised, by code; without a process of its own, which takes a second."""
        settings, access = load_settings(self.config), from_kubeconfig(self._kubeconfig)
        match kind:
            case "pod":
                found = explain_pod(await gather_pod(settings, access, *name.split("/")))
            case "job":
                found = explain_job(await gather_job(settings, access, int(name)))
            case _:
                found = explain_node(await gather_node(settings, access, name))
        return {each.code: f"{each.seen} → {each.change}" for each in found.findings}

    def otherwise(self, folder: Path, **more: Any) -> "Explains":
        """With another configuration file."""
        settings = yaml.safe_load(self.config.read_text())
        for key, value in more.items():
            settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) else value
        path = folder / "other.yaml"
        path.write_text(yaml.safe_dump(settings))
        return Explains(self.cli, self.sandbox, path)


@pytest.fixture
def explains(cli: Cli, sandbox: Sandbox, bridge: SandboxBridge) -> Explains:
    return Explains(cli, sandbox, bridge.config)


@asynccontextmanager
async def undone(team: Team, *command: str) -> AsyncIterator[None]:
    """Runs the command on the head at the end, whatever happens."""
    try:
        yield
    finally:
        await team.head(*command)


async def until_found(team: Team, explains: Explains, kind: str, name: str, code: str) -> str:
    """Slurm gives its reasons when it comes round to a job."""
    found: dict[str, str] = {}

    async def is_found() -> bool:
        found.clear()
        found.update(await explains(kind, name))
        return code in found

    try:
        await team.until(f"explain {kind} {name} said {code}", is_found)
    except Exception as error:
        raise AssertionError(f"found instead: {found}") from error
    return found[code]


async def test_what_keeps_a_pod_and_its_job_waiting(team: Team, explains: Explains) -> None:
    partition = team.partition.name
    job = ""

    # The partition is down
    await team.head("scontrol", "update", f"PartitionName={partition}", "State=DOWN")
    async with undone(team, "scontrol", "update", f"PartitionName={partition}", "State=UP"):
        await team.create(team.pod("waits"))
        (number,) = await team.until_labelled("waits")
        job = str(number)
        assert f"PartitionName={partition} State=UP" in await until_found(
            team, explains, "pod", f"{team.namespace}/waits", "job-partition-down"
        )
        # and it is held besides
        await team.head("scontrol", "hold", job)
        assert f"scontrol release {job}" in await until_found(team, explains, "job", job, "job-held-admin")

    # Held alone: the text, as it is read
    code, output = await explains.run("explain", "pod", "waits", "-n", team.namespace)
    assert code == 0
    assert output.startswith(f"pod {team.namespace}/waits: something must be changed\n  ERROR    job-held-admin: job {job}: Slurm says ")
    assert f"Slurm says\n  job {job} ({team.namespace}/waits) is PENDING in partition {partition}" in output
    await team.head("scontrol", "release", job)
    await team.until_running("waits")
    found = await explains("pod", f"{team.namespace}/waits")
    assert set(found) == {"pod-running"}
    assert "job-running" in await explains("job", job)


async def test_pods_that_name_what_is_missing_foreign_or_not_supported(team: Team, explains: Explains) -> None:
    lonely, foreign, large, device = (team.pod(name) for name in ("lonely", "foreign", "large", "device"))
    lonely["metadata"].setdefault("labels", {})[COSCHEDULING_LABEL] = "nosuch"
    foreign["spec"]["schedulerName"] = "volcano"
    large["spec"]["containers"][0]["resources"] = {"requests": {"memory": "900Gi"}}
    resource = {f"{team.namespace}.example.com/device": "1"}
    device["spec"]["containers"][0]["resources"] = {"requests": resource, "limits": resource}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": team.namespace}}
    classes: Resource[dict[str, Any]] = Resource("resource.k8s.io", "v1", "deviceclasses", dict, namespaced=False)
    await team.kube.create(classes, kind | {"spec": {"extendedResourceName": next(iter(resource))}})
    try:
        await team.create(lonely, foreign, large, device)
        where = f"{team.namespace}/"
        said = await until_found(team, explains, "pod", f"{where}lonely", "pod-group-missing")
        assert f"create PodGroup {team.namespace}/nosuch" in said
        assert set(await explains("pod", f"{where}foreign")) == {"pod-other-scheduler"}
        assert "but the pod requests 900Gi" in await until_found(team, explains, "pod", f"{where}large", "pod-too-large")
        assert f"DeviceClass {team.namespace}" in await until_found(team, explains, "pod", f"{where}device", "pod-devices-unsupported")
    finally:
        await team.kube.delete(classes, team.namespace)


async def test_drained_nodes_reservations_dependencies_and_limits(team: Team, explains: Explains) -> None:
    nodes = ",".join(team.partition.nodes)
    await team.head("scontrol", "update", f"NodeName={nodes}", "State=DRAIN", "Reason=new disks")
    async with undone(team, "scontrol", "update", f"NodeName={nodes}", "State=RESUME"):
        await team.create(team.pod("drained"))
        (first,) = await team.until_labelled("drained")
        said = await until_found(team, explains, "job", str(first), "job-nodes-unavailable")
        assert "new disks" in said and "State=RESUME" in said
        node = team.partition.nodes[0]
        assert "reason: new disks, by " in (await explains("node", node))["node-drained"]

        # What depends on a job that was cancelled
        await team.create(team.pod("after", said={"dependency": f"afterok:{first}"}))
        await team.until_labelled("after")
        assert f"afterok:{first}" in await until_found(team, explains, "pod", f"{team.namespace}/after", "job-dependency")
        await team.head("scancel", str(first))
        assert "ended as CANCELLED" in await until_found(team, explains, "job", str(first), "job-failed")
        said = await until_found(team, explains, "pod", f"{team.namespace}/after", "job-dependency-never")
        assert f"kubectl delete pod after -n {team.namespace}" in said
    await team.until_gone("drained")

    # A reservation of others
    await team.head("scontrol", "create", "reservation", "ReservationName=explain-test", "StartTime=now", "Duration=60", "Users=root", "Flags=MAINT,IGNORE_JOBS", f"Nodes={nodes}")  # fmt: skip
    async with undone(team, "scontrol", "delete", "ReservationName=explain-test"):
        await team.create(team.pod("reserved"))
        (third,) = await team.until_labelled("reserved")
        assert "scontrol delete ReservationName=explain-test" in await until_found(
            team, explains, "job", str(third), "job-reservation-in-the-way"
        )
        assert "explain-test" in (await explains("node", team.partition.nodes[0]))["node-reserved"]


async def test_what_slurm_or_the_site_refuses_and_what_never_gets_there(team: Team, explains: Explains, tmp_path: Path) -> None:
    nowhere = team.pod("nowhere")
    nowhere["spec"]["nodeSelector"] = {"example.com/nobody": "has-it"}
    await team.create(nowhere)
    gated = team.pod("gated")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    await team.create(
        team.pod("account", said={"account": "nosuch"}), team.pod("qos", said={"qos": "nosuch"}), team.pod("large", cpus=4000), gated
    )
    home = team.namespace
    assert "sacctmgr add account" in await until_found(team, explains, "pod", f"{home}/account", "pod-account-unknown")
    assert "sacctmgr modify account" in await until_found(team, explains, "pod", f"{home}/qos", "pod-qos-refused")
    assert "ask for less" in await until_found(team, explains, "pod", f"{home}/large", "pod-too-large")
    assert "nodeSelector" in await until_found(team, explains, "pod", f"{home}/nowhere", "pod-nowhere")
    assert "kubectl get workloads" in (await explains("pod", f"{home}/gated"))["pod-gated-by-kueue"]
    assert (await explains.run("explain", "pod", "nosuch", "-n", home))[0] == 1
    assert "pod-not-found" in await explains("pod", f"{home}/nosuch")
    assert "job-not-found" in await explains("job", "9999999")

    # A pod of a namespace that nobody manages; and a bridge that nobody runs
    body = {"metadata": {"name": "elsewhere"}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    await team.kube.create(PODS.untyped, body, "default")
    try:
        assert "label it bridge=on" in (await explains("pod", "default/elsewhere"))["pod-not-ours"]
    finally:
        await team.kube.delete(PODS, "elsewhere", "default", grace_seconds=0)
    without = explains.otherwise(tmp_path, leader={"name": "nobody-leads"})
    assert "nobody-leads does not exist" in (await without("pod", f"{home}/account"))["bridge-not-running"]


async def test_nodes_as_both_sides_have_them(team: Team, explains: Explains) -> None:
    node = team.partition.nodes[0]
    assert set(await explains("node", node)) == {"node-fine"}
    await team.kube.patch(NODES.untyped, node, {"spec": {"unschedulable": True}})
    try:
        assert f"kubectl uncordon {node}" in (await explains("node", node))["node-cordoned"]
    finally:
        await team.kube.patch(NODES.untyped, node, {"spec": {"unschedulable": False}})
    devices = {"status": {"allocatable": {"nvidia.com/gpu": "3"}, "capacity": {"nvidia.com/gpu": "3"}}}
    await team.kube.patch(NODES.untyped, node, devices, subresource="status")
    try:
        assert "gpu: 3 allocatable in Kubernetes, 8 in Slurm" in (await explains("node", node))["node-gres-mismatch"]
    finally:
        whole = {"status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}}
        await team.kube.patch(NODES.untyped, node, whole, subresource="status")
    assert "node-not-found" in await explains("node", "nosuch")


async def test_a_side_that_cannot_be_asked_is_told_and_the_other_is_heard(team: Team, explains: Explains, tmp_path: Path) -> None:
    await team.create(team.pod("here"))
    await team.until_running("here")
    name = f"{team.namespace}/here"
    key = (explains.sandbox.head / "etc/slurm/jwt_hs256.key").read_bytes()
    for file, signed_with, seconds, code in (
        ("expired", key, -10, "slurm-token-expired"),
        ("forged", b"x" * 32, 600, "slurm-token-refused"),
    ):
        (tmp_path / file).write_text(mint(signed_with, "root", seconds, time.time()))
        found = await explains.otherwise(tmp_path, slurm={"tokenFile": str(tmp_path / file)})("pod", name)
        assert set(found) == {"pod-running", code}
    found = await explains.otherwise(tmp_path, slurmRestApi="http://127.0.0.1:9")("pod", name)
    assert set(found) == {"pod-running", "slurm-unreachable"}
    found = await explains.otherwise(tmp_path, slurm={"tokenFile": str(tmp_path / "nosuch")})("pod", name)
    assert set(found) == {"pod-running", "slurm-token-unreadable"}
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(explains.sandbox.kubeconfig.read_text().replace(":6443", ":9"))
    blind = Explains(explains.cli, explains.sandbox, explains.config, nowhere)
    assert set(await blind("pod", name)) == {"kubernetes-unreachable"}


def another_clusters_sbatch(folder: Path, sandbox: Sandbox) -> str:
    """As on a login host of another cluster: its scontrol names that, and its sbatch leaves word."""
    (folder / "scontrol").write_text(f"#!/bin/sh\n{sandbox.folder}/bin/scontrol \"$@\" | sed 's/^ClusterName .*/ClusterName = lab/'\n")
    (folder / "sbatch").write_text(f"#!/bin/sh\ntouch {folder}/asked\n")
    for name in ("scontrol", "sbatch"):
        (folder / name).chmod(0o755)
    return str(folder / "sbatch")


async def test_when_would_this_start_and_the_overview(team: Team, explains: Explains, tmp_path: Path) -> None:
    sbatch = str(explains.sandbox.folder / "bin/sbatch")
    where = ("-p", team.partition.name)
    code, said = await explains.run("explain", "--whatif", "8 gpu 4h", *where, "--sbatch", sbatch)
    assert code == 0 and said.startswith("it would start at once") and "Slurm's own test" in said
    elsewhere = another_clusters_sbatch(tmp_path, explains.sandbox)
    code, said = await explains.run("explain", "--whatif", "8 gpu 4h", *where, "--sbatch", elsewhere)
    assert code == 0 and "an estimate" in said
    assert not (tmp_path / "asked").exists()
    code, said = await explains.run("explain", "--whatif", "8 gpu 4h", *where, "--sbatch", "")
    assert code == 0 and said.startswith("it would start at once") and "estimate" in said
    for sort in (sbatch, ""):
        code, said = await explains.run("explain", "--whatif", "9 nodes 1h", *where, "--sbatch", sort)
        assert code == 1 and said.startswith("it would not start")

    # All of it is taken for an hour: both say so
    await team.create(*(team.pod(f"full-{index}", cpus=60, said={"timelimit": "60"}) for index in range(4)))
    await team.until_running(*(f"full-{index}" for index in range(4)))
    for sort in (sbatch, ""):
        code, said = await explains.run("explain", "--whatif", "32 cpu 1h", *where, "--sbatch", sort)
        assert code == 0 and re.search("it would start in (5[0-9] min|1 h 0 min)", said), said
    (number,) = await team.until_labelled("full-0")
    code, screen = await explains.run("top", "--once")
    assert code == 0
    row = next(line for line in screen.splitlines() if f" {number} " in line)
    assert "RUNNING" in row and f"{team.namespace}/full-0 Running" in row
    assert team.partition.name in screen


async def test_a_pod_whose_job_is_gone_gets_no_job_and_is_told_apart(team: Team, explains: Explains, sandbox: Sandbox) -> None:
    """Kubernetes' garbage collector, which would delete it within a moment, is held for this."""
    pod = team.pod("left")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": str(uuid.uuid4()), "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    await sandbox.link.signal("kube-controller-manager", signal.SIGSTOP)
    try:
        await team.create(pod, team.pod("other"))
        await team.until_running("other")
        found = await explains("pod", f"{team.namespace}/left")
        assert "made by Job gone, which is gone → kubectl delete pod left" in found["pod-owner-gone"]
        assert JOB_ID not in (await team.get("left")).metadata.labels
    finally:
        await sandbox.link.signal("kube-controller-manager", signal.SIGCONT)
    await team.until_gone("left")
    assert set(await explains("pod", f"{team.namespace}/other")) == {"pod-running"}
