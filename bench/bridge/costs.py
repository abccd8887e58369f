"""What it costs: our own CPU and calls a pod, alone and beside 10,000 other jobs; calls for a pod's whole life; memory with 10,000 pods known.

Slurm's calls are counted by slurmctld, Kubernetes' by the bridge's own /metrics, CPU and memory by the kernel.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from bench.bridge.ground import Ground
from bench.bridge.process import Bridge
from bench.bridge.rates import Trial
from bench.limits import CONNECTIONS, cancel_all, job
from bench.rows import Row
from slinky.bridge.keys import SETTINGS
from slinky.bridge.settings import Settings
from slinky.sandbox.kwoknodes import side_by_side

__all__ = ["flat", "lives", "memory"]

# Asked on a clock and for all jobs or nodes together, not for one pod.
POLLS = frozenset(
    {
        "REQUEST_JOB_STATE",
        "REQUEST_PING",
        "REQUEST_NODE_INFO",
        "REQUEST_PARTITION_INFO",
        "REQUEST_RESERVATION_INFO",
        "REQUEST_BUILD_INFO",
        "REQUEST_JOB_INFO",
        "REQUEST_FED_INFO",  # slurmrestd's own, beside each look at one job
    }
)
APART = re.compile(r"/status$| events| leases")  # what people see, and who leads


@dataclass(frozen=True)
class Costs:
    """Of one piece of work, a pod."""

    cpu_ms: float
    slurm: float
    slurm_polls: float
    writes: float
    writes_apart: float
    reads: float
    details: dict[str, float]


class Meter:
    """`meter = await Meter.start(…)`, the work, `await meter.stop(pods)`."""

    def __init__(self, ground: Ground, bridge: Bridge, slurm: Mapping[str, int], kube: Mapping[str, int]) -> None:
        self._ground, self._bridge, self._slurm, self._kube = ground, bridge, slurm, kube
        self._cpu = bridge.cpu_seconds()

    @classmethod
    async def start(cls, ground: Ground, bridge: Bridge) -> "Meter":
        return cls(ground, bridge, await ground.calls(), await bridge.kube_calls())

    async def stop(self, pods: int) -> Costs:
        cpu = (self._bridge.cpu_seconds() - self._cpu) / pods
        slurm = _per_pod(self._slurm, await self._ground.calls(), pods)
        kube = _per_pod(self._kube, await self._bridge.kube_calls(), pods)
        writes = {call: count for call, count in kube.items() if not call.startswith("GET ")}
        apart = {call for call in writes if APART.search(call)}
        return Costs(
            cpu_ms=cpu * 1000,
            slurm=sum(count for name, count in slurm.items() if name not in POLLS),
            slurm_polls=sum(count for name, count in slurm.items() if name in POLLS),
            writes=sum(count for call, count in writes.items() if call not in apart),
            writes_apart=sum(writes[call] for call in apart),
            reads=sum(count for call, count in kube.items() if call not in writes),
            details={name: round(count, 3) for name, count in sorted((slurm | kube).items()) if count},
        )


async def flat(trial: Trial) -> list[Row]:
    """A burst with nothing else in Slurm, and one beside many jobs that wait."""
    others = trial.sizes.others
    trial.say("waiting until Slurm has forgotten the jobs before")
    await trial.ground.forgotten()
    alone, alone_idle, alone_start = await _burst(trial, "alone", 0)
    trial.say(f"submitting {others:,} other jobs")
    await trial.ground.forgotten()
    beside, beside_idle, beside_start = await _burst(trial, "beside", others)
    here = f"with {others:,} other jobs, of the same with none"
    pairs = [
        ("CPU of ours a pod", alone.cpu_ms, beside.cpu_ms, "ms", 1.2),
        ("calls to Slurm a pod, to bound", alone.slurm, beside.slurm, "calls", 1.2),
        ("polls of Slurm a pod", alone.slurm_polls, beside.slurm_polls, "calls", None),
        ("writes to Kubernetes a pod, to bound", alone.writes, beside.writes, "calls", 1.2),
        ("status, Events, Lease: writes a pod", alone.writes_apart, beside.writes_apart, "calls", None),
        ("reads from Kubernetes a pod", alone.reads, beside.reads, "calls", None),
        ("CPU of ours while nothing happens", alone_idle, beside_idle, "% of a core", None),
        ("start of the bridge to its first pod bound", alone_start, beside_start, "s", None),
    ]
    rows = [
        Row(f"{what}, {here}", there, unit, limit=before, ratio=there / before if before else None, at_most=goal if before else None)
        for what, before, there, unit, goal in pairs
    ]
    return [replace(rows[0], details=beside.details), *rows[1:]]


async def lives(trial: Trial) -> list[Row]:
    """From creation to bound to ended by itself to deleted to gone, with nothing left in Slurm: with libslurm at hand, and without."""
    slurm = msgspec.structs.replace(trial.settings.slurm, completion_command=trial.libslurm)
    completing = msgspec.structs.replace(trial.settings, slurm=slurm)
    return [*await _lives(trial, "libslurm at hand", completing), *await _lives(trial, "no libslurm", trial.settings)]


async def _lives(trial: Trial, where: str, settings: Settings) -> list[Row]:
    ground, count = trial.ground, trial.sizes.lives
    async with trial.bridge(settings=settings) as bridge:
        meter = await Meter.start(ground, bridge)
        await ground.create(trial.pods("life", count=count, annotations={"sandbox.slinky.slurm.net/run-for": "1s"}))
        await ground.until_bound(count)
        over = "that all pods had ended and had no finalizer"
        await ground.sight.until(over, lambda: all(p.is_over and not p.metadata.finalizers for p in ground.sight.present.values()), 120)
        await ground.delete_pods()
        await ground.until_no_pods()
        await bridge.quiet()
        costs = await meter.stop(count)
        left = await ground.live_jobs()
    trial.say(f"a pod's life, {where}: {costs.details}")
    return [
        Row(f"writes to Kubernetes for a pod's whole life, {where}", round(costs.writes, 2), "writes", at_most=3.0, details=costs.details),
        Row(f"calls to Slurm for a pod's whole life, {where}", round(costs.slurm, 2), "calls", at_most=3.0),
        Row("… polls of Slurm beside them", costs.slurm_polls, "calls"),
        Row("… status, Events and Lease beside them", costs.writes_apart, "writes"),
        Row("… CPU of ours", costs.cpu_ms, "ms"),
        Row("… jobs left in Slurm by pods that are gone", left, "jobs", at_most=0.0),
    ]


async def memory(trial: Trial) -> list[Row]:
    """Pods that wait in Slurm, held by their priority, as many as the bridge's window lets in; the rest wait in the bridge."""
    ground, known = trial.ground, trial.sizes.known
    pods = trial.pods("known", count=known, annotations={SETTINGS + "priority": "0"})
    async with trial.bridge() as bridge:
        empty = bridge.resident_bytes()
        await ground.create(pods)
        deadline = time.monotonic() + 120
        while await bridge.largest("slinky_kube_cache_objects") < known:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the bridge did not get to know {known} pods within 120 s")
            await asyncio.sleep(0.25)
        await bridge.quiet()
        full, jobs = bridge.resident_bytes(), await ground.live_jobs()
        trial.say(f"deleting {known:,} pods")
    return [
        Row("memory of the bridge with no pod", empty / 1e6, "MB"),
        Row(f"memory of the bridge with {known:,} pods known, {jobs:,} in Slurm", full / 1e6, "MB", at_most=300.0),
    ]


async def _burst(trial: Trial, name: str, others: int) -> tuple[Costs, float, float]:
    """Costs a pod of a burst, the share of a core (in %) when nothing happens, and the seconds from start to the first pod bound."""
    ground, count = trial.ground, trial.sizes.pods
    await side_by_side(CONNECTIONS["slurm"], (ground.submits.slurm("POST", "job/submit", job(hold=True)) for _ in range(others)))
    async with trial.bridge() as bridge:
        await bridge.quiet()
        before, started = bridge.cpu_seconds(), time.monotonic()
        await asyncio.sleep(5)
        idle = (bridge.cpu_seconds() - before) / (time.monotonic() - started) * 100
        meter = await Meter.start(ground, bridge)
        await ground.create(trial.pods(name))
        await ground.until_bound(count)
        costs = await meter.stop(count)
    trial.say(f"{name}: {costs.details}")
    await cancel_all(ground.submits)
    return costs, idle, trial.takeover


def _per_pod(before: Mapping[str, int], after: Mapping[str, int], pods: int) -> dict[str, float]:
    return {name: (count - before.get(name, 0)) / pods for name, count in after.items()}
