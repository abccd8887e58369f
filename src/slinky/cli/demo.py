"""`slinky demo`: the bridge at work on the real servers.

Comes in: how many nodes. Goes out: the story of `demo_story` on a sandbox of its own, shown by `demo_views`; exit code 0 only if all of it came true. What must stay true: nothing is left behind, also
after Ctrl-C, SIGTERM or a failure, unless --keep says so.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import click
from rich.console import Console

from slinky.cli.demo_story import EXAMPLES, LEAST_NODES, NAMESPACE, Story
from slinky.cli.demo_views import Show
from slinky.cli.sandbox_bridge import make_namespaces
from slinky.kube import PODS, Client, Reflector, from_kubeconfig
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.down import down
from slinky.sandbox.errors import SandboxError, UsageError, last_lines
from slinky.sandbox.handle import names
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["demo"]

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(min=LEAST_NODES), help="Nodes in the sandbox.")
@click.option("--keep", is_flag=True, help="Leave the sandbox up, to look around.")
def demo(nodes: int, keep: bool) -> None:
    """Slurm places pods, on a real Slurm and a real Kubernetes.

    Brings a sandbox up and the bridge on it, and shows both queues while pods, a gang and a burst pass through Slurm; then takes everything down. The manifests are those in examples/.
    """
    if not EXAMPLES.is_dir():
        raise UsageError(f"the demo applies the files in examples/, which are not in {EXAMPLES.parent}: run it from a checkout (make demo)")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 132)
    name = f"demo-{os.getpid()}"  # nobody else's
    started = time.monotonic()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell started it in the background, with Ctrl-C ignored
    for number in ENDINGS[1:]:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        asyncio.run(_demo(console, name, nodes))
        console.print(f"\nall of it came true, in {time.monotonic() - started:.0f} s")
    finally:
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not keep the rest from going
        _leave(console, name, keep)


def _leave(console: Console, name: str, keep: bool) -> None:
    if keep and name in names():
        lines = [
            "the sandbox is kept, with its pods; the bridge has ended. To look around:",
            f"  slinky sandbox shell --name {name}      then squeue, sacct -aX, kubectl get pods -n {NAMESPACE}",
            f"  slinky sandbox bridge --name {name}     runs the bridge again, in the foreground",
            f"  slinky sandbox down --name {name}       takes it down",
        ]
        console.print("\n".join(lines), markup=False)
        return
    try:
        with Progress() as progress, progress.step("taking everything down"):
            down(name)
    finally:
        down(name)  # also where the terminal is gone, and nothing can be said any more
    console.print("the sandbox is down: no process, mount or interface is left")


async def _demo(console: Console, name: str, nodes: int) -> None:
    async with AsyncExitStack() as stack:
        with Progress() as progress:
            sandbox = await up(name, Shape(nodes=nodes, addons=("podgroup",)), progress)
            with progress.step("the bridge: admission and scheduler"):
                await make_namespaces(sandbox, [NAMESPACE])
                running = sandbox_bridge(sandbox, sandbox.folder / "bridge", managedNamespaces=[NAMESPACE])
                bridge = await stack.enter_async_context(running)
        kube = await stack.enter_async_context(Client(from_kubeconfig(sandbox.kubeconfig)))
        slurm = await stack.enter_async_context(sandbox.slurm_client())
        pods = await stack.enter_async_context(Reflector(kube, PODS, namespace=NAMESPACE).running())
        await pods.wait_synced()
        show = Show(console, sandbox, pods)
        show.say(
            f"a sandbox of {nodes} nodes is up: kube-apiserver, slurmctld, slurmdbd, slurmrestd, and the bridge for namespace {NAMESPACE}"
        )
        async with show.live():
            await _while_it_runs(bridge, Story(show, sandbox, bridge, kube, slurm, pods).tell())


async def _while_it_runs(bridge: SandboxBridge, story: Coroutine[Any, Any, None]) -> None:
    """The story, to its end; or an error, with the end of the bridge's log, where either of them fails."""
    telling, ending = asyncio.ensure_future(story), asyncio.ensure_future(bridge.first_to_end())
    try:
        await asyncio.wait({telling, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not telling.done():
            part, code = ending.result()
            raise SandboxError(f"slinky bridge {part} ended with {code}")
        telling.result()
    except SandboxError as error:
        logs = "\n".join(f"{part}:\n{last_lines(bridge.folder / f'{part}.log')}" for part in ("admission", "run"))
        raise SandboxError(f"{error}\nthe end of the bridge's logs (slinky demo --keep leaves all of them):\n{logs}") from error
    finally:
        for task in (telling, ending):
            task.cancel()
        await asyncio.gather(telling, ending, return_exceptions=True)
