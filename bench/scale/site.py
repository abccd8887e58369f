"""What all parts share: a sandbox for one part, a folder for its logs, and the common goal."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.bridge.ground import Ground, standing_on
from bench.bridge.pods import NAMESPACE
from bench.bridge.process import Bridge, prefer, running, settings_for
from bench.quiet import until_quiet
from bench.rows import Row
from slinky.bridge.settings import Settings
from slinky.sandbox.down import down
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.identity import host_pid
from slinky.sandbox.progress import Progress
from slinky.sandbox.shape import Shape
from slinky.sandbox.up import up

__all__ = ["Site", "block_row", "bridge_on", "in_sandbox", "longest_block", "prefer_slurm", "until"]

NAME = "bench-scale"
BLOCK_MS = 250.0
BRIDGE_PRIORITY, SLURM_PRIORITY = -10, -5  # nice values
QUIET_SECONDS = 60.0  # that a busy machine is waited for at most
KEPT_LOGS = Path(__file__).parents[2] / "artefacts" / "bench" / "scale-logs"

Say = Callable[[str], None]
Probe = Callable[[], Awaitable[bool]]


class Site:
    """The sandbox of one part, and the settings of its bridge."""

    def __init__(self, ground: Ground, folder: Path, say: Say, patience: float) -> None:
        self.ground, self.folder, self.say, self._patience = ground, folder, say, patience
        self.settings = settings_for(ground.sandbox, NAMESPACE)

    @property
    def sandbox(self) -> Sandbox:
        return self.ground.sandbox

    async def head(self, *command: str) -> str:
        """What a command says on the machine that slurmctld runs on."""
        return await self.sandbox.link.run("head", *command)

    async def quiet(self) -> None:
        """Wait until the machine has nothing left to do of what came before."""
        await until_quiet(self.say, self._patience)


Work = Callable[[Site], Awaitable[list[Row]]]


@asynccontextmanager
async def bridge_on(site: Site, settings: Settings | None = None) -> AsyncIterator[Bridge]:
    """The bridge, with priority over all else on its cores.

    Without it, most of a block of the loop is time for which other processes had all cores.
    """
    settings = settings or site.settings
    async with running(site.sandbox, settings, site.folder, priority=BRIDGE_PRIORITY) as bridge:
        yield bridge


async def prefer_slurm(sandbox: Sandbox) -> None:
    """Less than the bridge: on a cluster slurmctld has a machine of its own."""
    parts = await sandbox.link.parts()
    for name in ("slurmctld", "slurmrestd"):
        prefer(host_pid(sandbox.record.keeper, parts[name].pid), SLURM_PRIORITY)


def in_sandbox(title: str, shape: Shape, work: Work, *, quick: bool) -> list[Row]:
    """Do the work in a new sandbox, which is gone afterwards. The logs of both sides are kept."""
    with Progress() as progress:
        down(NAME)
        try:
            sandbox = asyncio.run(up(NAME, shape, progress))
            with progress.step(title) as step:
                return asyncio.run(_run(sandbox, step.say, work, 0.0 if quick else QUIET_SECONDS))
        finally:
            down(NAME, KEPT_LOGS)


async def _run(sandbox: Sandbox, say: Say, work: Work, patience: float) -> list[Row]:
    async with _site(sandbox, say, patience) as site:
        return await work(site)


@asynccontextmanager
async def _site(sandbox: Sandbox, say: Say, patience: float) -> AsyncIterator[Site]:
    folder = sandbox.folder / "bench"
    folder.mkdir(exist_ok=True)
    await prefer_slurm(sandbox)
    async with standing_on(sandbox) as ground:
        try:
            yield Site(ground, folder, _loud(say), patience)
        finally:
            shutil.rmtree(KEPT_LOGS, ignore_errors=True)
            shutil.copytree(folder, KEPT_LOGS)


def _loud(say: Say) -> Say:
    """Print each step too: a run takes long, and its log tells how far it is."""

    def told(what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
        say(what)

    return told


def block_row(about: str, blocks: Sequence[float], when: str = "") -> Row:
    """The longest block of the loop, in seconds, of one or several processes of the bridge."""
    what = f"{about}: longest block of the bridge's loop{when}"
    return Row(what, max(blocks) * 1000, "ms", at_most=BLOCK_MS)


async def until(what: str, probe: Probe, seconds: float, pause: float = 0.25) -> None:
    """Wait until the probe is true; TimeoutError says what was waited for."""
    deadline = time.monotonic() + seconds
    while not await probe():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {seconds:g} s")
        await asyncio.sleep(pause)


async def longest_block(bridge: Bridge) -> float:
    """In seconds, since the process started."""
    return await bridge.largest("slinky_loop_longest_block_seconds")
