"""A sandbox with real nodes as an administrator meets it: by kubectl, helm and Slurm's commands; and objects to try it with."""

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

from slinky.sandbox.handle import Sandbox

__all__ = ["POD", "WEBHOOKS", "WRONG", "Site"]

SECONDS = 300
WEBHOOKS = (("slurm-operator", "validatingwebhookconfiguration"), ("slurm-bridge", "mutatingwebhookconfiguration"))
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: sandbox/busybox:1
    command: [sh, -c, "{command}"]
    resources: {{requests: {{cpu: 100m, memory: 32Mi}}}}
"""
WRONG = {
    "apiVersion": "slinky.slurm.net/v1beta1",
    "kind": "NodeSet",
    "metadata": {"name": "x", "namespace": "slurm"},
    "spec": {"controllerRef": {"name": "slurm"}, "replica": 1},
}


class Site:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def done(self, *command: str, told: str = "", seconds: float = 900) -> subprocess.CompletedProcess[str]:
        """By a program of the sandbox's, however it ends."""
        program, environment = str(self.sandbox.folder / "bin" / command[0]), os.environ | self.sandbox.exports()
        return subprocess.run(
            [program, *command[1:]], input=told, capture_output=True, text=True, timeout=seconds, check=False, env=environment
        )

    def run(self, *command: str, told: str = "", fails: bool = False) -> str:
        done = self.done(*command, told=told)
        assert (done.returncode != 0) == fails, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stderr if fails else done.stdout

    def kubectl(self, *words: str, told: str = "") -> str:
        return self.run("kubectl", *words, told=told)

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "--output=json", "--ignore-not-found") or "{}")

    def names(self, *words: str) -> set[str]:
        return set(self.kubectl("get", *words, "--output=name", "--ignore-not-found").split())

    async def until(self, what: str, probe: Callable[[], bool]) -> None:
        async def probed() -> bool:
            return probe()

        await self.sandbox.until("kube-apiserver", what, probed, SECONDS)

    def in_slurm(self, *words: str) -> str:
        return self.kubectl("--namespace=slurm", "exec", "deployment/slurm-login-slinky", "--", *words)
