"""The checkpoint signal, in real containers on a real node: before the time limit, at a preemption, and where it cannot be delivered."""

import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slinky.bridge.checkpoint import EARLY_SECONDS
from slinky.bridge.delivery import deliver
from slinky.bridge.keys import JOB_ID, SETTINGS, SIGNALLED
from slinky.kube import EVENTS, NAMESPACES, PODS, Client, NotFoundError, OutcomeUnknownError, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.conftest import Starter

pytestmark = pytest.mark.sandbox

TRAPS = "trap 'date +saved@%s' USR1; echo ready; while :; do sleep 0.2; done"
NO_TOOLS = "rm /bin/kill /bin/sh; echo ready; while :; do sleep 0.2; done"


@pytest.fixture(scope="module")
def real(start_sandbox: Starter) -> Sandbox:
    return start_sandbox("checkpoint", Shape(nodes=0, real_nodes=1, slurmd=True))


@pytest.fixture
async def kube(real: Sandbox) -> AsyncIterator[Client]:
    async with Client(from_kubeconfig(real.kubeconfig)) as client:
        yield client


class Team:
    """Namespace `lab`, managed, in the partition of the node with a slurmd."""

    def __init__(self, real: Sandbox, kube: Client, bridge: SandboxBridge) -> None:
        self.real, self.kube, self.bridge = real, kube, bridge

    async def create(
        self, name: str, *scripts: str, sidecars: int = 0, cpu: str = "100m", spec: dict[str, Any] | None = None, **said: str
    ) -> None:
        boxes = [
            {
                "name": f"c{number}",
                "image": "sandbox/busybox:1",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
            }
            for number, script in enumerate(scripts)
        ]
        beside = [box | {"name": f"side{number}", "restartPolicy": "Always"} for number, box in enumerate(boxes[:1] * sidecars)]
        annotations = {SETTINGS + key: value for key, value in {"partition": "compute", **said}.items()}
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": boxes,
                "initContainers": beside,
                **(spec or {}),
            },
        }
        await self.kube.create(PODS.untyped, body, "lab")

    def logs(self, name: str, container: str) -> str:
        words = ["kubectl", "logs", "-n", "lab", name, "-c", container]
        return subprocess.run(words, env=os.environ | self.real.exports(), capture_output=True, text=True, timeout=30, check=False).stdout

    async def until_said(self, name: str, container: str, word: str, seconds: float = 60) -> str:
        async def said() -> bool:
            return word in self.logs(name, container)

        await self.real.until("kubelet-0", f"{name}/{container} said {word}", said, seconds)
        return self.logs(name, container)

    async def until_event(self, name: str, reason: str) -> str:
        async def notes() -> list[str]:
            found = (await self.kube.list(EVENTS, "lab")).items
            return [event.note for event in found if event.regarding.name == name and event.reason == reason]

        async def told() -> bool:
            return bool(await notes())

        await self.real.until("kube-apiserver", f"pod {name} had an Event {reason}", told)
        return (await notes())[0]


@pytest.fixture
async def team(real: Sandbox, kube: Client, tmp_path: Path) -> AsyncIterator[Team]:
    await kube.create(NAMESPACES.untyped, {"metadata": {"name": "lab"}})
    async with sandbox_bridge(real, tmp_path, managedNamespaces=["lab"]) as bridge:
        yield Team(real, kube, bridge)
        await kube.raw("DELETE", "/api/v1/namespaces/lab/pods", body={"gracePeriodSeconds": 0})

        async def empty() -> bool:
            return not (await kube.list(PODS, "lab")).items

        await real.until("kube-apiserver", "all pods were gone", empty)
        await kube.delete(NAMESPACES, "lab")

        async def gone() -> bool:
            try:
                await kube.get(NAMESPACES, "lab")
            except NotFoundError:
                return True
            return False

        await real.until("kube-apiserver", "the namespace was gone", gone)


