"""How fast: the bridge in turns with what it is measured against, so that whatever else the machine does hits all of a round.

Comes in: the ground and sizes. Goes out: rows, and the figures that the picture is made of. A rate is from the first pod's creation to the last one seen bound.
"""

import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bench.bridge.ground import GROUPS_PATH, Ground
from bench.bridge.naive import pipeline
from bench.bridge.pods import NAMESPACE, admitted, for_another, pod, pod_group
from bench.bridge.process import Bridge, admission, running
from bench.limits import cancel_all, create_and_bind, node_names, submit_and_allocate
from bench.rows import Row, against
from slinky.bridge.keys import JOB_ID
from slinky.bridge.settings import Settings
from slinky.sandbox.kwoknodes import side_by_side

__all__ = ["Sizes", "Trial", "fast", "percentile", "steady"]

NAIVE, KUBE_SCHEDULER, BRIDGE, GANGS = "pipeline without logic", "kube-scheduler", "bridge, single pods", "bridge, gangs"
OWN = ("bridge run", "bridge admission")  # processes
SLURM, BIND, LABEL_BIND = "Slurm alone: submit and allocate", "Kubernetes alone: create and bind", "Kubernetes alone: create, label, bind"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int = 1000
    rounds: int = 3
    pods: int = 1000
    gangs: int = 40
    gang_size: int = 25
    steady_seconds: float = 20.0
    others: int = 10_000
    known: int = 10_000
    lives: int = 200


@dataclass
class Trial:
    """One run of the benchmark: where, how large, and what has been seen so far."""

    ground: Ground
    settings: Settings
    folder: Path
    sizes: Sizes
    say: Callable[[str], None]
    libslurm: list[str] = field(default_factory=list)  # the command that is a Python beside it
    rates: dict[str, list[float]] = field(default_factory=dict)
    waits: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # ms a pod, by scenario and process
    takeover: float = 0.0  # seconds from the last bridge's start until it had bound its first pod

    @contextlib.asynccontextmanager
    async def bridge(self, profile: Path | None = None, settings: Settings | None = None) -> AsyncIterator[Bridge]:
        """A bridge that has bound its first pod, and so has read what was there. When the block is left, its pods are gone, and their jobs."""
        started = time.time()
        async with running(self.ground.sandbox, settings or self.settings, self.folder, profile) as found:
            try:
                await self.ground.create(self.pods("first", count=1))
                self.takeover = await self.ground.until_bound(1) - started
                await self.ground.delete_pods()
                await self.ground.until_no_pods()
                self.ground.sight.forget()
                await found.quiet()
                yield found
            finally:
                await self.ground.clear(finalizers=False)

    def note(self, name: str, rate: float, waits: Sequence[float] = ()) -> None:
        self.rates.setdefault(name, []).append(rate)
        self.waits.setdefault(name, []).extend(waits)
        self.say(f"{name}: {rate:,.0f}/s")

    def pods(self, start: str, *, scheduler: str = "", count: int = 0, **special: Any) -> list[dict[str, Any]]:
        sent = (pod(f"{start}-{index}", **special) for index in range(count or self.sizes.pods))
        return [for_another(one, scheduler) if scheduler else admitted(one, self.settings) for one in sent]

    @contextlib.asynccontextmanager
    async def installed(self) -> AsyncIterator[tuple[Bridge, Bridge]]:
        """The bridge as users run it: its webhook in the API server's path, and its scheduler."""
        async with admission(self.ground.sandbox, self.settings, self.folder) as webhook, self.bridge() as bridge:
            yield bridge, webhook


async def fast(trial: Trial) -> list[Row]:
    """All rates, in rounds. While the others are measured, no process of the bridge runs."""
    for number in range(trial.sizes.rounds):
        trial.say(f"round {number + 1} of {trial.sizes.rounds}")
        await _limits(trial, number)
        await _naive(trial, number)
        await _bridge(trial, number)
        await _kube_scheduler(trial, number)
        await _gangs(trial, number)
    rates, cpu = trial.rates, trial.cpu
    return [
        *(Row(name, statistics.median(rates[name]), "/s") for name in (SLURM, BIND, LABEL_BIND)),
        against(f"{NAIVE}, of Slurm alone", rates[NAIVE], rates[SLURM], "pods/s"),
        against(f"{KUBE_SCHEDULER}, of create and bind", rates[KUBE_SCHEDULER], rates[BIND], "pods/s"),
        against(f"{BRIDGE}, of Slurm alone", rates[BRIDGE], rates[SLURM], "pods/s", at_least=0.7),
        against(f"{BRIDGE}, of the {NAIVE}", rates[BRIDGE], rates[NAIVE], "pods/s", at_least=0.8),
        against(f"{BRIDGE}, of {KUBE_SCHEDULER}", rates[BRIDGE], rates[KUBE_SCHEDULER], "pods/s"),
        against(f"{GANGS} of {trial.sizes.gang_size}, of create, label, bind", rates[GANGS], rates[LABEL_BIND], "pods/s", at_least=0.8),
        *_cpu_rows(cpu),
        *_waits("Slurm start to bound in a burst, pipeline without logic", trial.waits[NAIVE]),
        *_waits("Slurm start to bound in a burst, bridge", trial.waits[BRIDGE]),
    ]


