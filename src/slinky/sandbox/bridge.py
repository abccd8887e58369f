"""The bridge on a sandbox: its two processes, as an admin would run them, with a configuration that fits the sandbox.

Comes in: a sandbox that is up, and what is to be set otherwise. Goes out: `slinky bridge run` and `slinky bridge admission`, ready, with their logs and their configuration in one folder. What must stay true: they end with the one
who started them, also if that one is killed; the webhook configurations go with them, so that no pod is refused for a webhook that is not there.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from slinky.bridge.admission_service import own_username
from slinky.bridge.key_policy import POLICIES, POLICY_BINDINGS, key_policy, policy_name
from slinky.bridge.pod_policy import POD_POLICIES, POD_POLICY_BINDINGS, pod_policy_name
from slinky.bridge.settings_file import load_settings
from slinky.bridge.webhook_configuration import policy_for_pods
from slinky.kube import Client, NotFoundError, from_kubeconfig
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.processes import Processes, free_port
from slinky.sandbox.toolsconfig import write_tools_config
from slinky.slurm import completion

__all__ = ["SandboxBridge", "bridge_settings", "free_port", "python_on_the_head", "sandbox_bridge", "write_first_config"]


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


def write_first_config(sandbox: Sandbox) -> None:
    """The configuration that `slinky sandbox bridge` would use, for commands that only look: they work before the first bridge ran, too."""
    write_tools_config(sandbox, bridge_settings(sandbox, managedNamespaces=["team"]))


def python_on_the_head(sandbox: Sandbox) -> list[str]:
    """Words before a script's name that run it on the head, where libslurm is. The one script that is needed there is put there: the head need not see this checkout."""
    place = sandbox.head / "var/lib/libslurm_child.py"
    shutil.copyfile(completion.CHILD, place)
    return sandbox.enter(["sh", "-c", 'shift 2; exec python3 -I /var/lib/libslurm_child.py "$@"', "sh"])


class SandboxBridge(Processes):
    """The processes, by part: `run` and `admission`."""

    def __init__(
        self, sandbox: Sandbox, settings: dict[str, Any], folder: Path, before: Sequence[str] = (), host: str = "localhost"
    ) -> None:
        super().__init__("bridge", folder, before, host)
        self.settings = settings
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(settings))
        self._kubeconfig = sandbox.kubeconfig
        self.kubeconfigs: dict[str, Path] = {}  # by part, where it is not the administrator's
        self.options: tuple[str, ...] = ()  # of `run`, besides
        self._health["run"] = int(settings["healthPort"])
        self._keys_protected = False

    async def start(self, part: str) -> None:
        """And wait until it is ready."""
        kubeconfig = str(self.kubeconfigs.get(part, self._kubeconfig))
        await self.start_part(part, "--config", str(self.config), "--kubeconfig", kubeconfig, *(self.options if part == "run" else ()))
        if part == "admission":
            await self.take_in_plain_pods()

    async def take_in_plain_pods(self) -> None:
        """The policy by which the API server takes in plain pods itself, where it knows that kind: as where the chart is installed. Undone by `end`."""
        documents = policy_for_pods(load_settings(self.config))
        name = pod_policy_name(self.settings["admission"]["configuration"])
        async with Client(from_kubeconfig(self._kubeconfig)) as client:
            for resource, document in zip((POD_POLICIES, POD_POLICY_BINDINGS), documents, strict=bool(documents)):
                with suppress(NotFoundError):  # of a webhook that was killed
                    await client.delete(resource, name)
                with suppress(NotFoundError):  # an API server that does not know the kind
                    await client.create(resource, document)

    async def protect_keys(self) -> None:
        """Only the user that the bridge runs as may write its keys on pods, as where the chart is installed. Undone by `end`."""
        async with Client(from_kubeconfig(self._kubeconfig)) as client:
            name = policy_name(self.settings["admission"]["configuration"])
            for resource, document in zip((POLICIES, POLICY_BINDINGS), key_policy(name, [await own_username(client)]), strict=True):
                with suppress(NotFoundError):  # of a bridge that was killed
                    await client.delete(resource, name)
                await client.create(resource, document)
        self._keys_protected = True

    async def _give_up_keys(self) -> None:
        async with Client(from_kubeconfig(self._kubeconfig)) as client:
            for resource in (POLICY_BINDINGS, POLICIES):
                with suppress(NotFoundError):
                    await client.delete(resource, policy_name(self.settings["admission"]["configuration"]))
        self._keys_protected = False

    async def end(self) -> None:
        """All that runs; the webhook configurations; and the policy for the bridge's keys, where there is one."""
        await self.stop_all()
        if self._keys_protected:
            await self._give_up_keys()
        words = ["bridge", "webhooks", "--delete", "--config", str(self.config), "--kubeconfig", str(self._kubeconfig)]
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "slinky", *words, stdout=subprocess.DEVNULL)
        await process.wait()


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
