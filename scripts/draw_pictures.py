#!/usr/bin/env python3
"""Draws docs/pictures/*.svg from the sources beside them: `scripts/draw_pictures.py`; with --check it only says which picture is not as its source gives it.

Comes in: docs/pictures/*.yaml, each with `draws` (boxes or sequence), `title`, `says` (for those who cannot see it), and what that kind of picture has (`scripts/drawing/`). Goes out: an SVG each. What must stay true: no picture without a source.
"""

import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.drawing import boxes, sequence

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
KINDS = {"boxes": boxes.drawn, "sequence": sequence.drawn}


def drawn(source: Path) -> str:
    said = yaml.safe_load(source.read_text())
    return KINDS[said["draws"]](said).svg(said["title"], said["says"])


def main() -> int:
    wanted = {source.with_suffix(".svg"): drawn(source) for source in sorted(PICTURES.glob("*.yaml"))}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    strange = sorted(set(PICTURES.glob("*.svg")) - set(wanted))
    wrong = [f"{path} has no source beside it" for path in strange]
    if "--check" in sys.argv:
        wrong += [f"{path} is not as scripts/draw_pictures.py draws it" for path in stale]
    else:
        for path in stale:
            path.write_text(wanted[path])
            print(f"written: {path}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
