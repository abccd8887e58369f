"""A real Prometheus scrapes the exporter and a bridge on the sandbox: every panel's query returns something, and alerts fire when Slurm is taken away."""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from slinky.exporter.alerts import rule_file
from slinky.exporter.dashboards import DASHBOARDS
from slinky.exporter.panels import queries
from slinky.sandbox.bridge import sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.prometheus import Prometheus, running_prometheus
from tests.bridge_sandbox.conftest import POLICY, Team, open_team
from tests.conftest import Partition
from tests.exporter_sandbox.test_exporter import job, running
from tests.faults import Fault, FaultProxy

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

_numbers = itertools.count()
PICKED = {"$__rate_interval": "2m", "$partition": ".*", "$account": ".*", "$user": "root"}
# Fire on this Slurm, one after the other; promtool's tests show the others.
FOR_REAL = ("SlurmNodesDown", "SlurmPartitionDown", "SlurmLicensesExhausted")


def asked(expr: str) -> str:
    for variable, value in PICKED.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr, expr
    return expr


def impatient(folder: Path) -> Path:
    """The rules without the time that a condition must last."""
    rules = rule_file()
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    return path


async def until(what: str, probe: Callable[[], Awaitable[object]], seconds: float = 180) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await probe():
                await asyncio.sleep(0.5)
    except TimeoutError:
        pytest.fail(f"{what} did not come true within {seconds:g} s")


async def silent(prometheus: Prometheus) -> list[tuple[str, str]]:
    found = []
    for dashboard in DASHBOARDS:
        for panel, expr in queries(dashboard):
            if not await prometheus.query(asked(expr)):
                found.append((f"{dashboard.title}: {panel}", expr))
    return found


async def something_of_everything(sandbox: Sandbox, team: Team) -> None:
    """Jobs that run and wait, pods, a reservation."""
    nodes = team.partition.nodes
    await team.slurm.jobs.submit(job("runs", team.partition, cpus_per_task=3, tres_per_node="gres/gpu:2", licenses="matlab:20"))
    await team.slurm.jobs.submit(job("waits", team.partition, cpus_per_task=2, hold=True))
    await sandbox.link.run(
        "head",
        "scontrol",
        "create",
        "reservationname=seen",
        "starttime=now",
        "duration=60",
        "users=root",
        f"nodes={nodes[3]}",
        "flags=ignore_jobs",
    )
    await team.create(team.pod("stays", gpus=1), team.pod("ends", run_for="1s"))
    await team.until_running("stays")


async def test_every_panel_shows_something_and_alerts_fire(sandbox: Sandbox, partition: Partition, programs: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"managedNamespaceSelector": {"matchLabels": {"bridge": "seen"}}, "policy": POLICY, "name": "seen-bridge"}
    async with (
        FaultProxy(sandbox.slurm_server) as proxy,
        sandbox_bridge(sandbox, tmp_path / "bridge", **settings) as bridge,
        running(sandbox, tmp_path / "exporter", proxy.url, seconds=1.0, lookSeconds=10.0) as exporter,
        open_team(sandbox, partition, "seen") as team,
    ):
        places = {"slurm": [urlsplit(exporter.url).netloc], "bridge": [urlsplit(bridge.health()).netloc]}
        async with running_prometheus(programs, tmp_path / "prometheus", places, [impatient(tmp_path)], seconds=5) as prometheus:
            await something_of_everything(sandbox, team)
            try:
                await until("every panel had something to show", lambda: shown(team, prometheus), 240)
                await fire(sandbox, team, prometheus)

                async def down() -> bool:
                    return "firing" in (await prometheus.alerts()).get("SlurmDown", "")

                proxy.plan = lambda _: Fault.RESET
                await until("SlurmDown fired", down)
                proxy.plan = lambda _: Fault.NONE

                async def up_again() -> bool:
                    return "SlurmDown" not in await prometheus.alerts()

                await until("SlurmDown went", up_again)
            except BaseException:
                print(await silent(prometheus), await prometheus.alerts(), await prometheus.targets())
                raise
            finally:
                await sandbox.link.run("head", "scontrol", "delete", "reservationname=seen")


async def fire(sandbox: Sandbox, team: Team, prometheus: Prometheus) -> None:
    node = team.partition.nodes[2]
    head = ("head", "scontrol", "update")
    await sandbox.link.run(*head, f"nodename={node}", "state=down", "reason=test")
    await sandbox.link.run(*head, f"partitionname={team.partition.name}", "state=down")

    async def fired() -> bool:
        found = await prometheus.alerts()
        return all(found.get(name) == "firing" for name in FOR_REAL)

    try:
        await until(f"{', '.join(FOR_REAL)} fired", fired)
    finally:
        await sandbox.link.run(*head, f"nodename={node}", "state=resume")
        await sandbox.link.run(*head, f"partitionname={team.partition.name}", "state=up")


async def shown(team: Team, prometheus: Prometheus) -> bool:
    """Pods keep coming meanwhile: a rate of what does not happen any more is nothing."""
    await team.create(team.pod(f"more-{next(_numbers)}", run_for="1s"))
    return not await silent(prometheus)


def test_variables_are_known() -> None:
    for dashboard in DASHBOARDS:
        for _, expr in queries(dashboard):
            assert set(re.findall(r"\$\w+", expr)) <= set(PICKED)
