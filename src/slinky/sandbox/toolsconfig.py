"""The bridge's configuration for explain, doctor and top, as `slinky sandbox env` exports it.

*Invariants:* the file describes the bridge that was started last on the sandbox, and the host can
reach every address in it. The Slurm of a cluster that the operator made runs in pods, which the
host cannot reach: for that one, a Service of type NodePort is made beside its slurmrestd.
"""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox

__all__ = ["CLUSTER", "OUTSIDE", "write_cluster_tools_config", "write_installed_tools_config", "write_tools_config"]

CLUSTER = "slurm"  # the namespace of the operator's cluster
OUTSIDE = "slurm-restapi-outside"  # the Service through which the host reaches its slurmrestd
SECONDS = 60


def write_tools_config(sandbox: Sandbox, settings: dict[str, Any]) -> None:
    sandbox.tools_config.write_text(yaml.safe_dump(settings))


def write_cluster_tools_config(sandbox: Sandbox, settings: dict[str, Any]) -> None:
    """For a bridge whose Slurm the operator made."""
    write_tools_config(sandbox, settings | {"slurmRestApi": _outside(sandbox)})


def write_installed_tools_config(sandbox: Sandbox, namespace: str, release: str, secret: str) -> None:
    """For the bridge that the chart installed, from its ConfigMap and its token's Secret."""
    found = _kubectl(sandbox, "--namespace", namespace, "get", "configmap", f"{release}-config", "--output=json")
    settings = yaml.safe_load(json.loads(found)["data"]["config.yaml"])
    data = json.loads(_kubectl(sandbox, "--namespace", namespace, "get", "secret", secret, "--output=json"))["data"]
    token = sandbox.folder / "installed-slurm-token"
    _write_private(token, base64.b64decode(data["auth-token"]))
    slurm = settings.get("slurm", {}) | {"tokenFile": str(token)}
    write_cluster_tools_config(sandbox, settings | {"slurm": slurm})


def _write_private(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)


def _outside(sandbox: Sandbox) -> str:
    """The address of the cluster's slurmrestd, for the host."""
    there = json.loads(_kubectl(sandbox, "--namespace", CLUSTER, "get", "service", "slurm-restapi", "--output=json"))
    ports = [{"name": "slurmrestd", "port": port["port"], "targetPort": port["targetPort"]} for port in there["spec"]["ports"][:1]]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": OUTSIDE, "namespace": CLUSTER},
        "spec": {"type": "NodePort", "selector": there["spec"]["selector"], "ports": ports},
    }
    made = json.loads(_kubectl(sandbox, "apply", "--server-side", "--filename=-", "--output=json", told=json.dumps(service)))
    return f"http://{sandbox.record.addresses.node(0)}:{made['spec']['ports'][0]['nodePort']}"


def _kubectl(sandbox: Sandbox, *words: str, told: str = "") -> str:
    command = [str(sandbox.folder / "bin/kubectl"), *words]
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise SandboxError(f"kubectl {' '.join(words)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
