"""What every picture is made of: text that is broken into lines, boxes, lines with heads; written as SVG.

Comes in: shapes, in pixels. Goes out: one SVG document. What must stay true: widths of text are reckoned from a table and not from a font, generously, so that what fits here fits in any sans-serif; colours are said by what a thing is (`LOOKS`), once for
light and once for dark, over a ground of the picture's own, so that it can be read on a page of either.
"""

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["LINE", "Canvas", "Point", "lines_of", "width_of"]

SIZE = 14.0
LINE = 18.0  # from one line of text to the next
Point = tuple[float, float]

LOOKS = {  # what it is: (fill, stroke) in light, the same in dark
    "ground": ("#ffffff", "#d0d7de", "#0d1117", "#30363d"),
    "kube": ("#e1edfc", "#3b76c4", "#12294a", "#5a9bf0"),
    "slurm": ("#fdf0d5", "#b9770e", "#3a2b0b", "#d9a23b"),
    "ours": ("#ebe6fd", "#6a4bc4", "#2a2050", "#a08bf2"),
    "plain": ("#f4f5f7", "#8a929c", "#21262d", "#7d8590"),
    "part": ("#eef1f4", "#eef1f4", "#1b2129", "#1b2129"),
}
INK = ("#1f2328", "#e6edf3")
FAINT = ("#59636e", "#9198a1")
FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
CODE = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
ADVANCES = {"fijlrtI.,:;'|!()[] -/": 0.38, "mwMW@%…": 0.95}  # of the size; any other letter: below


def width_of(text: str, size: float = SIZE, bold: bool = False) -> float:
    """At most this wide, `code` between backquotes."""
    total = 0.0
    for number, piece in enumerate(text.split("`")):
        total += sum(0.56 if number % 2 else _advance(each) for each in piece)
    return total * size * (1.08 if bold else 1.0)


def _advance(letter: str) -> float:
    found = next((width for letters, width in ADVANCES.items() if letter in letters), 0.0)
    return found or (0.68 if letter.isupper() else 0.58)


def lines_of(text: str, width: float, size: float = SIZE, bold: bool = False) -> list[str]:
    """Broken at spaces so that no line is wider, if no word is, and as evenly as so many lines can be; a line's end in the text stays one. Backquotes are closed and opened again where a line ends within them."""
    found = _broken(text, width, size, bold)
    narrower = width
    while len(tried := _broken(text, narrower, size, bold)) == len(found) and narrower > width / 2:
        found, narrower = tried, narrower - 6
    return found


def _broken(text: str, width: float, size: float, bold: bool) -> list[str]:
    found: list[str] = []
    for paragraph in text.strip().split("\n"):
        line, open_code = "", False
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if line and width_of(longer, size, bold) > width:
                found.append(line + ("`" if open_code else ""))
                line = ("`" if open_code else "") + word
            else:
                line = longer
            open_code = open_code != bool(word.count("`") % 2)
        found.append(line)
    return found


class Canvas:
    """Shapes are drawn in the order in which they are added; `reach` is how far they go."""

    def __init__(self) -> None:
        self._shapes: list[str] = []
        self.reach: Point = (0.0, 0.0)

    def box(self, at: Point, size: Point, look: str, dashed: bool = False, round_by: float = 6) -> None:
        (x, y), (width, height) = at, size
        words = f'class="{look}{" dashed" if dashed else ""}"' + (' fill-opacity="0"' if dashed else "")
        self._shapes.append(f'<rect {words} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by:g}"/>')
        self._reaches((x + width, y + height))

    def line(self, points: Sequence[Point], head: bool = True, tail: bool = False, dashed: bool = False) -> None:
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        ends = (' marker-end="url(#head)"' if head else "") + (' marker-start="url(#tail)"' if tail else "")
        self._shapes.append(f'<path class="line{" dashed" if dashed else ""}" d="{path}"{ends}/>')
        for point in points:
            self._reaches(point)

    def text(
        self, at: Point, lines: Iterable[str], look: str = "", anchor: str = "middle", size: float = SIZE, ground: bool = False
    ) -> None:
        """`at` is the first line's middle (or its start), on its base. With `ground` what is behind it is covered."""
        lines = list(lines)
        bold = "bold" in look
        x, y = at
        widest = max(width_of(each, size, bold) for each in lines)
        left = x - widest / 2 if anchor == "middle" else x
        if ground:
            self._shapes.append(
                f'<rect class="behind" x="{left - 3:.0f}" y="{y - size:.0f}" width="{widest + 6:.0f}" height="{LINE * len(lines) + 1:.0f}"/>'
            )
        words = "".join(
            f' {key}="{value}"' for key, value in {"class": look, "font-size": "" if size == SIZE else f"{size:g}"}.items() if value
        )
        for number, line in enumerate(lines):
            self._shapes.append(f'<text{words} x="{x:g}" y="{y + number * LINE:g}" text-anchor="{anchor}">{_spans(line)}</text>')
        self._reaches((left + widest, y + LINE * (len(lines) - 1) + 5))

    def svg(self, title: str, says: str, margin: float = 20) -> str:
        width, height = self.reach[0] + margin, self.reach[1] + margin
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img">',
                f"<title>{escape(title)}</title>",
                f"<desc>{escape(' '.join(says.split()))}</desc>",
                *_style(),
                '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M1 1 L9 5 L1 9 z"/></marker>'
                '<marker id="tail" viewBox="0 0 10 10" refX="1" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M9 1 L1 5 L9 9 z"/></marker></defs>',
                f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10"/>',
                *self._shapes,
                "</svg>",
                "",
            ]
        )

    def _reaches(self, point: Point) -> None:
        self.reach = (max(self.reach[0], point[0]), max(self.reach[1], point[1]))


def _spans(line: str) -> str:
    pieces = enumerate(line.split("`"))
    return "".join(f'<tspan class="code">{escape(piece)}</tspan>' if number % 2 else escape(piece) for number, piece in pieces if piece)


def _style() -> list[str]:
    def colours(dark: bool) -> str:
        rules = [f".{name} {{ fill: {look[2 * dark]}; stroke: {look[2 * dark + 1]} }}" for name, look in LOOKS.items()]
        ink, faint, ground = INK[dark], FAINT[dark], LOOKS["ground"][2 * dark]
        rules += [f"text {{ fill: {ink} }}", f".faint {{ fill: {faint} }}", f".behind {{ fill: {ground} }}"]
        rules += [f".line {{ stroke: {faint}; fill: none }}", f".tip {{ fill: {faint} }}"]
        return " ".join(rules)

    return [
        "<style>",
        f"text {{ font: {SIZE:g}px {FAMILY} }} .bold {{ font-weight: 600 }} .code {{ font-family: {CODE}; font-size: 0.92em }}",
        "rect, .line { stroke-width: 1.3 } .behind { stroke: none } .dashed { stroke-dasharray: 5 4 }",
        colours(dark=False),
        f"@media (prefers-color-scheme: dark) {{ {colours(dark=True)} }}",
        "</style>",
    ]
