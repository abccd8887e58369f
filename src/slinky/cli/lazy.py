"""Groups of commands whose modules are read when one of them is called: who asks for a version, or runs a prolog at each job's start, does not wait for all that the others need."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """`elsewhere`: a command's name → `module:attribute`."""

    def __init__(self, *arguments: Any, elsewhere: Mapping[str, str], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._elsewhere = elsewhere

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._elsewhere.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command