def _cpu_rows(cpu: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Row]:
    """Milliseconds a pod, in all three: where the time of a burst goes."""
    found = []
    for server in ("kube-apiserver", "etcd", "kwok", "kube-scheduler", "slurmctld", "slurmrestd"):
        figures = {name: statistics.median(cpu[name].get(server, [0.0])) for name in (BRIDGE, NAIVE, KUBE_SCHEDULER)}
        goal = 7.0 if server == "kube-apiserver" else None
        found.append(Row(f"CPU of {server} a pod, {BRIDGE}", figures[BRIDGE], "ms", at_most=goal, details=figures))
        found += [Row(f"… {name}", figures[name], "ms") for name in (NAIVE, KUBE_SCHEDULER)]
    own = [sum(parts) for parts in zip(*(cpu[BRIDGE][part] for part in OWN), strict=True)]
    found.append(Row("CPU of the bridge and its webhook a pod", statistics.median(own), "ms", at_most=2.5))
    found += [Row(f"… {part}", statistics.median(cpu[BRIDGE][part]), "ms") for part in OWN]
    return found


async def steady(trial: Trial) -> list[Row]:
    """At a third of what it can, as on a cluster that is not overwhelmed: here the wait is the bridge's own."""
    rate = 0.3 * statistics.median(trial.rates[BRIDGE])
    count = max(20, int(rate * trial.sizes.steady_seconds))
    pods = [pod(f"steady-{index}") for index in range(count)]
    async with trial.installed():
        position = trial.ground.log_position()
        await trial.ground.create_at(rate, pods)
        await trial.ground.until_bound(len(pods))
        waits = trial.ground.latencies(position)
    name = f"bridge at {rate:.0f} pods/s"
    trial.waits[name] = waits
    return _waits("Slurm start to bound at 30 % of the burst's rate, bridge", waits, p50=80.0, p99=500.0)


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _waits(what: str, waits: Sequence[float], p50: float | None = None, p99: float | None = None) -> list[Row]:
    ordered = sorted(waits)
    if not ordered:
        raise ValueError(f"{what}: slurmctld's log has no starts of these jobs")
    return [
        Row(f"{what}, p50", percentile(ordered, 0.5) * 1000, "ms", at_most=p50),
        Row(f"{what}, p99", percentile(ordered, 0.99) * 1000, "ms", at_most=p99),
    ]


async def _limits(trial: Trial, number: int) -> None:
    ground, nodes = trial.ground, node_names(trial.sizes.nodes)
    trial.note(SLURM, await submit_and_allocate(ground.submits, trial.sizes.pods))
    await cancel_all(ground.submits)
    for name, label in ((BIND, ""), (LABEL_BIND, JOB_ID)):
        pods = trial.pods(f"limit-{number}-{len(label)}", scheduler="bench")
        trial.note(name, await create_and_bind(ground.kube, NAMESPACE, pods, nodes, label))
        await ground.clear(finalizers=False)


async def _naive(trial: Trial, number: int) -> None:
    ground, pods = trial.ground, trial.pods(f"naive-{number}", scheduler="bench")
    position, started = ground.log_position(), time.time()
    async with _spent(trial, NAIVE, len(pods)):
        job_of = await pipeline(ground, pods)
        ended = await ground.until_bound(len(pods))
    trial.note(NAIVE, len(pods) / (ended - started), ground.latencies(position, job_of))
    await ground.clear(finalizers=False)


async def _kube_scheduler(trial: Trial, number: int) -> None:
    ground, pods = trial.ground, trial.pods(f"kube-{number}", scheduler="default-scheduler")
    started = time.time()
    async with _spent(trial, KUBE_SCHEDULER, len(pods)):
        await ground.create(pods)
        ended = await ground.until_bound(len(pods))
    trial.note(KUBE_SCHEDULER, len(pods) / (ended - started))
    await ground.clear(finalizers=False)


async def _bridge(trial: Trial, number: int) -> None:
    """Pods as users write them: the API server asks the webhook about each."""
    pods = [pod(f"single-{number}-{index}") for index in range(trial.sizes.pods)]
    async with trial.installed() as own, _spent(trial, BRIDGE, len(pods), own):
        await _burst(trial, BRIDGE, pods)


@contextlib.asynccontextmanager
async def _spent(trial: Trial, name: str, pods: int, own: Sequence[Bridge] = ()) -> AsyncIterator[None]:
    """Notes the CPU that each server, and each process of `own`, takes for a pod."""

    async def seconds() -> dict[str, float]:
        return await trial.ground.server_cpu() | {part: process.cpu_seconds() for part, process in zip(OWN, own, strict=False)}

    before = await seconds()
    yield
    after = await seconds()
    for part, spent in after.items():
        trial.cpu.setdefault(name, {}).setdefault(part, []).append((spent - before.get(part, 0.0)) / pods * 1000)


async def _burst(trial: Trial, name: str, pods: Sequence[dict[str, Any]]) -> None:
    position, started = trial.ground.log_position(), time.time()
    await trial.ground.create(pods)
    ended = await trial.ground.until_bound(len(pods))
    trial.note(name, len(pods) / (ended - started), trial.ground.latencies(position))


async def _gangs(trial: Trial, number: int) -> None:
    ground, size = trial.ground, trial.sizes.gang_size
    names = [f"gang-{number}-{index}" for index in range(trial.sizes.gangs)]
    pods = [pod(f"{name}-{index}", group=name) for name in names for index in range(size)]
    async with trial.installed():
        await side_by_side(16, (ground.kube.post(GROUPS_PATH, pod_group(name, size)) for name in names))
        await _burst(trial, GANGS, pods)
