"""Ending a job where Slurm does not take all that is said of it."""

from typing import Any

import pytest

from slinky.bridge.executor import Executor
from slinky.bridge.translate import Site
from slinky.slurm import AlreadyDoneError, JobDescription, NotFoundError, RefusedError, SlurmError


class Jobs:
    """In the stead of Slurm's: each update fails with `refusal`."""

    def __init__(self, refusal: SlurmError | None) -> None:
        self.jobs = self
        self.comments: list[str | None] = []
        self.cancelled: list[int] = []
        self._refusal = refusal

    async def update(self, _: int, change: JobDescription) -> None:
        if self._refusal:
            raise self._refusal
        self.comments.append(change.comment)

    async def cancel(self, job_id: int) -> None:
        self.cancelled.append(job_id)


def executor(slurm: Jobs) -> Executor:
    kube: Any = None
    return Executor(kube, slurm, Site(cluster="c1", partition="bridge"))  # type: ignore[arg-type]


async def test_without_libslurm_a_job_is_cancelled_with_its_outcome_in_its_comment() -> None:
    slurm = Jobs(None)
    await executor(slurm).end_job(7, 3, "the pod failed", running=True)
    assert (slurm.comments, slurm.cancelled) == (["the pod failed, exit code 3"], [7])


async def test_a_job_that_cannot_be_changed_any_more_is_cancelled_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    slurm = Jobs(RefusedError("Invalid node name specified", number=2018))
    await executor(slurm).end_job(7, 0, "all its pods succeeded", running=True)
    assert slurm.cancelled == [7]
    assert "job 7 ends without its outcome in its comment" in caplog.text


@pytest.mark.parametrize("over", [NotFoundError("no such job"), AlreadyDoneError("it is over")])
async def test_a_job_that_is_over_is_left_alone(over: SlurmError) -> None:
    slurm = Jobs(over)
    await executor(slurm).end_job(7, 0, "all its pods succeeded", running=True)
    assert slurm.cancelled == []
