"""A bridge of a test's own, to be stopped, cut off and misled, and a team of its; and Slurm's memory, to be put aside, brought back and taken away."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from slinky.sandbox import kwoknodes
from slinky.sandbox.bridge import SandboxBridge, bridge_settings
from slinky.sandbox.handle import Sandbox
from tests.bridge_sandbox.conftest import Team, open_team
from tests.conftest import Partition

__all__ = ["SlurmMemory", "jobs_of", "metric", "own_bridge", "readiness"]

_numbers = itertools.count()
STATE = "/var/lib/slurm/slurmctld"


@asynccontextmanager
async def own_bridge(
    sandbox: Sandbox, partition: Partition, folder: Path, parts: tuple[str, ...] = ("admission", "run"), **settings: Any
) -> AsyncIterator[tuple[SandboxBridge, Team]]:
    """With a selector of its own. Parts that are not to be started are the caller's, but `run` runs at the end, when the team's pods go."""
    name = f"faulty{next(_numbers)}"
    said = {
        "managedNamespaceSelector": {"matchLabels": {"bridge": name}},
        "status": {"seconds": 1, "rate": 50},
        "leader": {"name": name, "seconds": 4},
    }
    bridge = SandboxBridge(sandbox, await asyncio.to_thread(bridge_settings, sandbox, name, **{**said, **settings}), folder)
    try:
        for part in parts:
            await bridge.start(part)
        async with open_team(sandbox, partition, label=name) as team:
            yield bridge, team
    finally:
        await bridge.end()


async def jobs_of(team: Team) -> dict[int, str]:
    """All that Slurm has in the team's partition, by their state."""
    told = await team.head("squeue", "-h", "-p", team.partition.name, "-t", "all", "-o", "%i %T")
    return {int(job_id): state for job_id, state in (line.split() for line in told.splitlines())}


async def readiness(bridge: SandboxBridge) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"{bridge.health()}/readyz") as answer:
        return answer.status, await answer.text()


async def metric(bridge: SandboxBridge, name: str) -> float:
    """The sum over its labels."""
    async with aiohttp.ClientSession() as session, session.get(f"{bridge.health()}/metrics") as answer:
        text = await answer.text()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


class SlurmMemory:
    """What slurmctld keeps on disk."""

    def __init__(self, sandbox: Sandbox, partition: Partition) -> None:
        self.sandbox, self.partition = sandbox, partition

    async def put_aside(self, name: str) -> None:
        """A copy of it, as it is now: slurmctld writes it when it ends."""
        part = await self.sandbox.stop("slurmctld")
        await self._run(f"rm -rf {STATE}.{name} && cp -a {STATE} {STATE}.{name}")
        await self.sandbox.link.start(part)
        await self._answers()

    async def bring_back(self, name: str) -> None:
        """Slurm is as it was then."""
        part = await self.sandbox.stop("slurmctld")
        await self._run(f"rm -rf {STATE} && cp -a {STATE}.{name} {STATE}")
        await self.sandbox.link.start(part)
        await self._answers()

    async def take_away(self) -> None:
        """Slurm begins again: no job, no node that was made at run time, ids from 1."""
        part = await self.sandbox.stop("slurmctld")
        await self._run(f"find {STATE} -mindepth 1 -delete")
        await self.sandbox.link.start(part)
        await self._answers()

    async def make_nodes(self) -> None:
        await kwoknodes.register(self.sandbox)
        await self._run(f"scontrol create PartitionName={self.partition.name} Nodes={','.join(self.partition.nodes)}")

    async def _answers(self) -> None:
        async def pings() -> bool:
            return "UP" in await self.sandbox.link.run("head", "scontrol", "ping")

        await self.sandbox.until("slurmctld", "it answered", pings)

    async def _run(self, script: str) -> None:
        await self.sandbox.link.run("head", "sh", "-c", script)
