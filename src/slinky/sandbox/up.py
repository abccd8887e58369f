"""Bring a sandbox up: builds, machines, servers in order, nodes. The whole story of `slinky sandbox up`, top to bottom.

What must stay true: `up` on a sandbox that is up changes nothing; one that is dead or was interrupted is removed first; the two halves, Slurm
and Kubernetes, come up side by side; every wait ends, with the log of the part that was waited for.
"""

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from slinky.sandbox import addons, clusters, kubernetes, kwoknodes, realnodes, slurm
from slinky.sandbox.bridge import write_first_config
from slinky.sandbox.building import Built, build, ungrouped
from slinky.sandbox.cache import lock, require_room, sandbox_folder
from slinky.sandbox.down import remove
from slinky.sandbox.errors import CircumstanceError, SandboxError, UsageError, last_lines
from slinky.sandbox.handle import Record, Sandbox
from slinky.sandbox.identity import Identity, host_pid, read_keeper_file
from slinky.sandbox.machine import Machine, furnish, host_folders
from slinky.sandbox.network import choose, plug_head
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.sink import start_sink

__all__ = ["check_circumstances", "up"]

NETWORK_LOCK = "\0slinky-sandbox-network"


async def up(name: str, shape: Shape, progress: Progress) -> Sandbox:
    """The sandbox, ready."""
    shape = shape.checked()
    folder = sandbox_folder(name)
    check_circumstances()
    if shape.real_nodes:
        realnodes.check_circumstances()
    root, built = await ungrouped(build(shape, progress))
    with lock(folder.with_name(f"{name}.lock")):
        if (existing := _existing(name, shape)) is not None:
            progress.note(f"sandbox {name!r} is up already")
            if not existing.tools_config.exists():  # an older release brought it up
                await asyncio.to_thread(write_first_config, existing)
            return existing
        remove(name)
        sandbox = await _start_machines(name, shape, root, built, progress)
        await ungrouped(_start_servers(sandbox, built, progress))
        await asyncio.to_thread(write_first_config, sandbox)
        sandbox.record.ready = True
        sandbox.save()
    return sandbox


def check_circumstances() -> None:
    """Say what is missing before anything is started."""
    if os.geteuid() != 0:
        raise CircumstanceError("the sandbox needs root (namespaces, mounts, network interfaces): run it with sudo")
    if sys.platform != "linux" or not shutil.which("nsenter"):
        raise CircumstanceError("the sandbox needs Linux and util-linux's nsenter: apt-get install util-linux")
    probe = subprocess.run(["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise CircumstanceError(
            f"namespaces cannot be made here ({probe.stderr.strip()}): run on the machine itself, or in a privileged container"
        )
    require_room(1, "a sandbox")


def _existing(name: str, shape: Shape) -> Sandbox | None:
    try:
        found = Sandbox.find(name)
    except SandboxError:
        return None
    if not found.is_running or not found.record.ready:
        return None
    if found.record.shape != shape:
        different = [f for f in shape.__struct_fields__ if getattr(shape, f) != getattr(found.record.shape, f)]
        said = ", ".join(f"{f} is {getattr(found.record.shape, f)!r}, not {getattr(shape, f)!r}" for f in different)
        raise UsageError(f"sandbox {name!r} is up with another shape ({said}): take it down first, or choose another --name")
    return found


async def _start_machines(name: str, shape: Shape, root: Path, built: Built, progress: Progress) -> Sandbox:
    folder = sandbox_folder(name)
    with progress.step(f"sandbox {name!r}: machines and network"):
        folder.mkdir(parents=True)
        folder.chmod(0o700)
        identity = secrets.token_hex(4)
        async with _network_lock():
            addresses = choose()
            keeper = _spawn_keeper(folder, identity)
            record = Record(
                name=name,
                identity=identity,
                keeper=keeper,
                shape=shape,
                addresses=addresses,
                root=str(root),
                kubernetes=str(built.kubernetes),
                helm=str(built.helm),
                created=time.time(),
            )
            sandbox = Sandbox(folder, record)
            sandbox.save()
            await _await_keeper(sandbox)
            furnish(sandbox.head, root)
            shares = host_folders()
            head = Machine("head", str(root), str(sandbox.head), "head", {n: str(p) for n, p in built.programs.items()}, shares)
            await sandbox.link.machine(head)
            await sandbox.link.script("head", plug_head(identity, addresses))
        await realnodes.start_machines(sandbox, built.programs, built.images)
        sandbox.write_commands(host_pid(keeper, (await sandbox.link.holders())["head"]))
    return sandbox


def _spawn_keeper(folder: Path, identity: str) -> Identity:
    (folder / "logs").mkdir()
    with (folder / "logs/keeper.log").open("ab") as log:
        command = [sys.executable, "-m", "slinky.sandbox.keeper", str(folder), identity]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, timeout=60, check=False)
    kept = read_keeper_file(folder)
    if done.returncode or kept is None:
        raise SandboxError(f"the keeper did not start:\n{last_lines(folder / 'logs/keeper.log')}")
    return kept.keeper


