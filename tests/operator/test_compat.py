"""Manifests with the fields that the original's published examples use are read without a problem, alone and beside one another."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import inspect

from slinky.operator.kinds import GROUP, KINDS, VERSION, Controller, LoginSet, NodeSet, Written
from slinky.operator.kinds.anatomy import fields_of, part_of
from slinky.operator.kinds.reading import read
from slinky.operator.reference import SHARED
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


# Fields that the original does not have, or does not show in an example.
OURS = {
    "Accounting.storageConfig.tls",
    "Accounting.storageConfig.tls.caRef",
    "Accounting.storageConfig.tls.certificateRef",
    "Accounting.storageConfig.tls.keyRef",
    "NodeSet.drainDeadlineSeconds",
}


def test_every_field_there_is_stands_in_an_example() -> None:
    """So that none is accepted by its name only."""
    written = {
        path for file in FILES for document in yaml.safe_load_all(file.read_text()) for path in _paths(document["spec"], document["kind"])
    }
    known = {path for kind, type_ in KINDS.items() for path in _fields(_spec(type_), kind)}
    claim = {path for path in known if path.startswith("Controller.persistence.")}  # Kubernetes' own fields of a claim
    assert sorted(known - written - OURS - claim) == []


def _paths(found: Any, place: str) -> Iterator[str]:
    if isinstance(found, list):
        for each in found:
            yield from _paths(each, place)
    elif isinstance(found, dict):
        for key, value in found.items():
            yield f"{place}.{key}"
            yield from _paths(value, f"{place}.{key}")


def _spec(type_: type) -> type:
    found = next(part_of(field.type) for field in fields_of(type_) if field.name == "spec")
    assert found is not None
    return found


def _fields(part: type, place: str) -> Iterator[str]:
    for field in fields_of(part):
        yield f"{place}.{field.name}"
        inner = part_of(field.type.item_type if isinstance(field.type, inspect.ListType) else field.type)
        if inner is not None and inner not in SHARED:
            yield from _fields(inner, f"{place}.{field.name}")
