"""`slinky doctor` on real servers: sound where all is well, and in each of many broken installations the one finding that is to the point."""

import asyncio
import base64
import datetime as dt
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from slinky.bridge.keys import EXTERNAL_NODE
from slinky.bridge.settings_file import load_settings
from slinky.explain.doctor import diagnose
from slinky.explain.examining import examine
from slinky.kube import MUTATING_CONFIGURATIONS, NODES, Client, from_kubeconfig
from slinky.kube.admission.certificates import issue
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from slinky.slurm.credentials import mint
from tests.bridge_sandbox.conftest import Team
from tests.conftest import CHECKOUT, Cli

pytestmark = pytest.mark.sandbox


class Doctor:
    """`slinky doctor`, with the bridge's configuration or one that differs from it in a section or two."""

    def __init__(self, cli: Cli, sandbox: Sandbox, config: Path, folder: Path) -> None:
        self._cli, self._sandbox, self.config, self._folder = cli, sandbox, config, folder

    def _written(self, more: dict[str, Any]) -> Path:
        settings = yaml.safe_load(self.config.read_text())
        for key, value in more.items():
            settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) else value
        path = self._folder / "doctor.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    async def run(self, *words: str, **more: Any) -> tuple[int, str]:
        """As a user does."""
        where = ["--config", str(self._written(more)), "--kubeconfig", str(self._sandbox.kubeconfig)]
        done = await asyncio.to_thread(self._cli, "doctor", "--part", "bridge", *where, *words)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    async def __call__(self, user: str = "", **more: Any) -> dict[str, str]:
        """What is seen and advised, by code; without a process of its own, which takes a second."""
        found = diagnose(await examine(load_settings(self._written(more)), from_kubeconfig(self._sandbox.kubeconfig), bridge_user=user))
        return {each.code: f"{each.about}: {each.seen} → {each.change}" for each in found.findings}


@pytest.fixture
def doctor(cli: Cli, sandbox: Sandbox, bridge: SandboxBridge, tmp_path: Path) -> Doctor:
    return Doctor(cli, sandbox, bridge.config, tmp_path)


@asynccontextmanager
async def undone(team: Team, *command: str) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await team.head(*command)


async def test_what_is_sound_is_called_so_and_each_thing_that_is_not_is_found(team: Team, doctor: Doctor, tmp_path: Path) -> None:
    async def is_led() -> bool:
        return "leader-missing" not in await doctor()  # a bridge that has just started is ready before it leads

    await team.until("a bridge led", is_led)
    sound = await doctor()
    assert not sound.keys() - {"token-without-end", "nodes-none-labelled", "nodes-drained"}, sound
    code, output = await doctor.run()
    assert code == 0
    for area in ("Partitions", "Slurm's scheduler", "Rights in Kubernetes (RBAC)", "Webhooks", "The bridge's leader", "Clocks"):
        assert f"{area}: fine" in output.splitlines(), output

    # The configuration
    assert "there is " in (await doctor(partition="nosuch"))["partition-missing"]
    assert (
        "kubectl create namespace nosuch"
        in (await doctor(managedNamespaceSelector=None, managedNamespaces=["nosuch"]))["config-namespace-missing"]
    )
    assert "windows.total" in (await doctor(windows={"total": 10**6}))["max-job-count"]
    assert "add nosuch to GresTypes" in (await doctor(gres={"nvidia.com/gpu": "nosuch"}))["gres-type-missing"]
    assert "leader.name nobody" in (await doctor(leader={"name": "nobody"}))["leader-missing"]
    assert "slinky bridge admission" in (await doctor(admission={"configuration": "nosuch"}))["webhook-missing"]

    # Tokens
    key = (team.sandbox.head / "etc/slurm/jwt_hs256.key").read_bytes()
    token = tmp_path / "token"
    for user, seconds, signed_with, code_wanted in (
        ("alice", 3600 * 9, key, "token-user"),
        ("root", 600, key, "token-expires"),
        ("root", -600, key, "slurm-token-expired"),
        ("root", 600, b"x" * 32, "slurm-token-refused"),
    ):
        token.write_text(mint(signed_with, user, seconds, time.time()))
        found = await doctor(slurm={"tokenFile": str(token)})
        assert code_wanted in found, found
    assert "slurm-unreachable" in await doctor(slurmRestApi="http://127.0.0.1:9")

    # As kubectl's plugin, which finds the cluster as kubectl does
    words = [str(team.sandbox.folder / "bin/kubectl"), "slurm", "doctor", "--config", str(doctor.config)]
    search = {**os.environ, "PATH": f"{CHECKOUT / '.venv/bin'}:{os.environ['PATH']}"}
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, env=search, check=False, timeout=60)
    assert (done.returncode, "Webhooks: fine" in done.stdout) == (0, True), done.stdout + done.stderr

    # Its exit code
    assert (await doctor.run("--strict", leader={"name": "nobody"}))[0] == 1

    # Somebody without rights
    denied = await doctor("system:serviceaccount:default:nobody")
    assert "system:serviceaccount:default:nobody: may not" in denied["rights-missing"]


