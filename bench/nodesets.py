"""The operator with many workers: a NodeSet of 1,000 created, updated and scaled away, and ten clusters at once.

The pods are on kwok nodes, their slurmd's part is played by nodes registered through REST, the clusters' head is the sandbox's own Slurm. Beside the operator, in the same run, the API server's raw rate: the same pods, created by 32 clients and nobody
in between. Calls are counted by the operator's own metrics.
"""

import asyncio
import base64
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from bench.rows import Row
from slinky.kube import NAMESPACES, PODS, Client, Resource, from_kubeconfig
from slinky.operator.kinds import GROUP, VERSION
from slinky.sandbox.client import Kube
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.processes import Processes
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up
from slinky.slurm import NodeDescription, SlurmClient, compress

__all__ = ["measure"]

NAME = "bench-nodesets"
CLUSTERS = 10
AT_ONCE = 32
SECONDS = 300.0
SAMPLE = re.compile(r"^slinky_(kube|slurm)_requests_total\{(.*)\} (\S+)$", re.MULTILINE)


def measure(quick: bool) -> list[Row]:
    workers = 100 if quick else 1000
    with Progress() as progress:
        down(NAME)
        try:
            sandbox = asyncio.run(up(NAME, Shape(nodes=100), progress))
            with progress.step("measuring NodeSets"), tempfile.TemporaryDirectory() as folder:
                return asyncio.run(_measure(sandbox, workers, Path(folder)))
        finally:
            down(NAME)


