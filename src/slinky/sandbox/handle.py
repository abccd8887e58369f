"""A sandbox that exists: what was written down about it, and how to talk to it and run things in it from the host."""

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from slinky.sandbox.cache import sandbox_folder, sandboxes
from slinky.sandbox.client import Kube, SlurmRest
from slinky.sandbox.errors import PartDiedError, PartSlowError, SandboxError, UsageError
from slinky.sandbox.identity import Identity, host_pid, is_running
from slinky.sandbox.keeper import Part
from slinky.sandbox.link import KeeperLink
from slinky.sandbox.network import Addresses
from slinky.sandbox.shape import Shape
from slinky.slurm import SlurmClient, TokenFile

__all__ = ["INSIDE_PATH", "Record", "Sandbox", "names"]


class Record(msgspec.Struct, kw_only=True):
    """Written to `record.json`: first when the keeper runs, again when everything is ready."""

    name: str
    identity: str
    keeper: Identity
    shape: Shape
    addresses: Addresses
    root: str
    kubernetes: str
    helm: str
    created: float
    ready: bool = False


def names() -> list[str]:
    """The sandboxes that have a folder, whatever state they are in."""
    if not sandboxes().exists():
        return []
    return sorted(path.parent.name for path in sandboxes().glob("*/record.json"))


