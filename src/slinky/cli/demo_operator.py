"""`slinky demo-operator`: the operator at work on real nodes.

Goes out: the story of `demo_operator_story` on a sandbox of its own with two real nodes; exit code 0 only if all of it came true. What must stay true: nothing is left behind, also after Ctrl-C, SIGTERM or a failure, unless
--keep says so.
"""

import os
import sys

import click
from rich.console import Console

from slinky.cli.demo.stage import tell_and_leave
from slinky.cli.demo_operator_story import EXAMPLES, OperatorStory
from slinky.sandbox.errors import SandboxError, UsageError, last_lines
from slinky.sandbox.operator import sandbox_operator
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["demo_operator"]


@click.command("demo-operator")
@click.option("--keep", is_flag=True, help="Leave the sandbox up, to look around.")
def demo_operator(keep: bool) -> None:
    """A Slurm cluster in pods, made by the operator, and pods that it places itself.

    Brings a sandbox with two real nodes up and the operator on it, applies the manifests in examples/operator, uses the cluster, and takes everything down.
    """
    if not EXAMPLES.is_dir():
        raise UsageError(f"the demo applies the files in {EXAMPLES}, which are not there: run it from a checkout (make demo-operator)")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    name = f"demo-operator-{os.getpid()}"  # nobody else's
    kept = f"the sandbox is kept; slinky sandbox operator --name {name} runs the operator again, slinky sandbox down --name {name} ends it"
    tell_and_leave(console, name, _demo(console, name), kept if keep else "")


async def _demo(console: Console, name: str) -> None:
    with Progress() as progress:
        sandbox = await up(name, Shape(nodes=0, real_nodes=2, operator=True), progress)
    async with sandbox_operator(sandbox, sandbox.folder / "operator") as operator:
        console.print("a Kubernetes with two real nodes is up, and the operator on it")
        try:
            await OperatorStory(console, sandbox).tell()
        except SandboxError as error:
            log = last_lines(operator.folder / "run.log")
            raise SandboxError(f"{error}\nthe end of the operator's log (slinky demo-operator --keep leaves all of it):\n{log}") from error
