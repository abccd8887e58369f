"""`slinky sandbox install`: the charts on a sandbox with real nodes, as a user installs them."""

import click

from slinky.cli.sandbox import named
from slinky.sandbox.charts import install as install_charts
from slinky.sandbox.charts import uninstall as uninstall_charts
from slinky.sandbox.handle import Sandbox

__all__ = ["install"]


@click.command()
@named
@click.option("--remove", is_flag=True, help="Uninstall them instead, in the opposite order.")
def install(name: str, remove: bool) -> None:
    """Install the charts with helm: the operator, a Slurm cluster and the bridge, all in pods.

    Each command is shown before it is run: they are those of docs/install.md, with the values in examples/charts. What is installed already is upgraded. Needs a sandbox that was brought up with --real-nodes and --operator.
    """
    (uninstall_charts if remove else install_charts)(Sandbox.running(name), lambda words: click.echo(f"$ {words}"))
