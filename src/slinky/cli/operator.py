"""`slinky operator …`: Slurm clusters on Kubernetes. Each command is one of the operator's processes, or prints what is installed or documented."""

import asyncio
from pathlib import Path

import click

from slinky.cli.lazy import LazyGroup
from slinky.cli.manifests import as_yaml
from slinky.cli.operator_options import Site, service_options, site_options
from slinky.cli.service import logging_options, run_until_told_to_end
from slinky.kube import Client, delete_configurations
from slinky.operator.admission_service import configuration, serve_admission
from slinky.operator.kinds.schema import crds as all_crds
from slinky.operator.reference import kinds_reference, settings_reference

__all__ = ["operator"]

ELSEWHERE: dict[str, str] = {"run": "slinky.cli.operator_run:run"}


@click.group(cls=LazyGroup, elsewhere=ELSEWHERE)
def operator() -> None:
    """Slurm clusters on Kubernetes: the operator."""


@operator.command()
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False), help="Write one file each there, instead of printing them.")
def crds(directory: Path | None) -> None:
    """Print the CustomResourceDefinitions as YAML: `slinky operator crds | kubectl apply --server-side -f -`."""
    if directory is None:
        click.echo(as_yaml(all_crds()), nl=False)
        return
    directory.mkdir(parents=True, exist_ok=True)
    for document in all_crds():
        path = directory / f"{document['spec']['group']}_{document['spec']['names']['plural']}.yaml"
        path.write_text(as_yaml([document]))
        click.echo(path)


@operator.command()
@service_options
@click.option(
    "--apply/--no-apply", default=True, show_default=True, help="Write the webhook configuration at start, so that the API server calls."
)
@logging_options
def admission(site: Site, apply: bool) -> None:
    """The admission webhook: refuses objects of ours that could not be honoured, and says why.

    Runs until SIGTERM or SIGINT, and answers then what it was asked before. Without it, the operator itself says in an object's status what is wrong with it.
    """
    run_until_told_to_end(serve_admission(site.settings(), site.access(), apply=apply))


@operator.command()
@site_options
@click.option("--delete", is_flag=True, help="Remove it from the cluster instead: nothing is sent to the webhook any more.")
def webhooks(site: Site, delete: bool) -> None:
    """Print the webhook configuration as YAML, or remove it.

    For those who install it by other means, with `slinky operator admission --no-apply`.
    """
    settings = site.settings()
    if delete:
        gone = asyncio.run(_delete(site, settings.admission.configuration))
        click.echo("\n".join(f"{name} deleted" for name in gone) or f"there is no webhook configuration {settings.admission.configuration}")
        return
    click.echo(as_yaml([configuration(settings)]), nl=False)


@operator.command()
def reference() -> None:
    """Print the reference of the kinds, as Markdown."""
    click.echo(kinds_reference(), nl=False)


@operator.command()
def settings() -> None:
    """Print the reference of the configuration file, as Markdown."""
    click.echo(settings_reference(), nl=False)


async def _delete(site: Site, name: str) -> list[str]:
    async with Client(site.access()) as client:
        return await delete_configurations(client, name)
