"""`slinky top`: queue, nodes and pods beside their jobs, live in a terminal. Asks both sides every few seconds; keys are heeded at once."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from slinky.bridge.settings import Settings
from slinky.cli.looking import Looking, looking_options
from slinky.explain.facts import Facts
from slinky.explain.gathering import gather_all
from slinky.explain.report import as_json
from slinky.explain.top import HELP, Shown, keys, press, view
from slinky.kube import Access

__all__ = ["top"]

WIDTH, HEIGHT = 160, 60  # where there is no terminal
ASKING = "asking Slurm and Kubernetes …"
MOST_TYPED = 256  # bytes read at once


@click.command()
@looking_options
@click.option("--every", default=2.0, show_default=True, type=click.FloatRange(min=1.0), help="Seconds between two updates.")
@click.option("--once", is_flag=True, help="Print one screen and end. This is the default where the output is not a terminal.")
def top(site: Looking, output: str, every: float, once: bool) -> None:
    """Show the queue, the nodes, and pods beside their jobs, live.

    Keys: q quits; arrows, Page Up, Page Down and Home scroll; w shows waiting jobs only, r running jobs only, a all jobs.
    """
    settings, access = site.settings(), site.access()
    if output == "json":
        facts = asyncio.run(gather_all(settings, access))
        pods = [{"pod": str(pod.metadata.key), "phase": pod.status.phase, "node": pod.spec.node_name} for pod in facts.kube.pods]
        jobs = [
            {"job": job.job_id, "name": job.name, "state": job.states, "reason": job.state_reason, "nodes": job.nodes}
            for job in facts.slurm.queue or ()
        ]
        nodes = [{"node": node.name, "state": node.states, "partitions": node.partitions} for node in facts.slurm.nodes]
        click.echo(as_json({"jobs": jobs, "nodes": nodes, "pods": pods, "troubles": facts.troubles}))
        return
    if once or not sys.stdout.isatty():
        facts = asyncio.run(gather_all(settings, access))
        Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(view(facts, HEIGHT))
        return
    console = Console(highlight=False)
    with suppress(KeyboardInterrupt), _keys_at_once(), Live(Text(ASKING), console=console, screen=True, auto_refresh=False) as live:
        asyncio.run(_Screen(live, console).run(settings, access, every))


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Each key is read when it is pressed, and is not shown; Ctrl-C works as always. Afterwards the terminal is as it was."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _Screen:
    """What is on the terminal, drawn again after each key and each answer of the servers."""

    def __init__(self, live: Live, console: Console) -> None:
        self._live = live
        self._console = console
        self._facts: Facts | None = None
        self._shown: Shown = Shown()
        self._left = asyncio.Event()
        self._scrolled = asyncio.Event()

    async def run(self, settings: Settings, access: Access | Exception, every: float) -> None:
        """Until a key says to leave."""
        loop = asyncio.get_running_loop()
        if sys.stdin.isatty():
            loop.add_reader(sys.stdin.fileno(), self._typed)
        asking = loop.create_task(self._ask(settings, access, every))
        leaving = loop.create_task(self._left.wait())
        try:
            await asyncio.wait([asking, leaving], return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
        finally:
            asking.cancel()
            leaving.cancel()
            if sys.stdin.isatty():
                loop.remove_reader(sys.stdin.fileno())

    async def _ask(self, settings: Settings, access: Access | Exception, every: float) -> None:
        while True:
            self._scrolled.clear()
            self._facts = await gather_all(settings, access, self._shown.offset)
            self._draw()
            with suppress(TimeoutError):  # of a long queue, other jobs are read when it is scrolled
                await asyncio.wait_for(self._scrolled.wait(), every)

    def _typed(self) -> None:
        for key in keys(os.read(sys.stdin.fileno(), MOST_TYPED).decode(errors="replace")):
            after = press(self._shown, key, max(1, self._console.height // 3))
            if after is None:
                self._left.set()
                return
            if after.offset != self._shown.offset:
                self._scrolled.set()
            self._shown = after
        self._draw()

    def _draw(self) -> None:
        facts = self._facts
        self._live.update(view(facts, self._console.height, self._shown) if facts else Text(f"{ASKING}\n{HELP}"), refresh=True)
