"""`slinky top`: queue, nodes and pods ↔ jobs, live in a terminal. Asks both sides every few seconds; ends with Ctrl-C."""

import asyncio
import sys
import time
from contextlib import suppress

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from slinky.cli.looking import Looking, looking_options
from slinky.explain.facts import Facts
from slinky.explain.gathering import gather_all
from slinky.explain.report import as_json
from slinky.explain.top import view

__all__ = ["top"]

WIDTH, HEIGHT = 160, 60  # where there is no terminal
ASKING = "asking Slurm and Kubernetes …"


@click.command()
@looking_options
@click.option("--every", default=2.0, show_default=True, type=click.FloatRange(min=1.0), help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="One look, and no more; so it is where there is no terminal.")
def top(site: Looking, output: str, every: float, once: bool) -> None:
    """Queue, nodes, and pods beside their jobs, live."""
    settings, access = site.settings(), site.access()

    def look() -> Facts:
        return asyncio.run(gather_all(settings, access))

    if output == "json":
        facts = look()
        pods = [{"pod": str(pod.metadata.key), "phase": pod.status.phase, "node": pod.spec.node_name} for pod in facts.kube.pods]
        jobs = [
            {"job": job.job_id, "name": job.name, "state": job.states, "reason": job.state_reason, "nodes": job.nodes}
            for job in facts.slurm.queue or ()
        ]
        nodes = [{"node": node.name, "state": node.states, "partitions": node.partitions} for node in facts.slurm.nodes]
        click.echo(as_json({"jobs": jobs, "nodes": nodes, "pods": pods, "troubles": facts.troubles}))
        return
    if once or not sys.stdout.isatty():
        Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(view(look(), HEIGHT))
        return
    console = Console(highlight=False)
    with suppress(KeyboardInterrupt), Live(Text(ASKING), console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(view(look(), console.height), refresh=True)
            time.sleep(every)
