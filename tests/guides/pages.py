"""docs/quickstart.md and docs/guides/*.md, as the tests read and run them.

Comes in: a page. Goes out: its fenced blocks, and of those the commands. The convention, of which the last two hold for all pages, the first two for those that are run on real nodes (the quick start, and Slurm on bare metal: tests/charts/test_install.py):

- a block `sh` is run, all of a page's in one shell, in order, which ends at the first command that fails; waiting is `kubectl wait`, `helm --wait` or `until`;
- one with a comment `<!-- not run: why -->` in the line before it is not;
- a block `text` right after it has lines that its output must have, one after the other, where `…` in a line is anything, and a line `…` any lines; how many blanks there are does not matter;
- a block `yaml` is quoted from the file that the paragraph before it links to.
"""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile

from tests.conftest import CHECKOUT

__all__ = ["PAGES", "QUICKSTART", "Block", "Step", "blocks", "commands", "mismatch", "quoted_file", "run_page", "steps"]

QUICKSTART = CHECKOUT / "docs/quickstart.md"
PAGES = [QUICKSTART, *sorted((CHECKOUT / "docs/guides").glob("*.md"))]
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
OPERATORS = {"|", "||", "&&", ";", "&", "(", ")", ";;", "$(", "{", "}", "do", "then", "done", "fi", "else"}
STEP = "\x1e"  # before the output of each


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    before: str  # the lines between it and the block before

    @property
    def is_run(self) -> bool:
        return self.language == "sh" and not self.before.rstrip().rpartition("\n")[2].strip().startswith("<!-- not run: ")

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}"


@dataclass(frozen=True)
class Step:
    block: Block
    expected: str = ""


def blocks(page: Path) -> list[Block]:
    text, found, last = page.read_text(), [], 0
    for match in FENCED.finditer(text):
        body = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE) if match[1] else match[3]
        found.append(Block(page, text.count("\n", 0, match.start()) + 2, match[2], body, text[last : match.start()]))
        last = match.end()
    return found


def steps(page: Path) -> list[Step]:
    """What is run, with what it must print."""
    found = blocks(page)
    return [
        Step(block, following.text if following and following.language == "text" and not following.before.strip() else "")
        for block, following in zip_longest(found, found[1:])
        if block.is_run
    ]


def quoted_file(block: Block) -> Path | None:
    """The last file of examples/ that is linked to before the block."""
    links = [link for link in LINK.findall(block.before) if "examples/" in link]
    return (block.page.parent / links[-1]).resolve() if links else None


def commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a script, as words; what is in quotes stays whole."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        reading = shlex.shlex(line, posix=True, punctuation_chars="();|&")
        reading.whitespace_split, reading.commenters = True, "#"
        words: list[str] = []
        for word in [*reading, ";"]:
            if word in OPERATORS or set(word) <= set("();|&"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def mismatch(expected: str, output: str) -> str:
    """Empty where the output has the lines that it must have."""
    wanted = [" ".join(line.split()) for line in expected.strip().splitlines()]
    lines = ["(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + " *\n" for line in wanted]
    got = "".join(" ".join(line.split()) + "\n" for line in output.splitlines())
    return "" if re.search("^" + "".join(lines), got, re.MULTILINE) else f"not as the page says:\n{expected}\nbut:\n{output}"


def run_page(
    page: Path, environment: Mapping[str, str], replaced: Sequence[tuple[str, str]] = (), seconds: float = 1500, folder: Path = CHECKOUT
) -> None:
    """Every step, as it stands but for what is to be replaced (the names of a site). What they left running is ended."""
    asked = steps(page)
    script = "set -euo pipefail\n" + "".join(f"echo '{STEP}'; echo '{STEP}' >&2\n{step.block.text}" for step in asked)
    for old, new in replaced:
        script = script.replace(old, new)
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:  # no pipes: what is left running would hold them open
        process = subprocess.Popen(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=os.environ | environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        out.seek(0)
        err.seek(0)
        output, errors = out.read(), err.read()
    parts = output.split(f"{STEP}\n")[1:]
    assert process.returncode == 0, (
        f"{asked[len(parts) - 1].block.place} ended with {process.returncode}:\n{parts[-1][-2000:]}\n{errors[-3000:]}"
    )
    wrong = [
        f"{step.block.place} {said}"
        for step, part in zip(asked, parts, strict=True)
        if step.expected and (said := mismatch(step.expected, part))
    ]
    assert not wrong, "\n\n".join(wrong)
