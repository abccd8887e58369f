"""The picture of a run: rates as bars beside their limits, and how long pods waited between Slurm's start and bound. SVG by hand: no more is needed, and it lives beside the table."""

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["picture"]

WIDTH, LEFT, BAR = 930, 400, 22
COLOURS = {True: "#2a7f62", False: "#b5462f", None: "#8a93a3"}
EDGES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

Bars = Sequence[tuple[str, float, bool | None]]


def picture(rates: Bars, waits: Mapping[str, Sequence[float]]) -> str:
    """`rates`: name, pods a second, whether a goal was met. `waits`: name → seconds, each drawn as a histogram over the same edges."""
    parts: list[str] = []
    height = _bars(parts, rates, 20)
    for name, seconds in waits.items():
        if seconds:
            height = _histogram(parts, name, seconds, height + 30)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height + 10}" font-family="sans-serif" font-size="13">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _bars(parts: list[str], rates: Bars, top: int) -> int:
    _text(parts, 10, top, "pods (or jobs) a second, in one run", bold=True)
    most = max((rate for _, rate, _ in rates), default=1.0)
    top += 12
    for name, rate, met in rates:
        _text(parts, LEFT - 8, top + 15, name, anchor="end")
        _bar(parts, LEFT, top, (WIDTH - LEFT - 80) * rate / most, COLOURS[met])
        _text(parts, LEFT + (WIDTH - LEFT - 80) * rate / most + 6, top + 15, f"{rate:,.0f}")
        top += BAR + 4
    return top


def _histogram(parts: list[str], name: str, seconds: Sequence[float], top: int) -> int:
    ordered = sorted(seconds)
    middle, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, math.ceil(len(ordered) * 0.99) - 1)]
    _text(parts, 10, top, f"{name}: p50 {middle * 1000:,.0f} ms, p99 {late * 1000:,.0f} ms, {len(ordered):,} pods", bold=True)
    counts = [0] * (len(EDGES) + 1)
    for wait in seconds:
        counts[sum(wait > edge for edge in EDGES)] += 1
    top += 12
    names = [f"≤ {edge * 1000:,.0f} ms" for edge in EDGES] + [f"> {EDGES[-1]:g} s"]
    for count, label in zip(counts, names, strict=True):
        _text(parts, LEFT - 8, top + 12, label, anchor="end")
        _bar(parts, LEFT, top, (WIDTH - LEFT - 80) * count / max(counts), COLOURS[None], tall=15)
        if count:
            _text(parts, LEFT + (WIDTH - LEFT - 80) * count / max(counts) + 6, top + 12, f"{count:,}")
        top += 18
    return top


def _bar(parts: list[str], left: float, top: float, width: float, colour: str, tall: int = BAR) -> None:
    parts.append(f'<rect x="{left:.0f}" y="{top:.0f}" width="{max(width, 1):.1f}" height="{tall}" fill="{colour}"/>')


def _text(parts: list[str], left: float, top: float, text: str, *, anchor: str = "start", bold: bool = False) -> None:
    weight = ' font-weight="bold"' if bold else ""
    parts.append(f'<text x="{left:.0f}" y="{top:.0f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>')
