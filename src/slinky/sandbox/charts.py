"""The charts on a sandbox with real nodes, by the sandbox's own helm and the commands of docs/install.md.

Comes in: a sandbox that was brought up with --operator, which has the images. Goes out: the kinds, the operator, a cluster and the bridge, all in pods, ready; each command is said before it is run. What must stay true: the commands are those that a user would type, the charts' place and the
example's values aside.
"""

import base64
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from slinky.sandbox.bridge import write_first_config
from slinky.sandbox.errors import SandboxError, UsageError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.toolsconfig import CLUSTER, OUTSIDE, write_installed_tools_config

__all__ = ["CHARTS", "Release", "install", "releases", "uninstall"]

CHECKOUT = Path(__file__).parents[3]
CHARTS = CHECKOUT / "charts"
EXAMPLES = CHECKOUT / "examples/charts"
HOME, TEAM = "slinky", "team"
TOKEN = "slurm-bridge-jwt-token"  # noqa: S105 - the Secret's name
INSTALL_SECONDS = 600

Say = Callable[[str], None]
Command = list[str]


class Release:
    """One of the four, as it is installed here. `values`: a file in examples/charts."""

    def __init__(self, name: str, namespace: str = "", values: str = "") -> None:
        self.name, self.namespace, self.values = name, namespace, values

    def command(self, verb: str) -> Command:
        where = [f"--namespace={self.namespace}"] if self.namespace else []
        if verb == "uninstall":
            return ["helm", "uninstall", *where, self.name, "--wait"]
        made = ["--create-namespace"] if self.namespace and verb == "install" else []
        given = [f"--values={EXAMPLES / self.values}"] if self.values else []
        return ["helm", verb, self.name, str(CHARTS / self.name), *where, *made, *given, "--wait"]


def releases() -> list[Release]:
    """In the order in which they are installed."""
    return [
        Release("slurm-operator-crds"),
        Release("slurm-operator", HOME),
        Release("slurm", CLUSTER, "slurm.yaml"),
        Release("slurm-bridge", HOME, "slurm-bridge.yaml"),
    ]


def install(sandbox: Sandbox, say: Say) -> None:
    """All of it. What is installed already is upgraded to this checkout's."""
    _check(sandbox)
    there = _run(sandbox, ["helm", "list", "--all-namespaces", "--short"]).split()
    for release in releases():
        if release.name == "slurm-bridge":
            _prepare_bridge(sandbox, say)
        _said(sandbox, release.command("upgrade" if release.name in there else "install"), say)
    write_installed_tools_config(sandbox, HOME, "slurm-bridge", TOKEN)


def uninstall(sandbox: Sandbox, say: Say) -> None:
    for release in reversed(releases()):
        _said(sandbox, release.command("uninstall"), say)
    _run(sandbox, ["kubectl", f"--namespace={CLUSTER}", "delete", "service", OUTSIDE, "--ignore-not-found"])
    write_first_config(sandbox)


def _check(sandbox: Sandbox) -> None:
    if not sandbox.record.shape.operator:
        raise UsageError("the charts need the images of a sandbox that was brought up with --operator (and --real-nodes 1 to 3)")
    if not CHARTS.is_dir():
        raise UsageError(f"the charts are not in {CHARTS.parent}: run it from a checkout")


def _prepare_bridge(sandbox: Sandbox, say: Say) -> None:
    """Slurm's nodes, a namespace, and a token of Slurm's administrator, which appears in no command line."""
    kubectl = ["kubectl", f"--namespace={CLUSTER}"]
    for condition, of in (("Ready", "controller/slurm"), ("Ready", "restapi/slurm"), ("Ready", "nodeset/slurm-worker-slinky")):
        _said(sandbox, [*kubectl, "wait", f"--for=condition={condition}", of, f"--timeout={INSTALL_SECONDS}s"], say)
    _said(
        sandbox,
        [
            "kubectl",
            "label",
            "node",
            "--selector=sandbox.slinky.slurm.net/real=true",
            "scheduler.slinky.slurm.net/external-node=true",
            "--overwrite",
        ],
        say,
    )
    say(f"kubectl create namespace {TEAM}")
    _run(sandbox, ["kubectl", "apply", "--filename=-"], f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {TEAM}}}\n")
    say(
        f'kubectl --namespace={HOME} create secret generic {TOKEN} --from-literal=auth-token="$(kubectl --namespace={CLUSTER} exec statefulset/slurm-controller -- scontrol token username=slurm lifespan=infinite)"'
    )
    told = _run(
        sandbox, [*kubectl, "exec", "statefulset/slurm-controller", "--", "scontrol", "token", "username=slurm", "lifespan=infinite"]
    )
    data = base64.b64encode(told.strip().encode()).decode()
    secret = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: {TOKEN}, namespace: {HOME}}}\ndata: {{auth-token: {data}}}\n"
    _run(sandbox, ["kubectl", "apply", "--filename=-"], secret)


def _said(sandbox: Sandbox, command: Command, say: Say) -> None:
    say(" ".join(_shown(command)))
    _run(sandbox, command)


def _shown(command: Command) -> Iterator[str]:
    """With paths as from the checkout."""
    yield from (word.replace(f"{CHECKOUT}/", "") for word in command)


def _run(sandbox: Sandbox, command: Command, told: str = "") -> str:
    program = str(sandbox.folder / "bin" / command[0])
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=told,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS + 60,
            check=False,
            env=os.environ | sandbox.exports(),
        )
    except subprocess.TimeoutExpired:
        raise SandboxError(f"{' '.join(_shown(command))} did not end within {INSTALL_SECONDS + 60} s") from None
    if done.returncode:
        raise SandboxError(f"{' '.join(_shown(command))} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout
