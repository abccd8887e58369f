"""The story of `slinky demo-operator`: what is done with a cluster in pods, what must come true, and what is said about it.

Comes in: a sandbox on which the operator runs. Goes out: the files of `examples/operator/` applied as a user would, each command shown before its output, and a SandboxError that says what was expected and what is, as soon as something
does not come true. Nothing is cleaned up here: the sandbox goes as a whole.
"""

import asyncio
import re
import shlex
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console

from slinky.sandbox.clusterbridge import cluster_bridge
from slinky.sandbox.commands import said_by
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox

__all__ = ["EXAMPLES", "OperatorStory"]

EXAMPLES = Path(__file__).parents[3] / "examples/operator"
NAMESPACE = "slurm"
TEAM = "team"
PATIENCE = 240.0
COMMAND_SECONDS = 120.0
KINDS = "controllers,accountings,restapis,nodesets,loginsets"
SACCT = "JobID%5,JobName%15,User%6,State%10,ExitCode,NodeList%20"


class OperatorStory:
    """`tell()` tells all of it."""

    def __init__(self, console: Console, sandbox: Sandbox) -> None:
        self._console, self._sandbox = console, sandbox

    async def tell(self) -> None:
        for chapter in (self._cluster, self._jobs, self._scale, self._pods):
            await chapter()

    async def _cluster(self) -> None:
        self._chapter("1. A handful of objects, and there is a Slurm cluster in pods")
        began = time.monotonic()
        await self._show("apply", "-f", str(EXAMPLES / "ldap.yaml"), "-f", str(EXAMPLES / "cluster.yaml"))
        for what in ("controller/slurm", "accounting/slurm", "nodeset/compute", "nodeset/small", "loginset/slurm-login"):
            await self._until(f"{what} is Ready", lambda what=what: self._is_ready(what))  # type: ignore[misc]
        self._say(f"all of it is ready after {time.monotonic() - began:.0f} s")
        await self._show("get", KINDS)
        await self._show("get", "pods", "-o", "wide")

    async def _jobs(self) -> None:
        self._chapter("2. Whom LDAP knows submits a job on the login node; an MPI program runs on two workers")
        await self._show("exec", "deploy/slurm-login", "--", "id", "erin")
        said = await self._show("exec", "deploy/slurm-login", "--", "srun", "--nodes=2", "--ntasks=4", "mpi-ranks")
        _expect(said.count("the sum of all ranks is 6") == 4, "four ranks that have talked to each other", said)
        submit = ["su", "erin", "-c", "cd /tmp; sbatch --parsable --job-name=analysis --output=/dev/null --wrap 'sleep 2'"]
        job = (await self._show("exec", "deploy/slurm-login", "--", *submit)).strip()
        await self._until("sacct shows it COMPLETED", lambda: self._accounted(job, "COMPLETED"))
        await self._show("exec", "deploy/slurm-login", "--", "sacct", "-aX", f"--format={SACCT}")

    async def _scale(self) -> None:
        self._chapter("3. Workers leave only when their jobs have ended")
        submit = ["sh", "-c", "cd /tmp; sbatch --parsable --nodes=2 --output=/dev/null --job-name=long --wrap 'sleep 15'"]
        job = (await self._show("exec", "deploy/slurm-login", "--", *submit)).strip()
        await self._until("it runs", lambda: self._state(job, "RUNNING"))
        await self._show("scale", "nodeset", "compute", "--replicas=0")
        await self._until("Slurm's nodes are draining", self._draining)
        await self._show("exec", "deploy/slurm-login", "--", "sinfo", "--Node", "--partition=compute")
        await self._until("both workers are gone", self._no_workers)
        await self._until("sacct shows the job COMPLETED", lambda: self._accounted(job, "COMPLETED"))
        self._say("the job ended by itself, and the workers went after it; now two again")
        await self._show("scale", "nodeset", "compute", "--replicas=2")
        await self._until("both are back", lambda: self._is_ready("nodeset/compute"))

    async def _pods(self) -> None:
        self._chapter("4. Pods of Kubernetes in the same queue: the bridge, for the cluster that the operator made")
        await self._show("apply", "-f", str(EXAMPLES / "bridge.yaml"))
        await self._show("label", "nodes", "node-0", "node-1", "scheduler.slinky.slurm.net/external-node=true")
        await self._kubectl("create", "namespace", TEAM)
        async with cluster_bridge(self._sandbox, self._sandbox.folder / "bridge", [TEAM]):
            await self._until("Slurm knows the nodes", self._knows_nodes)
            await self._show("apply", "-n", TEAM, "-f", str(EXAMPLES / "pod.yaml"))
            await self._until("Slurm placed the pod", lambda: self._phase("hello", "Running", "Succeeded"))
            await self._show("exec", "deploy/slurm-login", "--", "squeue", "--all")
            await self._until("it has ended", lambda: self._phase("hello", "Succeeded"))
            await self._show("logs", "-n", TEAM, "hello")
            await self._until("sacct shows it COMPLETED", lambda: self._accounted("", f"{TEAM}/hello"))
            await self._show("exec", "deploy/slurm-login", "--", "sacct", "-aX", f"--format={SACCT}")

    # What is looked at

    async def _is_ready(self, what: str) -> bool:
        said = await self._kubectl("get", what, "-o", 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')
        return said.strip() == "True"

    async def _state(self, job: str, state: str) -> bool:
        return f"JobState={state}" in await self._kubectl("exec", "deploy/slurm-login", "--", "scontrol", "show", "job", job)

    async def _accounted(self, job: str, text: str) -> bool:
        words = ["sacct", "-aXnP", "--format=JobName,State", *([f"--jobs={job}"] if job else [])]
        said = await self._kubectl("exec", "deploy/slurm-login", "--", *words)
        return any(text in line and "COMPLETED" in line for line in said.splitlines())

    async def _draining(self) -> bool:
        said = await self._kubectl(
            "exec", "deploy/slurm-login", "--", "sinfo", "--noheader", "--Node", "--partition=compute", "--format=%T"
        )
        return set(said.split()) <= {"draining", "drained"}

    async def _no_workers(self) -> bool:
        return not (await self._kubectl("get", "pods", "-l", "app.kubernetes.io/instance=compute", "-o", "name")).strip()

    async def _knows_nodes(self) -> bool:
        said = await self._kubectl(
            "exec", "deploy/slurm-login", "--", "sinfo", "--noheader", "--Node", "--partition=bridge", "--format=%N %T"
        )
        return set(said.split()) == {"node-0", "node-1", "idle"}

    async def _phase(self, pod: str, *phases: str) -> bool:
        return (await self._kubectl("get", "pod", "-n", TEAM, pod, "-o", "jsonpath={.status.phase}")).strip() in phases

    # How it is told

    def _chapter(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold]")

    def _say(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False)

    async def _show(self, *words: str) -> str:
        """A command as a user would give it, and what it says."""
        shown = [re.sub(rf"^{re.escape(str(EXAMPLES))}", "examples/operator", word) for word in words]
        own = [] if "-n" in words else ["-n", NAMESPACE]
        self._console.print(f"  $ {shlex.join(['kubectl', *own, *shown])}", markup=False, soft_wrap=True)
        said = await self._kubectl(*words)
        for line in said.rstrip().splitlines():
            self._console.print(f"    {line}", markup=False, soft_wrap=True)
        return said

    async def _kubectl(self, *words: str) -> str:
        own = [] if "-n" in words else ["--namespace", NAMESPACE]
        command = [str(self._sandbox.folder / "bin/kubectl"), *own, *words]
        return await said_by(*command, called=f"kubectl {shlex.join(words)}", seconds=COMMAND_SECONDS)

    async def _until(self, what: str, probe: Callable[[], Awaitable[bool]]) -> None:
        deadline, wrong = time.monotonic() + PATIENCE, ""
        while True:
            try:
                if await probe():
                    return
            except SandboxError as error:
                wrong = f" ({error})"
            if time.monotonic() > deadline:
                raise SandboxError(f"expected within {PATIENCE:g} s: {what}{wrong}\n{await self._kubectl('get', f'pods,{KINDS}')}")
            await asyncio.sleep(0.5)


def _expect(is_so: bool, what: str, found: str) -> None:
    if not is_so:
        raise SandboxError(f"expected {what}; there was: {found}")
