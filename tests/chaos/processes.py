"""The bridge's processes of a run: two that may lead, and the webhook; each with lines of its own to the servers.

What must stay true: who is killed here is started again, as a Deployment would; who ends without being told to is remembered in `crashes`, and started again too.
"""

import asyncio
import re
import signal
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slinky.kube import LEASES, Client, KubeError
from slinky.sandbox.bridge import SandboxBridge, bridge_settings, free_port
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.processes import Processes as SlinkyProcesses
from slinky.slurm import MintedToken
from tests.chaos.lines import Lines, kubeconfig
from tests.chaos.workload import NAMESPACES

__all__ = ["ADMISSION", "CLUSTER", "LEASE_SECONDS", "RUNNERS", "Processes", "Runners", "Unhurried"]

RUNNERS = ("first", "second")
ADMISSION = "admission"
CLUSTER = "chaos"
LEASE_SECONDS = 12
LOOK_SECONDS = 0.2
TROUBLE = re.compile(r"^Traceback|never retrieved|never awaited|which this Kubernetes did not write", re.MULTILINE)


class Unhurried(SlinkyProcesses):
    """Need not be ready: who is ready when everything fails?"""

    async def _ready(self, part: str) -> None:
        if self.log(part) == "":
            with suppress(SandboxError):
                await super()._ready(part)

    def ended(self, part: str) -> int | None:
        process = self._processes.get(part)
        return process.returncode if process else None

    def send(self, part: str, number: signal.Signals) -> None:
        with suppress(KeyError, ProcessLookupError):
            self._processes[part].send_signal(number)


class _Bridge(Unhurried, SandboxBridge):
    pass


class Runners:
    """Processes by name, one part each; those of `RUNNERS` compete for the Lease."""

    def __init__(self, kube: Client) -> None:
        self._kube = kube
        self._all: dict[str, Any] = {}  # Unhurried, with a `start(part)`
        self._told: set[str] = set()  # to be down
        self._stopped: set[str] = set()
        self.crashes: list[str] = []

    @staticmethod
    def _part(name: str) -> str:
        return "admission" if name == ADMISSION else "run"

    async def __aenter__(self) -> Self:
        for name in reversed(self._all):
            await self._all[name].start(self._part(name))
        self._watch = asyncio.create_task(self._restart_who_ends(), name="restarts")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        for name in list(self._stopped):
            self.go_on(name)
        for name, process in self._all.items():
            if process.ended(self._part(name)) is None and name not in self._told:
                try:
                    await process.stop(self._part(name))
                except SandboxError as problem:
                    self.crashes.append(str(problem).splitlines()[0])
        for process in self._all.values():
            process._processes.clear()

    async def leader(self) -> str:
        """The name of the one that the Lease names; the first where it names neither."""
        holder = ""
        with suppress(KubeError):
            holder = (await self._kube.get(LEASES, CLUSTER, "kube-system", seconds=2)).spec.holder_identity or ""
        return next((name for name in RUNNERS if holder and holder in self.log(name)), RUNNERS[0])

    def log(self, name: str) -> str:
        return str(self._all[name].log(self._part(name)))

    def troubles(self) -> list[str]:
        """What no log should have."""
        return [f"{name}: {found}" for name in self._all for found in TROUBLE.findall(self.log(name))]

    async def restart(self, name: str, number: signal.Signals, seconds: float) -> None:
        """End it, and start it again after a while."""
        if name in self._told:
            return
        self._told.add(name)
        try:
            self.go_on(name)
            with suppress(SandboxError, KeyError):
                await self._all[name].stop(self._part(name), number)
            await asyncio.sleep(seconds)
            await self._all[name].start(self._part(name))
        finally:
            self._told.discard(name)

    def halt(self, name: str) -> None:
        self._stopped.add(name)
        self._all[name].send(self._part(name), signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self._stopped.discard(name)
        self._all[name].send(self._part(name), signal.SIGCONT)

    async def _restart_who_ends(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for name, process in self._all.items():
                code = process.ended(self._part(name))
                if code is not None and name not in self._told:
                    self.crashes.append(f"{name} ended with {code}: {self.log(name)[-300:]}")
                    await process.start(self._part(name))


class Processes(Runners):
    """`async with Processes(sandbox, folder, lines, kube)`: all three run."""

    def __init__(self, sandbox: Sandbox, folder: Path, lines: Lines, kube: Client, **settings: Any) -> None:
        super().__init__(kube)
        self._minted = MintedToken(sandbox.head / "etc/slurm/jwt_hs256.key", "root", lifespan=86400)
        self._key = sandbox.head / "etc/slurm/jwt_hs256.key"
        self.token_file = folder / "token"
        self.token_file.write_text(self._minted.token())
        base = _settings(sandbox, self.token_file, settings)
        for name in (*RUNNERS, ADMISSION):
            own = base | {"slurmRestApi": lines.slurm[name].url, "healthPort": free_port()}
            self._all[name] = _Bridge(sandbox, own, folder / name)
            (folder / name / "kubeconfig").write_text(kubeconfig(lines.kube[name].url))
            self._all[name].kubeconfigs[self._part(name)] = folder / name / "kubeconfig"

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await super().__aexit__(kind, error, trace)
        await self._all[ADMISSION].end()

    def new_token(self, *, expired: bool = False) -> None:
        """In the bridge's file: another one, good for a day, or one that is over."""
        minted = MintedToken(self._key, "root", lifespan=86400)
        if expired:
            minted = MintedToken(self._key, "root", lifespan=1, clock=lambda: 1_700_000_000.0)
        fresh = self.token_file.with_suffix(".new")
        fresh.write_text(minted.token())
        fresh.rename(self.token_file)


def _settings(sandbox: Sandbox, token_file: Path, more: dict[str, Any]) -> dict[str, Any]:
    settings = bridge_settings(
        sandbox,
        CLUSTER,
        managedNamespaces=list(NAMESPACES),
        cluster=CLUSTER,
        nodes={"register": True, "settleSeconds": 1, "flapSeconds": 60},
        leader={"name": CLUSTER, "seconds": LEASE_SECONDS},
        status={"seconds": 2, "rate": 50},
        **more,
    )
    settings["slurm"]["tokenFile"] = str(token_file)
    return settings
