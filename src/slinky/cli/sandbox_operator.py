"""`slinky sandbox operator`: the operator's processes on a sandbox with real nodes, in the foreground.

Comes in: a sandbox that was brought up with --operator. What must stay true: one operator a sandbox; when the command ends, by Ctrl-C or because a process did, both processes and the webhook configuration are gone,
and the clusters run on.
"""

from contextlib import AsyncExitStack

import click

from slinky.cli.sandbox import named
from slinky.cli.sandbox_bridge import only_one
from slinky.cli.service import run_until_told_to_end
from slinky.sandbox.errors import SandboxError, UsageError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.operator import SandboxOperator, sandbox_operator
from slinky.sandbox.progress import Progress

__all__ = ["operator"]


@click.command()
@named
def operator(name: str) -> None:
    """Run the operator on a sandbox until Ctrl-C: apply examples/operator/cluster.yaml, and a Slurm cluster comes up in pods.

    Both processes are run as an administrator would (`slinky operator admission`, `slinky operator run`). Clusters run on when the operator ends, and the next one takes them over.
    """
    sandbox = Sandbox.running(name)
    if not sandbox.record.shape.operator:
        raise UsageError(
            f"sandbox {name!r} has neither images nor a database for clusters in pods: bring one up with slinky sandbox up --real-nodes 2 --operator"
        )
    with only_one(sandbox, "operator"):
        run_until_told_to_end(_serve(sandbox))
    click.echo("the operator has ended; clusters are as they were")


async def _serve(sandbox: Sandbox) -> None:
    async with AsyncExitStack() as stack:
        with Progress() as progress, progress.step("the operator: CRDs, admission and the operator itself"):
            found = await stack.enter_async_context(sandbox_operator(sandbox, sandbox.folder / "operator", networkPolicies=True))
        _say(sandbox, found)
        part, code = await found.first_to_end()
        raise SandboxError(f"slinky operator {part} ended with {code}: {found.log(part)[-2000:]}")


def _say(sandbox: Sandbox, operator: SandboxOperator) -> None:
    own = "" if sandbox.record.name == "default" else f" --name {sandbox.record.name}"
    click.echo(f"the operator runs on sandbox {sandbox.record.name!r}")
    click.echo(f"its logs: {operator.folder}/admission.log and run.log; its metrics: {operator.health()}/metrics")
    click.echo(f"next, in another terminal: slinky sandbox shell{own}")
    click.echo("  kubectl apply -f examples/operator/ldap.yaml -f examples/operator/cluster.yaml; kubectl -n slurm get nodesets -w")
    click.echo("ends with Ctrl-C")
