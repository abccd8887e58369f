"""`slinky sandbox …`: a real Kubernetes and a real Slurm on this machine."""

import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table

from slinky.cli.lazy import LazyGroup
from slinky.sandbox.bridge import write_first_config
from slinky.sandbox.building import build_all
from slinky.sandbox.cache import cache_root, sandboxes
from slinky.sandbox.debian import PEOPLE
from slinky.sandbox.down import down as take_down
from slinky.sandbox.errors import SandboxError, UsageError
from slinky.sandbox.handle import INSIDE_PATH, Sandbox, names
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import ADDONS, Shape, parse_memory
from slinky.sandbox.up import check_circumstances
from slinky.sandbox.up import up as bring_up
from slinky.sandbox.versions import versions

__all__ = ["sandbox"]

# Everything after the first word of its own goes to the command that is run.
PASSING = {"ignore_unknown_options": True, "allow_interspersed_args": False}

Command = Callable[..., Any]


def named(command: Command) -> Command:
    return click.option("--name", default="default", show_default=True, envvar="SLINKY_SANDBOX", help="Which sandbox.")(command)


ELSEWHERE = {
    "bridge": "slinky.cli.sandbox_bridge:bridge",
    "install": "slinky.cli.sandbox_install:install",
    "operator": "slinky.cli.sandbox_operator:operator",
}


@click.group(cls=LazyGroup, elsewhere=ELSEWHERE)
def sandbox() -> None:
    """A real Kubernetes and a real Slurm on this machine, with no container engine.

    Needs root on Debian (or a relative of it) and the package registries. The first `up` builds everything, which takes a
    quarter of an hour on two cores; what was built is kept in ~/.cache/slinky (or SLINKY_CACHE), and later ones take seconds.
    """


@sandbox.command()
@named
@click.option("--nodes", default=100, show_default=True, help="Nodes whose kubelet is played by kwok.")
@click.option("--node-cpus", default=64, show_default=True, help="CPUs of each of them.")
@click.option("--node-memory", default="256G", show_default=True, help="Memory of each of them.")
@click.option("--node-gpus", default=8, show_default=True, help="GPUs of each of them.")
@click.option("--real-nodes", default=0, show_default=True, help="Real kubelets with containerd, whose pods run real processes (0 to 3).")
@click.option("--slurmd", is_flag=True, help="A slurmd beside the kubelet on each real node, in partition `compute`.")
@click.option(
    "--sink", is_flag=True, help="A slurmd on the head that answers for the external nodes: GraceTime, suspend, jobs that shrink."
)
@click.option("--operator", is_flag=True, help="Images, a database and volumes for the clusters that the operator makes on real nodes.")
@click.option("--with", "addons", default="", metavar="LIST", help=f"Of {', '.join(ADDONS)}: controllers and CRDs to add.")
@click.option(
    "--kubernetes", default=versions().kubernetes.default, show_default=True, help=f"Of {', '.join(versions().kubernetes.releases)}."
)
@click.option("--register/--no-register", default=True, show_default=True, help="Tell Slurm of the kwok nodes as external nodes.")
def up(name: str, node_memory: str, addons: str, **options: Any) -> None:
    """Bring a sandbox up. One that is up already stays as it is."""
    shape = Shape(node_memory_mib=parse_memory(node_memory), addons=tuple(sorted(filter(None, addons.split(",")))), **options)
    started = time.monotonic()
    with Progress() as progress:
        found = asyncio.run(bring_up(name, shape, progress))
    own = "" if name == "default" else f" --name {name}"
    click.echo(
        f"sandbox {name!r} is up ({time.monotonic() - started:.1f} s): Kubernetes at {found.kube_server}, slurmrestd at {found.slurm_server}"
    )
    click.echo(f'next: eval "$(slinky sandbox env{own})"; kubectl get nodes; sinfo        ends with: slinky sandbox down{own}')


@sandbox.command()
def build() -> None:
    """Build all that any sandbox needs, and start none: for a machine image, or before tests that are to be quick."""
    started = time.monotonic()
    check_circumstances()
    with Progress() as progress:
        asyncio.run(build_all(progress))
    click.echo(f"all is built ({time.monotonic() - started:.1f} s), in {cache_root()}")


@sandbox.command()
@named
@click.option("--all", "every", is_flag=True, help="All sandboxes of this cache.")
@click.option("--keep-logs", type=click.Path(path_type=Path), help="Copy the logs into this folder first.")
def down(name: str, every: bool, keep_logs: Path | None) -> None:
    """Take a sandbox down and remove all of it, also one whose keeper was killed."""
    wanted = sorted({p.name for p in sandboxes().glob("*") if p.is_dir()}) if every else [name]
    for each in wanted:
        started = time.monotonic()
        if take_down(each, keep_logs / each if keep_logs and every else keep_logs):
            click.echo(f"sandbox {each!r} is down ({time.monotonic() - started:.1f} s)")
        else:
            click.echo(f"there is no sandbox {each!r}")


@sandbox.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def list_(output: str) -> None:
    """The sandboxes there are."""
    rows = [_row(name) for name in names()]
    if output == "json":
        click.echo(json.dumps(rows, indent=1))
        return
    table = Table("name", "state", "kubernetes", "nodes", "real", "with", "address", "age", box=None)
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("name", "state", "kubernetes", "nodes", "real_nodes", "with", "address", "age")))
    Console().print(table if rows else "no sandboxes")


