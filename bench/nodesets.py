"""The operator with many workers: a NodeSet of 1,000 created, updated and scaled away, and ten clusters at once; and the part `large`, see `bench.large_nodesets`.

The pods are on kwok nodes, their slurmd's part is played by nodes registered through REST, the clusters' head is the sandbox's own Slurm. Beside the operator, in the same run, the API server's raw rate: the same pods to the last label,
created by as many clients as the operator has pods on their way, and nobody in between. Both in rounds, one after the other, and each begins when what the one before left to do is done. What follows on a pod (scheduler, controllers, kwok) takes more of two cores than its creation, and how much of it falls
into a burst of seconds is chance; so it is held while either creates, as if it were on machines of its own, and measured at work beside both as well. Calls are counted by the operator's own metrics.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from bench.large_nodesets import QUICK, Sizes, large
from bench.nodesets_ground import SECONDS, Ground, Measured
from bench.quiet import until_quiet
from bench.rows import Row, against
from slinky.kube import PODS, Client, from_kubeconfig
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.operator import install_crds
from slinky.sandbox.played_cluster import NODESETS, played_workers
from slinky.sandbox.processes import Processes
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["PARTS", "measure"]

NAME = "bench-nodesets"
ROUNDS = 5  # with nobody else at work, which take seconds
BESIDE = 3  # of them also with all others at work
CLUSTERS = 10
AT_ONCE = 64
FOLLOWERS = ("kube-scheduler", "kube-controller-manager", "kwok")


async def _thousand(ground: Ground, quick: bool) -> list[Row]:
    workers, rounds = (100, 1) if quick else (1000, ROUNDS)
    return [*await _one(ground, workers, rounds), *await _ten(ground, workers // CLUSTERS)]


async def _large(ground: Ground, quick: bool) -> list[Row]:
    return await large(ground, QUICK if quick else Sizes())


PARTS: dict[str, Callable[[Ground, bool], Awaitable[list[Row]]]] = {"thousand": _thousand, "large": _large}


def measure(quick: bool, parts: Sequence[str] = ()) -> list[Row]:
    """Each part has a sandbox and an operator of its own. Its rows name it."""
    return [replace(row, part=name) for name in PARTS if name in parts or not parts for row in _part(name, quick)]


def _part(name: str, quick: bool) -> list[Row]:
    with Progress() as progress:
        down(NAME)
        try:
            sandbox = asyncio.run(up(NAME, Shape(nodes=100, register=False), progress))
            with progress.step(f"measuring NodeSets: {name}") as step, tempfile.TemporaryDirectory() as folder:
                return asyncio.run(_measure(sandbox, PARTS[name], quick, Path(folder), step.say))
        finally:
            down(NAME)


async def _measure(
    sandbox: Sandbox, part: Callable[[Ground, bool], Awaitable[list[Row]]], quick: bool, folder: Path, say: Callable[[str], None]
) -> list[Row]:
    slurm = {"address": sandbox.slurm_server, "fastestPoll": 0.5, "slowestPoll": 2.0}
    (folder / "config.yaml").write_text(yaml.safe_dump({"namespace": "default", "leader": {"elect": False}, "slurm": slurm}))
    operator = Processes("operator", folder)
    await install_crds(sandbox)
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube, sandbox.slurm_client() as client:
        ground = Ground(sandbox, kube, client, operator, say)
        await operator.start_part("run", "--config", str(folder / "config.yaml"), "--kubeconfig", str(sandbox.kubeconfig))
        try:
            return await part(ground, quick)
        finally:
            await operator.stop_all()


async def _one(ground: Ground, workers: int, rounds: int) -> list[Row]:
    cluster = await ground.cluster("one")
    await cluster.many("model", 1)
    async with played_workers(ground.kube, ground.slurm, cluster.namespace):
        await ground.until("one worker was ready", lambda: cluster.is_ready("model", 1))
    held: list[tuple[float, float]] = []
    beside: list[tuple[float, float]] = []
    rows: list[Row] = []
    for number in range(rounds):
        for rates, holding in ((held, FOLLOWERS), (beside, ())):
            if not holding and number < rounds - BESIDE:
                continue
            raw = await _raw_rate(ground, workers, holding)
            name = f"many{number}{'-held' if holding else ''}"
            await until_quiet(ground.say)
            before, there = await ground.calls(), await ground.pods()
            async with ground.holding(holding):
                await cluster.many(name, workers)
                rates.append((workers / await ground.until_created(workers, there), raw))
            ground.say(f"the operator creates {rates[-1][0]:.0f} pods/s of {raw:.0f} that the API server takes")
            async with played_workers(ground.kube, ground.slurm, cluster.namespace):
                if not holding and number == rounds - 1:
                    rows = await _rest_of_its_life(ground, cluster, name, workers, before)
                else:
                    await ground.until(f"{workers} workers were ready", lambda name=name: cluster.is_ready(name, workers))  # type: ignore[misc]
            await ground.kube.delete(NODESETS, name, cluster.namespace)
            await ground.until(f"{name} was gone", lambda name=name: cluster.is_gone(name))  # type: ignore[misc]
    size = f"a NodeSet of {workers:,} workers, pods created"
    followed = f"{size}, with scheduler, controllers and kwok at work on the same cores"
    return [_rates(size, held, at_least=0.8), _rates(followed, beside), *rows]


def _rates(what: str, pairs: Sequence[tuple[float, float]], at_least: float | None = None) -> Row:
    """Of pairs of the operator's and the raw rate."""
    return against(what, [rate for rate, _ in pairs], [raw for _, raw in pairs], "pods/s", at_least=at_least)


