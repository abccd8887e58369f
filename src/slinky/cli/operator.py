"""`slinky operator …`: Slurm clusters on Kubernetes. Each command is one of the operator's processes, or prints what is installed or documented."""

from pathlib import Path

import click

from slinky.cli.lazy import LazyGroup
from slinky.cli.manifests import as_yaml
from slinky.operator.kinds.schema import crds as all_crds

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
