#!/usr/bin/env python3
"""Writes docs/commands.md from the command line itself: `scripts/command_reference.py`; with --check it only says whether the page is not as it would be written.

Comes in: the commands of `slinky`. Goes out: a page with what `--help` says of each. What must stay true: the page does not depend on the machine: a fixed width, and nothing from the environment.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from slinky.cli import slinky

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.writing import CHECKOUT, write_or_check

PAGE = CHECKOUT / "docs" / "commands.md"
WIDTH = 100
HEAD = """# Commands

Made from the code by `scripts/command_reference.py`: what `--help` says of each. `kubectl slurm` has `doctor`, `explain`, `top` and `translate`: the same commands, as a plugin of kubectl's.
"""


def written() -> str:
    return "\n".join([HEAD, *_told(slinky, "slinky", None)]).rstrip() + "\n"


def _told(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH, **command.context_settings
    )
    if parent is not None:
        yield f"{'##' if parent.parent is None else '###'} {context.command_path}\n"
    if hasattr(command, "_help_option"):
        command._help_option = None  # click keeps that of whoever asked first, perhaps without the group that says `-h` too
    yield f"```\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _told(found, each, context)


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: written()}))
