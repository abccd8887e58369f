"""The demo's live view: node by node what pods and jobs do, each with a bar of its last minute; below, what waits, and why.

Pure. Comes in: lives at a moment, the nodes, the room there is. Goes out: something that rich can draw, no wider and no higher than that. What must stay true: every node is shown, also an idle one; who is over makes room first, the oldest first.
"""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from slinky.cli.demo.lives import Life, Phase

__all__ = ["board"]

WINDOW = 60.0
LINGER = 30.0  # who is over stays in sight for so long
MARKS = {Phase.WAITING: "·", Phase.PLACED: "░", Phase.RUNNING: "█", Phase.ENDING: "▒"}
COLOURS = {Phase.WAITING: "yellow", Phase.PLACED: "cyan", Phase.RUNNING: "green", Phase.ENDING: "red", Phase.OVER: "dim"}
FIXED = 54  # columns that are not the bar
LEAST_BAR = 12


def board(lives: Sequence[Life], nodes: Sequence[str], now: float, width: int, height: int) -> RenderableType:
    """`nodes` are those that are always shown."""
    names = [*nodes, *sorted({node for life in lives for node in life.last.nodes} - set(nodes))]
    shown = _in_sight(lives, now, max(1, height - 2 * (len(names) + 1)))
    room = max(LEAST_BAR, width - FIXED)
    panels = [_panel(name, [life for life in shown if name in life.last.nodes], now, room) for name in names]
    waiting = [life for life in shown if not life.last.nodes]
    return Group(*panels, *([_panel("in the queue", waiting, now, room)] if waiting else []))


def _in_sight(lives: Sequence[Life], now: float, most: int) -> list[Life]:
    """In the order of their beginning."""
    recent = [life for life in lives if life.ended is None or now - life.ended < LINGER]
    kept = sorted(recent, key=lambda life: float("inf") if life.ended is None else life.ended)[-most:]
    return sorted(kept, key=lambda life: (life.start, life.last.rank, life.last.job_id, life.last.name))


def _panel(title: str, lives: Iterable[Life], now: float, room: int) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    for columns in (18, 8, 20, room):
        table.add_column(width=columns, no_wrap=True, overflow="ellipsis")
    for life in lives:
        table.add_row(life.title, f"job {life.last.job_id}" if life.last.job_id else "", _state(life), bar(life, now, room))
    return Panel(table, title=title, title_align="left", padding=(0, 1))


def _state(life: Life) -> Text:
    last = life.last
    words = {
        Phase.WAITING: f"waits: {last.why}" if last.why else "waits",
        Phase.PLACED: f"held: {last.why}" if last.why else "about to begin",
        Phase.RUNNING: f"runs, rank {last.rank}" if last.rank >= 0 else "runs",
        Phase.ENDING: "ends, in its grace" if last.is_pod else "ends",
        Phase.OVER: f"over: {last.outcome}" if last.outcome else "over",
    }
    return Text(words[last.phase], style=COLOURS[last.phase], no_wrap=True, overflow="ellipsis")


def bar(life: Life, now: float, room: int) -> Text:
    """Its last minute, the present at the right. What is shorter than a column counts where it began."""
    text = Text(no_wrap=True)
    pieces = life.pieces(now)
    for column in range(room):
        start = now - WINDOW * (room - column) / room
        end = start + WINDOW / room
        phase = next((phase for phase, begin, until in reversed(pieces) if begin < end and until > start), None)
        text.append(MARKS[phase] if phase else " ", style=COLOURS[phase] if phase else "")
    return text
