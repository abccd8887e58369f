"""`slinky bridge uninstall`: everything that the bridge holds is let go, or said to be left."""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack

import click

from slinky.bridge.bridge import slurm_of
from slinky.bridge.executor import Executor
from slinky.bridge.interregnum import interregnum, leader_of, remove_lease
from slinky.bridge.leaving.acts import Leaver
from slinky.bridge.leaving.look import Looker
from slinky.bridge.leaving.plan import Plan, Running, Waiting, plan_leaving
from slinky.bridge.leaving.steps import Left
from slinky.bridge.settings import Settings
from slinky.bridge.stopping import stop_deployments
from slinky.bridge.translate import site_of
from slinky.cli.bridge_options import Site, site_options
from slinky.kube import NAMESPACES, Access, Client
from slinky.slurm import JobCompletion, TokenFile

__all__ = ["LEFT", "cluster_of", "grouped", "named", "uninstall"]

LEFT = 3  # exit code: something is left
NAMES = 8  # of each kind that are shown


@click.command()
@site_options
@click.option("--dry-run", is_flag=True, help="Say what would be done and what would be left, and change nothing.")
@click.option(
    "--running",
    type=click.Choice(["keep", "evict", "wait"]),
    default="keep",
    show_default=True,
    help="Pods that run: `keep` lets them run on without Slurm, `evict` evicts them (disruption budgets and grace periods hold), `wait` waits until they have ended.",
)
@click.option(
    "--waiting",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    show_default=True,
    help="Pods that wait: `keep` leaves them, though nobody schedules them any more; `delete` deletes them, so that their controllers make others for Kubernetes' scheduler.",
)
@click.option(
    "--timeout",
    type=float,
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long pods and jobs that are ending are waited for.",
)
@click.option(
    "--stop",
    "stopped",
    multiple=True,
    metavar="DEPLOYMENT",
    help="Scale this Deployment of the bridge's namespace to 0 first, and wait until its pods are gone; may be said several times.",
)
@click.option("--no-bridge-runs", is_flag=True, help="You know that no bridge runs: its Lease is taken at once, whoever has it.")
def uninstall(
    site: Site, dry_run: bool, running: Running, waiting: Waiting, timeout: float, stopped: tuple[str, ...], no_bridge_runs: bool
) -> None:
    """Let go of everything that the bridge holds, in order, and say what is left.

    End `slinky bridge run` and `slinky bridge admission` first (scale their Deployments to 0, or name them with --stop): while a bridge leads, nothing is done. Then: the webhook configurations go, so that nothing is taken in any more; the bridge's nodes are
    drained in Slurm; pods lose its finalizer and its keys; its jobs end; its nodes go from Slurm; its taints, conditions and cordons go from Kubernetes' nodes; its Secret and Lease go.

    Only what is this cluster's bridge's is touched. It may be killed at any instant and run again. Without Slurm it does what can be done and says what stays there.

    Exit code 0: nothing is left. 3: something is, and was named. 1: it could not be done. docs/uninstall.md has the rights that it needs.
    """
    settings = site.settings()
    if stopped and not dry_run:
        asyncio.run(_stop(site, settings.namespace, stopped, timeout))
    plan = asyncio.run(_run(settings, site.access(), running, waiting, timeout, dry_run=dry_run, none_runs=no_bridge_runs))
    click.echo("\n".join(_report(plan, dry_run=dry_run)))
    sys.exit(LEFT if plan.left else 0)


async def _run(
    settings: Settings, access: Access, running: Running, waiting: Waiting, seconds: float, *, dry_run: bool, none_runs: bool
) -> Plan:
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Client(access))
        slurm = await stack.enter_async_context(slurm_of(settings))
        cluster = await cluster_of(kube, settings)
        looker = Looker(kube, slurm, settings, cluster)
        if dry_run:
            if holder := await leader_of(kube, settings):
                click.echo(f"a bridge leads, or did until a moment ago ({holder}): it must have ended before anything is done")
            return plan_leaving(await looker.look(), running, waiting)
        completion = await _completion(settings, stack)
        async with interregnum(access, kube, settings, "uninstall", none_runs=none_runs) as may_act:
            executor = Executor(kube, slurm, site_of(settings, cluster), completion=completion, may_act=may_act)
            leaver = Leaver(
                looker,
                executor,
                kube,
                slurm,
                settings,
                running=running,
                waiting=waiting,
                seconds=seconds,
                may_act=may_act,
                say=click.echo,
            )
            plan = await leaver.run()
        if holder := await remove_lease(kube, settings):
            why = f"was taken by {holder}: a bridge runs, and takes everything up again; end it, and run this again"
            return Plan(steps=plan.steps, left=(*plan.left, Left("leases", settings.leader.name, why)), runs_on=plan.runs_on)
        click.echo("Lease removed")
        return plan


async def _stop(site: Site, namespace: str, names: Sequence[str], seconds: float) -> None:
    async with Client(site.access()) as kube:
        for name in await stop_deployments(kube, namespace, names, seconds):
            click.echo(f"Deployment {name} ended")


async def _completion(settings: Settings, stack: AsyncExitStack) -> JobCompletion | None:
    """For pods that end while they are waited for."""
    said = settings.slurm
    if not said.completion:
        return None
    interpreter = said.completion_command or [sys.executable]
    completion = await stack.enter_async_context(JobCompletion(TokenFile(said.token_file, said.user), interpreter=interpreter))
    return completion if await completion.is_available() else None


async def cluster_of(kube: Client, settings: Settings) -> str:
    """Its name in markers."""
    return settings.cluster or (await kube.get(NAMESPACES, "kube-system")).metadata.uid


# Words


def _report(plan: Plan, *, dry_run: bool) -> Iterator[str]:
    if dry_run:
        for number, step in enumerate(plan.steps, 1):
            if step.acts or step.later:
                yield f"{number}. {step.title}: {named([act.name for act in step.acts])}" if step.acts else f"{number}. {step.title}"
                yield from (f"   {line}" for line in grouped(step.later))
        if not any(step.acts or step.later for step in plan.steps):
            yield "there is nothing to let go of"
    if plan.runs_on:
        yield f"pods that run on, without Slurm: {named(plan.runs_on)}"
    if plan.left:
        yield "would be left:" if dry_run else "left:"
        yield from (f"  {line}" for line in grouped(plan.left))
    elif not dry_run:
        yield "nothing is left"


def grouped(left: Iterable[Left]) -> Iterator[str]:
    """One line for all that have one reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in left:
        groups.setdefault((each.kind, each.why), []).append(each.name)
    for (kind, why), names in groups.items():
        yield f"{kind} {named(names)}: {why}"


def named(names: Sequence[str]) -> str:
    """As many as one wants to read."""
    shown = ", ".join(names[:NAMES])
    return shown if len(names) <= NAMES else f"{shown} and {len(names) - NAMES} more ({len(names)} in all)"
