"""What is known of a cluster's jobs, one by one: slurmrestd lists by no node and no partition, and a full list costs 8 KB and more for each job there is.

In: the states of all jobs, 80 bytes each. Out: which jobs to read by id, and what was read of them.
*Invariants:* one look reads at most `AT_MOST` jobs that no pod's life hangs on, however many run; a job that has left its state is forgotten; what was read longer than `GOOD_FOR` seconds ago is not used.
"""

import asyncio
from collections.abc import Iterable, Sequence

from slinky.slurm import Job, NotFoundError, SlurmClient

__all__ = ["AT_MOST", "GOOD_FOR", "JobLedger", "read"]

AT_MOST = 256
AT_ONCE = 16
GOOD_FOR = 600.0

Records = tuple[Job, ...]


class JobLedger:
    """Jobs by the id that Slurm's list of states has for them. An array's tasks stand under the array's id. `now` is time.monotonic()."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[float, Records]] = {}

    def keep(self, job_ids: Iterable[int]) -> None:
        """Forget all others."""
        kept = set(job_ids)
        self._read = {job_id: held for job_id, held in self._read.items() if job_id in kept}

    def known(self, job_ids: Iterable[int], now: float) -> dict[int, Records]:
        return {one: self._read[one][1] for one in job_ids if one in self._read and now - self._read[one][0] < GOOD_FOR}

    def next_to_read(self, job_ids: Iterable[int], now: float, *, renew: bool = False) -> list[int]:
        """Those that are not known, the oldest jobs first, which are the likeliest to end soon; with `renew` also those that were read longest ago."""
        ids = set(job_ids)
        unknown = sorted(ids - self.known(ids, now).keys())[:AT_MOST]
        if not renew:
            return unknown
        again = sorted(ids - set(unknown), key=lambda one: self._read.get(one, (now, ()))[0])
        return unknown + again[: AT_MOST - len(unknown)]

    def learn(self, found: dict[int, Records], now: float) -> None:
        self._read |= {job_id: (now, records) for job_id, records in found.items()}


async def read(slurm: SlurmClient, job_ids: Sequence[int]) -> dict[int, Records]:
    """These jobs, one request each; none where Slurm does not know the job any more. Raises SlurmError."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(job_id: int) -> Records:
        async with turns:
            try:
                return tuple(await slurm.jobs.parts(job_id, brief=True))
            except NotFoundError:
                return ()

    return dict(zip(job_ids, await asyncio.gather(*map(one, job_ids)), strict=True))
