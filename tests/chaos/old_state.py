"""Slurm set back to how it was a while ago: its state folder kept, and put back later; and the administrator, who knows that what it forgot will not come back.

What must stay true: slurmctld is down while its files are exchanged, and it is started again whatever happens; what it had done until then is written down before, for accounting tells it no more: jobs that are forgotten stay RUNNING
there, without their marker, and those that run again have another start.
"""

import asyncio
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from slinky.bridge.keys import ABSENCE_CONFIRMED
from slinky.kube import LEASES, Client, KubeError
from slinky.sandbox.handle import Sandbox
from tests.chaos.history import FORGOTTEN, JobRecord
from tests.chaos.processes import CLUSTER, RUNNERS, Processes
from tests.chaos.slurm_side import completed, live_jobs, records

__all__ = ["OldState", "confirm_alarms", "with_forgotten"]

ALARM = re.compile(r"absence alarm (\w+):")
LOOK_SECONDS = 2.0


class OldState:
    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox = sandbox
        self._there = sandbox.head / "var/lib/slurm/slurmctld"
        self._kept = folder / "old-slurm-state"
        self.kept_at = 0.0
        self.set_back = 0.0
        self.before: list[JobRecord] = []

    async def keep(self) -> None:
        """As it is on disk: slurmctld writes its jobs down every few seconds."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self._there, self._kept, symlinks=True)
        self.kept_at = time.time()

    async def restore(self) -> None:
        self.before = completed(await records(self._sandbox, self.kept_at - 86400), await live_jobs(self._sandbox) or [])
        self.set_back = time.time()
        part = await self._sandbox.stop("slurmctld")
        try:
            for path in self._kept.iterdir():
                if path.is_file():
                    shutil.copyfile(path, self._there / path.name)
        finally:
            await self._sandbox.link.start(part)


def with_forgotten(before: Iterable[JobRecord], after: Sequence[JobRecord], set_back: float) -> list[JobRecord]:
    """What Slurm did before it was set back, beside what accounting has now. A job's first life is one record, its second another; of one that was forgotten that moment is the end."""
    now = {(job.job_id, job.submit): job for job in after if job.cluster or job.end}
    found = list(now.values())
    for job in before:
        lives_on = now.get((job.job_id, job.submit))
        if lives_on is None:
            found.append(job if job.end else msgspec.structs.replace(job, state=FORGOTTEN, end=set_back))
        elif (job.start, job.end) != (lives_on.start, lives_on.end) and (job.end or job.start != lives_on.start):
            found.append(msgspec.structs.replace(job, end=job.end or set_back))
    return found


async def confirm_alarms(kube: Client, processes: Processes) -> None:
    """For ever: each alarm, with the word that it gives."""
    said: set[str] = set()
    while True:
        for name in RUNNERS:
            for word in ALARM.findall(processes.log(name)):
                if word not in said:
                    with suppress(KubeError):
                        await kube.patch(LEASES, CLUSTER, {"metadata": {"annotations": {ABSENCE_CONFIRMED: word}}}, "kube-system")
                        said.add(word)
        await asyncio.sleep(LOOK_SECONDS)
