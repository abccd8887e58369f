"""`slinky bridge …`: Slurm schedules pods. Each command is one of the bridge's processes, or shows what it would do."""

import asyncio
from contextlib import suppress

import click

from slinky.bridge.admission_service import configurations, serve_admission
from slinky.bridge.key_policy import key_policy as key_policy_documents
from slinky.bridge.key_policy import policy_name
from slinky.bridge.pod_policy import POD_POLICIES, POD_POLICY_BINDINGS, pod_policy_name
from slinky.bridge.settings_reference import reference
from slinky.bridge.webhook_configuration import policy_for_pods
from slinky.cli.bridge_options import Site, service_options, site_options
from slinky.cli.lazy import LazyGroup
from slinky.cli.manifests import as_yaml
from slinky.cli.service import logging_options, run_until_told_to_end
from slinky.kube import Client, NotFoundError, delete_configurations

__all__ = ["bridge"]


ELSEWHERE = {
    "run": "slinky.cli.bridge_run:run",
    "shadow-end": "slinky.cli.shadow:shadow_end",
    "shadow-report": "slinky.cli.shadow:shadow_report",
    "uninstall": "slinky.cli.uninstall:uninstall",
}


@click.group(cls=LazyGroup, elsewhere=ELSEWHERE)
def bridge() -> None:
    """Slurm schedules pods: the bridge between Kubernetes and Slurm."""


@bridge.command()
@service_options
@click.option(
    "--apply/--no-apply", default=True, show_default=True, help="Write the webhook configurations at start, so that the API server calls."
)
@logging_options
def admission(site: Site, apply: bool) -> None:
    """The admission webhook: takes pods in, and refuses what the bridge could not honour.

    Runs until SIGTERM or SIGINT, and answers then what it was asked before. docs/bridge-admission.md says what it takes in, what it refuses, and how to get rid of it.
    """
    run_until_told_to_end(serve_admission(site.settings(), site.access(), apply=apply))


@bridge.command()
@site_options
@click.option(
    "--delete",
    is_flag=True,
    help="Remove them, and the policy for plain pods, from the cluster instead: the bridge takes in no pod any more.",
)
def webhooks(site: Site, delete: bool) -> None:
    """Print the webhook configurations as YAML, or remove them.

    For those who install them by other means, with `slinky bridge admission --no-apply`. Where admission.bridgeUsers is empty, the bridge's user is not known here
    and not left out; the webhook lets it pass all the same.
    """
    settings = site.settings()
    if delete:
        gone = asyncio.run(_delete(site, settings.admission.configuration))
        click.echo(
            "\n".join(f"{name} deleted" for name in gone) or f"there are no webhook configurations {settings.admission.configuration}"
        )
        return
    documents = [document for _, document in configurations(settings, frozenset(settings.admission.bridge_users))]
    click.echo(as_yaml(documents), nl=False)


@bridge.command()
@site_options
@click.option(
    "--user",
    "users",
    multiple=True,
    help="User that may write the bridge's keys; may be repeated. Default: admission.bridgeUsers.",
)
def key_policy(site: Site, users: tuple[str, ...]) -> None:
    """Print the policy that lets only the bridge write its keys on pods, as YAML.

    A ValidatingAdmissionPolicy and its binding, for all pods of the cluster (docs/security.md). The Helm chart installs the same.
    """
    admission = site.settings().admission
    allowed = users or tuple(admission.bridge_users)
    if not allowed:
        raise click.UsageError("No bridge user. Pass --user system:serviceaccount:NAMESPACE:NAME, or set admission.bridgeUsers.")
    click.echo(as_yaml(key_policy_documents(policy_name(admission.configuration), allowed)), nl=False)


@bridge.command()
@site_options
def pod_policy(site: Site) -> None:
    """Print the policy by which the API server takes in plain pods itself, as YAML.

    A MutatingAdmissionPolicy and its binding, for Kubernetes 1.36 and later (docs/bridge-admission.md). Where they are not installed, the webhook takes in every pod.
    The Helm chart installs the same.
    """
    click.echo(as_yaml(policy_for_pods(site.settings())), nl=False)


@bridge.command()
def settings() -> None:
    """Print the reference of the configuration file, as Markdown."""
    click.echo(reference(), nl=False)


async def _delete(site: Site, name: str) -> list[str]:
    """Also the policy for plain pods, which names a scheduler that may be gone. It is removed first."""
    gone = []
    async with Client(site.access()) as client:
        for resource in (POD_POLICY_BINDINGS, POD_POLICIES):
            with suppress(NotFoundError):
                await client.delete(resource, pod_policy_name(name))
                gone.append(f"{resource.plural}/{pod_policy_name(name)}")
        return gone + await delete_configurations(client, name)
