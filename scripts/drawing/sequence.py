"""Who says what to whom, from top to bottom.

Comes in: `actors`, from left to right (each with `is`, its look, and `title`), and `steps`, each a mapping of one key: `a -> b: words` is said, `a --> b: words` answered, `a: words` done by itself, `part: words` begins a new chapter; `widest` is how far apart two neighbours may be. Goes out: the
picture. What must stay true: what is said has a number, so that prose can speak of it; words fit between the lines of those who speak.
"""

import re
from itertools import pairwise
from typing import Any

from scripts.drawing.canvas import LINE, Canvas, lines_of, width_of

__all__ = ["drawn"]

SAID = re.compile(r"(\w+) (--?>) (\w+)")
LEFT, TOP, HEAD, BREATH = 20.0, 20.0, 44.0, 15.0
NARROWEST, WIDEST = 120.0, 270.0  # between two neighbours
ACT = 210.0  # what one does by itself


def drawn(source: dict[str, Any]) -> Canvas:
    actors, steps = source["actors"], [next(iter(step.items())) for step in source["steps"]]
    places = _places(actors, steps, source.get("widest", WIDEST))
    right = max(places.values()) + _half(actors[list(actors)[-1]])
    above = Canvas()
    rows: list[tuple[float, _Said | _Act | _Part]] = []
    y, number = TOP + HEAD + 14, 0
    for key, words in steps:
        if said := SAID.fullmatch(key):
            number += 1
            rows.append((y, _Said(places[said[1]], places[said[3]], said[2] == "-->", number, words)))
        else:
            rows.append((y, _Part(LEFT, right, words) if key == "part" else _Act(places[key], actors[key]["is"], words)))
        y += rows[-1][1].height
    for name, actor in actors.items():
        above.line([(places[name], TOP + HEAD), (places[name], y + 6)], head=False, dashed=True)
        half = _half(actor)
        above.box((places[name] - half, TOP), (2 * half, HEAD), actor["is"])
        lines = actor["title"].split("\n")
        above.text((places[name], TOP + HEAD / 2 + 5 - LINE * (len(lines) - 1) / 2), lines, "bold")
    for place, row in rows:
        row.draw(above, place)
    return above


def _half(actor: dict[str, Any]) -> float:
    return max(width_of(line, bold=True) for line in actor["title"].split("\n")) / 2 + 12


def _places(actors: dict[str, Any], steps: list[tuple[str, str]], widest: float) -> dict[str, float]:
    """Neighbours as far apart as what they say to each other needs, and what they do by themselves."""
    names = list(actors)
    gaps = [max(NARROWEST, _half(actors[left]) + _half(actors[right]) + 16) for left, right in pairwise(names)]
    for key, words in steps:
        if not (said := SAID.fullmatch(key)):
            continue
        first, last = sorted((names.index(said[1]), names.index(said[3])))
        if last == first + 1:
            lines = lines_of(words, widest - 50)
            gaps[first] = max(gaps[first], min(widest, max(width_of(line) for line in lines) + 50))
    acts = [key for key, _ in steps if key in actors]
    start = LEFT + max(_half(actors[names[0]]), ACT / 2 if names[0] in acts else 0)
    return dict(zip(names, [start + sum(gaps[:number]) for number in range(len(names))], strict=True))


class _Said:
    def __init__(self, start: float, end: float, answer: bool, number: int, words: str) -> None:
        self._start, self._end, self._answer, self._number = start, end, answer, number
        self._lines = lines_of(words, abs(end - start) - 46)
        self.height = LINE * len(self._lines) + BREATH

    def draw(self, canvas: Canvas, y: float) -> None:
        middle, base = (self._start + self._end) / 2 + 8, y + LINE - 4
        canvas.text((middle, base), self._lines, "faint" if self._answer else "", ground=True)
        left = min(self._start, self._end)
        canvas.text((left + 8, base), [f"{self._number}"], "bold faint", anchor="start", size=12)
        below = y + LINE * len(self._lines) + 3
        canvas.line([(self._start, below), (self._end, below)], dashed=self._answer)


class _Act:
    def __init__(self, place: float, look: str, words: str) -> None:
        self._place, self._look = place, look
        self._lines = lines_of(words, ACT - 20)
        self._width = max(width_of(line) for line in self._lines) + 20
        self.height = LINE * len(self._lines) + BREATH + 9

    def draw(self, canvas: Canvas, y: float) -> None:
        canvas.box((self._place - self._width / 2, y + 3), (self._width, LINE * len(self._lines) + 9), self._look)
        canvas.text((self._place, y + 21), self._lines)


class _Part:
    def __init__(self, left: float, right: float, words: str) -> None:
        self._left, self._right, self._words = left, right, words
        self.height = 40.0

    def draw(self, canvas: Canvas, y: float) -> None:
        canvas.box((self._left, y + 5), (self._right - self._left, 25), "part")
        canvas.text(((self._left + self._right) / 2, y + 22), [self._words], "bold")
