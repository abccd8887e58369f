"""`nodes`: what a submit costs the bridge on 5,000 nodes of two kinds, beside 100 equal ones.

Half of the pods ask for a GPU, half do not. They are measured twice: held, from their creation
until their jobs are in Slurm; and free to start, from their creation until they are bound.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from bench.bridge.pods import admitted, pod
from bench.bridge.process import Bridge
from bench.rows import Row
from bench.scale.site import Site, block_row, bridge_on, in_sandbox, longest_block, until
from bench.scale.still import cloud_nodes, make, without_heartbeats
from slinky.bridge.keys import SETTINGS
from slinky.sandbox.shape import Shape

__all__ = ["nodes"]


class Sizes(NamedTuple):
    equal: int = 100
    mixed: int = 5000
    pods: int = 1000


QUICK = Sizes(equal=10, mixed=100, pods=60)
WAIT_SECONDS = 400.0


@dataclass
class Costs:
    """Milliseconds of the bridge's CPU a pod, and what else was seen."""

    queued: float
    bound: float
    rate: float
    start: float
    block: float
    megabytes: float


def nodes(quick: bool) -> list[Row]:
    sizes = QUICK if quick else Sizes()
    shape = Shape(nodes=0, addons=("podgroup",))
    work = partial(_nodes, sizes=sizes)
    return in_sandbox(f"{sizes.mixed:,} nodes of two kinds", shape, work, quick=quick)


async def _nodes(site: Site, sizes: Sizes) -> list[Row]:
    await without_heartbeats(site)
    half = sizes.mixed // 2
    with_gpus = cloud_nodes(half, gpus=True, seed=1)
    without = cloud_nodes(sizes.mixed - half, gpus=False, seed=2, first=half)
    await make(site, with_gpus[: sizes.equal])
    few = await _measured(site, "few", sizes)
    await make(site, [*with_gpus[sizes.equal :], *without])
    many = await _measured(site, "many", sizes)
    about = f"{sizes.mixed:,} mixed nodes"
    beside = f"of that on {sizes.equal:,} equal ones"
    pairs = [
        ("CPU of the bridge a submit, pod created to job queued", few.queued, many.queued),
        ("CPU of the bridge a pod, created to bound", few.bound, many.bound),
    ]
    return [
        *(
            Row(
                f"{about}: {what}, {beside}",
                there,
                "ms",
                limit=here,
                ratio=there / here,
                at_most=2.0,
            )
            for what, here, there in pairs
        ),
        block_row(about, [many.block]),
        Row(
            f"{about}: pods bound, {beside}",
            many.rate,
            "pods/s",
            limit=few.rate,
            ratio=many.rate / few.rate,
        ),
        Row(f"{about}: start of the bridge to its first pod bound", many.start, "s"),
        Row(f"{about}: memory of the bridge", many.megabytes, "MB"),
    ]


async def _measured(site: Site, name: str, sizes: Sizes) -> Costs:
    ground = site.ground
    await site.quiet()
    started = time.time()
    async with bridge_on(site) as bridge:
        await ground.create(_pods(site, f"{name}-first", 2))
        start = await ground.until_bound(2, WAIT_SECONDS) - started
        await bridge.quiet()
        queued = await _queued(site, bridge, _pods(site, f"{name}-held", sizes.pods, held=True))
        site.say(f"{name}: {queued:.2f} ms a submit, created to queued")
        await ground.clear(finalizers=False)
        await bridge.quiet()
        bound, rate = await _bound(site, bridge, _pods(site, f"{name}-free", sizes.pods))
        site.say(f"{name}: {bound:.2f} ms a pod, created to bound, {rate:.0f} pods/s")
        await bridge.quiet()
        block = await longest_block(bridge)
        megabytes = bridge.resident_bytes() / 1e6
        await ground.clear(finalizers=False)
    return Costs(queued, bound, rate, start, block, megabytes)


async def _queued(site: Site, bridge: Bridge, pods: list[dict[str, Any]]) -> float:
    async def all_wait() -> bool:
        return await bridge.pods("pending") >= len(pods)

    cpu = bridge.cpu_seconds()
    await site.ground.create(pods)
    await until(f"that {len(pods)} jobs waited in Slurm", all_wait, WAIT_SECONDS)
    return (bridge.cpu_seconds() - cpu) / len(pods) * 1000


async def _bound(site: Site, bridge: Bridge, pods: list[dict[str, Any]]) -> tuple[float, float]:
    """Milliseconds of CPU a pod, and pods a second."""
    cpu, began = bridge.cpu_seconds(), time.time()
    await site.ground.create(pods)
    ended = await site.ground.until_bound(len(pods), WAIT_SECONDS)
    return (bridge.cpu_seconds() - cpu) / len(pods) * 1000, len(pods) / (ended - began)


def _pods(site: Site, start: str, count: int, *, held: bool = False) -> list[dict[str, Any]]:
    """Every second one asks for a GPU."""
    annotations = {SETTINGS + "priority": "0"} if held else {}
    found = []
    for index in range(count):
        one = pod(f"{start}-{index}", annotations=dict(annotations))
        if index % 2:
            for amounts in one["spec"]["containers"][0]["resources"].values():
                amounts["nvidia.com/gpu"] = "1"
        found.append(admitted(one, site.settings))
    return found
