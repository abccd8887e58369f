"""The catalogue: every finding in it is brought about by some test, and the docs are what it says."""

import re

import pytest

from slinky.explain.catalogue import AREAS, CATALOGUE
from slinky.explain.reference import doctor_reference, explain_reference
from tests.conftest import CHECKOUT
from tests.explain import test_doctor, test_doctor_operator, test_jobs, test_nodes, test_pods, test_troubles


def test_every_finding_is_brought_about_by_a_test() -> None:
    tried = {*test_pods.CASES, *test_jobs.CASES, *test_nodes.CASES, *test_doctor.CASES, *test_doctor_operator.CASES, *test_troubles.CASES}
    assert tried == set(CATALOGUE)


def test_every_entry_has_an_area_and_says_something() -> None:
    for entry in CATALOGUE.values():
        assert entry.area in AREAS and entry.meaning.endswith(".")
        assert entry.change or entry.severity == "note"


@pytest.mark.parametrize(
    ("file", "written", "command"),
    [("explain.md", explain_reference, "explain reference"), ("doctor.md", doctor_reference, "doctor --reference")],
)
def test_the_docs_are_up_to_date(file: str, written: object, command: str) -> None:
    assert callable(written)
    assert (CHECKOUT / "docs" / file).read_text() == written(), f"slinky {command} > docs/{file}"


def test_a_list_of_kinds_in_a_command_has_no_spaces() -> None:
    """kubectl takes what comes after a space for a name."""
    for known in CATALOGUE.values():
        assert not re.search(r"get [a-z,]*, (?!or |and )", known.change), known.code
