"""`kubectl slurm …`: what a user of a cluster wants of `slinky`, as a plugin of kubectl's, which finds it as `kubectl-slurm` in PATH. The commands are the same."""

import click

from slinky import __version__
from slinky.cli import COMMANDS, run
from slinky.cli.lazy import LazyGroup

__all__ = ["kubectl_slurm", "main"]

OFFERED = ("doctor", "explain", "top", "translate")


@click.group(cls=LazyGroup, elsewhere={name: COMMANDS[name] for name in OFFERED}, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kubectl slurm")
def kubectl_slurm() -> None:
    """Slurm and Kubernetes on the same machines: why things wait, and whether all is well."""


def main() -> None:
    run(kubectl_slurm, "kubectl slurm")
