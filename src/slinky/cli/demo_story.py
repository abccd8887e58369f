"""The demo's story: what is done on a sandbox with the bridge, what must come true, and what is said about it.

Comes in: a sandbox with nodes, its bridge, and the show. Goes out: the files of `examples/` applied as a user would, and a SandboxError that says what was expected and what is, as soon as something does not
come true. Nothing is cleaned up here: the sandbox goes as a whole.
"""

import asyncio
import math
import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich.table import Table
from rich.text import Text

from slinky.bridge.keys import TASK
from slinky.bridge.views import job_id_of
from slinky.cli.demo_views import Show, state_of
from slinky.kube import PODS, Cache, Change, Client, Pod
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kwoknodes import side_by_side
from slinky.slurm import SlurmClient

__all__ = ["EXAMPLES", "LEAST_NODES", "NAMESPACE", "Story"]

NAMESPACE = "team"
EXAMPLES = Path(__file__).parents[3] / "examples"
GANG = 16
BURST = 200
LEAST_NODES = 8  # all of it fits on them at once
AT_ONCE = 16
ROWS = 8  # of a snapshot
RUNS = frozenset({"Running", "Succeeded"})
SACCT = "JobID%5,JobName%15,Account%8,QOS%7,State%14,ExitCode,NodeList%13"  # fits into 80 columns