async def _rest_of_its_life(ground: Ground, cluster: Measured, name: str, workers: int, before: dict[str, float]) -> list[Row]:
    """From the last pod's creation on."""
    size = f"a NodeSet of {workers:,} workers"
    ready = await ground.until(f"{workers} workers were ready", lambda: cluster.is_ready(name, workers))
    created = await _spent(ground, before, workers)
    before = await ground.calls()
    await cluster.change(name, template={"metadata": {"labels": {"release": "2"}}})
    updated = await ground.until(f"{workers} workers were replaced", lambda: cluster.is_ready(name, workers))
    replaced = await _spent(ground, before, workers)
    before = await ground.calls()
    await cluster.change(name, replicas=0)
    gone = await ground.until(f"{workers} workers were gone", lambda: cluster.is_ready(name, 0))
    left = await _spent(ground, before, workers)
    rows = [
        Row(f"{size}, from the last pod's creation until all are ready", ready, "s"),
        Row(f"{size}, all drained and replaced", updated, "s"),
        Row(f"{size}, all drained and gone", gone, "s"),
    ]
    for what, spent in (("created until all are ready", created), ("drained and replaced", replaced), ("drained and gone", left)):
        to_kubernetes = sum(count for which, count in spent.items() if which != "Slurm")
        rows.append(Row(f"{size}, calls to the API server, {what}", to_kubernetes, "a worker", details=spent))
        rows.append(Row(f"{size}, calls to Slurm, {what}", spent.get("Slurm", 0.0), "a worker"))
    return rows


async def _spent(ground: Ground, before: dict[str, float], workers: int) -> dict[str, float]:
    """Calls since then, a worker."""
    now = await ground.calls()
    return {what: round(spent / workers, 4) for what, count in now.items() if (spent := count - before.get(what, 0))}


async def _ten(ground: Ground, workers: int) -> list[Row]:
    clusters = [await ground.cluster(f"ten-{number}") for number in range(CLUSTERS)]
    before, began = await ground.pods(), time.monotonic()
    await asyncio.gather(*(cluster.many(f"{cluster.namespace}w", workers) for cluster in clusters))
    seconds = await ground.until_created(workers * CLUSTERS, before)

    async def all_ready() -> bool:
        return all([await cluster.is_ready(f"{cluster.namespace}w", workers) for cluster in clusters])

    async with played_workers(ground.kube, ground.slurm):
        await ground.until("ten clusters were ready", all_ready)
    what = f"ten clusters at once, {workers} workers each"
    return [
        Row(f"{what}, pods created", workers * CLUSTERS / seconds, "pods/s"),
        Row(f"{what}, all ready after", time.monotonic() - began, "s"),
    ]


async def _raw_rate(ground: Ground, count: int, holding: Sequence[str]) -> float:
    """Pods a second that the API server takes in, like the operator's workers to the last label, so that all that others do about a worker (its Service's endpoints, its node) they do about these too. The operator itself is stopped meanwhile."""
    [model] = (await ground.kube.list(PODS.untyped, "one", labels="app.kubernetes.io/instance=model")).items
    spec = {name: value for name, value in model["spec"].items() if name != "nodeName"}
    meta = {"labels": {**model["metadata"]["labels"], "raw": "true"}, "annotations": model["metadata"].get("annotations", {})}
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with turns:
            await ground.kube.create(
                PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": f"raw-{number}"}, "spec": spec}, "one"
            )

    await until_quiet(ground.say)
    os.kill(ground.operator.pid("run"), signal.SIGSTOP)
    try:
        async with ground.holding(holding):
            began = time.monotonic()
            await asyncio.gather(*map(one, range(count)))
            rate = count / (time.monotonic() - began)
    finally:
        os.kill(ground.operator.pid("run"), signal.SIGCONT)
    wanted = {"labelSelector": "raw=true", "gracePeriodSeconds": "0"}
    await ground.kube.raw("DELETE", "/api/v1/namespaces/one/pods", parameters=wanted, seconds=SECONDS)
    return rate
