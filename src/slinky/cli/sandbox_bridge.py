"""`slinky sandbox bridge`: the bridge's two processes on a sandbox, in the foreground.

Comes in: a sandbox that is up, and the namespaces whose pods Slurm is to place. What must stay true: one bridge a sandbox, as a second would take the first one's webhooks; when the command ends, by
Ctrl-C or because a process did, both processes and the webhook configurations are gone, and the pods stay as they are.
"""

import asyncio
import fcntl
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager

import click

from slinky.cli.sandbox import named
from slinky.cli.service import run_until_told_to_end
from slinky.sandbox.bridge import SandboxBridge, sandbox_bridge
from slinky.sandbox.clusterbridge import cluster_bridge
from slinky.sandbox.errors import SandboxError, UsageError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.progress import Progress
from slinky.sandbox.toolsconfig import write_cluster_tools_config, write_tools_config

__all__ = ["bridge", "make_namespaces", "only_one"]


@click.command()
@named
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    default=("team",),
    show_default=True,
    help="One whose pods Slurm places; it is made where it does not exist. May be given several times.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="For the Slurm of examples/operator/cluster.yaml, which the operator made, instead of the sandbox's own.",
)
def bridge(name: str, namespaces: tuple[str, ...], cluster: bool) -> None:
    """Run the bridge on a sandbox until Ctrl-C: Slurm places the pods of its namespaces.

    Both processes are run as an administrator would (`slinky bridge admission`, `slinky bridge run`). Pods that run go on running when the bridge ends, and the next one takes them over.
    """
    sandbox = Sandbox.running(name)
    with only_one(sandbox, "bridge", ", or give it all namespaces at once"):
        run_until_told_to_end(_serve(sandbox, namespaces, cluster))
    click.echo("the bridge has ended; pods and jobs are as they were")


async def _serve(sandbox: Sandbox, namespaces: tuple[str, ...], cluster: bool) -> None:
    await make_namespaces(sandbox, namespaces)
    async with AsyncExitStack() as stack:
        with Progress() as progress, progress.step("the bridge: admission and scheduler"):
            folder = sandbox.folder / "bridge"
            running = (
                cluster_bridge(sandbox, folder, list(namespaces))
                if cluster
                else sandbox_bridge(sandbox, folder, managedNamespaces=list(namespaces))
            )
            found = await stack.enter_async_context(running)
            await found.protect_keys()
            write = write_cluster_tools_config if cluster else write_tools_config
            await asyncio.to_thread(write, sandbox, found.settings)
        _say(sandbox, found, namespaces, "examples/operator/pod.yaml" if cluster else "examples/pod.yaml")
        part, code = await found.first_to_end()
        raise SandboxError(f"slinky bridge {part} ended with {code}: {found.log(part)[-2000:]}")


def _say(sandbox: Sandbox, bridge: SandboxBridge, namespaces: tuple[str, ...], example: str) -> None:
    own = "" if sandbox.record.name == "default" else f" --name {sandbox.record.name}"
    click.echo(f"the bridge runs on sandbox {sandbox.record.name!r}: Slurm places the pods of {', '.join(namespaces)}")
    click.echo(f"its logs: {bridge.folder}/admission.log and run.log; its metrics: {bridge.health()}/metrics")
    click.echo(f"next, in another terminal: slinky sandbox shell{own}")
    click.echo(f"  kubectl apply -n {namespaces[0]} -f {example}; squeue; kubectl get pods -n {namespaces[0]} -o wide")
    click.echo("ends with Ctrl-C")


async def make_namespaces(sandbox: Sandbox, names: Sequence[str]) -> None:
    """Those that are there stay as they are."""
    async with sandbox.kube() as kube:
        await asyncio.gather(*(kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}) for name in names))


@contextmanager
def only_one(sandbox: Sandbox, what: str, instead: str = "") -> Iterator[None]:
    """The kernel lets go of the lock when its holder dies."""
    path = sandbox.folder / what / "lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            article = "an" if what[0] in "aeiou" else "a"
            raise UsageError(f"{article} {what} runs on sandbox {sandbox.record.name!r} already: end it first{instead}") from None
        yield
