"""What a cached watch costs: 100,000 pods held, 2,000 changes a second followed, on one core.

- Generated load: a process of its own streams pods as the API server would, first a list, then changes; each is a whole pod with managedFields.
  The decode rate stands beside a bare msgspec loop over the same lines in the same run, which is the limit.
- The real API server of a sandbox: as many changes as it makes while we follow, and how far behind the last one we are.
"""

import asyncio
import gc
import multiprocessing
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from bench.rows import Row
from slinky.kube import PODS, Access, Client, Pod, Reflector, from_kubeconfig
from slinky.kube.watch import EventReader, LineSplitter
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kwoknodes import side_by_side
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["measure"]

NAME = "bench-cache"
RATE = 2000
UID = "5f0e9c6e-0000-4000-8000-{:012d}"


def measure(quick: bool) -> list[Row]:
    pods, seconds, real = (5_000, 2, 500) if quick else (100_000, 10, 5_000)
    rows = asyncio.run(_generated(pods, seconds))
    with Progress() as progress:
        down(NAME)
        try:
            sandbox = asyncio.run(up(NAME, Shape(nodes=20), progress))
            with progress.step("following the real API server"):
                return rows + asyncio.run(_real(sandbox, real))
        finally:
            down(NAME)


async def _generated(pods: int, seconds: int) -> list[Row]:
    bare = _bare_rate(min(pods, 20_000))
    async with _load(pods, seconds) as server, Client(Access(server)) as client:
        reflector = Reflector(client, PODS)
        reflector.cache.add_index("node", lambda pod: [pod.spec.node_name])
        gc.collect()
        memory, cpu, started = _resident(), time.process_time(), time.monotonic()
        async with reflector.running() as cache:
            await cache.wait_synced(300)
            took, list_cpu = time.monotonic() - started, time.process_time() - cpu
            gc.collect()
            held = (_resident() - memory) / len(cache)
            share, lag = await _followed(reflector, pods, seconds)
            assert len(cache) == pods
    return [
        Row("bare msgspec decode of pod events, one core", bare, "events/s"),
        Row(f"cached watch, first list of {pods:,} pods, per CPU second", pods / list_cpu, "pods/s"),
        Row("… of the bare decode", pods / list_cpu / bare, "ratio"),
        Row(f"cached watch, first list of {pods:,} pods, generator on the other core", took, "s"),
        Row(f"memory of a held pod, one index, at {pods:,}", held, "bytes", at_most=3072),
        Row(f"CPU share while following {RATE:,} changes/s", share, "cores", at_most=1.0),
        Row(f"longest gap between events while following {RATE:,} changes/s", lag * 1000, "ms"),
    ]


async def _followed(reflector: Reflector[Pod], pods: int, seconds: int) -> tuple[float, float]:
    """CPU used per second, and the longest time without news."""
    expected = pods + RATE * seconds
    while reflector.health.events <= pods + RATE // 4:  # the stream is under way
        await asyncio.sleep(0.01)
    first, cpu, started = reflector.health.events, time.process_time(), time.monotonic()
    longest, last, seen = 0.0, started, first
    while reflector.health.events < expected:
        if time.monotonic() - started > 5 * seconds:
            raise TimeoutError(f"{expected - reflector.health.events} changes did not arrive")
        await asyncio.sleep(0.005)
        if reflector.health.events != seen:
            longest, last, seen = max(longest, time.monotonic() - last), time.monotonic(), reflector.health.events
    return (time.process_time() - cpu) / (time.monotonic() - started), longest


