"""`slinky explain pod|job|node NAME`: why it waits, what each side says, what would help; `slinky explain --whatif "8 gpu 4h"`: when would this start.

Exit code 0 where it could be explained (or would start); 1 where there is no such thing, or a side could not be asked.
"""

import asyncio
import datetime as dt
import os
import shlex
import shutil
import subprocess
import sys

import click

from slinky.bridge.settings import Settings
from slinky.cli.looking import Looking, looking_options
from slinky.explain.gathering import gather_job, gather_node, gather_pod, gather_queue
from slinky.explain.reference import explain_reference
from slinky.explain.report import Explanation, as_json, explain_job, explain_node, explain_pod, finding_lines, text
from slinky.explain.whatif import (
    Answer,
    Ask,
    AskError,
    answer_lines,
    checked,
    estimate,
    is_doubtful,
    parse,
    read_test,
    sbatch_words,
)

__all__ = ["explain"]

TEST_SECONDS = 20.0


@click.group(invoke_without_command=True)
@click.option("--whatif", "asked", default="", metavar="WORDS", help='When would this start? As in "8 gpu 4h", "2 nodes 64 cpu 128G 30m".')
@click.option("-p", "--partition", default="", help="For --whatif.  [default: the configuration's]")
@click.option("-A", "--account", default="", help="For --whatif.")
@click.option("-q", "--qos", default="", help="For --whatif.")
@click.option("--sbatch", default="sbatch", show_default=True, help="For --whatif: the command that asks Slurm itself; empty: estimate.")
@looking_options
@click.pass_context
def explain(context: click.Context, asked: str, partition: str, account: str, qos: str, sbatch: str, site: Looking, output: str) -> None:
    """Why a pod, a job or a node waits, what Slurm and Kubernetes each say, and what would help."""
    if context.invoked_subcommand:
        if asked:
            raise click.UsageError(f"--whatif is a question of its own: leave {context.invoked_subcommand} out")
        return
    if not asked:
        click.echo(context.get_help())
        context.exit(2)
    try:
        ask = parse(asked)
    except AskError as error:
        raise click.BadParameter(str(error), param_hint="--whatif") from None
    settings = site.settings()
    place = partition or settings.partition
    now = dt.datetime.now(dt.UTC)
    answer = _by_slurm(sbatch, sbatch_words(ask, place, account, qos, settings.default_memory_mib))
    if answer and is_doubtful(answer, now):
        answer = checked(answer, asyncio.run(gather_queue(settings)).queue, now)
    answer = answer or _by_estimate(ask, settings, place)
    click.echo(as_json(answer) if output == "json" else "\n".join(answer_lines(answer, dt.datetime.now(dt.UTC))))
    if answer.start is None:
        sys.exit(1)


@explain.command()
@click.argument("name")
@click.option("-n", "--namespace", default="", help="The pod's namespace; NAMESPACE/NAME does as well.  [default: default]")
@looking_options
def pod(name: str, namespace: str, site: Looking, output: str) -> None:
    """Why a pod waits."""
    home, _, last = name.rpartition("/")
    _show(explain_pod(asyncio.run(gather_pod(site.settings(), site.access(), namespace or home or "default", last))), output)


@explain.command()
@click.argument("job_id", type=click.IntRange(min=1))
@looking_options
def job(job_id: int, site: Looking, output: str) -> None:
    """Why a job of Slurm's waits, or how it ended."""
    _show(explain_job(asyncio.run(gather_job(site.settings(), site.access(), job_id))), output)


@explain.command()
@click.argument("name")
@looking_options
def node(name: str, site: Looking, output: str) -> None:
    """What keeps a node from taking pods, by either side's name for it."""
    _show(explain_node(asyncio.run(gather_node(site.settings(), site.access(), name))), output)


@explain.command("reference", hidden=True)
def reference() -> None:
    """Print docs/explain.md."""
    click.echo(explain_reference(), nl=False)


def _show(explanation: Explanation, output: str) -> None:
    click.echo(as_json(explanation) if output == "json" else text(explanation), nl=output == "json")
    if not explanation.was_found:
        sys.exit(1)


def _by_slurm(sbatch: str, words: list[str]) -> Answer | None:
    """None where there is no sbatch, or it does not answer."""
    command = shlex.split(sbatch)
    if not command or not shutil.which(command[0]):
        return None
    try:
        done = subprocess.run(
            [*command, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=TEST_SECONDS,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TZ": "UTC"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        click.echo(f"{command[0]} cannot be asked ({error}): this is an estimate", err=True)
        return None
    return read_test(done.stderr + done.stdout)


def _by_estimate(ask: Ask, settings: Settings, partition: str) -> Answer:
    facts = asyncio.run(gather_queue(settings))
    if facts.troubles:
        click.echo("\n".join(finding_lines(facts.troubles)), err=True)
        sys.exit(1)
    return estimate(ask, facts, partition, dt.datetime.now(dt.UTC), settings.default_memory_mib)
