"""The operator on a sandbox with real nodes: its processes, as an admin would run them, with a configuration that fits the sandbox.

Comes in: a sandbox that is up, and what is to be set otherwise. Goes out: the CRDs, `slinky operator run` and `slinky operator admission`, ready, with their logs and their configuration in one folder. They run on the host, but in the
head's network and with the cluster's DNS, for they speak with slurmrestd by its Service. What must stay true: they end with the one who started them, and the webhook configuration goes with them; clusters run on.
"""

import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from slinky.sandbox.commands import said_by
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.identity import host_pid
from slinky.sandbox.images import DAEMONS
from slinky.sandbox.processes import Processes, free_port

__all__ = ["SandboxOperator", "install_crds", "operator_settings", "sandbox_operator"]

PARTS = ("admission", "run")
WORD_SECONDS = 60.0


def operator_settings(sandbox: Sandbox, **more: Any) -> dict[str, Any]:
    """The configuration file's content; `more` is laid over it, section by section."""
    port = free_port()
    settings: dict[str, Any] = {
        "namespace": "kube-system",
        "images": {name: f"sandbox/{name}:1" for name in DAEMONS},
        "slurm": {"fastestPoll": 0.3, "slowestPoll": 2.0},
        "allowedTokenUsers": {"*": ["*"], "slurm": ["root"]},  # root's is for the bridge
        "leader": {"seconds": 8},  # who is killed here is missed soon
        "admission": {"url": f"https://{sandbox.record.addresses.head}:{port}", "port": port},
    }
    for key, value in more.items():
        settings[key] = {**settings.get(key, {}), **value} if isinstance(value, dict) and isinstance(settings.get(key), dict) else value
    return settings


def in_the_heads_network(sandbox: Sandbox, holder: int, folder: Path) -> list[str]:
    """Words that run a command of the host's there, and let it ask the cluster's DNS."""
    names = folder / "resolv.conf"
    names.write_text(
        f"nameserver {sandbox.record.addresses.dns_service}\nsearch svc.cluster.local cluster.local\noptions ndots:5 timeout:2\n"
    )
    bind = f'mount --bind {shlex.quote(str(names))} "$(readlink -f /etc/resolv.conf)" && exec "$@"'
    return ["nsenter", "--target", str(holder), "--net", "--", "unshare", "--mount", "--propagation", "private", "sh", "-c", bind, "sh"]


class SandboxOperator(Processes):
    """The processes, by part: `run` and `admission`."""

    def __init__(self, sandbox: Sandbox, holder: int, settings: dict[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__("operator", folder, in_the_heads_network(sandbox, holder, folder), sandbox.record.addresses.head)
        self.settings = settings
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(settings))
        self._kubeconfig = sandbox.kubeconfig
        self.kubeconfigs: dict[str, Path] = {}  # by part, where it is not the administrator's

    async def start(self, part: str) -> None:
        """And wait until it is ready."""
        kubeconfig = str(self.kubeconfigs.get(part, self._kubeconfig))
        await self.start_part(part, "--config", str(self.config), "--kubeconfig", kubeconfig)

    async def end(self) -> None:
        """All that runs; and the webhook configuration."""
        await self.stop_all()
        await _said("webhooks", "--delete", "--config", str(self.config), "--kubeconfig", str(self._kubeconfig))


async def install_crds(sandbox: Sandbox) -> None:
    """As of this checkout, served when this is done."""
    async with sandbox.kube() as kube:
        crds = list(yaml.safe_load_all(await _said("crds")))
        await kube.apply_all(crds)
        for crd in crds:
            path = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
            await sandbox.until("kube-apiserver", f"{path} was served", lambda path=path: kube.get(path))  # type: ignore[misc]


async def _said(*words: str) -> str:
    command = (sys.executable, "-m", "slinky", "operator", *words)
    return await said_by(*command, called=f"slinky operator {words[0]}", seconds=WORD_SECONDS)


@asynccontextmanager
async def sandbox_operator(
    sandbox: Sandbox, folder: Path, parts: tuple[str, ...] = PARTS, **settings: Any
) -> AsyncIterator[SandboxOperator]:
    """`async with sandbox_operator(sandbox, folder, namespaces=["slurm"]) as operator: …`"""
    holder = host_pid(sandbox.record.keeper, (await sandbox.link.holders())["head"])
    operator = SandboxOperator(sandbox, holder, operator_settings(sandbox, **settings), folder)
    try:
        await install_crds(sandbox)
        for part in parts:
            await operator.start(part)
        yield operator
    finally:
        await operator.end()
