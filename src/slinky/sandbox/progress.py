"""What a person sees while something takes its time: one line a step, with how far it is and how long it took.

On a terminal the running steps are redrawn in place; elsewhere (CI, a log) a step prints when it starts to be slow, every quarter of a
minute, and when it ends. Steps of several threads or tasks may run at once. Nothing is printed for a step that ends in under
`QUIET` seconds, unless it is a terminal.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

__all__ = ["Progress", "Step"]

QUIET = 2.0
HEARTBEAT = 15.0


@dataclass
class Step:
    """One thing being done; `say` tells how far it is."""

    title: str
    started: float = field(default_factory=time.monotonic)
    detail: str = ""
    spoken: float = 0.0

    def say(self, detail: str) -> None:
        self.detail = detail

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def line(self) -> str:
        return f"{self.title}{': ' + self.detail if self.detail else ''} ({self.seconds:.0f} s)"


class Progress:
    """The steps under way. Use as a context manager around all of them."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._steps: list[Step] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._live: Live | None = None

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=4, transient=True)
            self._live.start()
        else:
            self._thread = threading.Thread(target=self._heartbeats, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
        if self._live:
            self._live.stop()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Around one thing that may take seconds."""
        step = Step(title)
        with self._lock:
            self._steps.append(step)
        failed = True
        try:
            yield step
            failed = False
        finally:
            with self._lock:
                self._steps.remove(step)
            if step.seconds >= QUIET or self._live or failed:
                self._console.print(f"{'✗' if failed else '✓'} {step.title} ({step.seconds:.1f} s)", markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _render(self) -> Group:
        with self._lock:
            return Group(*(Text("… " + step.line(), overflow="ellipsis", no_wrap=True) for step in self._steps))

    def _heartbeats(self) -> None:
        while not self._stop.wait(0.5):
            with self._lock:
                due = [s for s in self._steps if s.seconds >= QUIET and time.monotonic() - s.spoken >= HEARTBEAT]
            for step in due:
                step.spoken = time.monotonic()
                self._console.print("… " + step.line(), markup=False, soft_wrap=True)
