"""How the demo speaks to whoever looks on: its lines, the live view below them, and waits that tell how far they are.

Comes in: what is watched, and lines of the story. Goes out: on a terminal, the lines with the view of all nodes live below them; elsewhere the lines, and one for each pod and job that comes to another phase. What must stay true: it only
looks; every wait ends.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from slinky.cli.demo.board import board
from slinky.cli.demo.lives import Life, line
from slinky.cli.demo.timeline import Chapter
from slinky.cli.demo.watching import Watching
from slinky.sandbox.errors import SandboxError

__all__ = ["Show"]

STORY_LINES = 8  # of a terminal's height, kept for what stands above the view
LOOK_SECONDS = 0.25
READING_SECONDS = 1.5
SLOW_SECONDS = 5.0


class Show:
    """`async with show.live(): …` around the story; `say`, `until` and the rest within it."""

    def __init__(self, console: Console, seen: Watching, nodes: Sequence[str]) -> None:
        self.console, self.seen = console, seen
        self.chapters: list[Chapter] = []
        self._nodes = nodes
        self._live: Live | None = None
        self._waiting_for, self._since, self._how_far = "", 0.0, _nothing

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Where this is no terminal, nothing is redrawn."""
        if not self.console.is_terminal:
            self.seen.subscribe(self._tell)
            yield
            return
        with Live(console=self.console, auto_refresh=False) as self._live:
            task = asyncio.create_task(self._redraw(self._live), name="the demo's view")
            try:
                yield
                self._draw(self._live)
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def chapter(self, title: str, short: str = "") -> None:
        """`short` is for the picture, if it is to be there."""
        if short:
            self.chapters.append(Chapter(short, self.seen.now))
        self.console.print()
        self.console.rule(f"[bold]{title}", align="left")

    def say(self, text: str) -> None:
        self.console.print(f"→ {text}", markup=False, soft_wrap=not self.console.is_terminal)

    def command(self, text: str, told: str = "") -> None:
        """As a user would give it, and what it said."""
        self.console.print(f"$ {text}", markup=False, soft_wrap=True, style="bold" if self.console.is_terminal else None)
        for each in told.rstrip().splitlines():
            self.console.print(f"    {each}", markup=False, soft_wrap=not self.console.is_terminal)

    def manifest(self, path: Path, text: str) -> None:
        """As it stands, without the comment at its top."""
        text = "\n".join(line for line in text.splitlines() if not line.startswith("# "))
        shown = Syntax(text, path.suffix[1:], background_color="default", word_wrap=True) if self.console.is_terminal else Text(text)
        self.console.print(Panel(shown, title=path.name, title_align="left", expand=False))

    async def until(
        self, what: str, probe: Callable[[], bool | Awaitable[bool]], seconds: float = 60, how_far: Callable[[], str] | None = None
    ) -> None:
        """Wait for something of which `what` says that it is true, looked at whenever either server tells something; says how far it is while it takes its time."""
        self._waiting_for, self._since, self._how_far = what, time.monotonic(), how_far or _nothing
        spoken = self._since
        while not await _held(probe()):
            now = time.monotonic()
            if now - self._since > seconds:
                raise SandboxError(f"the demo expected that {what}: that did not come true within {seconds:g} s{self._instead()}")
            if self._live is None and now - spoken > SLOW_SECONDS:
                spoken = now
                self.console.print(f"  {self._waiting()}", markup=False, soft_wrap=True)
            await self.seen.news(LOOK_SECONDS)
        self._waiting_for = ""

    async def breathe(self) -> None:
        """Time to read, where somebody sits before it."""
        if self._live is not None:
            await asyncio.sleep(READING_SECONDS)

    async def _redraw(self, live: Live) -> None:
        while True:
            self._draw(live)
            await asyncio.sleep(LOOK_SECONDS)

    def _draw(self, live: Live) -> None:
        room = self.console.height - STORY_LINES
        shown: list[RenderableType] = [board(list(self.seen.lives.values()), self._nodes, self.seen.now, self.console.width, room)]
        live.update(Group(*shown, Text(self._waiting(), style="dim", no_wrap=True, overflow="ellipsis")), refresh=True)

    def _tell(self, life: Life) -> None:
        self.console.print(f"  {self.seen.now:5.1f} s  {line(life)}", markup=False, soft_wrap=True)

    def _waiting(self) -> str:
        if not self._waiting_for:
            return ""
        detail = self._how_far()
        return f"… until {self._waiting_for}{': ' if detail else ''}{detail} ({time.monotonic() - self._since:.0f} s)"

    def _instead(self) -> str:
        detail = self._how_far()
        return f" ({detail})" if detail else ""


def _nothing() -> str:
    return ""


async def _held(found: bool | Awaitable[bool]) -> bool:
    return found if isinstance(found, bool) else await found
