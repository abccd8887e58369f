"""`slinky demo`: the bridge at work on real nodes.

Goes out: the story of `story` on a sandbox of its own, shown by `show`; a picture of it as SVG; exit code 0 only if all of it came true. What must stay true: nothing is left behind but the picture, also after Ctrl-C, SIGTERM or a failure,
unless --keep says so.
"""

import asyncio
import os
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from slinky.cli.demo.deeds import Words
from slinky.cli.demo.show import Show
from slinky.cli.demo.stage import tell_and_leave
from slinky.cli.demo.story import EXAMPLES, NAMESPACE, NODES, Story
from slinky.cli.demo.timeline import timeline
from slinky.cli.demo.watching import watching
from slinky.cli.sandbox_bridge import make_namespaces
from slinky.kube import Client, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.errors import SandboxError, UsageError, last_lines
from slinky.sandbox.progress import Progress
from slinky.sandbox.prolog import install_prolog
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["demo"]

PARTITION = "compute"  # nodes with a slurmd
TITLE = "Pods and Slurm's own jobs on two nodes, placed by Slurm"


@click.command()
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("demo-timeline.svg"),
    show_default=True,
    help="Where the picture goes: who ran where and when, as SVG.",
)
@click.option("--keep", is_flag=True, help="Leave the sandbox up, to look around.")
def demo(picture: Path, keep: bool) -> None:
    """Slurm places pods beside its own jobs, on a real Slurm and a real Kubernetes.

    Brings up a sandbox of two real nodes, each with a kubelet and a slurmd, and the bridge on it; tells a story there; draws a picture of it; and takes everything down. A few minutes once all is built (the first time, a quarter of an hour more).

    \b
    1. A gang of four pods starts together as one job of Slurm, packed by rank.
    2. sbatch, then a pod, then sbatch, each after the last by afterok, on one node;
       meanwhile `slinky explain` tells why they wait.
    3. An urgent pod and an urgent sbatch job preempt two pods, which take the grace
       they need for a checkpoint; each begins when the last one's containers are gone.
    4. sacct has one account of pods and jobs.

    On a terminal a view of both nodes is live below the story; elsewhere each change is a line. Everything that it says is checked with the servers: where something is not so, it says what, and ends with exit code 1. The files that it applies are in examples/demo.
    """
    if not EXAMPLES.is_dir():
        raise UsageError(f"the demo applies the files in {EXAMPLES}, which are not there: run it from a checkout (make demo)")
    if not picture.absolute().parent.is_dir():
        raise UsageError(f"--picture {picture}: there is no folder {picture.absolute().parent}")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 132)
    name = f"demo-{os.getpid()}"  # nobody else's
    lines = [
        "the sandbox is kept, with its pods; the bridge has ended. To look around:",
        f"  slinky sandbox shell --name {name}      then squeue, sacct -aX, kubectl get pods -n {NAMESPACE}",
        f"  slinky sandbox down --name {name}       takes it down",
    ]
    tell_and_leave(console, name, _demo(console, name, picture), "\n".join(lines) if keep else "")


async def _demo(console: Console, name: str, picture: Path) -> None:
    async with AsyncExitStack() as stack:
        with Progress() as progress:
            sandbox = await up(name, Shape(nodes=0, real_nodes=len(NODES), slurmd=True), progress)
            with progress.step("the prolog on both nodes, and the bridge"):
                await install_prolog(sandbox)
                await make_namespaces(sandbox, [NAMESPACE])
                running = sandbox_bridge(sandbox, sandbox.folder / "bridge", managedNamespaces=[NAMESPACE], partition=PARTITION)
                bridge = await stack.enter_async_context(running)
        kube = await stack.enter_async_context(Client(from_kubeconfig(sandbox.kubeconfig)))
        slurm = await stack.enter_async_context(sandbox.slurm_client())
        seen, watch = await stack.enter_async_context(watching(kube, slurm, NAMESPACE, Words(sandbox).prologs))
        show = Show(console, seen, NODES)
        show.say(
            f"two real nodes are up, {' and '.join(NODES)}, each with a kubelet and a slurmd; the bridge places the pods of namespace {NAMESPACE} there"
        )
        try:
            async with show.live():
                await _while_it_runs(bridge, watch, Story(show, sandbox, bridge, slurm).tell())
        finally:
            if seen.lives:
                picture.write_text(timeline(TITLE, list(seen.lives.values()), seen.links, show.chapters, seen.now))
                console.print(f"\nthe picture of it: {picture.absolute()}", markup=False, soft_wrap=True)


async def _while_it_runs(bridge: SandboxBridge, watch: asyncio.Task[None], story: Coroutine[Any, Any, None]) -> None:
    """The story, to its end; or an error, with the end of the bridge's log, where it, the bridge or the watch of Slurm's jobs fails."""
    telling, ending = asyncio.ensure_future(story), asyncio.ensure_future(bridge.first_to_end())
    try:
        await asyncio.wait({telling, ending, watch}, return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            telling.result()
        elif watch.done():
            watch.result()
            raise SandboxError("the watch of Slurm's jobs ended")
        else:
            part, code = ending.result()
            raise SandboxError(f"slinky bridge {part} ended with {code}")
    except SandboxError as error:
        logs = "\n".join(f"{part}:\n{last_lines(bridge.folder / f'{part}.log')}" for part in ("admission", "run"))
        raise SandboxError(f"{error}\nthe end of the bridge's logs (slinky demo --keep leaves all of them):\n{logs}") from error
    finally:
        for task in (telling, ending):
            task.cancel()
        await asyncio.gather(telling, ending, return_exceptions=True)
