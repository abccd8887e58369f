"""The operator with 5,000 workers, and scaled in under 12,000 running jobs: `python -m bench nodesets --part large`.

Workers are pods on kwok nodes, without kubelets; a worker's slurmd is a node that is registered through REST, and jobs are external ones.
The API server, slurmctld, slurmrestd and the operator's process are real. Calls are counted by the operator's own metrics, CPU and memory by the kernel.
"""

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

import aiohttp

from bench.bridge.process import cpu_of
from bench.nodesets_ground import Ground, Measured
from bench.rows import Row
from slinky.sandbox.kwoknodes import side_by_side
from slinky.sandbox.played_cluster import NODESETS, played_workers
from slinky.slurm import JobDescription

__all__ = ["QUICK", "Sizes", "large"]

NAME = "large"
CONNECTIONS = 16
ON_EACH = 3  # jobs
PASSES = 20
MEGABYTES, CALLS, LINEAR = 500.0, 2.0, 1.3


class Sizes(NamedTuple):
    workers: tuple[int, ...] = (1000, 2500, 5000)
    jobs: int = 12_000
    idle_seconds: float = 20.0


QUICK = Sizes(workers=(40, 80, 120), jobs=150, idle_seconds=5.0)


class Spent(NamedTuple):
    """Of one pass."""

    workers: int
    cpu_ms: float
    to_slurm: float
    seconds: float


async def large(ground: Ground, sizes: Sizes) -> list[Row]:
    cluster = await ground.cluster(NAME)
    await cluster.many(NAME, 0)
    passes: list[Spent] = []
    async with played_workers(ground.kube, ground.slurm, cluster.namespace):
        for workers in sizes.workers:
            await cluster.change(NAME, replicas=workers)
            await ground.until(f"{workers:,} workers were ready", lambda workers=workers: cluster.is_ready(NAME, workers))  # type: ignore[misc]
            passes.append(await _passes(ground, cluster, workers, sizes.idle_seconds))
        rows = [*_rows(passes), *await _scaled_in(ground, cluster, sizes)]
    peak = _peak_bytes(ground.operator.pid("run")) / 2**20
    most = sizes.workers[-1]
    return [*rows, Row(f"{most:,} workers: the operator's memory, at its most", peak, "MiB", at_most=MEGABYTES)]


async def _passes(ground: Ground, cluster: Measured, workers: int, idle_seconds: float) -> Spent:
    """One after the other, beside what the operator does anyway."""
    pid = ground.operator.pid("run")
    await asyncio.sleep(idle_seconds / 2)
    calls, cpu, began = await _slurm_calls(ground), cpu_of(pid), time.monotonic()
    await asyncio.sleep(idle_seconds)
    idle_seconds = time.monotonic() - began
    idle_cpu, idle_calls = (
        (cpu_of(pid) - cpu) / idle_seconds,
        (sum((await _slurm_calls(ground)).values()) - sum(calls.values())) / idle_seconds,
    )
    calls, cpu, began = await _slurm_calls(ground), cpu_of(pid), time.monotonic()
    for number in range(PASSES):
        await cluster.change(NAME, minReadySeconds=1 + number % 2)
        await ground.until(f"pass {number + 1} was done", lambda: cluster.is_ready(NAME, workers), every=0.02)
    seconds = time.monotonic() - began
    spent = cpu_of(pid) - cpu - idle_cpu * seconds
    asked = sum((await _slurm_calls(ground)).values()) - sum(calls.values()) - idle_calls * seconds
    found = Spent(workers, max(0.0, spent) / PASSES * 1000, max(0.0, asked) / PASSES, seconds / PASSES)
    ground.say(f"{workers:,} workers: {found.cpu_ms:.1f} ms CPU and {found.to_slurm:.2f} calls to Slurm a pass; idle {idle_cpu:.3f} cores")
    return found


