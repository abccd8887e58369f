"""The figures in README.md and docs/benchmarks.md are those of bench/results."""

from typing import Any

import pytest
from scripts.benchmark_tables import CHAPTERS, CHECKOUT, PAGES, SUMMARY, chapters_of, lines, runs, written


def row(what: str, **said: Any) -> dict[str, Any]:
    return {
        "what": what,
        "figure": 86.77,
        "unit": "pods/s",
        "at_most": None,
        "at_least": None,
        "limit": None,
        "ratio": None,
        "met": None,
    } | said


def run(measured: str, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"measured": measured, "machine": {"cores": 2, "python": "3.11.2"}, "rows": list(rows)}


@pytest.mark.parametrize("page", PAGES)
def test_the_figures_of_a_page_are_those_of_the_newest_run(page: str) -> None:
    text = (CHECKOUT / page).read_text()
    assert written(text, runs()) == text, "scripts/benchmark_tables.py writes them anew"


def test_every_row_that_was_measured_is_shown() -> None:
    shown = (CHECKOUT / "docs/benchmarks.md").read_text()
    assert not [row["what"] for run in runs() for row in chapters_of(run).get("", [])]
    assert all(f"<!-- figures: {name} -->" in shown for name in CHAPTERS)
    assert "<!-- figures: summary -->" in (CHECKOUT / "README.md").read_text()
    assert any({row["what"] for row in run["rows"]} >= set(SUMMARY) for run in runs())


def test_a_chapter_is_of_the_newest_run_that_has_it() -> None:
    newer = run("2026-02-01", row("verdict on a"))
    older = run(
        "2026-01-01",
        row("bridge, single pods, of Slurm alone", limit=320.9, ratio=0.257, at_least=0.7, met=False),
        row("… and more"),
        row("verdict on b"),
    )
    table = list(lines("rates", [newer, older]))
    assert table[2:4] == [
        "| bridge, single pods, of Slurm alone | 86.8 pods/s | 321 | 0.26 | ≥ 0.7 (ratio) | **no** |",
        "| … and more | 86.8 pods/s |  |  |  |  |",
    ]
    assert table[-1].startswith("Measured 2026-01-01 on 2 cores")
    assert "| verdict on a | 86.8 pods/s |" in list(lines("eligibility", [newer, older]))
    assert list(lines("client", [newer, older])) == ["Not measured yet."]


def test_a_block_of_unknown_figures_is_told() -> None:
    with pytest.raises(ValueError, match="no figures called speed; there are summary, rates"):
        written("<!-- figures: speed -->\n<!-- end of figures -->", [])
