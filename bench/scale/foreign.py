"""`foreign`: 100,000 jobs of another user wait in Slurm, and then 50 more start each second.

Pods are created before the bridge starts, when it is ready, and at an even rate: first with no
change in the jobs of others, then while that user submits jobs that start at once. How long the
bridge held a submit is the time from the API server's answer to the pod's creation until the
bridge sent the submit, by a relay in between. When slurmctld had taken the job in is by its log.
"""

import asyncio
import time
from functools import partial
from typing import Any, NamedTuple

import msgspec

from bench.bridge.ground import PODS_PATH
from bench.bridge.pods import NAMESPACE, admitted, pod
from bench.bridge.process import Bridge
from bench.bridge.rates import percentile
from bench.limits import job
from bench.rows import Row
from bench.scale.site import Site, block_row, bridge_on, in_sandbox, longest_block, prefer_slurm
from bench.scale.tap import Tap, tapped
from slinky.sandbox.client import HttpError, SlurmRest
from slinky.sandbox.kwoknodes import side_by_side
from slinky.sandbox.shape import Shape

__all__ = ["foreign"]

USER = "alice"
CONNECTIONS = 16
START_SECONDS, HELD_SECONDS, MEGABYTES = 60.0, 1.0, 400.0
WAIT_SECONDS = 300.0
IN_MEMORY = """
cd /var/lib/slurm
cp -a slurmctld before
mount -t tmpfs -o mode=755 none slurmctld
cp -a before/. slurmctld/
chown slurm:slurm slurmctld
"""
FIRST = 20  # pods that are created while the bridge starts


class Sizes(NamedTuple):
    nodes: int = 100
    jobs: int = 100_000
    rate: float = 50.0
    pods_rate: float = 5.0
    calm_seconds: float = 30.0
    seconds: float = 60.0
    old_seconds: float = 60.0  # the jobs' age at the start: the newest are read one by one


class Held(NamedTuple):
    """Seconds from a pod's creation, in order: until its submit was sent, and was taken in."""

    bridge: list[float]
    slurm: list[float]

    @property
    def details(self) -> dict[str, float]:
        found = {"submits": float(len(self.bridge))}
        for name, seconds in ("sent", self.bridge), ("taken in", self.slurm):
            found[f"{name}, p50"] = percentile(seconds, 0.5)
            found[f"{name}, p99"] = percentile(seconds, 0.99)
        return found


QUICK = Sizes(nodes=10, jobs=500, rate=10.0, calm_seconds=4.0, seconds=6.0, old_seconds=1.0)


def foreign(quick: bool) -> list[Row]:
    sizes = QUICK if quick else Sizes()
    shape = Shape(nodes=sizes.nodes, addons=("podgroup",))
    work = partial(_foreign, sizes=sizes)
    return in_sandbox(f"{sizes.jobs:,} jobs of others", shape, work, quick=quick)


async def _foreign(site: Site, sizes: Sizes) -> list[Row]:
    token = await site.head("scontrol", "token", f"username={USER}", f"lifespan={86400}")
    token = token.strip().removeprefix("SLURM_JWT=")
    await _state_in_memory(site)
    server = site.sandbox.slurm_server
    theirs = SlurmRest(server, token, USER, CONNECTIONS)
    async with theirs as others, tapped(NAMESPACE, server) as tap:
        began = time.monotonic()
        await side_by_side(CONNECTIONS, (_submit(others, hold=True) for _ in range(sizes.jobs)))
        site.say(f"{sizes.jobs:,} jobs of others submitted in {time.monotonic() - began:.0f} s")
        site.settings = msgspec.structs.replace(site.settings, slurm_rest_api=tap.address)
        await asyncio.sleep(sizes.old_seconds)
        await site.quiet()
        return await _beside(site, sizes, others, tap)


async def _state_in_memory(site: Site) -> None:
    """slurmctld saves all jobs every 5 s, and answers no request until the disk has them."""
    sandbox = site.sandbox
    slurmctld = await sandbox.stop("slurmctld")
    await sandbox.link.script("head", IN_MEMORY)
    await sandbox.link.start(slurmctld)
    answered = partial(site.head, "scontrol", "--quiet", "ping")
    await sandbox.until("slurmctld", "it answered", answered)
    await prefer_slurm(sandbox)


