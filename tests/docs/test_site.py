"""The site is built as `make docs` builds it: strict, so that a link, an anchor or a picture that is not there fails, and a page that index.md does not name."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import CHECKOUT

STRICT = re.search(r"sphinx-build (.*) docs", (CHECKOUT / "Makefile").read_text())


def built(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    assert STRICT, "the Makefile builds the site with sphinx-build"
    words = [sys.executable, "-m", "sphinx", *STRICT[1].split(), str(docs), str(site)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = built(CHECKOUT / "docs", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    written = {path.relative_to(tmp_path / "site").with_suffix(".md") for path in (tmp_path / "site").rglob("*.html")}
    assert written >= {path.relative_to(CHECKOUT / "docs") for path in (CHECKOUT / "docs").rglob("*.md")}


def test_a_page_that_leads_nowhere_or_that_nobody_names_fails(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(CHECKOUT / "docs/conf.py", docs)
    (docs / "index.md").write_text("# Home\n\n## First\n- [One](one.md), [gone](one.md#gone)\n")
    (docs / "one.md").write_text("# One\n\n[Nothing](nothing.md)\n")
    (docs / "lonely.md").write_text("# Lonely\n")
    done = built(docs, tmp_path / "site")
    assert done.returncode != 0
    for word in ("nothing.md", "gone", "lonely.md"):
        assert word in done.stderr
