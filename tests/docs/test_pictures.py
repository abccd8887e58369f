"""The pictures in docs/ are what their sources give, each is shown by a page, and what cannot be drawn is told."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from scripts.draw_pictures import KINDS, PICTURES, drawn
from scripts.drawing.canvas import lines_of, width_of

from tests.conftest import CHECKOUT

SOURCES = sorted(PICTURES.glob("*.yaml"))
OF_A_RUN = "demo-timeline"  # drawn by `slinky demo`, of what it saw


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_picture_is_as_its_source_gives_it(source: Path) -> None:
    assert source.with_suffix(".svg").read_text() == drawn(source), "scripts/draw_pictures.py draws it anew"


def test_every_picture_has_a_source_and_a_page_that_shows_it() -> None:
    pictures = {path.stem for path in PICTURES.glob("*.svg")}
    assert pictures - {OF_A_RUN} == {path.stem for path in SOURCES}
    shown = "".join(page.read_text() for page in [CHECKOUT / "README.md", *(CHECKOUT / "docs").glob("*.md")])
    assert not {name for name in pictures if f"pictures/{name}.svg)" not in shown}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_picture_is_whole_by_itself_and_says_what_it_shows(source: Path) -> None:
    text = drawn(source)
    root = ET.fromstring(text)
    width, height = (float(each) for each in root.attrib["viewBox"].split()[2:])
    assert width <= 960, "wider than a page shows legibly"
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(shape.attrib["x"]) >= 0
        assert float(shape.attrib["x"]) + float(shape.attrib["width"]) <= width
        assert float(shape.attrib["y"]) + float(shape.attrib["height"]) <= height
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert root.findtext("{http://www.w3.org/2000/svg}desc")


def test_a_text_that_does_not_fit_its_box_is_an_error() -> None:
    box = {"at": [1, 1], "size": [6, 3], "is": "kube", "title": "far too long for such a box"}
    with pytest.raises(ValueError, match="do not fit a box of 60 x 30"):
        KINDS["boxes"]({"boxes": {"a": box}})


def test_lines_are_broken_evenly_and_code_stays_code() -> None:
    text = "one two three four `five six` seven"
    lines = lines_of(text, 100)
    assert " ".join(lines).replace("` `", " ") == text
    assert all(width_of(line) <= 100 and line.count("`") % 2 == 0 for line in lines)