def _row(name: str) -> dict[str, Any]:
    try:
        found = Sandbox.find(name)
    except SandboxError:
        return {"name": name, "state": "broken"} | dict.fromkeys(("kubernetes", "nodes", "real_nodes", "with", "address", "age"), "?")
    shape = found.record.shape
    return {
        "name": name,
        "state": _state(found),
        "kubernetes": shape.kubernetes,
        "nodes": shape.nodes,
        "real_nodes": shape.real_nodes,
        "with": ",".join(shape.addons),
        "address": found.record.addresses.head,
        "age": f"{(time.time() - found.record.created) / 60:.0f} min",
    }


def _state(found: Sandbox) -> str:
    if not found.is_running:
        return "dead"
    return "up" if found.record.ready else "coming up"


@sandbox.command()
@named
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(name: str, output: str) -> None:
    """What each part of a sandbox is doing. Exit code 1 where something is not running."""
    found = Sandbox.find(name)
    parts = asyncio.run(found.link.parts()) if found.is_running else {}
    dead = [part for part, state in parts.items() if state.exit_code is not None]
    if output == "json":
        rows = {part: {"machine": s.part.machine, "running": s.exit_code is None, "exit_code": s.exit_code} for part, s in parts.items()}
        click.echo(json.dumps({"name": name, "state": _state(found), "parts": rows}, indent=1))
    else:
        click.echo(
            f"sandbox {name!r}: {_state(found)}; Kubernetes at {found.kube_server}, slurmrestd at {found.slurm_server}; files in {found.folder}"
        )
        table = Table("part", "machine", "state", "for", box=None)
        for part, state in parts.items():
            said = "running" if state.exit_code is None else f"ended ({state.exit_code})"
            table.add_row(part, state.part.machine, said, f"{(time.time() - state.started) / 60:.0f} min")
        Console().print(table)
    if dead or _state(found) != "up":
        sys.exit(1)


@sandbox.command()
@named
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows.")
@click.option("-n", "--lines", default=200, show_default=True)
@click.argument("part", required=False)
def logs(name: str, part: str | None, follow: bool, lines: int) -> None:
    """The log of a part (or the last lines of all)."""
    found = Sandbox.find(name)
    known = sorted(path.stem for path in (found.folder / "logs").glob("*.log"))
    if part and part not in known:
        raise UsageError(f"sandbox {name!r} has no part {part!r}; there is {', '.join(known)}")
    files = [str(found.log(each)) for each in ([part] if part else known)]
    command = ["tail", "-n", str(lines if part else min(lines, 20)), *(["-F"] if follow else []), *files]
    os.execvp(command[0], command)  # noqa: S606


@sandbox.command()
@named
@click.argument("part")
def restart(name: str, part: str) -> None:
    """End a part and start it again, as a crash or an upgrade would."""
    asyncio.run(Sandbox.running(name).restart(part))


@sandbox.command()
@named
def env(name: str) -> None:
    """Shell exports for using a sandbox: eval "$(slinky sandbox env)"."""
    for key, value in _with_tools_config(name).exports().items():
        click.echo(f"export {key}={shlex.quote(value)}")


@sandbox.command(context_settings=PASSING)
@named
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: tuple[str, ...]) -> None:
    """kubectl, as the sandbox's administrator."""
    found = Sandbox.running(name)
    _become([str(found.folder / "bin/kubectl"), *arguments], found.exports())


@sandbox.command(context_settings=PASSING)
@named
@click.option("--as", "user", type=click.Choice(["root", *PEOPLE]), default="root", show_default=True, help="Who runs it.")
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED)
def slurm(name: str, user: str, arguments: tuple[str, ...]) -> None:
    """Any Slurm command (squeue, sbatch, scontrol, sacctmgr …) on the sandbox's head."""
    found = Sandbox.running(name)
    entered = found.enter(list(arguments), user="" if user == "root" else user, directory=str(Path.cwd()))
    home = {} if user == "root" else {"HOME": f"/var/home/{user}", "USER": user, "LOGNAME": user}
    _become(entered, {"SLURM_CONF": "/etc/slurm/slurm.conf", "PATH": INSIDE_PATH} | home)


@sandbox.command()
@named
@click.option("--machine", default="", help="A shell on this machine of the sandbox (head, node-0 …) instead of one on the host.")
def shell(name: str, machine: str) -> None:
    """A shell with kubectl, helm and the Slurm commands at hand."""
    found = _with_tools_config(name)
    if machine:
        _become(found.enter(["bash"], machine=machine), {"PATH": INSIDE_PATH, "HOME": "/root"})
    _become([os.environ.get("SHELL", "/bin/sh")], found.exports() | {"debian_chroot": f"sandbox {name}"})


def _with_tools_config(name: str) -> Sandbox:
    """Make the configuration that a sandbox of an older release does not have yet."""
    found = Sandbox.running(name)
    if not found.tools_config.exists():
        write_first_config(found)
    return found


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    os.execvpe(command[0], command, os.environ | environment)  # noqa: S606