class Story:
    """`tell()` tells all of it."""

    def __init__(self, show: Show, sandbox: Sandbox, bridge: SandboxBridge, kube: Client, slurm: SlurmClient, pods: Cache[Pod]) -> None:
        self._show, self._sandbox, self._bridge, self._kube, self._slurm, self._pods = show, sandbox, bridge, kube, slurm, pods
        self._jobs: list[int] = []  # those that sacct is asked about at the end

    async def tell(self) -> None:
        for chapter in (self._plain_pods, self._gang, self._burst, self._both_ways):
            await chapter()
            await self._show.snapshot(ROWS)
            await self._show.breathe()

    async def _plain_pods(self) -> None:
        show = self._show
        show.chapter("1. Pods wait in Slurm's queue, and run where Slurm says")
        await self._apply("pod.yaml")
        pods = await self._until_they_run("small", "gpu", "urgent")
        for pod in pods:
            job = await self._slurm.jobs.get(job_id_of(pod))
            self._jobs.append(job.job_id)
            name, node = pod.metadata.name, pod.spec.node_name
            _expect(job.nodes == node, f"pod {name} runs on the node of its job {job.job_id}, {job.nodes}", f"it is on {node}")
            gpu = pod.metadata.annotations.get(TASK + "gpus", "")
            _expect(bool(gpu) == (name == "gpu"), f"pod {name} has {'a' if name == 'gpu' else 'no'} GPU", f"it has {gpu or 'none'}")
            if name == "urgent":
                told = (job.account, job.qos, job.time_limit)
                _expect(told == ("physics", "high", 30), f"job {job.job_id} is of account physics, QoS high, 30 minutes", str(told))
            index = f", GPU {gpu}" if gpu else ""
            show.say(
                f"pod {name} is job {job.job_id} (account {job.account}, QoS {job.qos}): Slurm gave it {job.nodes}{index}; it runs there"
            )

    async def _gang(self) -> None:
        show = self._show
        show.chapter(f"2. A gang: {GANG} pods that start together, one job of Slurm, in rank order")
        await self._apply("gang.yaml")

        def members() -> list[Pod]:
            return [pod for pod in self._pods.list() if pod.metadata.labels.get("scheduling.x-k8s.io/pod-group") == "ring"]

        async def all_run() -> bool:
            found = members()
            return len(found) == GANG and all(pod.status.phase == "Running" for pod in found)

        await show.until(f"the {GANG} pods of the gang run", all_run, how_far=lambda: f"{_running(members())} of {GANG}")
        pods = sorted(members(), key=_rank)
        jobs, nodes = sorted({job_id_of(pod) for pod in pods}), list(dict.fromkeys(pod.spec.node_name for pod in pods))
        _expect(len(jobs) == 1, "the gang is one job of Slurm", f"its pods have the jobs {jobs}")
        _expect([_rank(pod) for pod in pods] == list(range(GANG)), f"the ranks are 0 to {GANG - 1}", str([_rank(pod) for pod in pods]))
        _expect(len(nodes) == 2, "the gang fills two nodes of 8 GPUs", f"it is on {', '.join(nodes)}")
        places = [(pod.spec.node_name, pod.metadata.annotations.get(TASK + "gpus", "")) for pod in pods]
        right = [(node, str(gpu)) for node in nodes for gpu in range(8)]
        in_order = [node for node, _ in places] == [node for node, _ in right] and sorted(places) == sorted(right)
        _expect(in_order, "the pods lie in rank order, each with a GPU of its own", str(places))
        self._jobs += jobs
        table = Table(*["rank", "pod", "node", "GPU"] * 2, title=f"job {jobs[0]}", box=None)
        for left, right_one in zip(pods[:8], pods[8:], strict=True):
            table.add_row(*_place(left), *_place(right_one))
        show.table(table)
        show.say(f"ranks 0 to 7 are on {nodes[0]}, 8 to 15 on {nodes[1]}; all know of each other by SLURM_PROCID, SLURM_JOB_NODELIST, …")

    async def _burst(self) -> None:
        show = self._show
        show.chapter(f"3. A burst: {BURST} pods at once")
        show.say(f"creating {BURST} pods of one and two CPUs, {AT_ONCE} requests at a time")
        before = await self._binding()
        bound: dict[str, float] = {}

        def note(change: Change[Pod]) -> None:
            pod = change.new
            if pod is not None and pod.spec.node_name and pod.metadata.name.startswith("burst-"):
                bound.setdefault(pod.metadata.name, time.monotonic())

        unsubscribe = self._pods.subscribe(note, replay=False)
        started = time.monotonic()
        creating = asyncio.create_task(
            side_by_side(AT_ONCE, (self._kube.create(PODS, _burst_pod(number), NAMESPACE) for number in range(BURST)))
        )

        async def reached(count: int) -> bool:
            if creating.done():
                creating.result()  # raises where one could not be created
            return len(bound) >= count

        def how_far() -> str:
            made = sum(pod.metadata.name.startswith("burst-") for pod in self._pods.list())
            return f"{made} created, {len(bound)} bound"

        try:
            await show.until(f"half of the {BURST} pods are bound", lambda: reached(BURST // 2), how_far=how_far)
            await show.snapshot(ROWS)
            await show.until(f"all {BURST} pods are bound", lambda: reached(BURST), 120, how_far=how_far)
        finally:
            creating.cancel()
            unsubscribe()
        seconds = max(bound.values()) - started
        self._jobs += sorted(job_id_of(pod) for pod in self._pods.list() if pod.metadata.name.startswith("burst-"))[-2:]
        show.say(
            f"{BURST} pods in {seconds:.1f} s from the first create to the last bound, {BURST / seconds:.0f} pods/s, each a job of Slurm"
        )
        show.say((await self._binding()).since(before))

    async def _both_ways(self) -> None:
        show = self._show
        show.chapter("4. Slurm's word counts, and Slurm knows how it ended")
        victim = self._named("small")
        job_id = job_id_of(victim) if victim else 0
        show.say(f"scancel {job_id}, the job of pod small")
        await self._sandbox.link.run("head", "scancel", str(job_id))

        async def evicted() -> bool:
            return self._named("small") is None

        await show.until("the pod is evicted", evicted, how_far=lambda: state_of(pod) if (pod := self._named("small")) else "gone")
        show.say("pod small is gone")
        await self._apply("fails.yaml")
        [pod] = await self._until_they_run("fails", also="Failed")
        self._jobs.append(job_id_of(pod))
        await self._until_accounted(self._jobs[-1], "FAILED|3:0")
        await self._until_accounted(job_id, "CANCELLED")
        show.say(f"job {self._jobs[-1]} of pod fails is FAILED with 3:0, as its container ended")
        show.say("sacct knows them, the last two of the burst too:")
        show.table(Text(await self._sacct("--format", SACCT)))

    # What the chapters are made of

    def _named(self, name: str) -> Pod | None:
        return next((pod for pod in self._pods.list() if pod.metadata.name == name), None)

    async def _apply(self, file: str) -> None:
        """As a user does."""
        self._show.manifest(EXAMPLES / file)
        await self._show.breathe()
        self._show.say(f"kubectl apply -n {NAMESPACE} -f examples/{file}")
        command = [str(self._sandbox.folder / "bin/kubectl"), "apply", "-n", NAMESPACE, "-f", str(EXAMPLES / file)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        try:
            async with asyncio.timeout(60):
                told = (await process.communicate())[0].decode().strip()
        except TimeoutError:
            process.kill()
            raise SandboxError(f"kubectl apply -f examples/{file} did not end within 60 s") from None
        if process.returncode:
            raise SandboxError(f"kubectl apply -f examples/{file} ended with {process.returncode}: {told}")

    async def _until_they_run(self, *names: str, also: str = "") -> list[Pod]:
        def found() -> list[Pod]:
            return [pod for name in names if (pod := self._named(name)) and pod.spec.node_name and pod.status.phase in RUNS | {also}]

        async def all_run() -> bool:
            return len(found()) == len(names)

        await self._show.until(
            f"pod{'s' * (len(names) > 1)} {', '.join(names)} run", all_run, how_far=lambda: f"{len(found())} of {len(names)}"
        )
        return found()

    async def _sacct(self, *more: str, jobs: list[int] | None = None) -> str:
        chosen = ",".join(map(str, sorted(jobs or self._jobs)))
        return (await self._sandbox.link.run("head", "sacct", "--allusers", "--allocations", "--jobs", chosen, *more)).rstrip()

    async def _until_accounted(self, job_id: int, line: str) -> None:
        """slurmdbd hears of it a moment later."""
        told = ""

        async def known() -> bool:
            nonlocal told
            told = await self._sacct("--noheader", "--parsable2", "--format", "State,ExitCode", jobs=[job_id])
            return told.startswith(line)

        await self._show.until(f"sacct says {line} of job {job_id}", known, how_far=lambda: f"it says {told or 'nothing'}")

    async def _binding(self) -> "Binding":
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session,
            session.get(f"{self._bridge.health()}/metrics") as answer,
        ):
            return read_binding(await answer.text())


class Binding(msgspec.Struct, frozen=True):
    """How long jobs waited from Slurm's start until their pods were bound, as the bridge counted: seconds in all, and how many were within a bound."""

    seconds: float
    within: dict[float, float]

    def since(self, before: "Binding") -> str:
        counts = {bound: count - before.within.get(bound, 0) for bound, count in sorted(self.within.items())}
        total = counts.get(math.inf, 0)
        if not total:
            return "the bridge has counted no bindings"
        most = next(bound for bound, count in counts.items() if count >= total * 0.95)
        mean = (self.seconds - before.seconds) / total
        return f"from Slurm's start of a job to its pod bound: {mean:.2f} s on average, 95 % within {most:g} s (the bridge's /metrics)"


def read_binding(metrics: str) -> Binding:
    """Of the histogram's stage `bind`."""
    seconds = re.search(r'^slinky_bridge_stage_seconds_sum\{stage="bind"\} (\S+)$', metrics, re.MULTILINE)
    found = re.findall(r'^slinky_bridge_stage_seconds_bucket\{le="([^"]+)",stage="bind"\} (\S+)$', metrics, re.MULTILINE)
    return Binding(float(seconds[1]) if seconds else 0.0, {float(bound): float(count) for bound, count in found})


def _burst_pod(number: int) -> dict[str, Any]:
    requests = {"cpu": "2" if number % 3 == 0 else "1", "memory": "1Gi"}
    meta = {"name": f"burst-{number:03}", "annotations": {"sandbox.slinky.slurm.net/run-for": "20s"}}
    container = {"name": "main", "image": "example", "resources": {"requests": requests}}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [container]}}


def _rank(pod: Pod) -> int:
    text = pod.metadata.annotations.get(TASK + "procid", "")
    return int(text) if text.isdigit() else -1


def _place(pod: Pod) -> tuple[str, ...]:
    return str(_rank(pod)), pod.metadata.name, pod.spec.node_name, pod.metadata.annotations.get(TASK + "gpus", "")


def _running(pods: list[Pod]) -> int:
    return sum(pod.status.phase == "Running" for pod in pods)


def _expect(true: bool, what: str, instead: str) -> None:
    if not true:
        raise SandboxError(f"the demo expected that {what}; but: {instead}")
