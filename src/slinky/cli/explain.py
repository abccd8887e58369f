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
from slinky.explain.gathering import (
    gather_identity,
    gather_job,
    gather_node,
    gather_pod,
    gather_queue,
)
from slinky.explain.reference import explain_reference
from slinky.explain.report import Explanation, as_json, explain_job, explain_node, explain_pod, finding_lines, text
from slinky.explain.same_cluster import beside, told_by_scontrol, why_not
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
@click.option(
    "--sbatch",
    default="sbatch",
    show_default=True,
    help="For --whatif: the sbatch of the configured Slurm, which asks it itself; empty: estimate.",
)
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
    words = sbatch_words(ask, place, account, qos, settings.default_memory_mib)
    answer = _by_slurm(sbatch, words, settings)
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


def _by_slurm(sbatch: str, words: list[str], settings: Settings) -> Answer | None:
    """None where there is no sbatch, it is another cluster's, or it does not answer."""
    command = shlex.split(sbatch)
    if not command or not shutil.which(command[0]):
        return None
    try:
        if why := _is_of_another(command, settings):
            said = f"{shlex.join(command)} was not asked: {why}. This is an estimate"
            click.echo(f"{said}; --sbatch names another command", err=True)
            return None
        done = _run([*command, *words])
    except (OSError, subprocess.TimeoutExpired) as error:
        click.echo(f"{command[0]} cannot be asked ({error}): this is an estimate", err=True)
        return None
    return read_test(done.stderr + done.stdout)


def _is_of_another(command: list[str], settings: Settings) -> str:
    """Why it is not known to speak with the configured Slurm; empty where it is."""
    scontrol = beside(command)
    if not scontrol:
        return "its name is not sbatch, so which cluster it belongs to cannot be asked"
    ours = asyncio.run(gather_identity(settings))
    theirs = told_by_scontrol(_run([*scontrol, "show", "config"]).stdout)
    return why_not(ours, theirs, settings.slurm_rest_api, shlex.join(scontrol))


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=TEST_SECONDS,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TZ": "UTC"},
    )


def _by_estimate(ask: Ask, settings: Settings, partition: str) -> Answer:
    facts = asyncio.run(gather_queue(settings))
    if facts.troubles:
        click.echo("\n".join(finding_lines(facts.troubles)), err=True)
        sys.exit(1)
    return estimate(ask, facts, partition, dt.datetime.now(dt.UTC), settings.default_memory_mib)
