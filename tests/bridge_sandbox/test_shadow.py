"""Shadow mode as a platform team would try it: with the rights of examples/bridge-shadow-rbac.yaml, on pods that the default scheduler places."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slinky.bridge.shadow_report import Report
from slinky.bridge.shadow_store import CONFIG_MAP
from slinky.kube import PODS, Client, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge, bridge_settings
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team, open_team
from tests.bridge_sandbox.test_rights import kubeconfig_of, kubectl
from tests.conftest import CHECKOUT, Cli, Partition

pytestmark = pytest.mark.sandbox

RIGHTS = str(CHECKOUT / "examples/bridge-shadow-rbac.yaml")
ACCOUNT = "slurm-bridge-shadow"


class Trial:
    """A shadow bridge, and a team whose pods it watches."""

    def __init__(self, bridge: SandboxBridge, team: Team, cli: Cli) -> None:
        self.bridge, self.team, self._cli = bridge, team, cli

    async def report(self, *words: str) -> str:
        config = ["--config", str(self.bridge.config), "--kubeconfig", str(self.bridge.kubeconfigs["run"])]
        done = await asyncio.to_thread(self._cli, "bridge", "shadow-report", *config, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def figures(self) -> Report:
        return msgspec.json.decode(await self.report("-o", "json"), type=Report)

    async def until_told(self, what: str, holds: Any) -> Report:
        async def told() -> bool:
            try:
                return bool(holds(await self.figures()))
            except AssertionError:
                return False  # there is no report yet

        await self.team.until(f"the report said that {what}", told, 90)
        return await self.figures()

    async def queue(self, state: str = "all") -> dict[str, int]:
        """Job ids by name, those that are not over."""
        states = "pending,running" if state == "all" else state
        lines = await self.team.head("squeue", "-h", "-p", self.team.partition.name, "-t", states, "-o", "%j %i")
        return {name.partition("/")[2]: int(job_id) for name, job_id in (line.split() for line in lines.splitlines())}

    async def raw_pods(self) -> str:
        return (await self.team.kube.raw("GET", f"/api/v1/namespaces/{self.team.namespace}/pods")).decode()

    async def is_untouched(self) -> None:
        """Byte for byte: nothing of ours is on any pod, not even who wrote what."""
        raw = await self.raw_pods()
        for ours in ("slinky.slurm.net/slurm-", "scheduler.slinky", "task.slinky", "slurm-bridge", "slinky-"):
            assert ours not in raw
        for pod in msgspec.json.decode(raw)["items"]:
            assert pod["spec"]["schedulerName"] == "default-scheduler"
            assert set(pod["metadata"].get("finalizers", [])) <= {"batch.kubernetes.io/job-tracking"}
            assert not [entry for entry in pod["metadata"]["managedFields"] if entry["manager"].startswith("slinky")]
        events = (await self.team.kube.raw("GET", f"/apis/events.k8s.io/v1/namespaces/{self.team.namespace}/events")).decode()
        assert "slurm-bridge" not in events


async def has_rights(sandbox: Sandbox) -> bool:
    try:
        await kubectl(sandbox, "apply", "-f", RIGHTS)
    except AssertionError:
        return False
    await kubectl(sandbox, "delete", "-n", "slinky", "configmap", CONFIG_MAP, "--ignore-not-found")
    return True


@asynccontextmanager
async def on_trial(sandbox: Sandbox, partition: Partition, folder: Path, cli: Cli, *options: str) -> AsyncIterator[Trial]:
    await sandbox.until("kube-apiserver", "the rights were given", lambda: has_rights(sandbox))  # another test's may be on their way out
    settings = await asyncio.to_thread(
        bridge_settings,
        sandbox,
        namespace="slinky",
        managedNamespaceSelector={"matchLabels": {"bridge": "shadow"}},
        admission={"configuration": "shadow"},  # those of the bridge that is not one stay at the end
        shadow=not options,
        shadowReportSeconds=0.5,
    )
    bridge = SandboxBridge(sandbox, settings, folder)
    bridge.options = options
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
        bridge.kubeconfigs = {"run": await kubeconfig_of(kube, sandbox, ACCOUNT, folder)}
    try:
        await bridge.start("run")
        async with open_team(sandbox, partition, label="shadow") as team:
            yield Trial(bridge, team, cli)
        log = bridge.log("run")
        for trouble in ("orbidden", "Traceback", "was not sent"):
            assert trouble not in log
    finally:
        await bridge.end()


@pytest.fixture
async def trial(sandbox: Sandbox, partition: Partition, tmp_path: Path, cli: Cli) -> AsyncIterator[Trial]:
    async with on_trial(sandbox, partition, tmp_path, cli) as found:
        yield found


def deployment(team: Team, replicas: int, name: str = "web") -> dict[str, Any]:
    template = team.pod(name)
    template["spec"]["restartPolicy"] = "Always"
    template["metadata"]["labels"] = {"app": name}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def job(team: Team, name: str, pods: int, run_for: str = "", **said: str) -> dict[str, Any]:
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": team.pod(name, run_for=run_for)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": team.said(**said)}, "spec": spec}


async def test_pods_run_as_they_do_and_slurm_tells_what_it_would_have_done(trial: Trial) -> None:
    team = trial.team
    await team.create(deployment(team, 10), job(team, "short", 2, run_for="10s"))
    await trial.until_told("all were started", lambda report: report.total.started == 12)
    running = await trial.queue("running")
    assert len([name for name in running if name.startswith("web-")]) == 10

    # The partition's four nodes are asked for whole, and one of them is not free.
    await team.create(*(team.pod(f"wide-{index}", said={"cpu-per-task": "64"}) for index in range(4)))
    await team.create(team.pod("typo", said={"acount": "x"}), team.pod("huge", said={"cpu-per-task": "1000"}))
    await team.until_running(*(f"wide-{index}" for index in range(4)), "typo", "huge")
    report = await trial.until_told(
        "two are refused and one waits", lambda report: report.total.refused == 2 and report.waiting and report.waiting[0].reason
    )
    assert {case.workload for case in report.waiting} == {f"Pod {team.namespace}/{name}" for name in await trial.queue("pending")}
    assert "waits in partition" in report.waiting[0].reason
    assert report.waiting[0].kube_wait is not None
    why = {case.workload: case.reason for case in report.refused}
    assert "did you mean" in why[f"Pod {team.namespace}/typo"]
    assert "no node of partition" in why[f"Pod {team.namespace}/huge"]

    report = await trial.until_told("the Job's pods have ended", lambda report: report.total.ended == 2)
    ended = [case for case in report.latest if "short" in case.workload]
    assert len(ended) == 2
    assert all(case.slurm_nodes in team.partition.nodes and case.kube_nodes for case in ended)
    assert report.namespaces[team.namespace] == report.total
    jobs = await trial.queue()
    assert not [name for name in jobs if name.startswith("short")]

    # Slurm takes one back: told, not done.
    victim = next(name for name in await trial.queue("running") if name.startswith("web-"))
    await team.head("scancel", str(jobs[victim]))
    report = await trial.until_told("one would have been evicted", lambda report: report.total.evicted == 1)
    assert report.evicted[0].workload == f"Pod {team.namespace}/{victim}"
    assert "CANCELLED" in report.evicted[0].reason
    assert (await team.get(victim)).status.phase == "Running"
    await trial.is_untouched()

    table = await trial.report()
    for word in ("Refused", "Evicted", "Waiting now", "Latest", team.namespace):
        assert word in table

    await team.create(team.pod("held", said={"priority": "0"}))  # whose pod goes before Slurm would have started it
    await trial.until_told("it was submitted", lambda report: report.total.submitted == 17)
    await team.kube.raw("DELETE", f"/apis/apps/v1/namespaces/{team.namespace}/deployments/web", body={"propagationPolicy": "Foreground"})

    async def none_of_the_deployment() -> bool:
        return not [pod for pod in await team.pods() if pod.metadata.name.startswith("web-")]

    await team.until("the Deployment had no pods and made none", none_of_the_deployment)
    await team.kube.raw("DELETE", f"/apis/batch/v1/namespaces/{team.namespace}/jobs/short", body={"propagationPolicy": "Background"})
    await team.delete_all()

    async def empty() -> bool:
        return not await trial.queue()

    await team.until("Slurm had no job of theirs", empty)
    report = await trial.until_told("nothing is left", lambda report: not report.total.waiting and not report.total.running)
    assert (report.total.submitted, report.total.refused) == (17, 2)
    assert report.total.ended + report.total.missed + report.total.evicted == 17
    assert report.total.missed >= 1


@pytest.mark.long
async def test_a_shadow_that_is_killed_finds_its_jobs_by_their_markers_and_counts_nothing_twice(trial: Trial) -> None:
    team = trial.team
    await team.create(
        deployment(team, 3), job(team, "gang", 4, run_for="10m", gang="true"), team.pod("goes"), team.pod("held", said={"priority": "0"})
    )
    await team.create(team.pod("huge", said={"cpu-per-task": "1000"}), team.pod("evicted"))
    await trial.until_told(
        "all were started", lambda report: report.total.started == 6 and report.total.submitted == 7 and report.total.refused == 1
    )
    before = await trial.queue()
    await team.head("scancel", str(before["evicted"]))
    await trial.until_told("one would have been evicted", lambda report: report.total.evicted == 1)
    assert await trial.bridge.stop("run", signal.SIGKILL) == -signal.SIGKILL

    await team.kube.delete(PODS, "goes", team.namespace, grace_seconds=0)
    await team.create(team.pod("comes"))
    await team.until_gone("goes")
    await trial.bridge.start("run")
    report = await trial.until_told("the new one was started", lambda report: report.total.started == 7)
    await team.until_job(before["goes"], JobState.CANCELLED)
    after = await trial.queue()
    assert {name: job_id for name, job_id in before.items() if name not in ("goes", "evicted")} == {
        name: job_id for name, job_id in after.items() if name != "comes"
    }
    assert (report.total.submitted, report.total.refused, report.total.evicted) == (8, 1, 1)
    assert [case.workload for case in report.waiting] == [f"Pod {team.namespace}/held"]
    await trial.is_untouched()


@pytest.mark.long
async def test_a_shadow_that_is_told_to_end_leaves_jobs_that_one_command_ends(
    sandbox: Sandbox, partition: Partition, tmp_path: Path, cli: Cli
) -> None:
    async with on_trial(sandbox, partition, tmp_path, cli, "--shadow") as trial:
        team = trial.team
        await team.create(team.pod("a"), team.pod("b", said={"priority": "0"}))
        await trial.until_told("one was started", lambda report: report.total.started == 1 and report.total.submitted == 2)
        foreign = (await team.head("sbatch", "--parsable", "-p", "compute", "--hold", "--wrap", "true")).split(";")[0]
        assert await trial.bridge.stop("run") == 0
        assert set(await trial.queue()) == {"a", "b"}
        config = ["--config", str(trial.bridge.config), "--kubeconfig", str(sandbox.kubeconfig)]
        done = await asyncio.to_thread(cli, "bridge", "shadow-end", *config)
        assert (done.returncode, done.stdout) == (0, "2 jobs ended\n"), done.stderr
        assert await trial.queue() == {}
        assert (await team.slurm.jobs.get(int(foreign))).is_pending
        await team.head("scancel", foreign)
        await trial.is_untouched()


async def test_the_webhook_of_a_shadow_changes_and_refuses_nothing(trial: Trial, sandbox: Sandbox, tmp_path: Path) -> None:
    """It need not run; where it does, people are warned."""
    bridge, team = trial.bridge, trial.team
    bridge.kubeconfigs["admission"] = sandbox.kubeconfig
    await bridge.start("admission")
    await team.create(team.pod("typo", said={"acount": "x"}), team.pod("fine"))
    await team.until_running("typo", "fine")
    await trial.is_untouched()
    manifest = tmp_path / "pod.json"
    manifest.write_bytes(msgspec.json.encode(team.pod("typo2", said={"acount": "x"})))

    async def warned() -> bool:
        """The API server hears of a webhook a moment after it was made, and asks it from then on."""
        done = await asyncio.create_subprocess_exec(
            str(sandbox.folder / "bin/kubectl"),
            *("create", "-n", team.namespace, "--dry-run=server", "-f", str(manifest)),
            env=os.environ | sandbox.exports(),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await done.communicate()
        assert done.returncode == 0
        return "Warning: slurm-bridge would refuse it: annotation" in said.decode()

    await team.until("people were warned", warned)
    await bridge.stop("admission")
