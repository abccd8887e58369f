"""A release of the original's chart, as the tests install it before they upgrade it with ours: helm on a sandbox, and values that both charts take."""

import base64
import json
import subprocess
from collections.abc import Sequence
from typing import Any

from slinky.sandbox.handle import Sandbox
from tests.charts.helm import CHARTS, Helm
from tests.conftest import CHECKOUT

__all__ = ["ORIGINAL", "OURS", "Release", "values_of_both"]

ORIGINAL = CHECKOUT / "tests/charts/original"
OURS = CHARTS / "slurm"
SECONDS = 120


def values_of_both(images: str, tag: str, *, storage_class: str = "", **controller: Any) -> dict[str, Any]:
    """One file of values for the original's chart and ours. `images`: what stands before a daemon's name."""

    def image(name: str) -> dict[str, Any]:
        return {"image": {"repository": f"{images}{name}", "tag": tag}}

    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    persistence = {"enabled": True, "existingClaim": "", **claim, **({"storageClassName": storage_class} if storage_class else {})}
    workers = {
        "enabled": True,
        "replicas": 2,
        "slurmd": image("slurmd"),
        "partition": {"enabled": True, "config": "Default=YES MaxTime=INFINITE"},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "podSpec": {},
    }
    login = {"enabled": True, "replicas": 1, "login": image("login"), "service": {"spec": {"type": "ClusterIP"}}}
    return {
        "controller": {"slurmctld": image("slurmctld"), "persistence": persistence, **controller},
        "restapi": {"replicas": 1, "slurmrestd": image("slurmrestd")},
        "nodesets": {"slinky": workers},
        "loginsets": {"slinky": login},
    }


class Release:
    """The releases of one namespace, by the real helm on the sandbox's API server."""

    def __init__(self, program: Helm, sandbox: Sandbox, namespace: str) -> None:
        self.program, self.sandbox, self.namespace = program, sandbox, namespace

    def helm(self, *words: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        where = (f"--namespace={self.namespace}", f"--kubeconfig={self.sandbox.kubeconfig}")
        return self.program.run(*words, *where, values=values)

    def done(self, *words: str, values: dict[str, Any] | None = None) -> str:
        ended = self.helm(*words, values=values)
        assert ended.returncode == 0, f"helm {' '.join(words)}: {ended.stderr}"
        return ended.stdout

    def kubectl(self, *words: str, told: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(self.sandbox.folder / "bin/kubectl"), f"--kubeconfig={self.sandbox.kubeconfig}", f"--namespace={self.namespace}"]
        return subprocess.run([*command, *words], input=told, capture_output=True, text=True, timeout=SECONDS, check=False)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Empty where there is none."""
        found = self.kubectl("get", kind, name, "--output=json", "--ignore-not-found")
        assert found.returncode == 0, found.stderr
        return dict(json.loads(found.stdout)) if found.stdout.strip() else {}

    def keys(self, names: Sequence[str] = ("slurm-auth-slurm", "slurm-auth-jwt")) -> dict[str, tuple[str, bytes]]:
        """Of each Secret that is there: its UID, and the key in it."""
        found = {name: secret for name in names if (secret := self.get("secret", name))}
        return {
            name: (secret["metadata"]["uid"], b"".join(base64.b64decode(one) for one in secret["data"].values()))
            for name, secret in found.items()
        }
