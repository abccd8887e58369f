"""`slinky migrate`: takes over from the original, without a restart."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator

import click

from slinky.bridge.bridge import slurm_of
from slinky.bridge.interregnum import interregnum, leader_of
from slinky.bridge.leaving.steps import Left
from slinky.bridge.migration.acts import TITLES, Mover, deployments_of_original, scene
from slinky.bridge.migration.plan import Handover, plan_migration
from slinky.bridge.settings import Settings
from slinky.cli.bridge_options import Site, site_options
from slinky.cli.uninstall import LEFT, cluster_of, grouped, named
from slinky.kube import Access, Client, KubeError

__all__ = ["migrate"]


@click.command()
@site_options
@click.option("--dry-run", is_flag=True, help="Say what would be taken over and what cannot be, and change nothing.")
@click.option("--original-is-stopped", is_flag=True, help="You know that nothing of the original runs, though it looks otherwise.")
@click.option(
    "--no-bridge-runs", is_flag=True, help="You know that no bridge of this kind runs: its Lease is taken at once, whoever has it."
)
def migrate(site: Site, dry_run: bool, original_is_stopped: bool, no_bridge_runs: bool) -> None:
    """Take over from the original slurm-bridge: its pods, jobs and nodes, without a restart.

    Pods that run run on, untouched; those that wait keep their Slurm job and its place in the queue. Scale the original's Deployments to 0 first, start `slinky bridge admission`, run this, then `slinky bridge run`. The original's
    configuration file can be given as it is.

    A job is taken over where its admin_comment names the pod and the pod's label names the job: it gets the marker by which `slinky bridge run` knows its own. The original's external nodes get its mark. Its webhook configurations, which
    refuse every pod while nobody answers, are removed. What cannot be taken over is named with the reason, and left as it is. It may be run again.

    Exit code 0: all was taken over. 3: something was not, and was named. 1: it could not be done. docs/migrating.md tells the whole way.
    """
    settings = site.settings()
    plan, failed = asyncio.run(_run(settings, site.access(), dry_run=dry_run, stopped=original_is_stopped, none_runs=no_bridge_runs))
    left = [*plan.refused, *failed]
    click.echo("\n".join(_report(plan, left, dry_run=dry_run)))
    sys.exit(LEFT if left else 0)


async def _run(settings: Settings, access: Access, *, dry_run: bool, stopped: bool, none_runs: bool) -> tuple[Handover, list[Left]]:
    async with Client(access) as kube, slurm_of(settings) as slurm:
        cluster = await cluster_of(kube, settings)
        if not stopped and (running := await deployments_of_original(kube)):
            why = f"the original still runs: Deployments {', '.join(running)}; scale them to 0 (kubectl scale deployment --replicas=0 …)"
            if not dry_run:
                raise KubeError(f"{why}, or say --original-is-stopped")
            click.echo(why)
        if dry_run:
            if holder := await leader_of(kube, settings):
                click.echo(f"a bridge leads, or did until a moment ago ({holder}): it must have ended before anything is done")
            return plan_migration(await scene(kube, slurm, settings, cluster)), []
        async with interregnum(access, kube, settings, "migrate", none_runs=none_runs) as may_act:
            plan = plan_migration(await scene(kube, slurm, settings, cluster))
            return plan, await Mover(kube, slurm, may_act=may_act, say=click.echo).carry_out(plan)


def _report(plan: Handover, left: list[Left], *, dry_run: bool) -> Iterator[str]:
    if dry_run:
        counts = Counter(type(move) for move in plan.moves)
        for kind, title in TITLES.items():
            if counts[kind]:
                yield f"{title}: {named([move.name for move in plan.moves if isinstance(move, kind)])}"
    if plan.already:
        yield f"jobs that are this bridge's already: {plan.already}"
    if not plan.moves:
        yield "there is nothing to take over"
    yield from plan.notes
    if left:
        yield "cannot be taken over:" if dry_run else "not taken over:"
        yield from (f"  {line}" for line in grouped(left))