async def test_partitions_nodes_and_grace_times(team: Team, doctor: Doctor) -> None:
    name, nodes = team.partition.name, ",".join(team.partition.nodes)
    ours = {"partition": name}
    await team.head("scontrol", "update", f"PartitionName={name}", "State=DOWN")
    async with undone(team, "scontrol", "update", f"PartitionName={name}", "State=UP"):
        assert f"PartitionName={name} State=UP" in (await doctor(**ours))["partition-down"]
    await team.head("scontrol", "update", f"NodeName={nodes}", "State=DRAIN", "Reason=floods")
    async with undone(team, "scontrol", "update", f"NodeName={nodes}", "State=RESUME"):
        found = await doctor(**ours)
        assert "floods" in found["partition-unavailable"] and "sinfo -R" in found["nodes-drained"]

    # A grace time that is too short for a pod, with and without a sink
    body = team.pod("slow")
    body["spec"]["terminationGracePeriodSeconds"] = 90
    await team.create(body)
    await team.until_running("slow")
    await team.head("scontrol", "update", f"PartitionName={name}", "GraceTime=20")
    async with undone(team, "scontrol", "update", f"PartitionName={name}", "GraceTime=0"):
        found = await doctor(**ours)
        assert f"PartitionName={name} GraceTime=95" in found["grace-too-short"] and "grace-without-sink" not in found
        assert "grace-without-sink" in await doctor(nodes={"sink": ""}, **ours)


async def test_nodes_and_webhooks_that_differ_on_both_sides(team: Team, doctor: Doctor, bridge: SandboxBridge) -> None:
    node = "unregistered"
    await team.kube.create(NODES.untyped, {"metadata": {"name": node, "labels": {EXTERNAL_NODE: "true"}}})
    try:
        found = await doctor()
        assert f"nodes {node}: 1 labelled Nodes are not in Slurm" in found["nodes-unregistered"]
    finally:
        await team.kube.delete(NODES, node)
    used = team.partition.nodes[1]
    await team.kube.patch(NODES.untyped, used, {"status": {"allocatable": {"nvidia.com/gpu": "5"}}}, subresource="status")
    try:
        assert "gpu: 5 allocatable in Kubernetes, 8 in Slurm" in (await doctor())["gres-mismatch"]
    finally:
        await team.kube.patch(NODES.untyped, used, {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}, subresource="status")

    # A configuration beside the bridge's, as nobody keeps it: without an authority, with a wrong one, of an older file
    name = "doctor-test"
    right = await team.kube.get(MUTATING_CONFIGURATIONS, bridge.settings["admission"]["configuration"])
    hooks = [{**hook, "namespaceSelector": {"matchLabels": {"nobody": "has-it"}}} for hook in right["webhooks"]]
    wrong = base64.b64encode(issue(["x"], await now(team.kube)).authorities).decode()
    for bundle, code in ((None, "webhook-without-authority"), (wrong, "webhook-wrong-authority")):
        for hook in hooks:
            hook["clientConfig"] = {"url": hook["clientConfig"]["url"], **({"caBundle": bundle} if bundle else {})}
        await team.kube.create(MUTATING_CONFIGURATIONS, {"metadata": {"name": name}, "webhooks": hooks})
        try:
            found = await doctor(admission={"configuration": name})
            assert code in found and "another namespaceSelector" in found["webhook-other"], found
        finally:
            await team.kube.delete(MUTATING_CONFIGURATIONS, name)
    assert "a connection to it fails" in (await doctor(admission={"url": "https://127.0.0.1:9"}))["webhook-without-endpoint"]


async def now(kube: Client) -> dt.datetime:
    found = await kube.server_time()
    assert found is not None
    return found
