"""`slinky demo`."""

import click


@click.command()
def demo() -> None:
    """A pod placed by Slurm."""
