"""`slinky demo`: one pod's way through Slurm, by hand and with plain HTTP, on the real servers. Leaves nothing behind."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import click
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel

from slinky.sandbox.client import Kube, SlurmRest
from slinky.sandbox.down import down
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.kwoknodes import register
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["demo"]

COLUMNS = "custom-columns=NAME:.metadata.name,PHASE:.status.phase,NODE:.spec.nodeName"
POD = "/api/v1/namespaces/default/pods/hello"


@click.command()
@click.option("--nodes", default=8, show_default=True, help="Nodes in the sandbox.")
@click.option("--keep", is_flag=True, help="Leave the sandbox up, to look around.")
def demo(nodes: int, keep: bool) -> None:
    """A pod placed by Slurm, on a real Slurm and a real Kubernetes.

    Brings a sandbox up, registers its nodes in Slurm as external nodes, submits an external job for a pod, binds the pod to
    the node that Slurm gave the job, shows both sides, and takes everything down.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 132)
    name = f"demo-{os.getpid()}"  # nobody else's
    try:
        asyncio.run(_demo(console, name, nodes))
    finally:
        if keep:
            console.print(f"the sandbox is kept: slinky sandbox shell --name {name}; slinky sandbox down --name {name}")
        else:
            down(name)
            console.print("the sandbox is down: no process, mount or interface is left")


async def _demo(console: Console, name: str, nodes: int) -> None:
    with Progress() as progress:
        sandbox = await up(name, Shape(nodes=nodes, register=False), progress)
    async with sandbox.kube() as kube, sandbox.slurm() as slurm:
        _say(console, "Kubernetes has nodes; Slurm has none yet")
        await _show(console, sandbox, "sinfo", "kubectl get nodes")
        _say(console, f"register the {nodes} nodes in Slurm, as external nodes")
        await register(sandbox)
        _say(console, "a pod that wants 4 CPUs and a GPU, with a scheduler of its own: nobody places it")
        await kube.post("/api/v1/namespaces/default/pods", _pod())
        _say(console, "the same as an external job, POST /slurm/v0.0.45/job/submit")
        job = await _submit(slurm)
        node = await _allocated_node(slurm, job)
        _say(console, f"Slurm gave job {job} the node {node}: bind the pod there")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "hello"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await kube.post(f"{POD}/binding", binding)
        await _until("the pod runs", lambda: _phase_is(kube, "Running"))
        await _show(console, sandbox, "squeue --format='%.6i %.9P %.14j %.6u %.2t %.8M %R'", f"kubectl get pods --output={COLUMNS}")
        await _until("the pod ends", lambda: _phase_is(kube, "Succeeded"))
        _say(console, "the pod has ended: so does the job")
        await slurm.slurm("DELETE", f"job/{job}")
        await _until("accounting knows", lambda: _accounted(sandbox, job))
        await _show(
            console, sandbox, "sacct --allusers --allocations --format=JobID,JobName%14,Account,QOS,State,NodeList", "kubectl get pods"
        )


def _pod() -> dict[str, Any]:
    resources = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
    container = {"name": "hello", "image": "hello", "resources": {"requests": resources, "limits": resources}}
    meta = {"name": "hello", "annotations": {"sandbox.slinky.slurm.net/run-for": "5s"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"schedulerName": "slurm", "restartPolicy": "Never", "containers": [container]},
    }


async def _submit(slurm: SlurmRest) -> int:
    job = {
        "name": "default/hello",
        "partition": "bridge",
        "flags": ["EXTERNAL_JOB"],
        "current_working_directory": "/tmp",  # noqa: S108
        "environment": ["PATH=/usr/bin"],
        "tasks": 1,
        "cpus_per_task": 4,
        "memory_per_node": {"set": True, "number": 8192},
        "tres_per_node": "gres/gpu:1",
    }
    answer = await slurm.slurm("POST", "job/submit", {"job": job})
    return int(answer["job_id"])


async def _allocated_node(slurm: SlurmRest, job: int) -> str:
    async def running() -> bool:
        answer = await slurm.slurm("GET", f"jobs/state/?job_id={job}")
        return any("RUNNING" in row["state"] for row in answer["jobs"])

    await _until(f"job {job} runs", running)
    answer = await slurm.slurm("GET", f"job/{job}")
    return str(answer["jobs"][0]["nodes"])


async def _phase_is(kube: Kube, phase: str) -> bool:
    return bool((await kube.get(POD))["status"]["phase"] == phase)


async def _accounted(sandbox: Sandbox, job: int) -> bool:
    told = await sandbox.link.run("head", "sacct", "--noheader", "--allusers", "--allocations", "--jobs", str(job), "--format=State%20")
    return told.split()[:1] == ["CANCELLED"]


async def _until(what: str, probe: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not await probe():
        if time.monotonic() > deadline:
            raise SandboxError(f"{what}: not within {seconds:g} s; run slinky demo --keep and look with slinky sandbox status and logs")
        await asyncio.sleep(0.05)


def _say(console: Console, text: str) -> None:
    console.print(f"→ {text}", markup=False)


async def _show(console: Console, sandbox: Sandbox, slurm: str, kubectl: str) -> None:
    """What each side says, side by side."""
    told = await sandbox.link.script("head", slurm)
    process = await asyncio.create_subprocess_exec(
        str(sandbox.folder / "bin/kubectl"), *kubectl.split()[1:], stdout=asyncio.subprocess.PIPE, env=os.environ | sandbox.exports()
    )
    shown = (await process.communicate())[0].decode()
    panels = [Panel(told.rstrip(), title=slurm.split()[0]), Panel(shown.rstrip(), title=kubectl.partition(" --")[0])]
    console.print(Columns(panels, equal=False, expand=False))
