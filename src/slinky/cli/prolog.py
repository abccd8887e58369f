"""`slinky prolog`: the one command that runs on nodes. Its options are its own, as it also stands by itself, without this command line."""

import sys

import click

from slinky.prolog.waiting import main

__all__ = ["prolog"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
@click.pass_context
def prolog(context: click.Context) -> None:
    """slurmd's Prolog on nodes with a kubelet: waits for pods' containers."""
    sys.exit(main(context.args))
