"""The reference of the configuration: it is what the types say, and its example can be loaded."""

from pathlib import Path

from slinky.bridge.settings_file import load_settings
from slinky.bridge.settings_reference import EXAMPLE, reference
from tests.conftest import CHECKOUT


def test_the_reference_is_up_to_date() -> None:
    written = (CHECKOUT / "docs/bridge-configuration.md").read_text()
    assert written == reference(), "slinky bridge settings > docs/bridge-configuration.md"


def test_its_example_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(EXAMPLE)
    assert load_settings(path).windows.namespace == 500
    assert EXAMPLE in reference()


def test_every_section_and_its_defaults_are_there() -> None:
    text = reference()
    for line in (
        "| `admission.port` | whole number | `9443` | Port of the webhook. |",
        "| `slurm.completion` | true or false | `true` |",
        "| `gres` | text → text |",
        "## `nodes`",
    ):
        assert line in text
