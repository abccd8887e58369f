"""Things and how they touch: boxes where the source puts them, and arrows between their sides.

Comes in: `boxes` by name, each with `at` and `size` (in units of ten pixels), `is` (its look, or `group`: dashed, with its title above what is in it), `title` and `text`; `arrows`, each with `from` and `to` (`name.side`, or `name.side@0.3` for another place than the
side's middle), and `text`, `both`, `dashed`, `bend` (where it turns), `shift` (of its words); `notes` with `at` and `text`. Goes out: the picture. What must stay true: an arrow runs along the picture's sides, and its words cover what is behind them; a text that
does not fit its box is an error, not a picture.
"""

import math
from itertools import pairwise
from typing import Any

from scripts.drawing.canvas import LINE, Canvas, Point, lines_of, width_of

__all__ = ["drawn"]

UNIT = 10.0


def drawn(source: dict[str, Any]) -> Canvas:
    canvas = Canvas()
    boxes = source["boxes"]
    for box in boxes.values():
        _box(canvas, box)
    for arrow in source.get("arrows", []):
        _arrow(canvas, boxes, arrow)
    for note in source.get("notes", []):
        x, y = (each * UNIT for each in note["at"])
        lines = lines_of(note["text"], note.get("width", 30) * UNIT)
        canvas.text((x, y), lines, note.get("look", "faint"), anchor=note.get("anchor", "start"))
    return canvas


def _box(canvas: Canvas, box: dict[str, Any]) -> None:
    (x, y), (width, height) = _frame(box)
    group = box["is"].split()[0] == "group"
    look = box["is"].split()[-1] if box["is"] != "group" else "plain"
    canvas.box((x, y), (width, height), look, dashed=group, round_by=8 if group else 6)
    title = lines_of(box["title"], width - 14, bold=True) if box.get("title") else []
    text = lines_of(box["text"], width - 14) if box.get("text") else []
    widest = max((width_of(line, bold=line in title) for line in [*title, *text]), default=0)
    if widest > width - 8 or LINE * len([*title, *text]) > height - 4:
        raise ValueError(f"{[*title, *text]} do not fit a box of {width:g} x {height:g}: {widest:.0f} x {LINE * len([*title, *text]):.0f}")
    if group:
        canvas.text((x + 12, y + 20), title, "bold", anchor="start")
        if text:
            canvas.text((x + 12, y + 20 + LINE * len(title)), text, "faint", anchor="start")
        return
    top = y + (height - LINE * len([*title, *text])) / 2 + LINE - 4.5
    if title:
        canvas.text((x + width / 2, top), title, "bold")
    if text:
        canvas.text((x + width / 2, top + LINE * len(title)), text)


def _frame(box: dict[str, Any]) -> tuple[Point, Point]:
    (x, y), (width, height) = box["at"], box["size"]
    return (x * UNIT, y * UNIT), (width * UNIT, height * UNIT)


def _arrow(canvas: Canvas, boxes: dict[str, Any], arrow: dict[str, Any]) -> None:
    (start, across), (end, into) = _end(boxes, arrow["from"]), _end(boxes, arrow["to"])
    points = _route(start, across, end, into, arrow.get("bend", 0.5))
    canvas.line(points, tail=bool(arrow.get("both")), dashed=bool(arrow.get("dashed")))
    if arrow.get("text"):
        lines = lines_of(arrow["text"], arrow.get("width", 16) * UNIT)
        first, last = max(pairwise(points), key=lambda each: math.dist(*each))
        shift = arrow.get("shift", [0, 0])
        x = (first[0] + last[0]) / 2 + shift[0] * UNIT
        y = (first[1] + last[1]) / 2 + shift[1] * UNIT
        canvas.text((x, y + 5 - LINE * (len(lines) - 1) / 2), lines, "faint", ground=True)


def _end(boxes: dict[str, Any], said: str) -> tuple[Point, bool]:
    """Where, and whether the arrow leaves to the left or right there."""
    where, _, share = said.partition("@")
    name, side = where.split(".")
    (x, y), (width, height) = _frame(boxes[name])
    part = float(share or 0.5)
    return {
        "top": ((x + width * part, y), False),
        "bottom": ((x + width * part, y + height), False),
        "left": ((x, y + height * part), True),
        "right": ((x + width, y + height * part), True),
    }[side]


def _route(start: Point, across: bool, end: Point, into: bool, bend: float) -> list[Point]:
    (x1, y1), (x2, y2) = start, end
    if abs(x1 - x2) < 2 and not across:
        return [start, (x1, y2)]
    if abs(y1 - y2) < 2 and across:
        return [start, (x2, y1)]
    if across and into:
        middle = x1 + (x2 - x1) * bend
        return [start, (middle, y1), (middle, y2), end]
    if not across and not into:
        middle = y1 + (y2 - y1) * bend
        return [start, (x1, middle), (x2, middle), end]
    return [start, (x2, y1) if across else (x1, y2), end]