async def _await_keeper(sandbox: Sandbox, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            await sandbox.link.parts()
        except SandboxError as error:
            if not sandbox.is_running or time.monotonic() > deadline:
                raise SandboxError(f"{error}:\n{last_lines(sandbox.log('keeper'))}") from error
            await asyncio.sleep(0.02)
        else:
            return


async def _start_servers(sandbox: Sandbox, built: Built, progress: Progress) -> None:
    etc, var = sandbox.head / "etc", sandbox.head / "var"
    slurm.write_files(etc, var, sandbox.record.addresses, reachable=sandbox.record.shape.operator)
    authority = kubernetes.write_files(etc, sandbox.folder, sandbox.record.addresses)
    if sandbox.record.shape.operator:
        clusters.certify_database(etc, authority)
    async with asyncio.TaskGroup() as group:
        group.create_task(_start_slurm(sandbox, progress))
        group.create_task(_start_kubernetes(sandbox, built, progress))
        group.create_task(realnodes.load_images(sandbox, progress))
    await realnodes.start_slurmd(sandbox, progress)


async def _start_slurm(sandbox: Sandbox, progress: Progress) -> None:
    link, parts = sandbox.link, slurm.parts()
    with progress.step("Slurm") as step:
        step.say("database")
        await link.script("head", slurm.PREPARE)
        await link.script("head", slurm.MAKE_DATABASE)
        await link.start(parts["mariadb"])
        client = ["mariadb", "--defaults-file=/etc/mysql/sandbox.cnf", "-e"]
        await sandbox.until("mariadb", "it answered", lambda: link.run("head", *client, "SELECT 1"))
        await link.run("head", *client, slurm.DATABASE)
        if sandbox.record.shape.operator:
            await link.run("head", *client, clusters.database(sandbox.folder))
        step.say("slurmdbd")
        await link.start(parts["slurmdbd"])
        await sandbox.until("slurmdbd", "it answered", lambda: link.run("head", "sacctmgr", "--noheader", "show", "stats"))
        step.say("accounts")
        await link.run("head", "sacctmgr", "--immediate", "--quiet", "add", "cluster", slurm.CLUSTER)
        for command in slurm.accounts():
            await link.run("head", *command)
        step.say("slurmctld")
        await link.start(parts["slurmctld"])
        await sandbox.until("slurmctld", "it answered", lambda: link.run("head", "scontrol", "--quiet", "ping"))
        token = await link.run("head", "scontrol", "token", "username=root", f"lifespan={365 * 86400}")
        sandbox.token_file.touch(mode=0o600)
        sandbox.token_file.write_text(token.strip().removeprefix("SLURM_JWT="))
        step.say("slurmrestd")
        await link.start(parts["slurmrestd"])
        async with sandbox.slurm_client() as found:
            await sandbox.until("slurmrestd", "it reached slurmctld", found.is_up)
    if sandbox.record.shape.sink:
        with progress.step("the sink"):
            await start_sink(sandbox)
    if sandbox.record.shape.register and sandbox.record.shape.nodes:
        with progress.step("registering the nodes in Slurm"):
            await kwoknodes.register(sandbox)


async def _start_kubernetes(sandbox: Sandbox, built: Built, progress: Progress) -> None:
    shape, link = sandbox.record.shape, sandbox.link
    etcd, apiserver, *rest = kubernetes.control_plane(shape, sandbox.record.addresses)
    async with sandbox.kube() as kube:
        with progress.step("Kubernetes") as step:
            step.say("etcd and API server")
            await link.start(etcd)
            await link.start(apiserver)
            await sandbox.until("kube-apiserver", "it was ready", lambda: kube.get("/readyz"))
            step.say("controllers")
            for part in rest:
                await link.start(part)
            await kube.apply(kubernetes.storage_class())
            await link.start(kubernetes.kwok_part())
            await sandbox.until(
                "kube-controller-manager",
                "the default ServiceAccount existed",
                lambda: kube.get("/api/v1/namespaces/default/serviceaccounts/default"),
            )
        if shape.nodes:
            with progress.step(f"{shape.nodes} kwok nodes") as step:
                await kwoknodes.make(sandbox, kube)
                await sandbox.until("kwok", "all nodes were Ready", lambda: kwoknodes.all_ready(kube, shape.nodes, step.say), 180)
        await realnodes.start_nodes(sandbox, kube, progress)
        if shape.operator:
            await clusters.prepare(sandbox, kube)
        await addons.start(sandbox, kube, built.manifests, progress)


@asynccontextmanager
async def _network_lock() -> AsyncIterator[None]:
    """One sandbox at a time chooses its network; the lock is an address, so it cannot be left behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:
        deadline = time.monotonic() + 60
        while True:
            try:
                holder.bind(NETWORK_LOCK)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise SandboxError("another sandbox has been choosing its network for a minute; try again") from None
                await asyncio.sleep(0.05)
        yield
