"""Checkpoint signals into containers whose `kill` does what it likes: through a real WebSocket server that hangs, floods, or answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import WSMsgType, web
from prometheus_client import CollectorRegistry

from slinky.bridge import checkpoint, delivery
from slinky.bridge.annotations import read_settings
from slinky.bridge.checkpoint import COMMANDS_AT_ONCE, Checkpoints, signals_counter
from slinky.bridge.fair_work import FairWork, share_of
from slinky.bridge.keys import SETTINGS
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Access, Client, Pod
from slinky.kube.objects.pod import PodStatus
from slinky.slurm import Job

NOW = 1_800_000_000
SUCCESS = b'\x03{"status": "Success"}'


class Kubelet:
    """What the API server offers of a pod: `exec`, as its namespace says (hangs, floods, or answers), and its object."""

    def __init__(self) -> None:
        self.hanging, self.most_hanging = 0, 0
        self.flooded = 0  # bytes that could be sent
        self.asked: list[str] = []  # pods, once for each command
        self.signalled: list[str] = []
        self.noted: list[str] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/api/v1/namespaces/{namespace}/pods/{pod}/exec", self.run)
        app.router.add_patch("/api/v1/namespaces/{namespace}/pods/{pod}", self.patch)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def patch(self, request: web.Request) -> web.Response:
        self.noted.append(request.match_info["pod"])
        return web.json_response({"metadata": {"name": request.match_info["pod"]}})

    async def run(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await socket.prepare(request)
        namespace = request.match_info["namespace"]
        self.asked.append(request.match_info["pod"])
        if namespace.startswith("hangs"):
            self.hanging += 1
            self.most_hanging = max(self.hanging, self.most_hanging)
            try:
                async for message in socket:
                    assert message.type is not WSMsgType.BINARY
            finally:
                self.hanging -= 1
        elif namespace == "floods":
            while not socket.closed and self.flooded < 1 << 30:
                await socket.send_bytes(b"\x01" + bytes(32 * 1024))
                self.flooded += 32 * 1024
        else:
            self.signalled.append(request.match_info["pod"])
            await socket.send_bytes(SUCCESS)
        return socket


class Events:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def record(self, about: Any, reason: str, note: str, **_: bool) -> None:
        self.told.append((about.name, reason, note))


def a_pod(namespace: str, name: str) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}"},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]},
        },
        Pod,
    )


class Site:
    def __init__(self, kubelet: Kubelet, kube: Client, commands: Client) -> None:
        self.kubelet, self.events = kubelet, Events()
        events: Any = self.events
        self.pods: dict[WorkloadKey, list[Pod]] = {}
        self.done: list[WorkloadKey] = []
        self.checkpoints = Checkpoints(kube, commands, events, signals_counter(CollectorRegistry()))
        self.checkpoints.pods = lambda key: self.pods[key]
        self.checkpoints.done = self.done.append

    def preempt(self, namespace: str, pods: int) -> WorkloadKey:
        """A gang of so many pods that asked for a signal, whose job is being preempted."""
        key = WorkloadKey("Job", namespace, "train")
        self.pods[key] = [a_pod(namespace, f"p{number}") for number in range(pods)]
        said = read_settings({f"{SETTINGS}signal": "USR1@60"})
        self.checkpoints.look(key, Workload(key=key, name="train", pods=tuple(self.pods[key]), settings=said, size=pods), 7)
        times = {name: {"set": True, "number": NOW} for name in ("preempt_time", "end_time")}
        record = msgspec.convert({"job_id": 7, "job_state": ["RUNNING"], **times}, Job)
        assert self.checkpoints.seen(key, record, None, None).holds
        return key

    async def until(self, what: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not what():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def a_site() -> AsyncIterator[Site]:
    kubelet = Kubelet()
    async with (
        kubelet.serving() as server,
        Client(Access(server)) as kube,
        Client(Access(server), connections=COMMANDS_AT_ONCE) as commands,
    ):
        site = Site(kubelet, kube, commands)
        task = asyncio.create_task(site.checkpoints.run())
        try:
            yield site
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_while_a_namespaces_commands_hang_anothers_signals_are_delivered() -> None:
    async with a_site() as site:
        for number in range(3):
            site.preempt(f"hangs{number}", 100)
        await site.until(lambda: site.kubelet.hanging >= share_of(COMMANDS_AT_ONCE, 0))
        good = site.preempt("good", 50)
        await site.until(lambda: len(site.kubelet.signalled) == 50)
        await site.until(lambda: site.done == [good])
        assert site.kubelet.hanging, "all the while"
        assert site.kubelet.most_hanging < COMMANDS_AT_ONCE
        assert sorted(site.kubelet.noted) == sorted(site.kubelet.signalled)


async def test_commands_that_are_under_way_end_with_this_process() -> None:
    async with a_site() as site:
        site.preempt("hangs", 5)
        await site.until(lambda: site.kubelet.hanging == 5)
    assert site.kubelet.hanging == 0
    assert site.checkpoints._work.running == 0


async def test_a_pod_has_so_many_seconds_and_then_its_eviction_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "POD_SECONDS", 0.2)
    monkeypatch.setattr(checkpoint, "MOST_TRIES", 1)
    async with a_site() as site:
        key = site.preempt("hangs", 1)
        await site.until(lambda: site.done == [key])
        assert not site.checkpoints._holds(key)
        assert [(name, reason) for name, reason, _ in site.events.told] == [("p0", "CheckpointSignalFailed")]
        assert "did not finish within 0.2 s" in site.events.told[0][2]


async def test_pods_that_ended_while_they_waited_behind_commands_that_hang_cost_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SECONDS", 0.5)
    monkeypatch.setattr(checkpoint, "MOST_TRIES", 1)
    most = share_of(COMMANDS_AT_ONCE, 0)
    async with a_site() as site:
        over = {f"hangs-p{number}" for number in range(most, 3 * most)}
        ended = msgspec.convert({"phase": "Succeeded"}, PodStatus)
        site.checkpoints.current = lambda pod: (
            None if pod.metadata.name == f"p{most}" else msgspec.structs.replace(pod, status=ended) if pod.metadata.uid in over else pod
        )
        key = site.preempt("hangs", 3 * most)
        await site.until(lambda: site.done == [key])
        assert sorted(site.kubelet.asked) == sorted(f"p{number}" for number in range(most))
        assert len(site.events.told) == most, "for those who were asked: the others need no signal"


async def test_what_says_more_than_a_kill_could_is_given_up() -> None:
    async with a_site() as site:
        site.preempt("floods", 1)
        await site.until(lambda: site.done)
        assert site.kubelet.flooded < 32 << 20, "no more than what fits into buffers on the way"


# Whose turn it is


@pytest.mark.parametrize(("others", "expected"), [(0, 16), (16, 8), (24, 4), (30, 1), (31, 1), (32, 0)])
def test_a_group_has_half_of_what_the_others_leave(others: int, expected: int) -> None:
    assert share_of(32, others) == expected


async def test_no_more_than_the_limit_runs_and_all_of_it_is_done() -> None:
    work: FairWork[int] = FairWork(4)
    under_way, most, done = 0, 0, list[int]()

    async def one(number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        done.append(number)
        if number % 10 == 0:
            raise ValueError("this one fails")

    for number in range(200):
        work.add(f"group {number % 3}", number, lambda number=number: one(number))  # type: ignore[misc]
    task = asyncio.create_task(work.run())
    async with asyncio.timeout(20):
        while len(done) < 200:
            await asyncio.sleep(0.001)
    assert most <= 4
    assert sorted(done) == list(range(200))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert work.running == 0