@pytest.mark.long
async def test_a_command_in_a_container_tells_its_end(team: Team) -> None:
    await team.create("p", TRAPS)
    await team.until_said("p", "c0", "ready")
    done = await team.kube.exec("p", "lab", ["sh", "-c", "echo out; echo err >&2; exit 7"], container="c0")
    assert (done.exit_code, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert (await team.kube.exec("p", "lab", ["true"])).exit_code == 0
    missing = await team.kube.exec("p", "lab", ["no-such-program"])
    assert missing.exit_code in (None, 126, 127)
    assert "no-such-program" in missing.message + missing.stderr
    much = await team.kube.exec("p", "lab", ["sh", "-c", "yes | head -c 1000000"], most_output=1000)
    assert (much.exit_code, len(much.stdout)) == (0, 1000)
    with pytest.raises(OutcomeUnknownError, match="had not ended after 1 s"):
        await team.kube.exec("p", "lab", ["sleep", "60"], seconds=1)
    with pytest.raises(NotFoundError):
        await team.kube.exec("another", "lab", ["true"])


@pytest.mark.long
async def test_who_may_not_run_commands_in_pods_is_told_so(team: Team) -> None:
    await team.create("p", TRAPS)
    await team.until_said("p", "c0", "ready")
    access = team.kube.access
    nobody = replace(access, identity=replace(access.identity, impersonate="system:serviceaccount:lab:default"))
    async with Client(nobody) as client:
        delivery = await deliver(client, await team.kube.get(PODS, "p", "lab"), "USR1")
    assert delivery.problems == ("container c0: the bridge may not run commands in pods (pods/exec in its rights)",)
    assert not delivery.again


async def test_all_containers_get_it_before_the_time_limit_and_once_also_by_the_next_bridge(team: Team) -> None:
    """Two minutes less ninety seconds: half a minute after the start, and a little early."""
    await team.create("p", TRAPS, TRAPS, sidecars=1, timelimit="2", signal="USR1@90")
    for container in ("c0", "c1", "side0"):
        await team.until_said("p", container, "saved@")
    pod = await team.kube.get(PODS, "p", "lab")
    async with team.real.slurm_client() as slurm:
        job = await slurm.jobs.get(int(pod.metadata.labels[JOB_ID]))
    assert job.is_running
    end = job.end_time
    assert isinstance(end, int)
    saved = int(team.logs("p", "c0").partition("saved@")[2].split()[0])
    assert 90 <= end - saved <= 90 + EARLY_SECONDS + 5
    assert await team.until_event("p", "CheckpointSignal") == "USR1 was sent to side0, c0, c1: its job's time limit is near"

    async def noted() -> bool:
        return (await team.kube.get(PODS, "p", "lab")).metadata.annotations.get(SIGNALLED) == f"timelimit@{end}"

    await team.real.until("kube-apiserver", "it was noted on the pod", noted)
    await team.bridge.stop("run")
    await team.bridge.start("run")
    await team.create("q", TRAPS, timelimit="1", signal="USR1@600")  # due at once: when it has it, the bridge has looked at all
    await team.until_said("q", "c0", "saved@")
    assert team.logs("p", "c0").count("saved@") == 1


@pytest.mark.long
async def test_where_it_cannot_be_delivered_an_event_says_why(team: Team) -> None:
    await team.create("bare", NO_TOOLS, timelimit="1", signal="USR1@600")
    await team.create("shared", TRAPS, timelimit="1", signal="USR1@600", spec={"shareProcessNamespace": True})
    assert "has neither kill nor sh" in await team.until_event("bare", "CheckpointSignalFailed")
    assert "shareProcessNamespace" in await team.until_event("shared", "CheckpointSignalFailed")
    assert "saved@" not in team.logs("shared", "c0")


@pytest.mark.long
async def test_a_preempted_pod_gets_it_within_its_grace_time(team: Team) -> None:
    """Slurm's slurmd answers at once, so no state shows it: the job's record does."""
    await team.real.link.run("head", "sacctmgr", "--immediate", "modify", "qos", "low", "set", "GraceTime=90")
    cpus = int((await team.real.link.run("head", "sinfo", "-h", "-N", "-p", "compute", "-o", "%c")).split()[0])
    whole = f"{cpus}"
    try:
        await team.create("p", TRAPS, cpu="1", qos="low", account="physics", exclusive="true", signal="USR1@60", timelimit="30")
        await team.until_said("p", "c0", "ready")
        await team.real.link.run(
            "head",
            "sbatch",
            "--partition=compute",
            "--qos=high",
            "--account=physics",
            f"--cpus-per-task={whole}",
            "--time=1",
            "--output=/dev/null",
            "--wrap=true",
        )
        await team.until_said("p", "c0", "saved@", 90)
        pod = await team.kube.get(PODS, "p", "lab")
        assert pod.metadata.deletion_timestamp is None
        assert pod.metadata.annotations[SIGNALLED].startswith("preemption@")
        assert "is being preempted" in await team.until_event("p", "CheckpointSignal")
    finally:
        await team.real.link.run("head", "scancel", "--partition=compute")
        await team.real.link.run("head", "sacctmgr", "--immediate", "modify", "qos", "low", "set", "GraceTime=0")
