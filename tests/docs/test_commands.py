"""docs/commands.md is what the commands say of themselves."""

from scripts.command_reference import PAGE, written


def test_the_page_is_as_the_commands_say() -> None:
    assert PAGE.read_text() == written(), "scripts/command_reference.py writes it anew"


def test_every_command_is_there() -> None:
    text = written()
    for heading in ("## slinky doctor", "### slinky bridge run", "### slinky sandbox up", "### slinky operator crds"):
        assert f"\n{heading}\n" in text
