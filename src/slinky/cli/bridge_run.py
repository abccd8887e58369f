"""`slinky bridge run`: the scheduler and the controllers."""

import click
import msgspec

from slinky.bridge.bridge import Bridge
from slinky.bridge.settings import Settings
from slinky.cli.bridge_options import Site, service_options
from slinky.cli.service import logging_options, run_until_told_to_end
from slinky.kube import Access

__all__ = ["run"]


@click.command()
@service_options
@click.option("--shadow", is_flag=True, help="Leave pods to their own scheduler, and report what Slurm would have done (docs/shadow.md).")
@logging_options
def run(site: Site, shadow: bool) -> None:
    """The bridge itself: pods become Slurm jobs, and are bound where Slurm says.

    Scheduler and controllers in one process. Several may run: one of them leads, the others wait with warm caches. Runs until SIGTERM or SIGINT; pods run on meanwhile, and the next process takes over what is there.
    """
    settings = site.settings()
    run_until_told_to_end(_serve(msgspec.structs.replace(settings, shadow=True) if shadow else settings, site.access()))


async def _serve(settings: Settings, access: Access) -> None:
    await Bridge(settings, access).run()