async def _beside(site: Site, sizes: Sizes, others: SlurmRest, tap: Tap) -> list[Row]:
    ground = site.ground
    await ground.create([admitted(pod("before"), site.settings)])
    started = time.time()
    async with bridge_on(site) as bridge:
        position = ground.log_position()
        young = await _created(site, "young", FIRST, sizes.pods_rate)
        await ground.until_bound(FIRST + 1, WAIT_SECONDS)
        first = min(ground.sight.bound.values()) - started
        waited = ground.sight.bound["before"] - started
        at_start = _held(site, tap, young, position)
        site.say(f"first pod bound after {first:.1f} s, the pod from before after {waited:.1f} s")
        site.say(f"pods created during the start waited {at_start.bridge[-1]:.2f} s at most")
        await site.quiet()
        calm, calm_cpu = await _run(site, tap, bridge, "calm", sizes, sizes.calm_seconds)
        site.say(f"calm: held {calm.bridge[-1]:.2f} s, taken in after {calm.slurm[-1]:.2f} s")
        noise = asyncio.create_task(_keep_submitting(others, sizes.rate, sizes.seconds))
        busy, busy_cpu = await _run(site, tap, bridge, "busy", sizes, sizes.seconds)
        site.say(f"busy: held {busy.bridge[-1]:.2f} s, taken in after {busy.slurm[-1]:.2f} s")
        rate, slowest = await noise
        site.say(f"others submitted {rate:.0f}/s, the slowest took {slowest:.2f} s")
        block, peak = await longest_block(bridge), bridge.peak_bytes() / 1e6
    about = f"{sizes.jobs:,} jobs of others"
    beside = f"with {sizes.rate:g} more a second"
    start, held = START_SECONDS, HELD_SECONDS
    reached = {"submits of the others answered a second": rate}
    cpu = f"{about}: CPU of the bridge a pod, {beside}, of that without"
    longest = f"{about}: longest that the bridge held a submit"
    taken = f"{about}: longest until slurmctld had taken in a submit"
    return [
        Row(f"{about}: bridge started to first pod bound", first, "s", at_most=start),
        Row(f"{about}: bridge started to an older pod bound", waited, "s", at_most=start),
        Row(f"{about}: memory of the bridge, at most", peak, "MB", at_most=MEGABYTES),
        Row(f"{longest}, while it starts", at_start.bridge[-1], "s"),
        Row(f"{longest}, later", calm.bridge[-1], "s", at_most=held, details=calm.details),
        Row(f"{longest}, {beside}", busy.bridge[-1], "s", at_most=held, details=busy.details),
        Row(f"{taken}, {beside}", busy.slurm[-1], "s"),
        Row(f"{taken}, {beside}, of those others", slowest, "s", details=reached),
        block_row(about, [block]),
        Row(cpu, busy_cpu, "ms", limit=calm_cpu, ratio=busy_cpu / calm_cpu),
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


async def _run(
    site: Site,
    tap: Tap,
    bridge: Bridge,
    name: str,
    sizes: Sizes,
    seconds: float,
) -> tuple[Held, float]:
    """How long the submits were held, and the bridge's CPU in milliseconds a pod."""
    ground = site.ground
    already, position, cpu = len(ground.sight.bound), ground.log_position(), bridge.cpu_seconds()
    count = int(sizes.pods_rate * seconds)
    created = await _created(site, name, count, sizes.pods_rate)
    await ground.until_bound(already + count, WAIT_SECONDS)
    cpu = (bridge.cpu_seconds() - cpu) / count * 1000
    return _held(site, tap, created, position), cpu


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


def _held(site: Site, tap: Tap, created: dict[str, float], position: int) -> Held:
    taken, jobs = site.ground.submits_of(position), site.ground.sight.job_of
    if missing := [name for name in created if jobs[name] not in taken or name not in tap.sent]:
        raise ValueError(f"no submit of {len(missing)} pods was seen, such as {missing[0]}")
    return Held(
        sorted(max(0.0, tap.sent[name] - moment) for name, moment in created.items()),
        sorted(max(0.0, taken[jobs[name]] - moment) for name, moment in created.items()),
    )
