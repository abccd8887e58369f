"""Memory and open files of a bridge stay flat while pods come and go in their thousands: what is over is forgotten."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from slinky.kube import PODS, Change, Client, NotFoundError, Pod, Reflector, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.shape import Shape
from tests.conftest import ARTEFACTS, Starter

pytestmark = [pytest.mark.sandbox, pytest.mark.long]

LIFETIMES = int(os.environ.get("SLINKY_LIFETIMES", "100000"))
AT_ONCE = 200
SAMPLE_SECONDS = 1.0
MOST_GROWTH_MIB = 20.0
MOST_GROWTH_SHARE = 0.10
MOST_MORE_FILES = 16
POD_SECONDS = 300.0
NAMESPACE = "lifetimes"


class Sample(msgspec.Struct, frozen=True):
    second: float
    done: int
    mib: float
    files: int
    threads: int


@pytest.fixture(scope="module")
def own_sandbox(start_sandbox: Starter) -> Sandbox:
    """So many jobs are best forgotten with their sandbox."""
    return start_sandbox("lifetimes", Shape(nodes=32))


def pod(index: int) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "64Mi"}
    container = {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    meta = {"name": f"p-{index}", "annotations": {"sandbox.slinky.slurm.net/run-for": "100ms"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], "restartPolicy": "Never"}}


def sample(pid: int, began: float, done: int) -> Sample:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(time.monotonic() - began, done, int(status["VmRSS"].split()[0]) / 1024, files, int(status["Threads"]))


class Lifetimes:
    """`AT_ONCE` users, each of whom makes a pod, waits until it is over, deletes it, and makes the next when it is gone."""

    def __init__(self, kube: Client, bridge: SandboxBridge, count: int) -> None:
        self._kube, self._pid, self._count = kube, bridge.pid("run"), count
        self._next = iter(range(count))
        self._pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        self._over: dict[str, asyncio.Event] = {}
        self._gone: dict[str, asyncio.Event] = {}
        self.done = 0
        self.samples: list[Sample] = []

    async def run(self) -> list[Sample]:
        began = time.monotonic()
        async with Reflector(self._kube, PODS, namespace=NAMESPACE).running() as pods:
            await pods.wait_synced()
            pods.subscribe(self._see)
            sampling = asyncio.create_task(self._sample(began))
            try:
                async with asyncio.TaskGroup() as users:
                    for _ in range(AT_ONCE):
                        users.create_task(self._user())
            finally:
                sampling.cancel()
                await asyncio.gather(sampling, return_exceptions=True)
        return self.samples

    async def _user(self) -> None:
        for index in self._next:
            name = f"p-{index}"
            self._over[name], self._gone[name] = asyncio.Event(), asyncio.Event()
            async with asyncio.timeout(POD_SECONDS):
                await self._kube.raw("POST", self._pods, body=pod(index))
                await self._over[name].wait()
                with suppress(NotFoundError):
                    await self._kube.raw("DELETE", f"{self._pods}/{name}", body={"gracePeriodSeconds": 0})
                await self._gone[name].wait()
            del self._over[name], self._gone[name]
            self.done += 1

    def _see(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        name = pod.metadata.name if pod else ""
        if name not in self._over:
            return
        if change.new is None:
            self._gone[name].set()
        if change.new is None or change.new.is_over:
            self._over[name].set()

    async def _sample(self, began: float) -> None:
        told = 0
        while True:
            self.samples.append(now := sample(self._pid, began, self.done))
            if now.done - told >= self._count / 20:
                told = now.done
                print(f"{now.done} lifetimes after {now.second:.0f} s: {now.mib:.1f} MiB, {now.files} files", flush=True)
            await asyncio.sleep(SAMPLE_SECONDS)


def halves(samples: list[Sample], count: int) -> tuple[list[Sample], list[Sample]]:
    """By lifetimes, without the first tenth, in which everything is made for the first time."""
    early = [found for found in samples if count * 0.1 <= found.done < count * 0.55]
    late = [found for found in samples if found.done >= count * 0.55]
    return early, late


async def test_memory_and_open_files_are_flat_over_a_hundred_thousand_pod_lifetimes(own_sandbox: Sandbox, tmp_path: Path) -> None:
    async with (
        sandbox_bridge(own_sandbox, tmp_path, name="lifetimes", managedNamespaces=[NAMESPACE]) as bridge,
        Client(from_kubeconfig(own_sandbox.kubeconfig)) as kube,
    ):
        await kube.raw("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE}})
        samples = await Lifetimes(kube, bridge, LIFETIMES).run()
        log = bridge.log("run")
    ARTEFACTS.mkdir(exist_ok=True)
    (ARTEFACTS / "lifetimes.json").write_bytes(msgspec.json.encode(samples))
    early, late = halves(samples, LIFETIMES)
    before, after = median(found.mib for found in early), median(found.mib for found in late)
    files_before, files_after = max(found.files for found in early), max(found.files for found in late)
    print(
        f"{LIFETIMES} lifetimes in {samples[-1].second:.0f} s; memory {before:.1f} -> {after:.1f} MiB (at most {max(found.mib for found in samples):.1f}), "
        f"files at most {files_before} -> {files_after}"
    )
    assert after - before <= max(MOST_GROWTH_MIB, before * MOST_GROWTH_SHARE)
    assert files_after - files_before <= MOST_MORE_FILES
    assert "Traceback" not in log
