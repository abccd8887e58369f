"""`slinky bridge run`: the scheduler and the controllers."""

import click
import msgspec

from slinky.bridge.bridge import Bridge
from slinky.bridge.settings import Settings
from slinky.cli.bridge_options import Site, logging_options, run_until_told_to_end, site_options
from slinky.kube import Access

__all__ = ["run"]


@click.command()
@site_options
@click.option("--health-port", type=int, help="Port of /livez, /readyz and /metrics, instead of the configuration's; 0 takes a free one.")
@logging_options
def run(site: Site, health_port: int | None) -> None:
    """The bridge itself: pods become Slurm jobs, and are bound where Slurm says.

    Scheduler and controllers in one process. Several may run: one of them leads, the others wait with warm caches. Runs until SIGTERM or SIGINT; pods run on meanwhile, and the next process takes over what is there.
    """
    settings = site.settings()
    if health_port is not None:
        settings = msgspec.structs.replace(settings, health_port=health_port)
    run_until_told_to_end(_serve(settings, site.access()))


async def _serve(settings: Settings, access: Access) -> None:
    await Bridge(settings, access).run()
