"""The demo's picture: nodes as rows, pods and jobs as bars along time, as one SVG that stands by itself.

Pure. Comes in: lives, links between their jobs, chapters, all by the same clock. Goes out: the text of an SVG, the same for the same input. What must stay true: it is valid XML whatever things are called; no two bars or names
lie on each other; phases differ by shape as well as by colour; it is readable on light and on dark; nothing is fetched from elsewhere.
"""

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from slinky.cli.demo.lives import Life, Link, Phase

__all__ = ["Chapter", "timeline"]

WIDTH, LEFT, RIGHT, TOP = 960.0, 80.0, 18.0, 78.0
LANE, BAR, NAME = 38.0, 16.0, 14.0  # of a lane's height, the bar; above it, its name
MARGIN = 8.0  # between nodes
FOOT = 62.0
CHARACTER = 6.1  # at most, on average, of text of 11 px
TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
LEAST_TICK = 60.0
ENDINGS = {"SlurmPreempted": "preempted", "PREEMPTED": "preempted", "Succeeded": "", "COMPLETED": ""}
NOWHERE = "no node"
DESCRIPTION = "Rows are nodes, time goes to the right. Each pod and each sbatch job has a bar: dotted while it waits, hollow while it is held back, filled while it runs, striped while it ends. Arrows are dependencies and preemptions."

STYLE = """\
svg { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 11px; color-scheme: light dark; }
.name { fill: #1f2933; stroke: #f3f5f8; stroke-width: 3px; paint-order: stroke; }
.paper { fill: #ffffff; } .text { fill: #1f2933; } .quiet { fill: #5b6672; } .row { fill: #f3f5f8; } .grid { stroke: #d5dbe3; } .chapter { stroke: #8a95a3; stroke-dasharray: 2 3; }
.pod { color: #2f6fde; } .job { color: #c96a0b; } .pod, .job { stroke: currentColor; }
.waiting { fill: none; stroke-width: 2; stroke-dasharray: 2 4; } .placed { fill: none; stroke-width: 1.5; stroke-dasharray: 4 2; } .running { fill: currentColor; }
.ending-pod { fill: url(#stripes-pod); } .ending-job { fill: url(#stripes-job); } .stripe { stroke-width: 4; }
.link { fill: none; stroke-width: 1.8; } .afterok { stroke: #16803c; } .afterok-head { fill: #16803c; } .preempts { stroke: #c81e3a; } .preempts-head { fill: #c81e3a; }
@media (prefers-color-scheme: dark) {
.name { fill: #e6eaf0; stroke: #1b222b; } .paper { fill: #12171e; } .text { fill: #e6eaf0; } .quiet { fill: #9aa7b5; } .row { fill: #1b222b; } .grid { stroke: #2e3843; } .chapter { stroke: #6b7785; }
.pod { color: #5a96ff; } .job { color: #f09a3e; }
.afterok { stroke: #4cc776; } .afterok-head { fill: #4cc776; } .preempts { stroke: #ff6b81; } .preempts-head { fill: #ff6b81; }
}"""


class Chapter(msgspec.Struct, frozen=True):
    """What was shown from a moment on."""

    title: str
    start: float


class Place(msgspec.Struct, frozen=True):
    """Of a life on one node: its bar's middle, and where its name begins."""

    life: Life
    node: str
    middle: float
    name_at: float


class Scale(msgspec.Struct, frozen=True):
    """From seconds to points."""

    start: float
    end: float

    def x(self, at: float) -> float:
        return LEFT + (at - self.start) / max(self.end - self.start, 1e-9) * (WIDTH - LEFT - RIGHT)


class Row(msgspec.Struct, frozen=True):
    node: str
    top: float
    height: float
    places: tuple[Place, ...]


