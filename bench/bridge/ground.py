"""What every scenario stands on: a sandbox, connections to its two servers, an eye on its pods, and a way to leave it as it was found.

What must stay true: between scenarios no pod and no live job is left; every wait has an end and says what it waited for; the eye is the same for all scenarios, so that "bound" means the
same for all: a watch showed the pod with a node, by this machine's clock, which is Slurm's too.
"""

import asyncio
import datetime as dt
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bench.bridge.pods import NAMESPACE
from bench.bridge.process import cpu_of
from bench.limits import CONNECTIONS, cancel_all
from slinky.bridge.keys import JOB_ID
from slinky.kube import PODS, Change, Client, Pod, Reflector, from_kubeconfig
from slinky.sandbox.client import HttpError, Kube, SlurmRest
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.identity import host_pid
from slinky.sandbox.kwoknodes import side_by_side

__all__ = ["Ground", "Sight", "standing_on"]

PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
GROUPS_PATH = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
# slurmctld says so at its default level, whichever of its two schedulers it was.
STARTED = re.compile(r"^\[([^\]]+)\] (?:sched: Allocate|.*backfill.* Started) JobId=(\d+) ", re.MULTILINE)
SUBMITTED = re.compile(r"^\[([^\]]+)\] _slurm_rpc_submit_batch_job: JobId=(\d+) ", re.MULTILINE)


class Sight:
    """What the watch showed of the pods: when each was first seen bound, its job, and when it was first seen being deleted."""

    def __init__(self) -> None:
        self.bound: dict[str, float] = {}
        self.leaving: dict[str, float] = {}
        self.job_of: dict[str, int] = {}
        self.present: dict[str, Pod] = {}
        self._changed = asyncio.Event()

    def see(self, change: Change[Pod]) -> None:
        now, pod = time.time(), change.new
        if pod is None:
            self.present.pop(change.key.name, None)
        else:
            self.present[change.key.name] = pod
            if pod.spec.node_name and pod.metadata.name not in self.bound:
                self.bound[pod.metadata.name] = now
                self.job_of[pod.metadata.name] = int(pod.metadata.labels.get(JOB_ID, 0))
            if pod.metadata.deletion_timestamp is not None:
                self.leaving.setdefault(pod.metadata.name, now)
        self._changed.set()

    def forget(self) -> None:
        self.bound.clear()
        self.job_of.clear()
        self.leaving.clear()

    async def until(self, what: str, probe: Callable[[], bool], seconds: float) -> None:
        """Wait for what the watch shows to be so."""
        try:
            async with asyncio.timeout(seconds):
                while not probe():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"{what} did not come true within {seconds:g} s ({len(self.bound)} pods were bound)") from None


