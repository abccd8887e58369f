"""The bridge for a cluster that the operator made: pods of Kubernetes and jobs of the cluster's people in one queue, that of a Slurm that runs in pods itself.

Comes in: a sandbox on which the cluster of examples/operator/cluster.yaml runs, and root's Token of examples/operator/bridge.yaml. Goes out: `slinky bridge run` and `admission`, in the head's network as they speak with slurmrestd by its Service,
with a configuration that an administrator would write. Jobs are completed with their true exit codes on the login node, where libslurm is.
"""

import asyncio
import base64
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from slinky.sandbox.bridge import SandboxBridge, bridge_settings
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.identity import host_pid
from slinky.sandbox.operator import in_the_heads_network
from slinky.slurm import completion

__all__ = ["cluster_bridge"]

NAMESPACE = "slurm"
TOKEN = "bridge-jwt-root"  # noqa: S105 - the Secret's name
LOGIN = "deploy/slurm-login"
CHILD = "/tmp/libslurm_child.py"  # noqa: S108 - of the login node's pod
EXEC_SECONDS = 60


@asynccontextmanager
async def cluster_bridge(sandbox: Sandbox, folder: Path, namespaces: list[str], **more: Any) -> AsyncIterator[SandboxBridge]:
    """`async with cluster_bridge(sandbox, folder, ["team"]) as bridge: …`"""
    folder.mkdir(parents=True, exist_ok=True)
    token = await _write_token(sandbox, folder)
    completing = await asyncio.to_thread(_python_on_the_login_node, sandbox)
    settings = await asyncio.to_thread(_settings, sandbox, namespaces, token, completing, more)
    holder = host_pid(sandbox.record.keeper, (await sandbox.link.holders())["head"])
    before = in_the_heads_network(sandbox, holder, folder)
    bridge = SandboxBridge(sandbox, settings, folder, before, sandbox.record.addresses.head)
    try:
        for part in ("admission", "run"):
            await bridge.start(part)
        yield bridge
    finally:
        await bridge.end()


def _settings(sandbox: Sandbox, namespaces: list[str], token: Path, completing: list[str], more: dict[str, Any]) -> dict[str, Any]:
    """The workers' own Kubernetes nodes are those that pods are placed on, so nobody else is kept from them."""
    head = sandbox.record.addresses.head
    settings = bridge_settings(
        sandbox,
        slurmRestApi=f"http://slurm-restapi.{NAMESPACE}:6820",
        cluster="example",
        managedNamespaces=namespaces,
        slurm={"tokenFile": str(token), "completionCommand": completing},
        nodes={"register": True, "taint": "none"},
        **more,
    )
    settings["admission"]["url"] = f"https://{head}:{settings['admission']['port']}"
    return settings


async def _write_token(sandbox: Sandbox, folder: Path) -> Path:
    """In a cluster this would be the Secret itself, mounted."""
    kept = folder / "token"

    async def is_there() -> bool:
        async with sandbox.kube() as kube:
            secret = await kube.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{TOKEN}")
        kept.touch(mode=0o600)
        kept.write_bytes(base64.b64decode(secret["data"]["SLURM_JWT"]))
        return True

    await sandbox.until("kube-apiserver", f"the Secret {TOKEN} was there (kubectl apply -f examples/operator/bridge.yaml)", is_there, 30)
    return kept


def _python_on_the_login_node(sandbox: Sandbox) -> list[str]:
    """Words before a script's name that run it there. The one script that is needed is put there."""
    kubectl = [str(sandbox.folder / "bin/kubectl"), "--namespace", NAMESPACE, "exec", "--stdin", LOGIN, "--"]
    put = [*kubectl, "sh", "-c", f"cat > {CHILD}"]
    done = subprocess.run(put, input=completion.CHILD.read_bytes(), capture_output=True, timeout=EXEC_SECONDS, check=False)
    if done.returncode:
        raise SandboxError(f"the cluster's login node cannot be entered: {done.stderr.decode()[-500:]}")
    return [*kubectl, "sh", "-c", f'shift 2; exec python3 -I {CHILD} "$@"', "sh"]
