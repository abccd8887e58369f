"""How the site is made of docs/*.md: `make docs`.

Comes in: the pages, as they also read on a forge. Goes out: HTML. What must stay true: the order of the site is that of index.md, which is written for people; a page that index.md does not name is a fault, and so is a link or an
anchor that leads nowhere (the build is strict: each warning is an error).
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

project = "Slinky"
author = "the Slinky authors"
copyright = "the Slinky authors, Apache-2.0"
extensions = ["myst_parser"]
exclude_patterns = ["pictures"]
html_theme = "furo"
html_title = "Slinky: Slurm and Kubernetes as one system"
html_copy_source = False
html_show_sourcelink = False
myst_heading_anchors = 4
myst_links_external_new_tab = False

DOCS = Path(__file__).parent.resolve()
PAGE = re.compile(r"\]\((?!https?:|\.\./)([\w./-]+)\.md\)")
ABOVE = re.compile(r"\]\((\.\./[\w./-]+\.md)(?:#[\w-]*)?\)")


def with_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """index.md with what the site needs beside it: a table of contents for each of its chapters, of the pages that it links to, each where it comes first."""
    if page != "index":
        return
    named: set[str] = set()
    chapters = re.split(r"(?m)^## ", source[0])
    for number, chapter in enumerate(chapters):
        title = chapter.splitlines()[0]
        pages = [each for each in dict.fromkeys(PAGE.findall(chapter)) if each not in named]
        named.update(pages)
        if number and pages:
            chapters[number] = (
                chapter.rstrip() + "\n\n" + "\n".join(["```{toctree}", ":hidden:", f":caption: {title}", *pages, "```"]) + "\n\n"
            )
    source[0] = "## ".join(chapters)


def with_files(_: Sphinx, page: str, source: list[str]) -> None:
    """Links to the project's Markdown outside of docs/ as links to files: the site has no page of theirs."""

    def linked(found: re.Match[str]) -> str:
        inside = ((DOCS / page).parent / found[1]).resolve().is_relative_to(DOCS)
        return found[0] if inside else f"](path:{found[1]})"

    source[0] = ABOVE.sub(linked, source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", with_contents)
    app.connect("source-read", with_files)
