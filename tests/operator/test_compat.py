"""Manifests with the fields that the original's published examples use are read without a problem, alone and beside one another."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slinky.operator.kinds import GROUP, KINDS, VERSION, Controller, LoginSet, NodeSet, Written
from slinky.operator.kinds.reading import read
from slinky.operator.settings import Settings
from slinky.operator.validation import Neighbours, problems
from tests.conftest import CHECKOUT

FILES = sorted((Path(__file__).parent / "compat").glob("*.yaml"))
SETTINGS = Settings(allowed_token_users={"*": ["*"], "slurm": ["root"]})  # root: the bridge's token
EXAMPLES = sorted((CHECKOUT / "examples/operator").glob("*.yaml"))


def objects(path: Path) -> list[Any]:
    """Of ours; what else stands in the file is Kubernetes' own."""
    documents = [each for each in yaml.safe_load_all(path.read_text()) if each["apiVersion"] == f"{GROUP}/{VERSION}"]
    return [read(each["kind"], msgspec.convert(each, Written)) for each in documents]


@pytest.mark.parametrize("path", [*FILES, *EXAMPLES], ids=lambda path: path.stem)
def test_what_the_originals_examples_say_is_accepted_and_what_ours_do(path: Path) -> None:
    found = objects(path)
    assert not [each for each in found if isinstance(each, list)]
    beside = Neighbours(
        controllers=[each for each in found if isinstance(each, Controller)],
        nodesets=[each for each in found if isinstance(each, NodeSet)],
        loginsets=[each for each in found if isinstance(each, LoginSet)],
    )
    assert [str(problem) for each in found for problem in problems(each, SETTINGS, beside)] == []


def test_the_examples_are_of_all_kinds() -> None:
    assert {type(each).__name__ for path in FILES for each in objects(path)} == set(KINDS)
