"""`slinky doctor`: an installation of bridge, operator and exporter, looked at from both sides. Exit code 1 where something must be changed."""

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from slinky.cli.looking import Looking, looking_options
from slinky.cli.service import pods_namespace
from slinky.explain.doctor import PARTS, diagnose, text
from slinky.explain.examining import Asked, examine
from slinky.explain.reference import doctor_reference
from slinky.explain.report import as_json
from slinky.operator.settings import Settings, SettingsError, load_settings

__all__ = ["doctor"]


def _reference(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(doctor_reference(), nl=False)
        context.exit()


@click.command()
@looking_options
@click.option("--bridge-user", default="", help="Whose rights are asked about, as in system:serviceaccount:slinky:slurm-bridge.")
@click.option(
    "--part",
    "parts",
    type=click.Choice(sorted(PARTS)),
    multiple=True,
    help="Look at this part only; may be given several times.  [default: the bridge, and of the others what is there]",
)
@click.option(
    "--operator-config",
    type=click.Path(path_type=Path),
    envvar="SLINKY_OPERATOR_CONFIG",
    show_envvar=True,
    help="The operator's configuration; without, everything is as by default.",
)
@click.option("--exporter-url", default="", help="Where an exporter is that runs outside of Kubernetes, as in http://head:8080.")
@click.option("--strict", is_flag=True, help="Warnings count for the exit code too.")
@click.option("--reference", is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=_reference)
def doctor(
    site: Looking, output: str, bridge_user: str, parts: tuple[str, ...], operator_config: Path | None, exporter_url: str, strict: bool
) -> None:
    """Look at an installation from both sides, and say what to change, line by line.

    Of the bridge: versions, token, partitions, nodes, GRES, scheduler parameters, grace times, rights, webhooks, leader and clocks. Of the operator: leader, kinds, webhook, clusters, workers, tokens. Of the exporter: whether it answers, and Slurm answers it, and its token. docs/doctor.md has every finding. Nothing is changed.
    """
    settings, wrong = site.settings_or_error()
    operator, operator_wrong = _operator(operator_config)
    asked = Asked(
        parts=frozenset(parts or {"bridge"}) | ({"exporter"} if exporter_url else set()),
        others=not parts,
        operator=operator,
        operator_config=str(operator_config or ""),
        operator_wrong=operator_wrong,
        exporter_url=exporter_url,
    )
    seen = asyncio.run(examine(settings, site.access(), config=str(site.config), wrong=wrong, bridge_user=bridge_user, asked=asked))
    diagnosis = diagnose(seen)
    click.echo(as_json(diagnosis) if output == "json" else text(diagnosis, strict=strict), nl=output == "json")
    if not diagnosis.is_sound(strict=strict):
        sys.exit(1)


def _operator(config: Path | None) -> tuple[Settings, str]:
    """Its settings, and what is wrong with them; then the defaults."""
    found, wrong = Settings(), ""
    if config is not None:
        try:
            found = load_settings(config)
        except SettingsError as error:
            wrong = str(error)
    return (found if found.namespace else msgspec.structs.replace(found, namespace=pods_namespace())), wrong
