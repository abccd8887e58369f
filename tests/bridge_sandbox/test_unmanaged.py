"""A namespace that stops being managed: no pod there keeps the bridge's finalizer when it ends. On the real servers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from slinky.bridge.keys import FINALIZER
from slinky.kube import NAMESPACES
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.own import own_bridge
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox


async def restart(bridge: SandboxBridge, *, stopped: bool = False, **settings: Any) -> None:
    if not stopped:
        await bridge.stop("run")
    bridge.config.write_text(yaml.safe_dump(bridge.settings | settings))
    await bridge.start("run")


async def until_released(team: Team, *names: str) -> None:
    async def released() -> bool:
        return not any(FINALIZER in pod.metadata.finalizers for pod in await team.pods() if pod.metadata.name in names)

    await team.until(f"{', '.join(names)} had no finalizer", released)


async def make(team: Team, prefix: str) -> None:
    held = team.pod(f"{prefix}-held", said={"priority": "0"})
    await team.create(team.pod(f"{prefix}-runs"), team.pod(f"{prefix}-ends", run_for="15s"), held)
    await team.until_running(f"{prefix}-runs", f"{prefix}-ends")
    await team.until_labelled(f"{prefix}-held")


async def all_end(team: Team, prefix: str) -> None:
    """One ends by itself, the others are deleted."""
    await until_released(team, f"{prefix}-ends")
    for name in (f"{prefix}-runs", f"{prefix}-held"):
        await team.kube.raw("DELETE", f"/api/v1/namespaces/{team.namespace}/pods/{name}")
    await team.until_gone(f"{prefix}-runs", f"{prefix}-held")


async def test_a_namespace_that_is_managed_no_more_keeps_no_finalizer(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    async with own_bridge(sandbox, partition, tmp_path) as (bridge, team):
        await make(team, "label")
        await team.kube.patch(NAMESPACES, team.namespace, {"metadata": {"labels": {"bridge": "off"}}})
        await all_end(team, "label")
        label = bridge.settings["managedNamespaceSelector"]["matchLabels"]["bridge"]
        await team.kube.patch(NAMESPACES, team.namespace, {"metadata": {"labels": {"bridge": label}}})

        await make(team, "list")
        await restart(bridge, managedNamespaceSelector=None, managedNamespaces=["another"])
        await all_end(team, "list")

        await restart(bridge)
        await make(team, "never")
        await bridge.stop("run")
        await team.create(team.pod("never-new"))  # taken in by the webhook, and not in Slurm yet
        await restart(bridge, stopped=True, slurm={**bridge.settings["slurm"], "namespaces": ["slurm", team.namespace]})
        assert "Slurm schedules nothing in namespace" in await team.until_condition("never-new", "Parked")
        await all_end(team, "never")
        await team.kube.raw("DELETE", f"/api/v1/namespaces/{team.namespace}/pods/never-new")
        await team.until_gone("never-new")
        await restart(bridge)