def timeline(title: str, lives: Sequence[Life], links: Sequence[Link], chapters: Sequence[Chapter], now: float) -> str:
    """`now` is the right edge, for what goes on."""
    moments = [life.start for life in lives] + [chapter.start for chapter in chapters]
    scale = Scale(min(moments, default=now), max([now, *(life.until(now) for life in lives)]))
    rows = _rows(lives, scale, now)
    bottom = rows[-1].top + rows[-1].height if rows else TOP
    height = bottom + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH:g} {height:g}" width="{WIDTH:g}" height="{height:g}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(DESCRIPTION)}</desc>",
        f"<style>\n{STYLE}\n</style>",
        *_definitions(),
        f'<rect class="paper" width="{WIDTH:g}" height="{height:g}"/>',
        f'<text class="text" x="14" y="26" font-size="15" font-weight="600">{escape(title)}</text>',
        *_rows_behind(rows),
        *_axis(scale, bottom),
        *_chapters(chapters, scale, bottom),
        *(line for row in rows for place in row.places for line in _bar(place, scale, now)),
        *(line for link in links for line in _link(link, rows, scale, now)),
        *(_title(place) for row in rows for place in row.places),
        *_legend(height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# Where everything goes


def _rows(lives: Sequence[Life], scale: Scale, now: float) -> list[Row]:
    names = sorted({node for life in lives for node in life.last.nodes})
    strays = [life for life in lives if not life.last.nodes]
    rows, top = [], TOP
    for node in [*names, *([NOWHERE] if strays else [])]:
        own = strays if node == NOWHERE else [life for life in lives if node in life.last.nodes]
        places, lanes = _lanes(node, own, top, scale, now)
        height = lanes * LANE + MARGIN
        rows.append(Row(node, top, height, places))
        top += height + MARGIN
    return rows


def _lanes(node: str, lives: Sequence[Life], top: float, scale: Scale, now: float) -> tuple[tuple[Place, ...], int]:
    """Each in the first lane where neither bar nor name meets another's."""
    free_from: list[float] = []
    places = []
    for life in sorted(lives, key=lambda life: (life.start, life.last.rank, life.last.job_id, life.last.name)):
        begin, end = scale.x(life.start), scale.x(life.until(now))
        width = len(_name(life)) * CHARACTER
        name_at = begin if begin + width <= WIDTH - RIGHT else max(LEFT, WIDTH - RIGHT - width)
        left, right = min(begin, name_at), max(end, name_at + width)
        lane = next((lane for lane, free in enumerate(free_from) if left >= free), len(free_from))
        free_from[lane : lane + 1] = [right + 8]
        places.append(Place(life, node, top + MARGIN / 2 + lane * LANE + NAME + 3 + BAR / 2, name_at))
    return tuple(places), len(free_from)


def _name(life: Life) -> str:
    last = life.last
    ending = ENDINGS.get(last.outcome, last.outcome)
    words = [
        life.title,
        f"job {last.job_id}" if last.job_id else "",
        f"rank {last.rank}" if last.rank >= 0 else "",
        ending,
    ]
    return " · ".join(word for word in words if word)


# What is drawn


def _definitions() -> Iterator[str]:
    yield "<defs>"
    for kind in ("pod", "job"):
        yield f'<pattern id="stripes-{kind}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        yield f'<line class="{kind} stripe" x1="0" y1="0" x2="0" y2="7"/></pattern>'
    for kind in ("afterok", "preempts"):
        yield f'<marker id="{kind}-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
        yield f'<path class="{kind}-head" d="M0 0 L8 4 L0 8 Z"/></marker>'
    yield "</defs>"


def _rows_behind(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield f'<rect class="row" x="8" y="{row.top:g}" width="{WIDTH - 16:g}" height="{row.height:g}" rx="5"/>'
        yield f'<text class="text" x="16" y="{row.top + 20:g}" font-size="12" font-weight="600">{escape(row.node)}</text>'


def _axis(scale: Scale, bottom: float) -> Iterator[str]:
    seconds = max(scale.end - scale.start, 1e-9)
    per_second = (WIDTH - LEFT - RIGHT) / seconds
    step = next((step for step in TICKS if step * per_second >= LEAST_TICK), TICKS[-1])
    for tick in range(0, int(seconds) + 1, step):
        x = scale.x(scale.start + tick)
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP - 6:g}" x2="{x:.1f}" y2="{bottom:g}"/>'
        yield f'<text class="quiet" x="{x:.1f}" y="{bottom + 15:g}" text-anchor="middle">{tick} s</text>'


def _chapters(chapters: Sequence[Chapter], scale: Scale, bottom: float) -> Iterator[str]:
    for number, chapter in enumerate(chapters):
        x = scale.x(chapter.start)
        following = scale.x(chapters[number + 1].start) if number + 1 < len(chapters) else WIDTH - RIGHT
        fits = max(3, int((following - x - 8) / CHARACTER))
        words = chapter.title if len(chapter.title) <= fits else chapter.title[: fits - 1] + "…"
        yield f'<line class="chapter" x1="{x:.1f}" y1="42" x2="{x:.1f}" y2="{bottom:g}"/>'
        yield f'<text class="quiet" x="{x + 5:.1f}" y="54">{escape(words)}</text>'


def _title(place: Place) -> str:
    return f'<text class="name" x="{place.name_at:.1f}" y="{place.middle - BAR / 2 - 4:g}">{escape(_name(place.life))}</text>'


def _bar(place: Place, scale: Scale, now: float) -> Iterator[str]:
    life, middle = place.life, place.middle
    kind = "pod" if life.last.is_pod else "job"
    for phase, start, end in life.pieces(now):
        x, width = scale.x(start), max(scale.x(end) - scale.x(start), 1.0)
        told = f"<title>{escape(f'{life.title}: {phase}, {start - scale.start:.1f} to {end - scale.start:.1f} s')}</title>"
        if phase is Phase.WAITING:
            yield f'<line class="{kind} waiting" x1="{x:.1f}" y1="{middle:g}" x2="{x + width:.1f}" y2="{middle:g}">{told}</line>'
            continue
        look = f"ending-{kind}" if phase is Phase.ENDING else phase
        yield f'<rect class="{kind} {look}" x="{x:.1f}" y="{middle - BAR / 2:g}" width="{width:.1f}" height="{BAR:g}" rx="2">{told}</rect>'


def _link(link: Link, rows: Sequence[Row], scale: Scale, now: float) -> Iterator[str]:
    """Where both ends are in sight."""
    places = [place for row in rows for place in row.places]
    origin = next((place for place in places if place.life.last.job_id == link.origin), None)
    target = next((place for place in places if place.life.last.job_id == link.target), None)
    if origin is None or target is None:
        return
    if link.kind == "preempts":
        x, down = scale.x(link.at), target.middle > origin.middle
        y1, y2 = (origin.middle, target.middle - BAR / 2) if down else (origin.middle, target.middle + BAR / 2)
        path, kind = f"M{x:.1f} {y1:g} L{x:.1f} {y2:g}", "preempts"
    else:
        begins = target.life.began(Phase.PLACED) or target.life.began(Phase.RUNNING) or target.life.until(now)
        x1, x2 = scale.x(origin.life.until(now)), scale.x(begins)
        bend = max(14.0, (x2 - x1) / 2)
        path = (
            f"M{x1:.1f} {origin.middle:g} C{x1 + bend:.1f} {origin.middle:g} {x2 - bend:.1f} {target.middle:g} {x2:.1f} {target.middle:g}"
        )
        kind = "afterok"
    told = escape(f"{origin.life.title} {'preempts' if kind == 'preempts' else 'goes before'} {target.life.title}")
    yield f'<path class="link {kind}" d="{path}" marker-end="url(#{kind}-head)"><title>{told} ({escape(link.kind)})</title></path>'


def _legend(height: float) -> Iterator[str]:
    y, x = height - 22, 16.0
    for kind, word in (("pod", "pod"), ("job", "sbatch")):
        yield f'<rect class="{kind} running" x="{x:g}" y="{y - 7:g}" width="22" height="10" rx="2"/>'
        yield f'<text class="quiet" x="{x + 28:g}" y="{y + 2:g}">{word} runs</text>'
        x += 44 + (len(word) + 5) * CHARACTER
    shapes = (
        ("waits in the queue", f'<line class="pod waiting" x1="{{x:g}}" y1="{y - 2:g}" x2="{{r:g}}" y2="{y - 2:g}"/>'),
        ("has the node, is held back", f'<rect class="pod placed" x="{{x:g}}" y="{y - 7:g}" width="22" height="10" rx="2"/>'),
        ("ends, in its grace", f'<rect class="pod ending-pod" x="{{x:g}}" y="{y - 7:g}" width="22" height="10" rx="2"/>'),
        ("afterok", f'<path class="link afterok" d="M{{x:g}} {y - 2:g} L{{r:g}} {y - 2:g}" marker-end="url(#afterok-head)"/>'),
        ("preempts", f'<path class="link preempts" d="M{{x:g}} {y - 2:g} L{{r:g}} {y - 2:g}" marker-end="url(#preempts-head)"/>'),
    )
    for word, shape in shapes:
        yield shape.format(x=x, r=x + 22)
        yield f'<text class="quiet" x="{x + 28:g}" y="{y + 2:g}">{word}</text>'
        x += 44 + len(word) * CHARACTER