class Ground:
    """Made by `standing_on`."""

    def __init__(
        self, sandbox: Sandbox, kube: Kube, submits: SlurmRest, reads: SlurmRest, eye: Client, sight: Sight, zone: dt.tzinfo
    ) -> None:
        self.sandbox, self.kube, self.submits, self.reads, self.sight = sandbox, kube, submits, reads, sight
        self._eye, self._zone = eye, zone

    async def create(self, pods: Iterable[dict[str, Any]]) -> None:
        """As fast as the API server takes them."""
        await side_by_side(CONNECTIONS["kube"], (self.kube.post(PODS_PATH, pod) for pod in pods))

    async def create_at(self, rate: float, pods: Collection[dict[str, Any]]) -> None:
        """One after the other at an even rate, whether or not the one before has been answered."""
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, pod in enumerate(pods):
                await asyncio.sleep(started + number / rate - time.monotonic())
                group.create_task(self.kube.post(PODS_PATH, pod))

    async def until_bound(self, count: int, seconds: float = 180) -> float:
        """When the last of them was seen bound."""
        await self.sight.until(f"that {count} pods were bound", lambda: len(self.sight.bound) >= count, seconds)
        return max(self.sight.bound.values())

    # Slurm's own word

    def log_position(self) -> int:
        return self.sandbox.log("slurmctld").stat().st_size

    def starts(self, position: int) -> dict[int, float]:
        """When each job was allocated, by slurmctld's log from that position on, which has milliseconds."""
        return self._logged(STARTED, position)

    def submits_of(self, position: int) -> dict[int, float]:
        """When slurmctld had taken in each job, by the same log."""
        return self._logged(SUBMITTED, position)

    def _logged(self, line: re.Pattern[str], position: int) -> dict[int, float]:
        with self.sandbox.log("slurmctld").open("rb") as log:
            log.seek(position)
            text = log.read().decode(errors="replace")
        found = ((int(job), dt.datetime.fromisoformat(when)) for when, job in line.findall(text))
        return {job: when.replace(tzinfo=self._zone).timestamp() for job, when in found}

    def latencies(self, position: int, job_of: Mapping[str, int] | None = None) -> list[float]:
        """Seconds from Slurm's start to bound, of each pod whose start the log has."""
        starts, jobs = self.starts(position), job_of or self.sight.job_of
        return sorted(self.sight.bound[name] - starts[job] for name, job in jobs.items() if job in starts and name in self.sight.bound)

    async def calls(self) -> dict[str, int]:
        """Requests that slurmctld has served, by its own count."""
        statistics = (await self.reads.slurm("GET", "diag/"))["statistics"]
        counts = {row["message_type"]: int(row["count"]) for row in statistics["rpcs_by_message_type"]}
        counts.pop("REQUEST_STATS_INFO", None)
        return counts

    async def live_jobs(self) -> int:
        return sum(row["state"][0] in ("PENDING", "RUNNING") for row in await self._jobs())

    async def _jobs(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self.reads.slurm("GET", "jobs/state/"))["jobs"]
        return rows

    async def server_cpu(self) -> dict[str, float]:
        """CPU seconds of each of the sandbox's servers so far, by name."""
        keeper = self.sandbox.record.keeper
        return {
            name: cpu_of(host_pid(keeper, part.pid)) for name, part in (await self.sandbox.link.parts()).items() if part.exit_code is None
        }

    # Leaving it as it was found

    async def delete_pods(self) -> list[str]:
        """Their names, by the API server's word: the watch may be behind."""
        names = [pod.metadata.name for pod in (await self._eye.list(PODS, NAMESPACE)).items]

        async def gone(name: str) -> None:
            try:
                await self.kube.delete(f"{PODS_PATH}/{name}?gracePeriodSeconds=0")
            except HttpError as error:
                if error.status != 404:
                    raise

        await side_by_side(CONNECTIONS["kube"], (gone(name) for name in names))
        return names

    async def until_no_pods(self, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while (await self.kube.get(f"{PODS_PATH}?limit=1"))["items"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"pods were left {seconds:g} s after all were deleted, such as {next(iter(self.sight.present), 'one')}")
            await asyncio.sleep(0.1)
        await self.sight.until("that the watch showed no pods", lambda: not self.sight.present, 30)

    async def clear(self, *, finalizers: bool) -> None:
        """No pods, no groups, no live jobs. `finalizers`: the bridge is not there to take its own off."""
        names = await self.delete_pods()
        if finalizers:
            await side_by_side(CONNECTIONS["kube"], (self._release(name) for name in names))
        await self.until_no_pods()
        await self.kube.delete(GROUPS_PATH)
        await cancel_all(self.reads)
        self.sight.forget()

    async def _release(self, name: str) -> None:
        try:
            await self.kube.call("PATCH", f"{PODS_PATH}/{name}", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        except HttpError as error:
            if error.status != 404:
                raise

    async def forgotten(self, seconds: float = 180) -> None:
        """Wait until slurmctld has forgotten the jobs that ended: it tells their states until then."""
        deadline = time.monotonic() + seconds
        while rows := await self._jobs():
            if time.monotonic() > deadline:
                raise TimeoutError(f"slurmctld still remembers {len(rows)} jobs after {seconds:g} s")
            await asyncio.sleep(1)


@asynccontextmanager
async def standing_on(sandbox: Sandbox) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(sandbox.kube(CONNECTIONS["kube"]))
        submits = await stack.enter_async_context(sandbox.slurm(CONNECTIONS["slurm"]))
        reads = await stack.enter_async_context(sandbox.slurm(CONNECTIONS["slurm"]))
        await kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await sandbox.until(
            "kube-controller-manager",
            "the namespace had its ServiceAccount",
            lambda: kube.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"),
        )
        offset = (await sandbox.link.run("head", "date", "+%z")).strip()
        zone = dt.datetime.strptime(offset, "%z").tzinfo
        sight = Sight()
        eye = await stack.enter_async_context(Client(from_kubeconfig(sandbox.kubeconfig)))
        reflector = Reflector(eye, PODS, namespace=NAMESPACE)
        reflector.cache.subscribe(sight.see)
        cache = await stack.enter_async_context(reflector.running())
        await cache.wait_synced(60)
        ground = Ground(sandbox, kube, submits, reads, eye, sight, zone or dt.UTC)
        await ground.clear(finalizers=True)
        yield ground
