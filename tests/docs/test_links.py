"""Every relative link and anchor in the project's Markdown leads somewhere, and the check sees those that do not. No server is needed."""

from pathlib import Path

import pytest
from scripts.check_links import anchors, broken, pages

from tests.conftest import CHECKOUT


@pytest.mark.parametrize("page", pages(CHECKOUT), ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(broken(page, CHECKOUT))


def test_a_broken_link_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# The `whole` of it: a, b\n\n## Twice\n\n## Twice\n\n<a id='named'></a>\n")
    (tmp_path / "page.md").write_text(
        "[a](there.md) [b](there.md#the-whole-of-it-a-b) [c](there.md#twice-1) [d](there.md#named) [e](https://example.org/x#y)\n\n"
        "`[f](nowhere.md)`\n\n| |\n|---|\n| [g](nowhere.md) |\n\n![h](none.svg) <img src='none.png'> [i](there.md#thrice)\n\n[j](../other.md)\n"
    )
    (tmp_path.parent / "other.md").write_text("")
    assert list(broken(tmp_path / "page.md", tmp_path)) == [
        "page.md:7: nowhere.md: there is no nowhere.md",
        "page.md:9: none.svg: there is no none.svg",
        "page.md:9: none.png: there is no none.png",
        "page.md:9: there.md#thrice: there.md has no heading #thrice",
        "page.md:11: ../other.md: is outside of the project",
    ]


def test_headings_have_the_anchors_that_forges_give_them(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# One, two\n\n## `a_b` and [c](d.md)\n\n## One, two\n")
    assert anchors(tmp_path / "page.md") == {"one-two", "a_b-and-c", "one-two-1"}
