"""`foreign`: 100,000 jobs of another user wait in Slurm, and then 50 more start each second.

Pods are created before the bridge starts, when it is ready, and at an even rate: first with no
change in the jobs of others, then while that user submits jobs that start at once. How long a
submit was held is the time from the API server's answer to the pod's creation until slurmctld
had taken the job in, by its log.
"""

import asyncio
import time
from functools import partial
from typing import Any, NamedTuple

from bench.bridge.ground import PODS_PATH, Ground
from bench.bridge.pods import admitted, pod
from bench.bridge.process import Bridge, running
from bench.bridge.rates import percentile
from bench.limits import job
from bench.rows import Row
from bench.scale.site import Site, block_row, in_sandbox, longest_block
from slinky.sandbox.client import HttpError, SlurmRest
from slinky.sandbox.kwoknodes import side_by_side
from slinky.sandbox.shape import Shape

__all__ = ["foreign"]

USER = "alice"
CONNECTIONS = 16
START_SECONDS, HELD_SECONDS, MEGABYTES = 60.0, 1.0, 400.0
WAIT_SECONDS = 300.0


class Sizes(NamedTuple):
    nodes: int = 100
    jobs: int = 100_000
    rate: float = 50.0
    pods_rate: float = 5.0
    calm_seconds: float = 30.0
    seconds: float = 60.0


Held = tuple[list[float], float]
QUICK = Sizes(nodes=10, jobs=500, rate=10.0, calm_seconds=4.0, seconds=6.0)


def foreign(quick: bool) -> list[Row]:
    sizes = QUICK if quick else Sizes()
    shape = Shape(nodes=sizes.nodes, addons=("podgroup",))
    work = partial(_foreign, sizes=sizes)
    return in_sandbox(f"{sizes.jobs:,} jobs of others", shape, work, quick=quick)


async def _foreign(site: Site, sizes: Sizes) -> list[Row]:
    ground = site.ground
    token = await site.head("scontrol", "token", f"username={USER}", f"lifespan={86400}")
    token = token.strip().removeprefix("SLURM_JWT=")
    async with SlurmRest(site.sandbox.slurm_server, token, USER, CONNECTIONS) as others:
        began = time.monotonic()
        await side_by_side(CONNECTIONS, (_submit(others, hold=True) for _ in range(sizes.jobs)))
        site.say(f"{sizes.jobs:,} jobs of others submitted in {time.monotonic() - began:.0f} s")
        await site.quiet()
        await ground.create([admitted(pod("before"), site.settings)])
        started = time.time()
        async with running(site.sandbox, site.settings, site.folder) as bridge:
            ready = time.time()
            position = ground.log_position()
            at_start = await _created(site, "ready", 20, sizes.pods_rate)
            await ground.until_bound(21, WAIT_SECONDS)
            first = min(ground.sight.bound.values()) - started
            waited = ground.sight.bound["before"] - started
            held_at_start = _held(ground, at_start, position)
            site.say(f"ready after {ready - started:.1f} s, first pod bound after {first:.1f} s")
            site.say(f"the pod from before the start after {waited:.1f} s")
            site.say(f"submits after the start held {held_at_start[-1]:.2f} s at most")
            await site.quiet()
            calm, calm_cpu = await _run(site, bridge, "calm", sizes, sizes.calm_seconds)
            noise = asyncio.create_task(_keep_submitting(others, sizes.rate, sizes.seconds))
            busy, busy_cpu = await _run(site, bridge, "busy", sizes, sizes.seconds)
            rate, slowest = await noise
            site.say(f"others submitted {rate:.0f}/s, the slowest took {slowest:.2f} s")
            site.say(f"submits held {calm[-1]:.2f} s before, {busy[-1]:.2f} s beside them, at most")
            block, peak = await longest_block(bridge), bridge.peak_bytes() / 1e6
    about = f"{sizes.jobs:,} jobs of others"
    beside = f"with {sizes.rate:g} more a second"
    details = {
        "p50": percentile(busy, 0.5),
        "p99": percentile(busy, 0.99),
        "submits": float(len(busy)),
    }
    held = f"{about}: longest that a submit was held"
    return [
        Row(
            f"{about}: start of the bridge to its first pod bound",
            first,
            "s",
            at_most=START_SECONDS,
        ),
        Row(
            f"{about}: start of the bridge to a pod from before it bound",
            waited,
            "s",
            at_most=START_SECONDS,
        ),
        Row(f"{about}: memory of the bridge, at most", peak, "MB", at_most=MEGABYTES),
        Row(f"{held}, after the start", held_at_start[-1], "s", at_most=HELD_SECONDS),
        Row(f"{held}, later", calm[-1], "s", at_most=HELD_SECONDS),
        Row(f"{held}, {beside}", busy[-1], "s", at_most=HELD_SECONDS, details=details),
        Row(f"{about}: slowest submit of the others themselves, {rate:.0f} a second", slowest, "s"),
        block_row(about, [block]),
        Row(
            f"{about}: CPU of the bridge a pod, {beside}, of that without",
            busy_cpu,
            "ms",
            limit=calm_cpu,
            ratio=busy_cpu / calm_cpu,
        ),
    ]


async def _submit(others: SlurmRest, *, hold: bool) -> float:
    """Seconds that it took. A submit without an answer may have made a job, which is as good."""
    began = time.monotonic()
    try:
        await others.slurm("POST", "job/submit", job(hold=hold))
    except HttpError as error:
        if error.status not in (0, 504):
            raise
    return time.monotonic() - began


async def _keep_submitting(others: SlurmRest, rate: float, seconds: float) -> tuple[float, float]:
    """At an even rate, jobs that start at once: the rate reached, and the slowest submit."""
    began, tasks = time.monotonic(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(began + number / rate - time.monotonic())
        tasks.append(asyncio.create_task(_submit(others, hold=False)))
    took = await asyncio.gather(*tasks)
    return len(took) / (time.monotonic() - began), max(took)


async def _run(site: Site, bridge: Bridge, name: str, sizes: Sizes, seconds: float) -> Held:
    """How long the submits were held, in order, and the bridge's CPU in milliseconds a pod."""
    ground = site.ground
    already, position, cpu = len(ground.sight.bound), ground.log_position(), bridge.cpu_seconds()
    count = int(sizes.pods_rate * seconds)
    created = await _created(site, name, count, sizes.pods_rate)
    await ground.until_bound(already + count, WAIT_SECONDS)
    cpu = (bridge.cpu_seconds() - cpu) / count * 1000
    return _held(ground, created, position), cpu


async def _created(site: Site, start: str, count: int, rate: float) -> dict[str, float]:
    """Create pods at an even rate: when the API server had answered for each, by name."""
    created: dict[str, float] = {}

    async def one(sent: dict[str, Any]) -> None:
        await site.ground.kube.post(PODS_PATH, sent)
        created[sent["metadata"]["name"]] = time.time()

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(began + number / rate - time.monotonic())
            group.create_task(one(admitted(pod(f"{start}-{number}"), site.settings)))
    return created


def _held(ground: Ground, created: dict[str, float], position: int) -> list[float]:
    """Seconds that each pod's submit was held, the longest last."""
    submitted, jobs = ground.submits_of(position), ground.sight.job_of
    missing = [name for name in created if jobs[name] not in submitted]
    if missing:
        raise ValueError(f"slurmctld's log has no submit of {len(missing)} pods: {missing[0]}, …")
    return sorted(max(0.0, submitted[jobs[name]] - moment) for name, moment in created.items())
