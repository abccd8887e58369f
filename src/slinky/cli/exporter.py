"""`slinky exporter …`: Slurm for Prometheus. The service itself, one look for a pipe, and what dashboards, rules and references are made of."""

import asyncio
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from slinky.cli.manifests import as_yaml
from slinky.cli.service import logging_options, run_until_told_to_end, with_health_port
from slinky.exporter.alerts import prometheus_rule, rule_file
from slinky.exporter.dashboards import as_text
from slinky.exporter.dashboards import dashboards as all_dashboards
from slinky.exporter.exporter import Exporter, SnapshotCollector, slurm_of
from slinky.exporter.reference import metrics_reference
from slinky.exporter.settings import Settings, load_settings, settings_reference
from slinky.exporter.snapshot import take
from slinky.exporter.snapshots import Snapshots

__all__ = ["exporter"]

Command = Callable[..., Any]


class Site(msgspec.Struct, frozen=True):
    """What `site_options` gives a command as `site`; nothing is read before it is asked for."""

    config: Path | None
    original_names: bool = False
    health_port: int | None = None

    def settings(self) -> Settings:
        """Raises SettingsError."""
        found = load_settings(self.config) if self.config else Settings()
        if self.health_port is not None:
            found = msgspec.structs.replace(found, health_port=self.health_port)
        return msgspec.structs.replace(found, original_names=True) if self.original_names else found


def site_options(command: Command) -> Command:
    """--config and --original-names, as the argument `site`."""

    @click.option(
        "--config",
        type=click.Path(path_type=Path),
        envvar="SLINKY_EXPORTER_CONFIG",
        show_envvar=True,
        help="The exporter's configuration (docs/exporter-configuration.md); without, everything is as by default.",
    )
    @click.option(
        "--original-names", is_flag=True, help="Tell also what the original slurm-exporter told, under its names and in its units."
    )
    @functools.wraps(command)
    def with_site(*arguments: Any, config: Path | None, original_names: bool, **options: Any) -> Any:
        return command(*arguments, site=Site(config, original_names), **options)

    return with_site


@click.group()
def exporter() -> None:
    """Slurm for Prometheus: jobs, nodes, schedulers, shares, licenses, reservations, the bridge's pods."""


@exporter.command()
@site_options
@with_health_port
@logging_options
def run(site: Site) -> None:
    """The exporter itself: /metrics, from one look at Slurm for all who scrape.

    Runs until SIGTERM or SIGINT. While Slurm is down slurm_up is 0, and what was seen last is told with its age. Several may run; each asks Slurm for itself.
    """
    run_until_told_to_end(Exporter(site.settings()).run())


@exporter.command()
@site_options
def once(site: Site) -> None:
    """Look once, and print the metrics: `slinky exporter once | promtool check metrics`.

    Where Slurm does not answer, `slurm_up` is 0, and the exit code is 1.
    """
    settings = site.settings()
    snapshots = asyncio.run(_looked(settings))
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(snapshots, settings))
    click.echo(generate_latest(registry).decode(), nl=False)
    if not snapshots.is_up:
        said = f"Slurm at {settings.slurm_rest_api} does not answer: {snapshots.problem}"
        click.echo(f"slinky: {said}", err=True)
        sys.exit(1)
    for part, problem in (snapshots.latest.problems if snapshots.latest else {}).items():
        click.echo(f"slinky: {part} could not be read: {problem}", err=True)


@exporter.command()
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False), help="Write one file each there, instead of printing them.")
def dashboards(directory: Path | None) -> None:
    """Print the Grafana dashboards as JSON, or write them to files."""
    for name, dashboard in all_dashboards().items():
        text = as_text(dashboard)
        if directory is None:
            click.echo(text, nl=False)
            continue
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.json"
        path.write_text(text)
        click.echo(path)


@exporter.command()
@click.option("--kubernetes", is_flag=True, help="As a PrometheusRule of the Prometheus operator, instead of a rule file of Prometheus.")
def rules(kubernetes: bool) -> None:
    """Print the alert rules as YAML."""
    click.echo(as_yaml([prometheus_rule() if kubernetes else rule_file()]), nl=False)


@exporter.command()
def metrics() -> None:
    """Print the reference of the metrics, as Markdown."""
    click.echo(metrics_reference(), nl=False)


@exporter.command()
def settings() -> None:
    """Print the reference of the configuration file, as Markdown."""
    click.echo(settings_reference(), nl=False)


async def _looked(settings: Settings) -> Snapshots:
    async with slurm_of(settings) as slurm:
        snapshots = Snapshots(lambda: take(slurm), settings.snapshot)
        await snapshots.look()
        return snapshots
