"""`slinky bridge shadow-report` and `shadow-end`: what shadow mode found, and the end of its jobs."""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable, Sequence

import click
import msgspec

from slinky.bridge.adoption import found_in
from slinky.bridge.bridge import slurm_of
from slinky.bridge.settings import Settings
from slinky.bridge.shadow import shadow_cluster_name
from slinky.bridge.shadow_report import Case, Report, Tally
from slinky.bridge.shadow_store import CONFIG_MAP, read_report
from slinky.cli.bridge_options import Site, site_options
from slinky.kube import NAMESPACES, Access, Client
from slinky.slurm import AlreadyDoneError, NotFoundError

__all__ = ["shadow_end", "shadow_report"]

SHOWN = 10
MOST_REASON = 100


@click.command("shadow-report")
@site_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--all", "everything", is_flag=True, help=f"All cases that are kept, not {SHOWN} of each sort.")
def shadow_report(site: Site, output: str, everything: bool) -> None:
    """What Slurm would have done with the pods that Kubernetes placed.

    Reads the ConfigMap that `slinky bridge run --shadow` writes every minute. docs/shadow.md says how to read it.
    """
    settings = site.settings()
    report = asyncio.run(_read(site.access(), settings.namespace))
    if report is None:
        raise click.ClickException(
            f"there is no report (ConfigMap {CONFIG_MAP} in namespace {settings.namespace}): slinky bridge run --shadow writes one when it leads"
        )
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        click.echo("\n".join(_table(report, 10**6 if everything else SHOWN)))


@click.command("shadow-end")
@site_options
def shadow_end(site: Site) -> None:
    """End all jobs that shadow mode has left in Slurm.

    For the time after it: `slinky bridge run --shadow` must not run any more, or it would submit them again. No pod is touched, and no job of anyone else's.
    """
    click.echo(f"{asyncio.run(_end(site.settings(), site.access()))} jobs ended")


async def _read(access: Access, namespace: str) -> Report | None:
    async with Client(access) as kube:
        try:
            return await read_report(kube, namespace)
        except msgspec.DecodeError as error:
            raise click.ClickException(
                f"ConfigMap {CONFIG_MAP} in namespace {namespace} is not a report of shadow mode: {error}"
            ) from error


async def _end(settings: Settings, access: Access) -> int:
    cluster = settings.cluster
    if not cluster:
        async with Client(access) as kube:
            cluster = (await kube.get(NAMESPACES, "kube-system")).metadata.uid
    ended = 0
    async with slurm_of(settings) as slurm:
        found = [job async for each in slurm.jobs.stream() if (job := found_in(each, shadow_cluster_name(cluster))) and not job.is_over]
        for job in found:
            try:
                await slurm.jobs.cancel(job.submission.job_id)
                ended += 1
            except (AlreadyDoneError, NotFoundError):
                continue
    return ended


# The table


def _table(report: Report, most: int) -> Iterable[str]:
    total = report.total
    yield f"Shadow of Slurm since {_moment(report.since)}, as of {_moment(report.written)}"
    yield ""
    head = [
        "NAMESPACE",
        "SUBMITTED",
        "REFUSED",
        "STARTED",
        "ENDED",
        "MISSED",
        "EVICTED",
        "WAITING",
        "RUNNING",
        "WAIT SLURM",
        "(MOST)",
        "WAIT KUBE",
        "(MOST)",
        "SAME NODE",
    ]
    rows = [[name, *_tally(tally)] for name, tally in sorted(report.namespaces.items())]
    yield from _columns([head, *rows, ["(all)", *_tally(total)]])
    yield from _cases("Refused: nothing would have run", ["WORKLOAD", "PODS", "WHY"], report.refused[::-1], most, _refused)
    yield from _cases(
        "Evicted: Slurm would have ended them while they ran", ["WORKLOAD", "PODS", "WHEN", "WHY"], report.evicted[::-1], most, _evicted
    )
    yield from _cases("Waiting now", ["WORKLOAD", "PODS", "JOB", "FOR", "WAITED IN KUBE", "WHY"], report.waiting, most, _waiting)
    head = ["WORKLOAD", "PODS", "JOB", "WAIT SLURM", "WAIT KUBE", "NODE SLURM", "NODE KUBE", "STATE"]
    yield from _cases("Longest waits in Slurm", head, report.longest, most, _compared)
    yield from _cases("Latest", head, report.latest[::-1], most, _compared)


def _cases(title: str, head: list[str], cases: Sequence[Case], most: int, row: Callable[[Case], list[str]]) -> Iterable[str]:
    if not cases:
        return
    yield ""
    yield title + (f" ({most} of {len(cases)})" if len(cases) > most else "")
    yield from _columns([head, *(row(case) for case in cases[:most])])


def _tally(tally: Tally) -> list[str]:
    counts = [tally.submitted, tally.refused, tally.started, tally.ended, tally.missed, tally.evicted, tally.waiting, tally.running]
    over = tally.ended + tally.evicted
    waits = [
        _seconds(tally.slurm_wait / tally.started if tally.started else None),
        _seconds(tally.slurm_wait_most if tally.started else None),
        _seconds(tally.kube_wait / over if over else None),
        _seconds(tally.kube_wait_most if over else None),
    ]
    same = f"{tally.pods_same_node} of {tally.pods_placed}" if tally.pods_placed else "-"
    return [*map(str, counts), *waits, same]


def _refused(case: Case) -> list[str]:
    return [case.workload, str(case.pods), case.reason[:MOST_REASON]]


def _evicted(case: Case) -> list[str]:
    return [case.workload, str(case.pods), _moment(case.ended), case.reason[:MOST_REASON]]


def _waiting(case: Case) -> list[str]:
    return [case.workload, str(case.pods), _job(case), _seconds(case.slurm_wait), _seconds(case.kube_wait), case.reason[:MOST_REASON]]


def _compared(case: Case) -> list[str]:
    return [
        case.workload,
        str(case.pods),
        _job(case),
        _seconds(case.slurm_wait),
        _seconds(case.kube_wait),
        case.slurm_nodes[:40] or "-",
        case.kube_nodes[:40] or "-",
        case.state,
    ]


def _job(case: Case) -> str:
    return str(case.job) if case.job else "-"


def _columns(rows: list[list[str]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 120:
        return f"{value:.0f}s"
    return f"{value / 60:.0f}m" if value < 7200 else f"{value / 3600:.1f}h"


def _moment(value: float) -> str:
    return f"{dt.datetime.fromtimestamp(value, dt.UTC):%Y-%m-%d %H:%M:%S}Z"
