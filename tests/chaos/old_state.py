"""Slurm set back to how it was a while ago: its state folder kept, and put back later.

What must stay true: slurmctld is down while its files are exchanged, and it is started again whatever happens.
"""

import shutil
import time
from pathlib import Path

from slinky.sandbox.handle import Sandbox

__all__ = ["OldState"]


class OldState:
    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox = sandbox
        self._there = sandbox.head / "var/lib/slurm/slurmctld"
        self._kept = folder / "old-slurm-state"
        self.kept_at = 0.0

    async def keep(self) -> None:
        """As it is on disk: slurmctld writes its jobs down every few seconds."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self._there, self._kept, symlinks=True)
        self.kept_at = time.time()

    async def restore(self) -> None:
        part = await self._sandbox.stop("slurmctld")
        try:
            for path in self._kept.iterdir():
                if path.is_file():
                    shutil.copyfile(path, self._there / path.name)
        finally:
            await self._sandbox.link.start(part)