async def _real(sandbox: Sandbox, changes: int) -> list[Row]:
    """Label patches on 200 pods as fast as the server takes them, side by side with our watch."""
    async with Client(from_kubeconfig(sandbox.kubeconfig), connections=32) as client:
        names = [f"p{index}" for index in range(200)]
        spec = _pod(0)["spec"] | {"nodeName": ""}
        spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none", "resources": spec["containers"][0]["resources"]}]}
        await side_by_side(32, (client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default") for name in names))
        reflector = Reflector(client, PODS, namespace="default")
        async with reflector.running() as cache:
            await cache.wait_synced(30)
            before, cpu, started = reflector.health.events, time.process_time(), time.monotonic()
            patches = (client.patch(PODS, names[n % 200], {"metadata": {"labels": {"n": str(n)}}}, "default") for n in range(changes))
            await side_by_side(32, patches)
            written = time.monotonic()
            while reflector.health.events - before < changes:
                if time.monotonic() - written > 30:
                    raise TimeoutError(f"only {reflector.health.events - before} of {changes} changes arrived")
                await asyncio.sleep(0.002)
            seconds = time.monotonic() - started
            return [
                Row("real API server: patches written and followed, one process, 32 connections", changes / seconds, "changes/s"),
                Row("… CPU of ours for writing and following", (time.process_time() - cpu) / seconds, "cores"),
                Row("… last change held after the last answer", (time.monotonic() - written) * 1000, "ms"),
            ]


def _bare_rate(count: int) -> float:
    lines = [_event("ADDED", index) for index in range(count)]
    stream = b"\n".join(lines) + b"\n"
    reader, splitter = EventReader(Pod, ""), LineSplitter()
    split = [line for start in range(0, len(stream), 262_144) for line in splitter.feed(stream[start : start + 262_144])]
    decode = reader._decode
    gc.collect()
    started = time.process_time()
    held = [decode(line) for line in split]
    rate = len(held) / (time.process_time() - started)
    del held
    return rate


# The load: a process of its own


@asynccontextmanager
async def _load(pods: int, seconds: int) -> AsyncIterator[str]:
    context = multiprocessing.get_context("spawn")
    port = context.Queue()
    process = context.Process(target=_serve, args=(port, pods, seconds), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{await asyncio.to_thread(port.get, True, 60)}"
    finally:
        process.terminate()
        process.join(10)


def _serve(port: Any, pods: int, seconds: int) -> None:
    asyncio.run(_serving(port, pods, seconds))


async def _serving(port: Any, pods: int, seconds: int) -> None:
    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, pods, 50):
            await response.write(b"".join(_event("ADDED", index) + b"\n" for index in range(start, min(start + 50, pods))))
        end = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
        await response.write(msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": end}}) + b"\n")
        await asyncio.sleep(1)
        started, sent = time.monotonic(), 0
        while sent < RATE * seconds:
            due = min(RATE * seconds, int((time.monotonic() - started) * RATE))
            await response.write(b"".join(_event("MODIFIED", index * 7919 % pods, version=index + 2) + b"\n" for index in range(sent, due)))
            sent = due
            await asyncio.sleep(0.01)
        await asyncio.sleep(3600)
        return response

    application = web.Application()
    application.router.add_get("/api/v1/pods", watch)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port.put(runner.addresses[0][1])
    await asyncio.sleep(3600)


def _event(kind: str, index: int, version: int = 1) -> bytes:
    return msgspec.json.encode({"type": kind, "object": _pod(index, version)})


def _pod(index: int, version: int = 1) -> dict[str, Any]:
    """A running pod of a Job as a 1.36 server shows it, about 4 KB."""
    stamp = "2026-11-15T05:36:25Z"
    name = f"train-{index // 50}-{index % 50}-x7k2p"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{index // 50}", "uid": UID.format(index // 50), "controller": True}
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    managed = {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": stamp, "fieldsType": "FieldsV1"}
    fields: dict[str, Any] = {f"f:field{number}": {f"f:{letter}": {} for letter in "abcdefgh"} for number in range(12)}
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "generateName": f"train-{index // 50}-",
            "namespace": f"team-{index % 20}",
            "uid": UID.format(index),
            "resourceVersion": str(1_000_000 + index + version),
            "creationTimestamp": stamp,
            "labels": {"batch.kubernetes.io/job-name": f"train-{index // 50}", "scheduler.slinky.slurm.net/slurm-jobid": str(index)},
            "ownerReferences": [owner],
            "managedFields": [managed | {"fieldsV1": fields}],
        },
        "spec": {
            "volumes": [
                {
                    "name": "kube-api-access-v7j7f",
                    "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]},
                }
            ],
            "containers": [
                {
                    "name": "worker",
                    "image": "registry.example/train:1",
                    "command": ["python", "train.py"],
                    "env": [{"name": f"VARIABLE_{number}", "value": "some value"} for number in range(8)],
                    "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"cpu": "4", "memory": "16Gi"}},
                    "terminationMessagePath": "/dev/termination-log",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "nodeName": f"node-{index % 1000:04}",
            "schedulerName": "slurm-bridge-scheduler",
            "tolerations": tolerations,
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "startTime": stamp,
            "containerStatuses": [
                {
                    "name": "worker",
                    "state": {"running": {"startedAt": stamp}},
                    "ready": True,
                    "restartCount": 0,
                    "image": "i",
                    "imageID": "",
                }
            ],
            "qosClass": "Guaranteed",
        },
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
