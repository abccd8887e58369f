"""What `slinky translate` prints, file by file: each says in its first line why it is there. `UPDATE_GOLDEN=1 pytest tests/translate` writes the answers anew: read the diff."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from slinky.cli.translate import translate
from tests.conftest import CHECKOUT

CASES = sorted((Path(__file__).parent / "golden").glob("*.yaml"))


def words(case: Path) -> list[str]:
    config = case.with_suffix(".config")
    return ["-f", str(case), *(["--config", str(config)] if config.exists() else [])]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_manifest_becomes_this(case: Path) -> None:
    done = CliRunner().invoke(translate, words(case))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    told = f"{done.output}\nexit code {done.exit_code}\n"
    answer = case.with_suffix(".txt")
    if os.environ.get("UPDATE_GOLDEN"):
        answer.write_text(told)
    assert told == answer.read_text()


def test_there_are_cases_enough() -> None:
    assert len(CASES) >= 12


@pytest.mark.parametrize("example", sorted((CHECKOUT / "examples").glob("*.yaml")), ids=lambda example: example.name)
def test_every_example_can_be_shown(example: Path) -> None:
    done = CliRunner().invoke(translate, ["-f", str(example), "-n", "team"])
    assert done.exit_code == 0, done.output
