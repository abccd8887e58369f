"""The bridge on a sandbox: its two processes, as an admin would run them, with a configuration that fits the sandbox.

Comes in: a sandbox that is up, and what is to be set otherwise. Goes out: `slinky bridge run` and `slinky bridge admission`, ready, with their logs and their configuration in one folder. What must stay true: they end with the one
who started them, also if that one is killed; the webhook configurations go with them, so that no pod is refused for a webhook that is not there.
"""

import asyncio
import ctypes
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.slurm import completion

__all__ = ["SandboxBridge", "bridge_settings", "free_port", "python_on_the_head", "sandbox_bridge"]

READY_SECONDS = 60.0
END_SECONDS = 20.0
PR_SET_PDEATHSIG = 1


def bridge_settings(sandbox: Sandbox, name: str = "slurm-bridge", **more: Any) -> dict[str, Any]:
    """The configuration file's content. `name` tells several bridges on one sandbox apart; `more` is laid over it, section by section."""
    port, health = free_port(), free_port()
    settings: dict[str, Any] = {
        "slurmRestApi": sandbox.slurm_server,
        "partition": "bridge",
        "schedulerName": f"{name}-scheduler",
        "namespace": "kube-system",
        "cluster": f"sandbox-{name}",
        "healthPort": health,
        "slurm": {"tokenFile": str(sandbox.token_file), "completionCommand": python_on_the_head(sandbox)},
        "nodes": {"register": False},
        # Whoever has a sandbox may try all of its accounts.
        "policy": {"default": {"accounts": ["*"], "qoses": ["*"], "partitions": ["*"]}},
        "leader": {"name": name, "seconds": 5},  # who is killed here is missed soon
        "admission": {
            "url": f"https://{sandbox.record.addresses.host}:{port}",
            "port": port,
            "secret": f"{name}-admission",
            "configuration": name,
        },
    }
    for key, value in more.items():
        settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) and isinstance(settings.get(key), dict) else value
    return settings


def python_on_the_head(sandbox: Sandbox) -> list[str]:
    """Words before a script's name that run it on the head, where libslurm is. The one script that is needed there is put there: the head need not see this checkout."""
    place = sandbox.head / "var/lib/libslurm_child.py"
    shutil.copyfile(completion.CHILD, place)
    return sandbox.enter(["sh", "-c", 'shift 2; exec python3 -I /var/lib/libslurm_child.py "$@"', "sh"])


class SandboxBridge:
    """The processes, by part: `run` and `admission`."""

    def __init__(self, sandbox: Sandbox, settings: dict[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.settings, self.folder = settings, folder
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(settings))
        self._kubeconfig = sandbox.kubeconfig
        self.kubeconfigs: dict[str, Path] = {}  # by part, where it is not the administrator's
        self.options: tuple[str, ...] = ()  # of `run`, besides
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._health = {"run": int(settings["healthPort"]), "admission": free_port()}

    def health(self, part: str = "run") -> str:
        return f"http://localhost:{self._health[part]}"

    def pid(self, part: str) -> int:
        return self._processes[part].pid

    def log(self, part: str) -> str:
        return (self.folder / f"{part}.log").read_text(errors="replace")

    async def start(self, part: str) -> None:
        """And wait until it is ready."""
        words = [
            "bridge",
            part,
            "--config",
            str(self.config),
            "--kubeconfig",
            str(self.kubeconfigs.get(part, self._kubeconfig)),
            "--health-port",
            str(self._health[part]),
            *(self.options if part == "run" else ()),
        ]
        with (self.folder / f"{part}.log").open("ab") as log:
            self._processes[part] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "slinky",
                *words,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
                start_new_session=True,
            )
        await self._ready(part)

    async def stop(self, part: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Returns its exit code."""
        process = self._processes.pop(part)
        if process.returncode is None:
            process.send_signal(number)
        try:
            async with asyncio.timeout(END_SECONDS):
                return await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise SandboxError(
                f"slinky bridge {part} did not end within {END_SECONDS:g} s of {number.name}; its log is {self.folder / part}.log"
            ) from None

    async def first_to_end(self) -> tuple[str, int]:
        """Waits until one of those that run has ended by itself: which, and its exit code."""
        waits = {asyncio.ensure_future(process.wait()): part for part, process in self._processes.items()}
        try:
            ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        first = ended.pop()
        return waits[first], first.result()

    async def end(self) -> None:
        """All that runs; and the webhook configurations."""
        for part in list(self._processes):
            await self.stop(part)
        words = ["bridge", "webhooks", "--delete", "--config", str(self.config), "--kubeconfig", str(self._kubeconfig)]
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "slinky", *words, stdout=subprocess.DEVNULL)
        await process.wait()

    async def _ready(self, part: str) -> None:
        process = self._processes[part]
        try:
            async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2)) as session:
                while not await _is_ready(session, f"{self.health(part)}/readyz"):
                    if process.returncode is not None:
                        raise SandboxError(f"slinky bridge {part} ended with {process.returncode}: {self.log(part)[-2000:]}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise SandboxError(f"slinky bridge {part} was not ready within {READY_SECONDS:g} s: {self.log(part)[-2000:]}") from None


@asynccontextmanager
async def sandbox_bridge(
    sandbox: Sandbox, folder: Path, parts: tuple[str, ...] = ("admission", "run"), **settings: Any
) -> AsyncIterator[SandboxBridge]:
    """`async with sandbox_bridge(sandbox, folder, managedNamespaces=["team"]) as bridge: …`"""
    bridge = SandboxBridge(sandbox, await asyncio.to_thread(bridge_settings, sandbox, **settings), folder)
    try:
        for part in parts:
            await bridge.start(part)
        yield bridge
    finally:
        await bridge.end()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