class Sandbox:
    """A handle; cheap to make, holds nothing open."""

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self.record = record
        self.link = KeeperLink(record.identity)

    @classmethod
    def find(cls, name: str) -> "Sandbox":
        """The sandbox of that name, running or not. Raises UsageError where there is none."""
        folder = sandbox_folder(name)
        try:
            record = msgspec.json.decode((folder / "record.json").read_bytes(), type=Record)
        except FileNotFoundError:
            known = ", ".join(names()) or "none"
            raise UsageError(f"no sandbox {name!r} (there is: {known}); slinky sandbox up --name {name} makes it") from None
        except msgspec.DecodeError as error:
            raise SandboxError(
                f"{folder}/record.json cannot be read ({error}); slinky sandbox down --name {name} removes the sandbox"
            ) from None
        return cls(folder, record)

    @classmethod
    def running(cls, name: str) -> "Sandbox":
        """The same, but it must be up."""
        found = cls.find(name)
        if not found.is_running:
            raise UsageError(f"sandbox {name!r} is not running (its keeper ended); slinky sandbox up --name {name} starts it anew")
        if not found.record.ready:
            raise UsageError(
                f"sandbox {name!r} is still coming up, or its `up` was interrupted; slinky sandbox up --name {name} completes it"
            )
        return found

    @property
    def is_running(self) -> bool:
        return is_running(self.record.keeper)

    @property
    def head(self) -> Path:
        return self.folder / "head"

    @property
    def kube_server(self) -> str:
        return f"https://{self.record.addresses.head}:6443"

    @property
    def slurm_server(self) -> str:
        return f"http://{self.record.addresses.head}:6820"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def token_file(self) -> Path:
        return self.folder / "slurm-token"

    @property
    def tools_config(self) -> Path:
        """The configuration of the bridge that was started last, for explain, doctor and top."""
        return self.folder / "tools.yaml"

    def kube(self, connections: int = 32) -> Kube:
        return Kube(self.head / "etc/kubernetes", self.kube_server, connections)

    def slurm_client(self) -> SlurmClient:
        """Slurm, as root."""
        return SlurmClient(self.slurm_server, TokenFile(self.token_file))

    def slurm(self, connections: int = 16) -> SlurmRest:
        """The same by plain HTTP, for measuring and showing what lies below the client."""
        return SlurmRest(self.slurm_server, self.token_file.read_text().strip(), connections=connections)

    def save(self) -> None:
        partial = self.folder / "record.json.new"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(self.record), indent=1))
        partial.rename(self.folder / "record.json")

    def log(self, part: str) -> Path:
        return self.folder / "logs" / f"{part}.log"

    # Running things inside

    def enter(self, command: list[str], *, machine: str = "head", user: str = "", directory: str = "/") -> list[str]:
        """The command line that runs `command` on a machine of the sandbox, from the host."""
        holders = asyncio.run(self.link.holders())
        if machine not in holders:
            raise UsageError(f"sandbox {self.record.name!r} has no machine {machine!r}; there is {', '.join(holders)}")
        holder = host_pid(self.record.keeper, holders[machine])
        return entering(holder, command, user, directory)

    def run_in(self, machine: str, *command: str) -> str:
        """A short command's output (both streams); raises where it fails."""
        return asyncio.run(self.link.run(machine, *command))

    async def restart(self, name: str, seconds: float = 30) -> None:
        """End a part (SIGTERM, then SIGKILL) and start it again as it was."""
        part = await self.stop(name, seconds)
        await self.link.start(part)

    async def stop(self, name: str, seconds: float = 30) -> Part:
        parts = await self.link.parts()
        if name not in parts:
            raise UsageError(f"sandbox {self.record.name!r} has no part {name!r}; there is {', '.join(parts)}")
        await self.link.signal(name, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while (state := (await self.link.parts())[name]).exit_code is None:
            if time.monotonic() > deadline:
                await self.link.signal(name, signal.SIGKILL)
            await asyncio.sleep(0.05)
        return state.part

    async def until(self, part: str, what: str, probe: Callable[[], Awaitable[object]], seconds: float = 90) -> None:
        """Wait until `probe` is true of a part that goes on running; its SandboxErrors mean not yet."""
        deadline = time.monotonic() + seconds
        problem = ""
        while True:
            try:
                if await probe():
                    return
            except SandboxError as error:
                problem = str(error).splitlines()[0]
            state = (await self.link.parts()).get(part)
            if state and state.exit_code is not None:
                raise PartDiedError(f"{part} ended with {state.exit_code} before {what}:", self.log(part))
            if time.monotonic() > deadline:
                raise PartSlowError(
                    f"{part} runs, but {what} did not come true within {seconds:g} s ({problem or 'no error'}):", self.log(part)
                )
            await asyncio.sleep(0.05)

    # For people's shells

    def write_commands(self, holder: int) -> None:
        """`bin/`: kubectl, helm, slinky and every Slurm command, to be put first in PATH."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        kubeconfig, kept = shlex.quote(str(self.kubeconfig)), shlex.quote(str(self.folder / "kubectl"))
        programs = {"kubectl": f"{self.record.kubernetes}/kubectl", "helm": self.record.helm}
        scripts = {
            n: f'export KUBECONFIG=${{KUBECONFIG:-{kubeconfig}}} KUBECACHEDIR={kept}/kube HELM_CACHE_HOME={kept}/helm/cache HELM_CONFIG_HOME={kept}/helm/config HELM_DATA_HOME={kept}/helm/data\nexec {shlex.quote(p)} "$@"'
            for n, p in programs.items()
        }
        # -P: do not import a module of that name from the working directory.
        python = f"exec {shlex.quote(sys.executable)} -P"
        scripts["slinky"] = f'{python} -m slinky "$@"'
        scripts["kubectl-slurm"] = f'{python} -c "from slinky.cli.plugin import main; main()" "$@"'
        for name in SLURM_COMMANDS:
            entered = shlex.join(entering(holder, [name], directory="@PWD@")).replace("@PWD@", '"$PWD"')
            scripts[name] = (
                f'export SLURM_CONF=/etc/slurm/slurm.conf\n{self._alive(holder)}\nexport PATH={INSIDE_PATH}\nexec {entered} "$@"'
            )
        for name, text in scripts.items():
            path = folder / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)

    def _alive(self, holder: int) -> str:
        """Shell that refuses to enter a process that is not ours any more."""
        start = Path(f"/proc/{holder}/stat").read_text().rpartition(")")[2].split()[19]
        name = shlex.quote(self.record.name)
        return (
            f"stat=$(cat /proc/{holder}/stat 2>/dev/null); stat=${{stat##*) }}\n"
            f"[ \"$(echo $stat | cut -d' ' -f20)\" = {start} ] || {{ echo sandbox {name} is not running >&2; exit 1; }}"
        )

    def exports(self) -> dict[str, str]:
        """What `slinky sandbox env` tells a shell. Its PATH has the commands of one sandbox only.

        A file that an older release did not write is not named, as a command would fail on it.
        """
        others = {str(sandboxes() / name / "bin") for name in names()}
        path = [word for word in os.environ.get("PATH", "").split(os.pathsep) if word not in others]
        return {
            "PATH": os.pathsep.join([str(self.folder / "bin"), *path]),
            "KUBECONFIG": str(self.kubeconfig),
            "SLURM_CONF": str(self.head / "etc/slurm/slurm.conf"),
            "SLINKY_SANDBOX": self.record.name,
            "SLINKY_SLURM_URL": self.slurm_server,
            "SLINKY_SLURM_TOKEN_FILE": str(self.token_file),
        } | ({"SLINKY_BRIDGE_CONFIG": str(self.tools_config)} if self.tools_config.exists() else {})


INSIDE_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SLURM_COMMANDS = [
    "sacct",
    "sacctmgr",
    "salloc",
    "sattach",
    "sbatch",
    "sbcast",
    "scancel",
    "scontrol",
    "scrontab",
    "sdiag",
    "sinfo",
    "sprio",
    "squeue",
    "sreport",
    "srun",
    "sshare",
    "sstat",
    "strigger",
    "sview",
]


def entering(holder: int, command: list[str], user: str = "", directory: str = "/") -> list[str]:
    """In `directory` where the machine has it, else in its root."""
    become = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"] if user else []
    check = 'cd "$0" 2>/dev/null || cd /; command -v "$1" >/dev/null || { echo "there is no command $1 in the sandbox" >&2; exit 127; }; '
    go_there = ["sh", "-c", f'{check}exec "$@"', directory]
    return ["nsenter", "--target", str(holder), "--mount", "--net", "--uts", "--pid", "--wdns=/", "--", *go_there, *become, *command]
