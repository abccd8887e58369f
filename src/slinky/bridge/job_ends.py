"""Ending a job in Slurm: with the exit code that its pods had where that can be said, else as cancelled.

Comes in: a job, how its pods ended, and why it ends. Goes out: its end in Slurm, with the outcome in its comment where nothing else can hold it. What must stay true: components of a hetjob end before their leader, as none outlives it; a job that is over
already is no failure; that its comment cannot be written does not keep a job from ending.
"""

import logging
from collections.abc import Mapping
from typing import Required, TypedDict

from slinky.slurm import (
    AlreadyDoneError,
    ForbiddenError,
    JobCompletion,
    JobDescription,
    NotFoundError,
    RefusedError,
    SlurmClient,
    UnsupportedError,
)

__all__ = ["JobEnds", "Manner"]

log = logging.getLogger(__name__)

LONGEST_COMMENT = 1000  # Slurm refuses one of much more


class Manner(TypedDict, total=False):
    """`running`: it had begun. `components` are those of a hetjob but the leader, and the exit code of each. `noted`: the comment says why also where there is no exit code."""

    running: Required[bool]
    components: Mapping[int, int]
    noted: bool


class JobEnds:
    """`completion` where libslurm is at hand."""

    def __init__(self, slurm: SlurmClient, completion: JobCompletion | None) -> None:
        self._slurm = slurm
        self._completion = completion

    async def end(self, job_id: int, exit_code: int | None, why: str, manner: Manner) -> None:
        codes = {**manner.get("components", {}), job_id: exit_code}
        if exit_code is not None and manner["running"] and self._completion and await self._all_completed(self._completion, codes):
            return
        try:
            if exit_code is not None:
                await self._comment(job_id, f"{why}, exit code {exit_code}")
            elif manner.get("noted"):
                await self._comment(job_id, why)
            await self._slurm.jobs.cancel(job_id)
        except (NotFoundError, AlreadyDoneError):
            log.debug("job %d is over already", job_id)

    async def _comment(self, job_id: int, text: str) -> None:
        """What Slurm has against it is logged, no more: a job that names a node which was deleted cannot be changed, but can be ended."""
        try:
            await self._slurm.jobs.update(job_id, JobDescription(comment=text[:LONGEST_COMMENT]))
        except (NotFoundError, AlreadyDoneError, ForbiddenError):
            raise
        except RefusedError as error:
            log.warning("job %d ends without its outcome in its comment (%s): %s", job_id, text, error)

    async def _all_completed(self, completion: JobCompletion, codes: Mapping[int, int | None]) -> bool:
        for job_id, exit_code in codes.items():
            if not await self._completed(completion, job_id, exit_code or 0):
                return False
        return True

    async def _completed(self, completion: JobCompletion, job_id: int, exit_code: int) -> bool:
        try:
            await completion.complete(job_id, exit_code)
        except (NotFoundError, AlreadyDoneError):
            log.debug("job %d is over already", job_id)
        except UnsupportedError as error:
            log.info("job %d is cancelled instead of completed: %s", job_id, error)
            return False
        return True
