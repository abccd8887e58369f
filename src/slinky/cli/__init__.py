"""The command line: `slinky …`. One module a group of commands; errors of ours become one clear message and exit code 1."""

import sys

import click

from slinky import __version__
from slinky.bridge.settings import SettingsError
from slinky.cli.bridge import bridge
from slinky.cli.bridge_run import run
from slinky.cli.demo import demo
from slinky.cli.migrate import migrate
from slinky.cli.prolog import prolog
from slinky.cli.sandbox import sandbox
from slinky.cli.sandbox_bridge import bridge as bridge_on_a_sandbox
from slinky.cli.shadow import shadow_end, shadow_report
from slinky.cli.sink import sink
from slinky.cli.slurm import slurm
from slinky.cli.translate import translate
from slinky.cli.uninstall import uninstall
from slinky.kube import KubeError
from slinky.sandbox import SandboxError
from slinky.slurm import SlurmError

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slinky")
def slinky() -> None:
    """Slurm and Kubernetes on the same machines, as one system."""


sandbox.add_command(bridge_on_a_sandbox)
slinky.add_command(sandbox)
slinky.add_command(demo)
slinky.add_command(slurm)
slinky.add_command(translate)
slinky.add_command(prolog)
bridge.add_command(run)
bridge.add_command(uninstall)
bridge.add_command(shadow_report)
bridge.add_command(shadow_end)
slinky.add_command(bridge)
slinky.add_command(sink)
slinky.add_command(migrate)


def main() -> None:
    try:
        slinky()
    except (SandboxError, SlurmError, KubeError, SettingsError) as error:
        click.echo(f"slinky: {error}", err=True)
        sys.exit(1)
