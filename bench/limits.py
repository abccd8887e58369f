"""The three raw limits that everything of ours is measured against: what Slurm and Kubernetes do with nothing of ours in between.

- Slurm, submit only: external jobs that cannot start (held), as fast as they are taken in.
- Slurm, submit and allocate: 1-CPU external jobs on idle nodes, until the last one runs.
- Kubernetes, create and bind: pods created and bound to a node, two writes each.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.rows import Row
from slinky.sandbox.client import SlurmRest
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kwoknodes import side_by_side
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["measure"]

NAME = "bench-limits"


def measure(quick: bool) -> list[Row]:
    nodes, jobs = (20, 100) if quick else (1000, 2000)
    with Progress() as progress:
        down(NAME)
        try:
            sandbox = asyncio.run(up(NAME, Shape(nodes=nodes), progress))
            with progress.step("measuring the raw limits"):
                return asyncio.run(_measure(sandbox, nodes, jobs))
        finally:
            down(NAME)


async def _measure(sandbox: Sandbox, nodes: int, jobs: int) -> list[Row]:
    rows = []
    async with sandbox.slurm() as rest:
        for connections in (1, 4, 16):
            seconds = await _timed(jobs, connections, lambda _: rest.slurm("POST", "job/submit", _job(hold=True)))
            rows.append(Row(f"Slurm, submit only, {connections} connections", jobs / seconds, "jobs/s"))
            await _clear(rest)
        started = time.monotonic()
        await _timed(jobs, 16, lambda _: rest.slurm("POST", "job/submit", _job()))
        await _until_running(rest, jobs)
        rows.append(Row(f"Slurm, submit and allocate, 1 CPU, {nodes} nodes", jobs / (time.monotonic() - started), "jobs/s"))
        await _clear(rest)
    names = [f"kwok-{index:0{len(str(nodes - 1))}}" for index in range(nodes)]
    async with sandbox.kube() as kube:
        pods = "/api/v1/namespaces/default/pods"

        async def create_and_bind(index: int) -> None:
            name = f"limit-{index}"
            await kube.post(pods, _pod(name))
            target = {"apiVersion": "v1", "kind": "Node", "name": names[index % nodes]}
            await kube.post(f"{pods}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target})

        seconds = await _timed(jobs, 32, create_and_bind)
        rows.append(Row(f"Kubernetes, create and bind, 32 connections, {nodes} nodes", jobs / seconds, "pods/s"))
    return rows


async def _timed(count: int, places: int, action: Callable[[int], Awaitable[Any]]) -> float:
    started = time.monotonic()
    await side_by_side(places, (action(index) for index in range(count)))
    return time.monotonic() - started


def _job(hold: bool = False) -> dict[str, Any]:
    job = {"name": "limit", "partition": "bridge", "flags": ["EXTERNAL_JOB"], "current_working_directory": "/tmp", "environment": ["A=1"]}
    return {"job": job | {"tasks": 1, "cpus_per_task": 1, "memory_per_node": {"set": True, "number": 100}, "hold": hold}}


async def _states(rest: SlurmRest) -> list[str]:
    return [row["state"][0] for row in (await rest.slurm("GET", "jobs/state/"))["jobs"]]


async def _until_running(rest: SlurmRest, count: int, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while (await _states(rest)).count("RUNNING") < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} jobs did not all start within {seconds:g} s")
        await asyncio.sleep(0.05)


async def _clear(rest: SlurmRest) -> None:
    """Cancel all, and wait until none is left to be scheduled."""
    answer = await rest.slurm("GET", "jobs/state/")
    live = [str(row["job_id"]) for row in answer["jobs"] if row["state"][0] in ("PENDING", "RUNNING")]
    for start in range(0, len(live), 1000):
        await rest.call("DELETE", f"/slurm/{rest.VERSION}/jobs/", {"jobs": live[start : start + 1000], "signal": "KILL"})
    deadline = time.monotonic() + 60
    while {"PENDING", "RUNNING"} & set(await _states(rest)):
        if time.monotonic() > deadline:
            raise TimeoutError("cancelled jobs did not end within 60 s")
        await asyncio.sleep(0.05)


def _pod(name: str) -> dict[str, Any]:
    spec = {
        "schedulerName": "bench",
        "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
