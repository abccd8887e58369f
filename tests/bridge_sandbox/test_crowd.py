"""A crowd of one namespace keeps nobody else from Slurm: its jobs stay within its window, and others' pods and jobs start as if it were not there."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from slinky.kube import PODS, Pod
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.bridge_sandbox.conftest import Team, open_team
from tests.conftest import Partition, Starter

pytestmark = pytest.mark.sandbox

WINDOW, TOTAL = 50, 200
NO_MORE_THAN = 10  # times as long as without the crowd
TRIES = 5


@asynccontextmanager
async def a_partition(sandbox: Sandbox, name: str, nodes: list[str], *, clean: bool) -> AsyncIterator[Partition]:
    await sandbox.link.run("head", "scontrol", "create", f"PartitionName={name}", f"Nodes={','.join(nodes)}")
    yield Partition(name, tuple(nodes))
    if not clean:
        return
    await sandbox.link.run("head", "scancel", f"--partition={name}")

    async def empty() -> bool:
        return not (await sandbox.link.run("head", "squeue", "--noheader", f"--partition={name}")).strip()

    await sandbox.until("slurmctld", f"partition {name} was empty", empty)
    await sandbox.link.run("head", "scontrol", "delete", f"PartitionName={name}")


async def pending(team: Team) -> int:
    lines = await team.head("squeue", "-h", "-t", "PENDING", "-p", team.partition.name, "-o", "%i")
    return len(lines.splitlines())


class Watcher:
    """The most that was ever seen to wait in Slurm."""

    def __init__(self, team: Team) -> None:
        self.team, self.most = team, 0

    async def __aenter__(self) -> "Watcher":
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            self.most = max(self.most, await pending(self.team))
            await asyncio.sleep(0.2)


async def seconds_to_start(team: Team, prefix: str) -> float:
    """The median of several pods, one after the other."""
    took = []
    for index in range(TRIES):
        began = time.perf_counter()
        await team.create(team.pod(f"{prefix}-{index}"))
        while not (await team.get(f"{prefix}-{index}")).spec.node_name:
            await asyncio.sleep(0.02)
        took.append(time.perf_counter() - began)
    return median(took)


async def seconds_to_run_a_job(team: Team) -> float:
    """A job of a Slurm user, who knows nothing of pods, by sbatch."""
    began = time.perf_counter()
    sbatch = f"sbatch --parsable --external --chdir=/tmp --account=physics --partition={team.partition.name} --nodes=1 --ntasks=1"
    job_id = int(await team.head("runuser", "-u", "alice", "--", "sh", "-c", sbatch))
    while not (await team.slurm.jobs.get(job_id)).is_running:
        await asyncio.sleep(0.02)
    took = time.perf_counter() - began
    await team.slurm.jobs.cancel(job_id)
    return took


def memory_mib(bridge: SandboxBridge) -> float:
    lines = Path(f"/proc/{bridge.pid('run')}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def crowd_out(sandbox: Sandbox, folder: Path, count: int, window: int, total: int, *, clean: bool = True) -> None:
    settings: dict[str, Any] = {
        "windows": {"namespace": window, "total": total},
        "managedNamespaceSelector": {"matchLabels": {"bridge": "crowd"}},
    }
    names = sorted((await sandbox.link.run("head", "sinfo", "-h", "-N", "-p", "bridge", "-o", "%N")).split())
    async with (
        sandbox_bridge(sandbox, folder, name="crowd", **settings) as bridge,
        a_partition(sandbox, "crowded", names[:4], clean=clean) as crowded,
        a_partition(sandbox, "quiet", names[4:8], clean=clean) as quiet,
        open_team(sandbox, crowded, label="crowd", clean=clean) as many,
        open_team(sandbox, quiet, label="crowd", clean=clean) as few,
    ):
        unloaded, unloaded_job = await seconds_to_start(few, "before"), await seconds_to_run_a_job(few)
        small = memory_mib(bridge)
        await many.create_all([many.pod(f"fill-{index}", cpus=64) for index in range(4)])
        await many.until_running(*(f"fill-{index}" for index in range(4)))
        async with Watcher(many) as watcher:
            began = time.perf_counter()
            for start in range(0, count, 2000):
                await many.create_all([many.pod(f"crowd-{index}", cpus=64) for index in range(start, min(start + 2000, count))])
            created = time.perf_counter() - began

            async def window_is_full() -> bool:
                return await pending(many) == window

            await many.until("the window was full", window_is_full)
            loaded, loaded_job = await seconds_to_start(few, "during"), await seconds_to_run_a_job(few)
            print(
                f"{count} pods in {created:.0f} s; window {window}, at most {watcher.most} waited in Slurm; another's pod {unloaded:.2f} -> {loaded:.2f} s, "
                f"job {unloaded_job:.2f} -> {loaded_job:.2f} s; bridge {small:.0f} -> {memory_mib(bridge):.0f} MiB"
            )
            assert loaded <= NO_MORE_THAN * unloaded
            assert loaded_job <= NO_MORE_THAN * unloaded_job
            await moves_up(many, window_is_full)
        assert watcher.most <= window, "not for a moment were there more"


async def moves_up(many: Team, window_is_full: object) -> None:
    """One of those that run ends: the next starts, and another moves up in its stead."""
    await many.kube.delete(PODS, "fill-0", many.namespace, grace_seconds=0)

    async def one_more_runs() -> bool:
        return any(pod.spec.node_name for pod in await crowd_of(many))

    await many.until("one of the crowd ran", one_more_runs)
    await many.until("the window was full again", window_is_full)  # type: ignore[arg-type]


async def crowd_of(many: Team) -> list[Pod]:
    """Those on nodes only: the rest may be 100,000."""
    found = (await many.kube.list(PODS, many.namespace, fields="spec.nodeName!=")).items
    return [pod for pod in found if pod.metadata.name.startswith("crowd-")]


@pytest.mark.long
async def test_hundreds_of_pods_of_one_namespace_keep_nobody_from_slurm(sandbox: Sandbox, tmp_path: Path) -> None:
    await crowd_out(sandbox, tmp_path, 300, WINDOW, TOTAL)


@pytest.fixture(scope="module")
def own_sandbox(start_sandbox: Starter) -> Sandbox:
    """So many pods go with their sandbox: to delete them one by one would take as long again."""
    return start_sandbox("crowd", Shape(nodes=8))


@pytest.mark.long
async def test_a_hundred_thousand_pods_of_one_namespace_keep_nobody_from_slurm(own_sandbox: Sandbox, tmp_path: Path) -> None:
    await crowd_out(own_sandbox, tmp_path, int(os.environ.get("SLINKY_CROWD", "100000")), 1000, 10000, clean=False)