def _rows(passes: list[Spent]) -> list[Row]:
    first, last = passes[0], passes[-1]
    rows = [
        Row(f"{each.workers:,} workers: CPU of a pass", each.cpu_ms, "ms", details={"seconds of a pass": round(each.seconds, 3)})
        for each in passes
    ]
    ratio = (last.cpu_ms / last.workers) / (first.cpu_ms / first.workers) if first.cpu_ms else 0.0
    calls = {f"with {each.workers:,} workers": round(each.to_slurm, 2) for each in passes}
    return [
        *rows,
        Row(
            f"{last.workers:,} workers: CPU of a pass a worker, of that with {first.workers:,}",
            last.cpu_ms / last.workers * 1000,
            "µs",
            at_most=LINEAR,
            limit=first.cpu_ms / first.workers * 1000,
            ratio=ratio,
        ),
        Row(f"{last.workers:,} workers: calls to Slurm of a pass", last.to_slurm, "calls", at_most=CALLS, details=calls),
    ]


async def _scaled_in(ground: Ground, cluster: Measured, sizes: Sizes) -> list[Row]:
    """First as many as are idle, then as many more, which have jobs."""
    workers = sizes.workers[-1]
    busy = sizes.jobs // ON_EACH
    idle = workers - busy
    await _jobs(ground, sizes.jobs, busy)
    what = f"{workers:,} workers, {sizes.jobs:,} running jobs"
    before, began, cpu = await _slurm_calls(ground), time.monotonic(), cpu_of(ground.operator.pid("run"))
    await cluster.change(NAME, replicas=busy)
    await ground.until(f"{idle:,} idle workers were gone", lambda: cluster.is_ready(NAME, busy))
    seconds, after = time.monotonic() - began, await _slurm_calls(ground)
    cpu = cpu_of(ground.operator.pid("run")) - cpu
    free = _since(before, after)
    rows = [
        Row(f"{what}: {idle:,} idle ones are scaled away in", seconds, "s", details=free | {"CPU seconds": round(cpu, 2)}),
        Row(f"{what}: lists of all jobs meanwhile", free.get("GET slurm/jobs", 0.0), "lists", at_most=0.0, details=free),
    ]
    before, began = after, time.monotonic()
    drains = min(idle, busy)
    await cluster.change(NAME, replicas=busy - drains)

    async def drained() -> bool:
        found = await ground.slurm.nodes.all()
        return sum("DRAIN" in node.states for node in found) >= drains

    await ground.until(f"{drains:,} workers with jobs were drained", drained, every=1.0)
    drain_seconds = time.monotonic() - began
    await asyncio.sleep(2 * sizes.idle_seconds)
    minutes = (time.monotonic() - began) / 60
    waits = _since(before, await _slurm_calls(ground))
    found = await ground.kube.get(NODESETS, NAME, cluster.namespace)
    ground.say(f"it says {[one['message'] for one in found['status']['conditions'] if one['type'] == 'Progressing']}")
    return [
        *rows,
        Row(f"{what}: {drains:,} workers with jobs are drained in", drain_seconds, "s"),
        Row(f"{what}: lists of all jobs while these wait", waits.get("GET slurm/jobs", 0.0), "lists", at_most=0.0, details=waits),
        Row(f"{what}: jobs read by id while these wait", waits.get("GET slurm/job/*", 0.0) / minutes, "a minute", details=waits),
    ]


async def _jobs(ground: Ground, count: int, nodes: int) -> None:
    async def one(number: int) -> None:
        job = JobDescription(
            name="held",
            tasks=1,
            memory_per_cpu=100,  # or a job takes the whole node's
            partition="all",
            required_nodes=[f"{NAME}-{number % nodes}"],
            current_working_directory="/tmp",
            environment=["A=b"],
        )
        await ground.slurm.jobs.submit_external(job)

    began = time.monotonic()
    await side_by_side(CONNECTIONS, (one(number) for number in range(count)))
    ground.say(f"{count:,} jobs were submitted in {time.monotonic() - began:.0f} s")

    async def run() -> bool:
        return sum(status.is_running for status in await ground.slurm.jobs.states()) >= count

    await ground.until(f"{count:,} jobs ran", run, every=1.0)


async def _slurm_calls(ground: Ground) -> dict[str, float]:
    """So far, by what was asked."""
    async with aiohttp.ClientSession() as session, session.get(f"{ground.operator.health()}/metrics") as answer:
        text = await answer.text()
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("slinky_slurm_requests_total{"):
            call = line.partition('call="')[2].partition('"')[0]
            found[call] = found.get(call, 0.0) + float(line.rpartition(" ")[2])
    return found


def _since(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {call: count - before.get(call, 0.0) for call, count in after.items() if count > before.get(call, 0.0)}


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
