"""The bridge as the user runs it: `slinky bridge run` and `slinky bridge admission`, processes of their own, and what they cost.

Comes in: a sandbox and settings. Goes out: a running process; its CPU seconds and memory by the kernel's word, its calls by its own /metrics. What must stay true: it is ended when the block is left,
whatever happened in it, and its log is kept.
"""

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec
import yaml

from bench.bridge.pods import NAMESPACE
from slinky.bridge.admission_service import own_username
from slinky.bridge.key_policy import POLICIES, POLICY_BINDINGS, key_policy, policy_name
from slinky.bridge.pod_policy import POD_POLICIES, POD_POLICY_BINDINGS
from slinky.bridge.settings import Settings
from slinky.bridge.webhook_configuration import policy_for_pods
from slinky.kube import Client, NotFoundError, from_kubeconfig
from slinky.sandbox.bridge import free_port
from slinky.sandbox.errors import last_lines
from slinky.sandbox.handle import Sandbox

__all__ = ["Bridge", "admission", "cpu_of", "prefer", "running", "settings_for"]

SLINKY = Path(sys.executable).with_name("slinky")
READY_SECONDS = 60.0
END_SECONDS = 20.0
SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
TICK = os.sysconf("SC_CLK_TCK")

Sample = tuple[str, dict[str, str], float]


def settings_for(sandbox: Sandbox, namespace: str) -> Settings:
    """The defaults, but for where things are."""
    found = Settings(slurm_rest_api=sandbox.slurm_server, managed_namespaces=[namespace], partition="bridge", namespace="default")
    slurm = msgspec.structs.replace(found.slurm, token_file=str(sandbox.token_file))
    return msgspec.structs.replace(found, slurm=slurm, health_port=free_port())


class Bridge:
    """Made by `running`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, session: aiohttp.ClientSession, log: Path) -> None:
        self._process, self._port, self._session, self._log = process, port, session, log

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not await self._is_ready():
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the bridge did not get ready (exit code {self._process.returncode}):\n{last_lines(self._log)}")
            await asyncio.sleep(0.05)

    async def _is_ready(self) -> bool:
        try:
            async with self._session.get(f"http://127.0.0.1:{self._port}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def metrics(self) -> list[Sample]:
        async with self._session.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
            text = await answer.text()
        return [(name, dict(LABEL.findall(labels)), float(value)) for name, labels, value in SAMPLE.findall(text)]

    async def kube_calls(self) -> dict[str, int]:
        """Requests to the API server so far, as "PATCH pods"."""
        found: dict[str, int] = {}
        for name, labels, value in await self.metrics():
            if name == "slinky_kube_requests_total":
                call = f"{labels['method']} {labels['resource']}"
                found[call] = found.get(call, 0) + int(value)
        return found

    async def largest(self, metric: str) -> float:
        """The largest sample of a metric; 0 where there is none."""
        return max((value for name, _, value in await self.metrics() if name == metric), default=0.0)

    async def pods(self, state: str) -> int:
        """How many pods stand there, by its own count."""
        found = (value for name, labels, value in await self.metrics() if name == "slinky_bridge_pods" and labels["state"] == state)
        return int(sum(found))

    async def quiet(self, seconds: float = 300) -> None:
        """Wait until nothing is ready or being worked on in its queues, twice in a row."""
        deadline, quiet = time.monotonic() + seconds, 0
        while quiet < 2:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the bridge's queues were not empty within {seconds:g} s")
            busy = sum(v for n, labels, v in await self.metrics() if n == "slinky_workqueue_keys" and labels["state"] != "later")
            quiet = quiet + 1 if not busy else 0
            await asyncio.sleep(0.25)

    def cpu_seconds(self) -> float:
        """Of the process, all its threads, its children that have ended, and those that live."""
        return sum(cpu_of(pid) for pid in (self.pid, *_descendants(self.pid)))

    def resident_bytes(self) -> int:
        return self._memory("VmRSS:")

    def peak_bytes(self) -> int:
        """The most that was ever resident."""
        return self._memory("VmHWM:")

    def _memory(self, line_of: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(line_of))


@asynccontextmanager
async def running(
    sandbox: Sandbox, settings: Settings, folder: Path, profile: Path | None = None, priority: int = 0
) -> AsyncIterator[Bridge]:
    """Ready when it is yielded. With `profile`, it runs under cProfile, which writes there at the end. `priority` is a nice value."""
    async with _process("run", sandbox, settings, folder, profile, priority) as bridge:
        yield bridge


@asynccontextmanager
async def admission(sandbox: Sandbox, settings: Settings, folder: Path) -> AsyncIterator[Bridge]:
    """The webhook, in the API server's path while the block lasts."""
    port = free_port()
    said = msgspec.structs.replace(
        settings.admission, port=port, url=f"https://{sandbox.record.addresses.host}:{port}", configuration="bench"
    )
    settings = msgspec.structs.replace(settings, admission=said, health_port=free_port())
    try:
        async with _process("admission", sandbox, settings, folder) as process:
            await _take_in_plain_pods(sandbox, settings)
            await _protect_keys(sandbox, settings)
            yield process
    finally:
        command = _command("webhooks", sandbox, folder / "admission.yaml")
        remove = await asyncio.create_subprocess_exec(*command, "--delete", stdout=asyncio.subprocess.DEVNULL)
        await asyncio.wait_for(remove.wait(), END_SECONDS)
        await _until_left_alone(sandbox)


