"""`slinky slurm …`: the client library on the command line. Tables by default, `-o json` for programs.

Where slurmrestd is and whose token is used come from the options, or from SLINKY_SLURM_URL, SLINKY_SLURM_TOKEN_FILE and SLURM_JWT. A token is never an argument.
"""

import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from slinky.slurm import INFINITE, Job, JobDescription, MintedToken, Node, Partition, SlurmClient, TokenFile, expand
from slinky.slurm.models.jobs import Submitted
from slinky.slurm.models.public import as_json
from slinky.slurm.models.states import JobFlag, JobState
from slinky.slurm.settings import found_credentials

__all__ = ["slurm"]

T = TypeVar("T")


class Session(msgspec.Struct):
    """What every command needs."""

    url: str
    token_file: str
    user: str
    key: str
    seconds: float
    output: str

    def client(self) -> SlurmClient:
        if self.key:
            credentials = MintedToken(Path(self.key), self.user or "root")
            return SlurmClient(self.url, credentials)
        return SlurmClient(self.url, TokenFile(self.token_file, self.user) if self.token_file else found_credentials(self.user))

    def ask(self, question: Callable[[SlurmClient], Awaitable[T]]) -> T:
        async def run() -> T:
            async with self.client() as client:
                return await question(client.within(self.seconds))

        return asyncio.run(run())

    def show(self, items: Sequence[Any], columns: Sequence[str], row: Callable[[Any], Iterable[object]]) -> None:
        if self.output == "json":
            click.echo(as_json(items))
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for item in items:
            table.add_row(*("" if value is None else str(value) for value in row(item)))
        Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)