class Ground:
    """The operator's process, and what is asked of the servers."""

    def __init__(self, sandbox: Sandbox, kube: Client, slurm: SlurmClient, operator: Processes) -> None:
        self.sandbox, self.kube, self.slurm, self.operator = sandbox, kube, slurm, operator

    async def write(self, kind: str, namespace: str, name: str, **spec: Any) -> None:
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
        await self.kube.create(Resource(GROUP, VERSION, f"{kind.lower()}s", dict), body, namespace)

    async def cluster(self, namespace: str) -> None:
        await self.kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        home = self.sandbox.head / "etc/slurm"
        data = {"slurm.key": (home / "slurm.key").read_bytes(), "jwt.key": (home / "jwt_hs256.key").read_bytes()}
        written = {name: base64.b64encode(key).decode() for name, key in data.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "data": written}
        await self.kube.raw("POST", f"/api/v1/namespaces/{namespace}/secrets", body=secret)
        keys = {f"{short}KeyRef": {"name": "keys", "key": f"{short}.key"} for short in ("slurm", "jwt")}
        head = {"host": self.sandbox.record.addresses.head, "port": 6817}
        await self.write("Controller", namespace, "c", external=True, externalConfig=head, **keys)
        await self.write("RestApi", namespace, "c", controllerRef={"name": "c"}, replicas=0)

    async def nodeset(self, namespace: str, name: str, replicas: int) -> None:
        strategy = {"rollingUpdate": {"maxUnavailable": "100%"}}
        image = {"image": "none"}
        await self.write(
            "NodeSet",
            namespace,
            name,
            controllerRef={"name": "c"},
            replicas=replicas,
            slurmd=image,
            oversubscribeNode=True,
            updateStrategy=strategy,
        )

    async def change(self, namespace: str, name: str, **spec: Any) -> None:
        await self.kube.patch(Resource(GROUP, VERSION, "nodesets", dict), name, {"spec": spec}, namespace)

    async def status(self, namespace: str, name: str) -> dict[str, Any]:
        """Empty where it is not of the present generation."""
        found = await self.kube.get(Resource(GROUP, VERSION, "nodesets", dict), name, namespace)
        status: dict[str, Any] = found.get("status", {})
        return status if status.get("observedGeneration") == found["metadata"]["generation"] else {}

    async def play(self, name: str, count: int) -> None:
        """For ever: the workers' part in Slurm. Those that are not there register, all in one request."""
        while True:
            there = {node.name for node in await self.slurm.nodes.all()}
            unknown = [host for number in range(count) if (host := f"{name}-{number}") not in there]
            if unknown:
                await self.slurm.nodes.create(_described(name, unknown))
            await asyncio.sleep(0.5)

    async def calls(self) -> dict[str, float]:
        """So far: to the API server by method and resource, to Slurm as one."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.operator.health()}/metrics") as answer:
            text = await answer.text()
        found: dict[str, float] = {}
        for server, labels, value in SAMPLE.findall(text):
            said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            key = f"{said['method']} {said['resource']}" if server == "kube" else "Slurm"
            found[key] = found.get(key, 0) + float(value)
        return found

    async def until(self, probe: Callable[[], Awaitable[bool]]) -> float:
        began = time.monotonic()
        async with asyncio.timeout(SECONDS):
            while not await probe():
                await asyncio.sleep(0.05)
        return time.monotonic() - began


def _described(nodeset: str, names: list[str]) -> NodeDescription:
    return NodeDescription(
        name=compress(names),
        address="127.0.0.1",
        cpus=4,
        boards=1,
        sockets_per_board=1,
        cores_per_socket=4,
        threads_per_core=1,
        real_memory=4096,
        features=[nodeset],
    )


async def _measure(sandbox: Sandbox, workers: int, folder: Path) -> list[Row]:
    slurm = {"address": sandbox.slurm_server, "fastestPoll": 0.5, "slowestPoll": 2.0}
    (folder / "config.yaml").write_text(yaml.safe_dump({"namespace": "default", "leader": {"elect": False}, "slurm": slurm}))
    operator = Processes("operator", folder)
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as kube, sandbox.slurm_client() as client, sandbox.kube() as plain:
        ground = Ground(sandbox, kube, client, operator)
        await _crds(sandbox, plain)
        await ground.cluster("one")
        await operator.start_part("run", "--config", str(folder / "config.yaml"), "--kubeconfig", str(sandbox.kubeconfig))
        try:
            return [*await _one(ground, workers), *await _ten(ground, workers // CLUSTERS)]
        finally:
            await operator.stop_all()


async def _crds(sandbox: Sandbox, plain: Kube) -> None:
    command = [sys.executable, "-m", "slinky", "operator", "crds"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True, timeout=60)
    await plain.apply_all(list(yaml.safe_load_all(done.stdout)))
    for kind in ("controllers", "restapis", "nodesets", "tokens"):
        await sandbox.until("kube-apiserver", f"{kind} were served", lambda kind=kind: plain.get(f"/apis/{GROUP}/{VERSION}/{kind}"))  # type: ignore[misc]


@asynccontextmanager
async def _played(ground: Ground, *names: str, count: int) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(ground.play(name, count)) for name in names]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _one(ground: Ground, workers: int) -> list[Row]:
    await ground.nodeset("one", "model", 1)
    async with _played(ground, "model", count=1):
        await ground.until(lambda: _ready(ground, "one", "model", 1))
    raw = await _raw_rate(ground, workers)
    before = await ground.calls()
    await ground.nodeset("one", "many", workers)
    seconds = await ground.until(lambda: _created(ground, before, workers))
    async with _played(ground, "many", count=workers):
        ready = await ground.until(lambda: _ready(ground, "one", "many", workers))
        spent = {what: (count - before.get(what, 0)) / workers for what, count in (await ground.calls()).items()}
        await ground.change("one", "many", template={"metadata": {"labels": {"release": "2"}}})
        updated = await ground.until(lambda: _ready(ground, "one", "many", workers))
    await ground.change("one", "many", replicas=0)
    gone = await ground.until(lambda: _ready(ground, "one", "many", 0))
    rate, size = workers / seconds, f"a NodeSet of {workers:,} workers"
    to_kubernetes = sum(count for what, count in spent.items() if what != "Slurm")
    return [
        Row(f"{size}, pods created", rate, "pods/s", limit=raw, ratio=rate / raw, at_least=0.8),
        Row(f"{size}, calls to the API server until all are ready", to_kubernetes, "a worker", details=spent),
        Row(f"{size}, calls to Slurm until all are ready", spent.get("Slurm", 0.0), "a worker"),
        Row(f"{size}, from the last pod's creation until all are ready", ready, "s"),
        Row(f"{size}, all drained and replaced", updated, "s"),
        Row(f"{size}, all drained and gone", gone, "s"),
    ]


async def _ten(ground: Ground, workers: int) -> list[Row]:
    names = [f"ten-{number}" for number in range(CLUSTERS)]
    for name in names:
        await ground.cluster(name)
    before = await ground.calls()
    began = time.monotonic()
    await asyncio.gather(*(ground.nodeset(name, f"{name}w", workers) for name in names))
    await ground.until(lambda: _created(ground, before, workers * CLUSTERS))
    seconds = time.monotonic() - began

    async def all_ready() -> bool:
        return all([await _ready(ground, name, f"{name}w", workers) for name in names])

    async with _played(ground, *(f"{name}w" for name in names), count=workers):
        await ground.until(all_ready)
    what = f"ten clusters at once, {workers} workers each"
    return [
        Row(f"{what}, pods created", workers * CLUSTERS / seconds, "pods/s"),
        Row(f"{what}, all ready after", time.monotonic() - began, "s"),
    ]


async def _created(ground: Ground, before: dict[str, float], count: int) -> bool:
    return (await ground.calls()).get("POST pods", 0) - before.get("POST pods", 0) >= count


async def _ready(ground: Ground, namespace: str, name: str, count: int) -> bool:
    status = await ground.status(namespace, name)
    settled = {one["type"]: one["status"] for one in status.get("conditions", [])}
    is_so = settled.get("Ready") == "True" and settled.get("Progressing") == "False"
    return is_so and status.get("readyReplicas") == status.get("updatedReplicas") == status.get("replicas") == count


async def _raw_rate(ground: Ground, count: int) -> float:
    """Pods a second that the API server takes in, of a worker's size, from nobody but us. No scheduler sees them."""
    [model] = (await ground.kube.list(PODS.untyped, "one", labels="app.kubernetes.io/instance=model")).items
    spec = {**model["spec"], "schedulerName": "nobody"}
    spec.pop("nodeName", None)
    meta = {
        "labels": {**model["metadata"]["labels"], "app.kubernetes.io/name": "raw"},
        "annotations": model["metadata"].get("annotations", {}),
    }
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with turns:
            await ground.kube.create(
                PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": f"raw-{number}"}, "spec": spec}, "one"
            )

    began = time.monotonic()
    await asyncio.gather(*map(one, range(count)))
    rate = count / (time.monotonic() - began)
    wanted = {"labelSelector": "app.kubernetes.io/name=raw", "gracePeriodSeconds": "0"}
    await ground.kube.raw("DELETE", "/api/v1/namespaces/one/pods", parameters=wanted)
    return rate
