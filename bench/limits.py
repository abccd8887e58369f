"""The raw limits that everything of ours is measured against: what Slurm and Kubernetes do with nothing of ours in between.

- Slurm, submit only: external jobs that cannot start (held), as fast as they are taken in.
- Slurm, submit and allocate: 1-CPU external jobs on idle nodes, until the last one runs.
- Kubernetes, create and bind: pods created and bound to a node, two writes each; and with a label written in between, three.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench.rows import Row
from slinky.sandbox.client import Kube, SlurmRest
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kwoknodes import side_by_side
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["cancel_all", "create_and_bind", "job", "measure", "node_names", "submit_and_allocate"]

NAME = "bench-limits"
CONNECTIONS = {"slurm": 16, "kube": 32}


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
            seconds = await _timed(jobs, connections, lambda _: rest.slurm("POST", "job/submit", job(hold=True)))
            rows.append(Row(f"Slurm, submit only, {connections} connections", jobs / seconds, "jobs/s"))
            await cancel_all(rest)
        rate = await submit_and_allocate(rest, jobs)
        rows.append(Row(f"Slurm, submit and allocate, 1 CPU, {nodes} nodes", rate, "jobs/s"))
        await cancel_all(rest)
    async with sandbox.kube() as kube:
        rate = await create_and_bind(kube, "default", [_pod(f"limit-{index}") for index in range(jobs)], node_names(nodes))
        rows.append(Row(f"Kubernetes, create and bind, 32 connections, {nodes} nodes", rate, "pods/s"))
    return rows


async def submit_and_allocate(rest: SlurmRest, jobs: int) -> float:
    """Jobs a second, from the first submit until the last one runs."""
    started = time.monotonic()
    await _timed(jobs, CONNECTIONS["slurm"], lambda _: rest.slurm("POST", "job/submit", job()))
    await _until_running(rest, jobs)
    return jobs / (time.monotonic() - started)


async def create_and_bind(kube: Kube, namespace: str, pods: Sequence[dict[str, Any]], nodes: Sequence[str], label: str = "") -> float:
    """Pods a second, from the first one's creation until the last one is bound; with a `label` (its key), that is patched on each pod in between."""
    path = f"/api/v1/namespaces/{namespace}/pods"

    async def one(index: int) -> None:
        name = pods[index]["metadata"]["name"]
        await kube.post(path, pods[index])
        if label:
            await kube.call("PATCH", f"{path}/{name}", {"metadata": {"labels": {label: "1"}}}, "application/merge-patch+json")
        target = {"apiVersion": "v1", "kind": "Node", "name": nodes[index % len(nodes)]}
        await kube.post(f"{path}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target})

    return len(pods) / await _timed(len(pods), CONNECTIONS["kube"], one)


def node_names(nodes: int) -> list[str]:
    return [f"kwok-{index:0{len(str(nodes - 1))}}" for index in range(nodes)]


async def _timed(count: int, places: int, action: Callable[[int], Awaitable[Any]]) -> float:
    started = time.monotonic()
    await side_by_side(places, (action(index) for index in range(count)))
    return time.monotonic() - started


def job(hold: bool = False) -> dict[str, Any]:
    """What is posted for a 1-CPU external job."""
    said = {"name": "limit", "partition": "bridge", "flags": ["EXTERNAL_JOB"], "current_working_directory": "/tmp", "environment": ["A=1"]}
    return {"job": said | {"tasks": 1, "cpus_per_task": 1, "memory_per_node": {"set": True, "number": 100}, "hold": hold}}


async def _states(rest: SlurmRest) -> list[str]:
    return [row["state"][0] for row in (await rest.slurm("GET", "jobs/state/"))["jobs"]]


async def _until_running(rest: SlurmRest, count: int, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while (await _states(rest)).count("RUNNING") < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} jobs did not all start within {seconds:g} s")
        await asyncio.sleep(0.05)


async def cancel_all(rest: SlurmRest) -> None:
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
