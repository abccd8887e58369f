"""`slinky doctor`: an installation of the bridge, looked at from both sides. Exit code 1 where something must be changed."""

import asyncio
import sys

import click

from slinky.cli.looking import Looking, looking_options
from slinky.explain.doctor import diagnose, text
from slinky.explain.examining import examine
from slinky.explain.reference import doctor_reference
from slinky.explain.report import as_json

__all__ = ["doctor"]


def _reference(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(doctor_reference(), nl=False)
        context.exit()


@click.command()
@looking_options
@click.option("--bridge-user", default="", help="Whose rights are asked about, as in system:serviceaccount:slinky:slurm-bridge.")
@click.option("--strict", is_flag=True, help="Warnings count for the exit code too.")
@click.option("--reference", is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=_reference)
def doctor(site: Looking, output: str, bridge_user: str, strict: bool) -> None:
    """Look at an installation from both sides, and say what to change, line by line.

    Versions, token, partitions, nodes, GRES, scheduler parameters, grace times, rights, webhooks, leader and clocks. docs/doctor.md has every finding. Nothing is changed.
    """
    settings, wrong = site.settings_or_error()
    seen = asyncio.run(examine(settings, site.access(), config=str(site.config), wrong=wrong, bridge_user=bridge_user))
    diagnosis = diagnose(seen)
    click.echo(as_json(diagnosis) if output == "json" else text(diagnosis, strict=strict), nl=output == "json")
    if not diagnosis.is_sound(strict=strict):
        sys.exit(1)
