"""The references are what the types say, and the example can be loaded."""

from pathlib import Path

from slinky.operator.kinds import KINDS
from slinky.operator.kinds.anatomy import fields_of, part_of
from slinky.operator.reference import EXAMPLE, kinds_reference, settings_reference
from slinky.operator.settings import load_settings
from tests.conftest import CHECKOUT


def test_the_references_are_up_to_date() -> None:
    assert (CHECKOUT / "docs/operator-reference.md").read_text() == kinds_reference(), (
        "slinky operator reference > docs/operator-reference.md"
    )
    written = (CHECKOUT / "docs/operator-configuration.md").read_text()
    assert written == settings_reference(), "slinky operator settings > docs/operator-configuration.md"


def test_the_example_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(EXAMPLE)
    assert load_settings(path).namespaces == ["slurm", "research"]
    assert EXAMPLE in settings_reference()


def test_every_field_of_every_kind_is_there_with_its_help() -> None:
    text = kinds_reference()
    for kind, type_ in KINDS.items():
        chapter = text.split(f"\n## {kind}\n")[1].split("\n## ")[0]
        for field in fields_of(type_):
            if field.name in ("spec", "status") and (part := part_of(field.type)):
                for each in fields_of(part):
                    rows = [line for line in chapter.splitlines() if line.startswith(f"| `{each.name}` | ")]
                    assert any(row.endswith(f"| {each.help} |") for row in rows), each.name


def test_what_the_api_server_refuses_is_told() -> None:
    assert "- clusterName cannot be changed" in kinds_reference()
    assert "- maxUnavailable has to be a whole number of 1 or more" in kinds_reference()
