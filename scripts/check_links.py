#!/usr/bin/env python3
"""Says which links in the project's Markdown lead nowhere: `scripts/check_links.py`.

Comes in: README.md, CONTRIBUTING.md, docs/ and every other page that people read. Goes out: a line for each relative link whose file is not there, or whose file has no such heading; nothing where all is well. What must stay true: headings get
the anchors that forges and the site give them; no server is asked, so links to other sites are not judged.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

CHECKOUT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "charts/*/README.md", "images/**/*.md", "monitoring/**/*.md", "examples/**/*.md", "bench/**/*.md")
TAGGED = re.compile(r"""<(?:a|img)\b[^>]*?\b(?:href|src)=["']([^"']+)["']""")
NAMED = re.compile(r"""<\w+\b[^>]*?\b(?:id|name)=["']([^"']+)["']""")

_markdown = MarkdownIt("commonmark").enable("table")


def pages(checkout: Path) -> list[Path]:
    return sorted({path for pattern in PAGES for path in checkout.glob(pattern)})


def broken(page: Path, checkout: Path) -> Iterator[str]:
    """What is wrong with the links of one page, a sentence each."""
    for line, target in _links(_markdown.parse(page.read_text())):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        place = f"{page.relative_to(checkout)}:{line}: {target}:"
        found = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not found.exists():
            yield f"{place} there is no {parts.path}"
        elif not found.is_relative_to(checkout):
            yield f"{place} is outside of the project"
        elif parts.fragment and (found.suffix != ".md" or unquote(parts.fragment) not in anchors(found)):
            yield f"{place} {found.relative_to(checkout)} has no heading #{parts.fragment}"


def _links(tokens: Iterable[Token]) -> Iterator[tuple[int, str]]:
    for block in tokens:
        line = block.map[0] + 1 if block.map else 0
        for token in block.children or [block]:
            if token.type in ("link_open", "image"):
                yield line, str(token.attrs["href" if token.type == "link_open" else "src"])
            elif token.type in ("html_inline", "html_block"):
                yield from ((line, target) for target in TAGGED.findall(token.content))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as a forge makes them: small letters, no punctuation, dashes for spaces, a number for the second of a name; and those that it names itself."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    tokens = _markdown.parse(page.read_text())
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inline.children or [] if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
        elif opening.type in ("html_block", "inline"):
            found.update(NAMED.findall(opening.content))
    return frozenset(found)


def main() -> int:
    wrong = [sentence for page in pages(CHECKOUT) for sentence in broken(page, CHECKOUT)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
