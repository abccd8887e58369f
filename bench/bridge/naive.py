"""The pipeline without logic: create a pod, submit an external job, poll the states, read the allocation, bind. As fast as plain code goes, and no more than that.

It keeps nothing for a restart, checks nothing, waits for no watch and writes no label; reads have connections of their own, so that they do not queue behind submits. What the bridge does beyond
this, it does within the time that this takes, or it is too slow.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bench.bridge.ground import PODS_PATH, Ground
from bench.limits import CONNECTIONS, job
from slinky.sandbox.kwoknodes import side_by_side

__all__ = ["pipeline"]

POLL_SECONDS = 0.05
MOST_SECONDS = 180.0


async def pipeline(ground: Ground, pods: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Take all pods from nothing to bound. Returns each pod's job."""
    waiting: dict[int, str] = {}  # job → pod
    job_of: dict[str, int] = {}
    places = asyncio.Semaphore(CONNECTIONS["kube"])

    async def enter(pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        await ground.kube.post(PODS_PATH, pod)
        answer = await ground.submits.slurm("POST", "job/submit", job())
        waiting[answer["job_id"]] = name
        job_of[name] = answer["job_id"]

    async def bind(job_id: int, name: str) -> None:
        async with places:
            layout = await ground.reads.slurm("GET", f"resources/{job_id}")
            target = {"apiVersion": "v1", "kind": "Node", "name": layout["nodes"][0]["node"]}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await ground.kube.post(f"{PODS_PATH}/{name}/binding", binding)

    async def follow(group: asyncio.TaskGroup) -> None:
        left, deadline = len(pods), time.monotonic() + MOST_SECONDS
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} of {len(pods)} jobs did not start within {MOST_SECONDS:g} s")
            for row in (await ground.reads.slurm("GET", "jobs/state/"))["jobs"]:
                job_id = int(row["job_id"])
                if row["state"][0] == "RUNNING" and job_id in waiting:
                    group.create_task(bind(job_id, waiting.pop(job_id)))
                    left -= 1
            await asyncio.sleep(POLL_SECONDS)

    async with asyncio.TaskGroup() as group:
        group.create_task(follow(group))
        # As many pods under way as both servers have connections: each is with one of them at a time.
        group.create_task(side_by_side(CONNECTIONS["slurm"] + CONNECTIONS["kube"], (enter(pod) for pod in pods)))
    return job_of
