"""`takeover`: 3,000 pods run, the bridge is restarted, and jobs are preempted meanwhile.

All CPUs are taken by jobs of QoS `low`, which has a GraceTime; a job of QoS `high` preempts one of
them. A sink answers for the nodes, as it must where Slurm sends signals. The time until the watch
shows the pod's deletion is measured three times: while the bridge is at work, after a preemption
while no bridge ran, and after one at the moment at which the successor is ready.

Slurm tells the moment of a preemption in whole seconds, rounded down: a wait is up to a second
shorter than its figure, and never longer.
"""

import asyncio
import time
from functools import partial
from typing import NamedTuple

import msgspec

from bench.bridge.pods import admitted, pod
from bench.limits import job
from bench.rows import Row
from bench.scale.site import Site, block_row, bridge_on, in_sandbox, longest_block, until
from slinky.bridge.policy_settings import PolicyGrant, PolicySettings
from slinky.bridge.settings import Settings
from slinky.sandbox.shape import Shape
from slinky.sandbox.sink import ADDRESS, PORT

__all__ = ["takeover"]

SEEN_SECONDS = 2.0
GRACE_SECONDS = 90
WAIT_SECONDS = 60.0
BOUND_SECONDS = 300.0
SETTLE_SECONDS = 10.0


class Sizes(NamedTuple):
    nodes: int = 50
    node_cpus: int = 60

    @property
    def pods(self) -> int:
        return self.nodes * self.node_cpus


QUICK = Sizes(nodes=10, node_cpus=6)


class Eviction(NamedTuple):
    """When Slurm preempted a pod's job, and when the watch showed that the pod was deleted."""

    preempted: float
    evicted: float

    def after(self, moment: float) -> float:
        """Seconds from that moment, or from the preemption where that was later."""
        return self.evicted - max(moment, self.preempted)


def takeover(quick: bool) -> list[Row]:
    sizes = QUICK if quick else Sizes()
    cpus = sizes.node_cpus
    shape = Shape(nodes=sizes.nodes, node_cpus=cpus, node_gpus=0, sink=True, addons=("podgroup",))
    work = partial(_takeover, sizes=sizes)
    return in_sandbox(f"{sizes.pods:,} pods run", shape, work, quick=quick)


async def _takeover(site: Site, sizes: Sizes) -> list[Row]:
    grace = f"GraceTime={GRACE_SECONDS}"
    await site.head("sacctmgr", "--immediate", "--quiet", "modify", "qos", "low", "set", grace)
    settings = _settings(site)
    async with bridge_on(site, settings) as bridge:
        await _all_run(site, settings, sizes.pods)
        await bridge.quiet()
        await site.quiet()
        known = set(site.ground.sight.leaving)
        sent = await _preempt(site)
        at_work = max(one.after(sent) for one in await _evictions(site, known, 1))
        site.say(f"the bridge at work: evicted {at_work:.2f} s after the preemption")
        await asyncio.sleep(SETTLE_SECONDS)
        blocks = [await longest_block(bridge)]
    known = set(site.ground.sight.leaving)
    await _preempt(site)
    await until("that Slurm signalled a job", partial(_signals_one, site), WAIT_SECONDS)
    await asyncio.sleep(1.5)  # Slurm gives the time of a preemption in whole seconds
    site.say("no bridge runs, and a job is preempted")
    started = time.time()
    async with bridge_on(site, settings) as bridge:
        ready = time.time()
        sent = await _preempt(site)
        found = await _evictions(site, known, 2)
        before = [one for one in found if one.preempted < int(started)]
        just = [one for one in found if one not in before]
        if not before or not just:
            raise RuntimeError(f"not one job preempted before {started:.0f} and one later: {found}")
        missed = max(one.after(ready) for one in before)
        from_start = max(one.after(started) for one in before)
        after_ready = max(one.after(sent) for one in just)
        site.say(f"preempted before: evicted {missed:.2f} s after ready ({from_start:.2f} start)")
        site.say(f"preempted when it was ready: evicted {after_ready:.2f} s after that")
        await bridge.quiet()
        await asyncio.sleep(SETTLE_SECONDS)
        blocks.append(await longest_block(bridge))
        megabytes = bridge.resident_bytes() / 1e6
    about = f"takeover of {sizes.pods:,} running pods"
    goal = SEEN_SECONDS
    return [
        Row(f"{about}: successor ready to eviction, preempted before", missed, "s", at_most=goal),
        Row(f"{about}: successor started to eviction, preempted before", from_start, "s"),
        Row(f"{about}: preemption to eviction, when it is ready", after_ready, "s", at_most=goal),
        Row(f"{about}: preemption to eviction, long before it", at_work, "s", at_most=goal),
        block_row(about, blocks),
        Row(f"{about}: memory of the successor", megabytes, "MB"),
    ]


def _settings(site: Site) -> Settings:
    """All pods are of QoS `low`, and the nodes are behind the sink."""
    return msgspec.structs.replace(
        site.settings,
        policy=PolicySettings(default=PolicyGrant(qos="low")),
        nodes=msgspec.structs.replace(site.settings.nodes, sink=f"{ADDRESS}:{PORT}"),
    )


async def _all_run(site: Site, settings: Settings, count: int) -> None:
    ground = site.ground
    await ground.create(admitted(pod(f"runs-{index}"), settings) for index in range(count))
    await ground.until_bound(count, BOUND_SECONDS)
    present = ground.sight.present

    def all_run() -> bool:
        return sum(each.status.phase == "Running" for each in present.values()) >= count

    await ground.sight.until(f"that {count:,} pods ran", all_run, BOUND_SECONDS)
    site.say(f"{count:,} pods run")


async def _preempt(site: Site) -> float:
    """Submit a job for which another has to go; the moment before."""
    wanted = job()
    wanted["job"]["qos"] = "high"
    sent = time.time()
    await site.ground.submits.slurm("POST", "job/submit", wanted)
    return sent


async def _signals_one(site: Site) -> bool:
    rows = (await site.ground.reads.slurm("GET", "jobs/state/"))["jobs"]
    return any("SIGNALING" in row["state"] for row in rows)


async def _evictions(site: Site, known: set[str], count: int) -> list[Eviction]:
    """Wait until so many more pods are being deleted than `known`, and for others that follow."""
    ground = site.ground
    leaving = ground.sight.leaving
    most = len(known) + count
    await ground.sight.until(f"{count} evictions", lambda: len(leaving) >= most, WAIT_SECONDS)
    await asyncio.sleep(1.0)
    found = []
    for name in set(leaving) - known:
        [record] = (await ground.reads.slurm("GET", f"job/{ground.sight.job_of[name]}"))["jobs"]
        found.append(Eviction(float(record["preempt_time"]["number"]), leaving[name]))
    return found
