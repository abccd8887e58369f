"""The command line: `slinky …`. One module a group of commands, read when it is called; errors of ours become one clear message and exit code 1."""

import sys

import click

from slinky import __version__
from slinky.cli.lazy import LazyGroup

__all__ = ["COMMANDS", "main", "run", "slinky"]

COMMANDS = {
    "bridge": "slinky.cli.bridge:bridge",
    "demo": "slinky.cli.demo:demo",
    "demo-operator": "slinky.cli.demo_operator:demo_operator",
    "doctor": "slinky.cli.doctor:doctor",
    "explain": "slinky.cli.explain:explain",
    "exporter": "slinky.cli.exporter:exporter",
    "migrate": "slinky.cli.migrate:migrate",
    "operator": "slinky.cli.operator:operator",
    "prolog": "slinky.cli.prolog:prolog",
    "sandbox": "slinky.cli.sandbox:sandbox",
    "sink": "slinky.cli.sink:sink",
    "slurm": "slinky.cli.slurm:slurm",
    "top": "slinky.cli.top:top",
    "translate": "slinky.cli.translate:translate",
}


@click.group(cls=LazyGroup, elsewhere=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slinky")
def slinky() -> None:
    """Slurm and Kubernetes on the same machines, as one system."""


def main() -> None:
    run(slinky, "slinky")


def run(command: click.Command, name: str) -> None:
    """Under that name in its messages."""
    try:
        command(prog_name=name)
    except Exception as error:
        if not isinstance(error, _of_ours()):
            raise
        click.echo(f"{name}: {error}", err=True)
        sys.exit(1)


def _of_ours() -> tuple[type[Exception], ...]:
    """Those that say themselves what is wrong."""
    from slinky.kube import KubeError
    from slinky.sandbox import SandboxError
    from slinky.settings import SettingsError
    from slinky.slurm import SlurmError

    return (SandboxError, SlurmError, KubeError, SettingsError)
