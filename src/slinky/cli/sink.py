"""`slinky sink`: what slurmctld sends to nodes that have no slurmd, answered by one that is there."""

import click

from slinky.bridge.sink import address_of, serve
from slinky.cli.service import logging_options, run_until_told_to_end

__all__ = ["sink"]


def _address(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        address_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


@click.command()
@click.option(
    "--listen", required=True, metavar="HOST:PORT", callback=_address, help="What `nodes.sink` of the bridge's configuration names."
)
@click.option(
    "--slurmd", required=True, metavar="HOST:PORT", callback=_address, help="Where one real slurmd listens; it need take no jobs."
)
@click.option(
    "--delay",
    type=click.FloatRange(0, 8),
    default=5.0,
    show_default=True,
    help="Seconds before it is asked: a job that is being signalled shows it for that long. Below Slurm's MessageTimeout (10 s).",
)
@logging_options
def sink(listen: str, slurmd: str, delay: float) -> None:
    """Answer what slurmctld sends to external nodes, which have no slurmd: grace times, signals, jobs that shrink.

    Without it such a message makes the node silent to Slurm, and it takes no more jobs. Runs until SIGTERM or SIGINT. docs/bridge.md says what it is good for.
    """
    run_until_told_to_end(serve(listen, slurmd, delay))