async def _take_in_plain_pods(sandbox: Sandbox, settings: Settings) -> None:
    """The policy that the chart installs where the API server knows its kind. The command that removes the webhooks removes it too."""
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as client:
        documents = policy_for_pods(settings)
        for resource, document in zip((POD_POLICIES, POD_POLICY_BINDINGS), documents, strict=True):
            with suppress(NotFoundError):
                await client.create(resource, document)


async def _protect_keys(sandbox: Sandbox, settings: Settings) -> None:
    """The policy that the chart installs for the bridge's keys, as each change of a pod passes it. It is removed in the same way."""
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as client:
        documents = key_policy(policy_name(settings.admission.configuration), [await own_username(client)])
        for resource, document in zip((POLICIES, POLICY_BINDINGS), documents, strict=True):
            with suppress(NotFoundError):
                await client.delete(resource, document["metadata"]["name"])
            await client.create(resource, document)


async def _until_left_alone(sandbox: Sandbox) -> None:
    """The API server applies a policy for a moment after it was deleted: pods for other schedulers must not come before that."""
    probe = {"metadata": {"generateName": "probe-"}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    path, trial = f"/api/v1/namespaces/{NAMESPACE}/pods", {"dryRun": "All"}
    deadline = time.monotonic() + END_SECONDS
    async with Client(from_kubeconfig(sandbox.kubeconfig)) as client:
        while b'"schedulerName":"default-scheduler"' not in await client.raw("POST", path, body=probe, parameters=trial):
            if time.monotonic() > deadline:
                raise TimeoutError(f"pods were still taken in {END_SECONDS:g} s after the policy for plain pods was deleted")
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _process(
    word: str, sandbox: Sandbox, settings: Settings, folder: Path, profile: Path | None = None, priority: int = 0
) -> AsyncIterator[Bridge]:
    config, log = folder / f"{word}.yaml", folder / f"{word}.log"
    config.write_text(yaml.safe_dump(msgspec.to_builtins(settings)))
    command = _command(word, sandbox, config)
    if profile:
        command = [sys.executable, "-m", "cProfile", "-o", str(profile), *command]
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    if priority:
        prefer(process.pid, priority)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
        bridge = Bridge(process, settings.health_port, session, log)
        try:
            await bridge.ready()
            yield bridge
        finally:
            await _end(process)


def _command(word: str, sandbox: Sandbox, config: Path) -> list[str]:
    return [str(SLINKY), "bridge", word, "--config", str(config), "--kubeconfig", str(sandbox.kubeconfig)]


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def prefer(pid: int, priority: int) -> None:
    """Set the nice value of a process, and that of its session: where the kernel groups processes by session, the first counts within one only."""
    os.setpriority(os.PRIO_PROCESS, pid, priority)
    if (group := Path(f"/proc/{pid}/autogroup")).exists():
        group.write_text(str(priority))


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = _stat(pid)
    return sum(int(field) for field in fields[11:15]) / TICK if fields else 0.0


def _descendants(pid: int) -> list[int]:
    parents = {int(path.name): int(fields[1]) for path in Path("/proc").glob("[0-9]*") if (fields := _stat(int(path.name)))}
    found, fresh = [], [pid]
    while fresh:
        fresh = [child for child, parent in parents.items() if parent in fresh]
        found += fresh
    return found


def _stat(pid: int) -> list[str]:
    """The fields after the name, from the state on; none where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
