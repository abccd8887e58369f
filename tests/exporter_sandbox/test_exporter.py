"""The exporter on a real Slurm: what it tells is what Slurm says; one look for all; Slurm that is down costs no scrape."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from slinky.bridge.settings import Settings as BridgeSettings
from slinky.explain.doctor import diagnose
from slinky.explain.examining import Asked, examine
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.processes import Processes
from slinky.sandbox.prometheus import promtool
from slinky.slurm import JobDescription
from tests.conftest import Cli, Partition
from tests.faults import Fault, FaultProxy

pytestmark = pytest.mark.sandbox

Told = dict[str, dict[frozenset[tuple[str, str]], float]]


class Exporter:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self._session = url, session

    async def scrape(self, patience: float | None = None) -> Told:
        headers = {} if patience is None else {"X-Prometheus-Scrape-Timeout-Seconds": str(patience)}
        async with self._session.get(f"{self.url}/metrics", headers=headers) as answer:
            assert answer.status == 200
            return read(await answer.text())

    async def one(self, name: str, **labels: str) -> float:
        return total(await self.scrape(), name, **labels)


def read(text: str) -> Told:
    found: Told = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def total(told: Told, name: str, **labels: str) -> float:
    wanted = frozenset(labels.items())
    return sum(value for key, value in told.get(name, {}).items() if wanted <= key)


@asynccontextmanager
async def running(sandbox: Sandbox, folder: Path, url: str = "", **snapshot: float) -> AsyncIterator[Exporter]:
    settings = {
        "slurmRestApi": url or sandbox.slurm_server,
        "slurm": {"tokenFile": str(sandbox.token_file)},
        "snapshot": {"seconds": 0.2, "share": 1.0, **snapshot},
    }
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(settings))
    processes = Processes("exporter", folder)
    await processes.start_part("run", "--config", str(config))
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
            yield Exporter(processes.health(), session)
    finally:
        await processes.stop_all()


def job(name: str, partition: Partition, **more: object) -> JobDescription:
    said = {
        "flags": ["EXTERNAL_JOB"],
        "environment": ["A=b"],
        "current_working_directory": "/tmp",
        "account": "physics",
        "memory_per_node": 1024,
    }
    return JobDescription(name=name, partition=partition.name, **(said | more))  # type: ignore[arg-type]


async def test_what_is_told_is_what_slurm_says(sandbox: Sandbox, partition: Partition, tmp_path: Path) -> None:
    async with sandbox.slurm_client() as slurm, running(sandbox, tmp_path) as exporter:
        await slurm.jobs.submit(job("runs", partition, cpus_per_task=3, tres_per_node="gres/gpu:2", licenses="matlab:2"))
        await slurm.jobs.submit(job("waits", partition, cpus_per_task=2, hold=True))
        await sandbox.link.run(
            "head",
            "scontrol",
            "create",
            "reservationname=seen",
            "starttime=now",
            "duration=10",
            "users=root",
            f"nodes={partition.nodes[3]}",
            "flags=ignore_jobs",
        )
        await sandbox.link.run("head", "scontrol", "update", f"nodename={partition.nodes[2]}", "state=drain", "reason=test")
        mine = {"partition": partition.name, "account": "physics", "user": "root"}

        async def settled() -> bool:
            told = await exporter.scrape()  # jobs and nodes are read one after the other: one scrape may have the job and not yet its CPUs
            allocated = total(told, "slurm_partition_capacity_cpus", partition=partition.name, state="allocated")
            return total(told, "slurm_queue_cpus", state="running", **mine) == allocated == 3

        try:
            await sandbox.until("slurmctld", "the job was told as running, and its CPUs as allocated", settled)
            told = await exporter.scrape()
            assert total(told, "slurm_queue_jobs", state="running", **mine) == 1
            assert total(told, "slurm_queue_jobs", state="pending", **mine) == 1
            assert total(told, "slurm_queue_memory_bytes", state="running", **mine) == 1024 * 1024**2
            assert total(told, "slurm_queue_gres", gres="gpu", state="running", **mine) == 2
            assert total(told, "slurm_queue_pending_jobs", partition=partition.name) == 1
            capacity = {
                state: total(told, "slurm_partition_capacity_cpus", partition=partition.name, state=state)
                for state in ("allocated", "idle", "other")
            }
            assert capacity == {"allocated": 3, "idle": 64 * 3 - 3, "other": 64}
            assert total(told, "slurm_partition_capacity_gres", partition=partition.name, gres="gpu", state="allocated") == 2
            assert total(told, "slurm_node_state", node=partition.nodes[2], state="drained") == 1
            assert total(told, "slurm_reservation_nodes", reservation="seen") == 1
            assert total(told, "slurm_reservation_active", reservation="seen") == 1
            assert total(told, "slurm_licenses", license="matlab", state="used") >= 2
            assert total(told, "slurm_cluster_nodes") == total(told, "slurm_node_state") == len(await slurm.nodes.all())
            assert total(told, "slurm_controller_rpcs_total", message_type="REQUEST_NODE_INFO") > 0
            assert total(told, "slurm_controller_job_events_total", event="submitted") >= 2
            assert any(("user", "alice") in key for key in told["slurm_fairshare_factor"])
            assert set(told["slurm_exporter_part_up"].values()) == {1.0}
            assert told["slurm_up"] == {frozenset(): 1.0}
        finally:
            await sandbox.link.run("head", "scontrol", "update", f"nodename={partition.nodes[2]}", "state=resume")
            await sandbox.link.run("head", "scontrol", "delete", "reservationname=seen")


async def test_many_scrapers_cost_slurm_one_look_within_its_time(sandbox: Sandbox, tmp_path: Path) -> None:
    async with (
        FaultProxy(sandbox.slurm_server) as proxy,
        running(sandbox, tmp_path, proxy.url, seconds=600.0, waitSeconds=30.0) as exporter,
    ):
        answers = await asyncio.gather(*(exporter.scrape() for _ in range(20)))
        answers += [await exporter.scrape() for _ in range(5)]
        assert {total(told, "slurm_up") for told in answers} == {1.0}
        paths = [heard.path for heard in proxy.heard if "/openapi" not in heard.path]
        assert len(paths) == len(set(paths)) == 7


async def test_a_slurm_that_is_down_costs_no_scrape(sandbox: Sandbox, tmp_path: Path) -> None:
    async with (
        FaultProxy(sandbox.slurm_server) as proxy,
        running(sandbox, tmp_path, proxy.url, lookSeconds=6.0, staleSeconds=600.0) as exporter,
    ):

        async def told_up() -> bool:
            return await exporter.one("slurm_up") == 1.0

        await sandbox.until("slurmctld", "slurm_up was 1", told_up)
        assert await doctors_findings(exporter.url) == []
        for fault in (Fault.RESET, Fault.STALL, Fault.UNAUTHORIZED, Fault.PLAIN_500):
            proxy.plan = lambda _, fault=fault: fault  # type: ignore[misc]

            async def told_down() -> bool:
                return await exporter.one("slurm_up") == 0.0

            await sandbox.until("slurmctld", f"slurm_up was 0 ({fault.name})", told_down)
            began = time.monotonic()
            told = await exporter.scrape(patience=1.0)
            waited = time.monotonic() - began
            assert waited < 30, "the scrape came back long before a scraper would give up"
            assert total(told, "slurm_cluster_nodes") > 0, "what was seen last is told on"
            assert total(told, "slurm_exporter_snapshot_age_seconds") > 0
            proxy.plan = lambda _: Fault.NONE
            await sandbox.until("slurmctld", f"slurm_up was 1 again ({fault.name})", told_up)


async def test_an_exporter_that_starts_while_slurm_is_down_serves(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path, "http://127.0.0.1:9") as exporter:
        told = await exporter.scrape()
        assert total(told, "slurm_up") == 0.0
        assert "slurm_cluster_nodes" not in told
        assert await doctors_findings(exporter.url) == ["exporter-slurm-down"]
    assert await doctors_findings(exporter.url) == ["exporter-unanswered"]


async def doctors_findings(url: str) -> list[str]:
    """What `slinky doctor --part exporter` says of it; no Kubernetes is asked."""
    asked = Asked(parts=frozenset({"exporter"}), exporter_url=url)
    return [
        each.code for each in diagnose(await examine(BridgeSettings(), OSError("nobody"), asked=asked)).findings if each.area == "exporter"
    ]


async def test_one_look_for_a_pipe_is_what_promtool_likes(sandbox: Sandbox, programs: Path, tmp_path: Path, cli: Cli) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"slurmRestApi": sandbox.slurm_server, "slurm": {"tokenFile": str(sandbox.token_file)}}))
    done = await asyncio.to_thread(cli, "exporter", "once", "--config", str(config))
    assert done.returncode == 0, done.stderr
    checked = promtool(programs, "check", "metrics", stdin=done.stdout.encode())
    assert (checked.returncode, checked.stdout) == (0, "")
    assert "\nslurm_up 1.0\n" in done.stdout
    assert 'slurm_exporter_part_up{part="nodes"} 1.0' in done.stdout
    original = await asyncio.to_thread(cli, "exporter", "once", "--config", str(config), "--original-names")
    async with sandbox.slurm_client() as slurm:
        assert total(read(original.stdout), "slurm_nodes_total") == len(await slurm.nodes.all())
