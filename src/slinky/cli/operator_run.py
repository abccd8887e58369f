"""`slinky operator run`: the operator itself."""

import click

from slinky.cli.operator_options import Site, service_options
from slinky.cli.service import logging_options, run_until_told_to_end
from slinky.kube import Access
from slinky.operator.operator import Operator
from slinky.operator.settings import Settings

__all__ = ["run"]


@click.command()
@service_options
@logging_options
def run(site: Site) -> None:
    """The operator itself: Slurm clusters become as their objects say, and stay so.

    Several may run: one of them leads, the others wait with warm caches. Runs until SIGTERM or SIGINT; clusters run on meanwhile, and the next process goes on from what is there.
    """
    run_until_told_to_end(_serve(site.settings(), site.access()))


async def _serve(settings: Settings, access: Access) -> None:
    await Operator(settings, access).run()
