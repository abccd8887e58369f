"""`labels`: 10,000 jobs of the bridge wait in Slurm, and one node label changes each second.

First a label for which no pod asks, then one for which a hundredth of the pods do. The CPU is
that beyond what the bridge needs with the same jobs and no change, measured before and after.
The jobs are held, so that Slurm's own scheduler leaves the cores to what is measured.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec

from bench.bridge.pods import admitted, pod
from bench.bridge.process import Bridge
from bench.limits import node_names
from bench.rows import Row
from bench.scale.site import Site, block_row, bridge_on, in_sandbox, longest_block, until
from slinky.bridge.keys import SETTINGS
from slinky.bridge.settings import Windows
from slinky.sandbox.kwoknodes import side_by_side
from slinky.sandbox.shape import Shape

__all__ = ["labels"]

POOL, DISK, SEEN = "bench.example/pool", "bench.example/disk", "bench.example/seen"
POOLS = 10
ASK_FOR_DISK = 100  # one pod of so many
MERGE = "application/merge-patch+json"


class Sizes(NamedTuple):
    nodes: int = 1000
    jobs: int = 10_000
    idle_seconds: float = 30.0
    seconds: float = 60.0


QUICK = Sizes(nodes=40, jobs=300, idle_seconds=4.0, seconds=10.0)
QUEUE_SECONDS = 600.0


def labels(quick: bool) -> list[Row]:
    sizes = QUICK if quick else Sizes()
    shape = Shape(nodes=sizes.nodes, addons=("podgroup",))
    work = partial(_labels, sizes=sizes)
    return in_sandbox(f"{sizes.jobs:,} jobs wait", shape, work, quick=quick)


async def _labels(site: Site, sizes: Sizes) -> list[Row]:
    """The window is as large as the jobs are many: all of them wait in Slurm."""
    names = node_names(sizes.nodes)
    wanted = [{POOL: f"p{index % POOLS}", DISK: "ssd"} for index in range(sizes.nodes)]
    await side_by_side(32, itertools.starmap(partial(_set, site), zip(names, wanted, strict=True)))
    windows = Windows(namespace=sizes.jobs, total=sizes.jobs)
    settings = msgspec.structs.replace(site.settings, windows=windows)
    pods = [admitted(_pod(index), settings) for index in range(sizes.jobs)]
    async with bridge_on(site, settings) as bridge:

        async def all_wait() -> bool:
            return await bridge.pods("pending") >= sizes.jobs

        await site.ground.create(pods)
        site.say(f"{sizes.jobs:,} pods are created")
        await until(f"that {sizes.jobs:,} jobs waited in Slurm", all_wait, QUEUE_SECONDS, 1.0)
        await bridge.quiet()
        site.say("all of them wait in Slurm")
        before = await _share(bridge, sizes.idle_seconds)
        async with _changing(site, names, SEEN):
            unasked = await _share(bridge, sizes.seconds)
        site.say(f"idle {before:.1f} %, a label that no pod asks for {unasked:.1f} % of a core")
        async with _changing(site, names, DISK):
            asked = await _share(bridge, sizes.seconds)
        after = await _share(bridge, sizes.idle_seconds)
        site.say(f"a label that some ask for {asked:.1f} %, idle again {after:.1f} % of a core")
        idle = (before + after) / 2
        about = f"{sizes.jobs:,} waiting jobs"
        beyond = "CPU of the bridge beyond idle, one node label a second"
        some = f"that {sizes.jobs // ASK_FOR_DISK:,} of the jobs ask for"
        said = {
            "idle before": before,
            "label that no pod asks for": unasked,
            f"label {some}": asked,
            "idle after": after,
        }
        return [
            Row(
                f"{about}: {beyond}, that no pod asks for",
                unasked - idle,
                "% of a core",
                at_most=10.0,
                details=said,
            ),
            Row(f"{about}: {beyond}, {some}", asked - idle, "% of a core", at_most=10.0),
            block_row(about, [await longest_block(bridge)]),
            Row(f"{about}: CPU of the bridge while nothing changes", idle, "% of a core"),
            Row(f"{about}: memory of the bridge", bridge.resident_bytes() / 1e6, "MB"),
        ]


async def _share(bridge: Bridge, seconds: float) -> float:
    """Percent of a core that the bridge takes meanwhile."""
    cpu, began = bridge.cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    return (bridge.cpu_seconds() - cpu) / (time.monotonic() - began) * 100


@asynccontextmanager
async def _changing(site: Site, names: list[str], label: str) -> AsyncIterator[None]:
    """One node after the other gets another value, once a second."""

    async def change() -> None:
        began = time.monotonic()
        for number in range(1_000_000):
            value = ("hdd", "ssd")[number // len(names) % 2] if label == DISK else str(number)
            await _set(site, names[number % len(names)], {label: value})
            await asyncio.sleep(max(0.0, began + number + 1 - time.monotonic()))

    task = asyncio.create_task(change())
    try:
        yield
        if task.done():
            await task  # raises what ended it
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _set(site: Site, node: str, wanted: dict[str, str]) -> None:
    path, change = f"/api/v1/nodes/{node}", {"metadata": {"labels": wanted}}
    await site.ground.kube.call("PATCH", path, change, MERGE)


def _pod(index: int) -> dict[str, Any]:
    """Half ask for nothing, the others for a pool; few for a kind of disk too."""
    one = pod(f"waits-{index}", annotations={SETTINGS + "priority": "0"})
    wanted = {POOL: f"p{index // 2 % POOLS}"} if index % 2 else {}
    if index % ASK_FOR_DISK == 0:
        wanted[DISK] = "ssd"
    if wanted:
        one["spec"]["nodeSelector"] = wanted
    return one