def _seconds(_: click.Context, __: click.Parameter, value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise click.BadParameter(f"{value:g} is no time that a call may take; it would be a number of seconds above 0")
    return value


def _states(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    wanted = frozenset(value.upper() for value in values)
    known = [*JobState, *JobFlag]
    if strange := sorted(wanted.difference(known)):
        raise click.BadParameter(f"{', '.join(strange)} is no state of a job; known are {', '.join(known)}")
    return wanted


def _names(_: click.Context, __: click.Parameter, value: str) -> str:
    if not expand(value):
        raise click.BadParameter(f"{value!r} names no node; it would look like n1 or n[1-3,07]")
    return value


@click.group()
@click.option("--url", envvar="SLINKY_SLURM_URL", default="", help="Where slurmrestd is: http://host:6820, https://…, unix:///…")
@click.option(
    "--token-file", default="", help="A file that holds a token.  [default: $SLINKY_SLURM_TOKEN_FILE, or the token in $SLURM_JWT]"
)
@click.option("--key", default="", help="An HS256 key to make tokens from, instead.")
@click.option("--user", default="", help="Ask as this user.")
@click.option("--deadline", default=30.0, show_default=True, callback=_seconds, help="Seconds that a call may take.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def slurm(context: click.Context, url: str, token_file: str, key: str, user: str, deadline: float, output: str) -> None:
    """Ask a Slurm cluster, through its slurmrestd."""
    context.obj = Session(url, token_file, user, key, deadline, output)


def output_option(command: Callable[..., None]) -> Callable[..., None]:
    """-o after the command too, where people write it."""

    def set_output(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value:
            context.obj.output = value

    option = click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), callback=set_output, expose_value=False, help="table or json"
    )
    return option(command)


@slurm.command()
@click.argument("job_ids", nargs=-1, type=int)
@click.option("--state", "states", multiple=True, callback=_states, help="Only jobs in this state; may be given several times.")
@output_option
@click.pass_obj
def jobs(session: Session, job_ids: tuple[int, ...], states: frozenset[str]) -> None:
    """Jobs, all of them or those with the given ids."""

    async def look(client: SlurmClient) -> list[Job]:
        if job_ids:
            return [await client.jobs.get(job_id) for job_id in job_ids]
        return [job async for job in client.jobs.stream()]

    found = [job for job in session.ask(look) if not states or not states.isdisjoint(job.states)]
    columns = ["JOB", "NAME", "USER", "PARTITION", "STATE", "REASON", "TIME", "LIMIT", "NODES"]
    session.show(found, columns, _job_row)


@slurm.command()
@click.argument("names", required=False, default="")
@output_option
@click.pass_obj
def nodes(session: Session, names: str) -> None:
    """Nodes, all of them or those of a hostlist."""

    async def look(client: SlurmClient) -> list[Node]:
        if names:
            return [await client.nodes.get(name) for name in expand(names)]
        return await client.nodes.all()

    columns = ["NODE", "STATE", "CPUS", "MEMORY", "GRES", "PARTITIONS", "REASON"]
    session.show(session.ask(look), columns, _node_row)


@slurm.command()
@output_option
@click.pass_obj
def partitions(session: Session) -> None:
    """Partitions."""

    async def look(client: SlurmClient) -> list[Partition]:
        return await client.partitions.all()

    session.show(session.ask(look), ["PARTITION", "STATE", "NODES", "CPUS", "LIMIT", "NODE LIST"], _partition_row)


@slurm.command()
@click.argument("script", type=click.File(encoding="utf-8"), required=False)
@click.option("--external", is_flag=True, help="A job whose work runs elsewhere; it has no script.")
@click.option("--name", "-J", default="")
@click.option("--partition", "-p", default="")
@click.option("--account", "-A", default="")
@click.option("--qos", "-q", default="")
@click.option("--ntasks", "-n", "tasks", type=click.IntRange(min=1))
@click.option("--nodes", "-N", default="")
@click.option("--cpus-per-task", "-c", type=click.IntRange(min=1))
@click.option("--mem", "memory", type=click.IntRange(min=1), help="MiB per node.")
@click.option("--gres", default="", help="Per node, as in gres/gpu:1.")
@click.option("--time", "-t", "limit", type=click.IntRange(min=1), help="Minutes.")
@click.option("--hold", "-H", is_flag=True)
@click.option("--chdir", "-D", "directory", default="", help="The working directory.  [default: where you are]")
@click.option(
    "--marker", default="", help="A text unique to this job: a job that carries it already is returned instead of a second one being made."
)
@output_option
@click.pass_obj
def submit(
    session: Session, /, script: Any, external: bool, name: str, nodes: str, memory: int | None, gres: str, limit: int | None, **given: Any
) -> None:
    """Submit a batch script (a file, or - for standard input), or an external job. Prints the job's id."""
    if bool(script) == external:
        raise click.UsageError("give a script (a file, or -), or --external and none")
    job = JobDescription(
        name=name or (Path(script.name).name if script else "external"),
        script=_text(script) if script else None,
        partition=given["partition"] or None,
        account=given["account"] or None,
        qos=given["qos"] or None,
        tasks=given["tasks"],
        nodes=nodes or None,
        cpus_per_task=given["cpus_per_task"],
        memory_per_node=memory,
        tres_per_node=gres or None,
        time_limit=limit,
        hold=given["hold"] or None,
        current_working_directory=given["directory"] or str(Path.cwd()),
    )
    marker = given["marker"]

    async def send(client: SlurmClient) -> Submitted:
        send_job = client.jobs.submit_external if external else client.jobs.submit
        return await send_job(job, marker=marker, once=bool(marker))

    submitted = session.ask(send)
    for note in dict.fromkeys(submitted.notes):
        click.echo(note, err=True)
    click.echo(as_json({"job_id": submitted.job_id}) if session.output == "json" else str(submitted.job_id))


@slurm.command()
@click.argument("job_ids", nargs=-1, type=int, required=True)
@click.option("--signal", default="KILL", show_default=True)
@click.pass_obj
def cancel(session: Session, job_ids: tuple[int, ...], signal: str) -> None:
    """End jobs. Those that are over already are fine."""

    async def end(client: SlurmClient) -> list[str]:
        results = await client.jobs.cancel_many(job_ids, signal)
        return [
            f"job {result.label}: {result.error.string} ({result.error.code})" for result in results if result.error.code not in (0, 2021)
        ]

    if problems := session.ask(end):
        raise click.ClickException("\n".join(problems))


@slurm.command()
@click.argument("names", callback=_names)
@click.option("--reason", "-r", required=True)
@click.pass_obj
def drain(session: Session, names: str, reason: str) -> None:
    """Let nodes (a hostlist) take no new jobs."""
    session.ask(lambda client: client.nodes.drain(names, reason))


@slurm.command()
@click.argument("names", callback=_names)
@click.pass_obj
def resume(session: Session, names: str) -> None:
    """Put drained or down nodes (a hostlist) back to use."""
    session.ask(lambda client: client.nodes.resume(names))


@slurm.command()
@output_option
@click.pass_obj
def ping(session: Session) -> None:
    """Do the controllers answer? Exit code 1 if none does."""
    pings = session.ask(lambda client: client.ping())
    session.show(pings, ["CONTROLLER", "ANSWERS", "ROLE", "MILLISECONDS"], _ping_row)
    if not any(answer.responding for answer in pings):
        sys.exit(1)


def _text(script: Any) -> str:
    try:
        return str(script.read())
    except UnicodeDecodeError:
        raise click.ClickException(f"the script {script.name} is no text: it is not in UTF-8") from None


def _job_row(job: Job) -> Iterable[object]:
    began = job.start_time if isinstance(job.start_time, int) and job.start_time else 0
    ended = job.end_time if job.is_finished and isinstance(job.end_time, int) else int(time.time())
    elapsed = _duration(max(0, ended - began)) if began and not job.is_pending else ""
    where = job.nodes if not job.is_pending else ""
    reason = job.state_reason if job.state_reason != "None" else ""
    return job.job_id, job.name, job.user_name, job.partition, "+".join(job.states), reason, elapsed, _minutes(job.time_limit), where


def _node_row(node: Node) -> Iterable[object]:
    memory = f"{node.alloc_memory}/{node.real_memory}"
    return node.name, "+".join(node.states), f"{node.alloc_cpus}/{node.cpus}", memory, node.gres, ",".join(node.partitions), node.reason


def _partition_row(partition: Partition) -> Iterable[object]:
    nodes = partition.nodes
    return (
        partition.name,
        "+".join(partition.states),
        nodes.total,
        partition.cpus.total,
        _minutes(partition.maximums.time),
        nodes.configured,
    )


def _ping_row(ping: Any) -> Iterable[object]:
    return ping.hostname, "yes" if ping.responding else f"no: {ping.status}", "primary" if ping.primary else "backup", ping.latency / 1000


def _minutes(limit: object) -> str:
    return "unlimited" if limit is INFINITE else _duration(limit * 60) if isinstance(limit, int) else ""


def _duration(seconds: int) -> str:
    """As squeue writes it: days-hours:minutes:seconds."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours}:{minutes:02}:{seconds:02}" if hours or days else f"{minutes}:{seconds:02}"
    return f"{days}-{clock}" if days else clock
