"""The bridge killed at the instants at which one side knows what the other does not: the next one finishes what was begun, and does nothing twice."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.kube import PODS, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import jobs_of, own_bridge
from tests.conftest import Partition
from tests.faults import Fault, FaultProxy, HeardRequest
from tests.kube_sandbox.front import front

pytestmark = pytest.mark.sandbox


class Assassin:
    """Kills the bridge at the first request that matches; the request still arrives, or not."""

    def __init__(self) -> None:
        self.bridge: SandboxBridge | None = None
        self.matches: Callable[[str, str], bool] | None = None
        self.arrives = True
        self.struck = False

    def wait_for(self, matches: Callable[[str, str], bool], *, arrives: bool = True) -> None:
        self.matches, self.arrives, self.struck = matches, arrives, False

    def strikes(self, method: str, path: str) -> bool:
        if self.matches is None or self.bridge is None or not self.matches(method, path):
            return False
        self.matches, self.struck = None, True
        os.kill(self.bridge.pid("run"), signal.SIGKILL)
        return True

    def at_slurm(self, request: HeardRequest) -> Fault:
        return Fault.RESET if self.strikes(request.method, request.path) and not self.arrives else Fault.NONE

    def at_kubernetes(self, request: web.Request) -> web.StreamResponse | None:
        struck = self.strikes(request.method, request.path)
        return web.Response(status=503) if struck and not self.arrives else None


def is_submit(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/job/submit")


def is_look_at_allocation(_: str, path: str) -> bool:
    return "/resources/" in path


def is_binding(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/binding")


def is_label(method: str, path: str) -> bool:
    return method == "PATCH" and "/pods/" in path and not path.endswith("/status")


def is_eviction(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/eviction")


async def test_a_bridge_killed_at_any_instant_submits_nothing_twice_and_forgets_nothing(
    sandbox: Sandbox, partition: Partition, tmp_path: Path
) -> None:
    """While it submits, between submit and label, between submit and bind, while it binds, while it evicts, while it lets go: each with a request that arrives and, where it matters, with one that does not."""
    assassin = Assassin()
    access = from_kubeconfig(sandbox.kubeconfig)
    async with FaultProxy(sandbox.slurm_server, assassin.at_slurm) as proxy, front(access, assassin.at_kubernetes) as through:
        config = tmp_path / "fronted.kubeconfig"
        known: dict[str, Any] = yaml.safe_load(sandbox.kubeconfig.read_text())
        known["clusters"][0]["cluster"], known["users"][0]["user"] = {"server": through.server}, {}
        config.write_text(yaml.safe_dump(known))
        config.chmod(0o600)
        settings: dict[str, Any] = {"slurmRestApi": proxy.url, "leader": {"elect": False}, "absence": {"sweepSeconds": 2}}
        async with own_bridge(sandbox, partition, tmp_path / "bridge", parts=("admission",), **settings) as (bridge, team):
            bridge.kubeconfigs = {"run": config}
            assassin.bridge = bridge
            await bridge.start("run")

            async def killed_then_started() -> None:
                async def struck() -> bool:
                    return assassin.struck

                await team.until("the bridge was killed", struck)
                assert await bridge.stop("run", signal.SIGKILL) == -signal.SIGKILL
                await bridge.start("run")

            starts: list[tuple[str, Callable[[str, str], bool], bool, dict[str, str]]] = [
                ("submit", is_submit, True, {}),
                ("no-submit", is_submit, False, {}),
                ("label", is_label, True, {"priority": "0"}),
                ("resources", is_look_at_allocation, True, {}),
                ("bind", is_binding, True, {}),
                ("no-bind", is_binding, False, {}),
            ]
            for name, instant, arrives, said in starts:
                assassin.wait_for(instant, arrives=arrives)
                await team.create(team.pod(name, said=said))
                await killed_then_started()
            await team.until_running(*(name for name, *_ in starts if name != "label"))
            labels = await team.until_labelled(*(name for name, *_ in starts))
            assert len(set(labels)) == len(labels)
            assert sorted(job_id for job_id, state in (await jobs_of(team)).items() if state in ("RUNNING", "PENDING")) == sorted(labels)

            assassin.wait_for(is_eviction)
            await team.head("scancel", (await team.get("bind")).metadata.labels[JOB_ID])
            await killed_then_started()
            await team.until_gone("bind")
            assassin.wait_for(is_label)  # of a finalizer, that goes
            await team.kube.delete(PODS, "submit", team.namespace)
            await killed_then_started()
            await team.until_gone("submit")
            await team.until_job(labels[0], JobState.CANCELLED)
            for name in ("no-submit", "no-bind"):
                assert FINALIZER in (await team.get(name)).metadata.finalizers
                assert (await team.job_of(name)).is_running
            assert_no_fault(bridge, team)


def assert_no_fault(bridge: SandboxBridge, team: Team) -> None:
    assert "Traceback" not in bridge.log("run"), team.namespace
