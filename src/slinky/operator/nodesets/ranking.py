"""Who goes first, where some have to: those whom fewest will miss.

In: workers and the snapshot they are of. Out: a key that sorts them, the first to go first; and until when jobs hold a worker.
What must stay true: the order is the original's (unassigned, pending, not ready, cheap, soonest free, cordoned, highest number, youngest), and total: equal snapshots give equal orders.
"""

import datetime as dt

from slinky.operator.nodesets import marks
from slinky.operator.nodesets.drains import jobs_on
from slinky.operator.nodesets.snapshot import Snapshot, Worker

__all__ = ["FOREVER", "by_need", "held_until"]

FOREVER = dt.datetime(2262, 4, 11, tzinfo=dt.UTC)  # as far as the original counts
NEVER = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}

Rank = tuple[bool, int, bool, int, dt.datetime, bool, int, float, float, str]


def by_need(worker: Worker, snapshot: Snapshot) -> Rank:
    """The least goes first."""
    pod = worker.pod
    return (
        worker.is_assigned,
        PHASES.get(pod.status.phase, 0),
        worker.is_ready,
        deletion_cost(worker),
        held_until(worker, snapshot) or NEVER,
        not worker.is_cordoned,
        -worker.ordinal,
        -_seconds(worker.ready_changed_at if worker.is_ready else None),
        -_seconds(pod.metadata.creation_timestamp),
        pod.metadata.name,
    )


def deletion_cost(worker: Worker) -> int:
    """A whole number of 32 bits, or 0."""
    written = worker.pod.metadata.annotations.get(marks.DELETION_COST, "")
    try:
        cost = int(written)
    except ValueError:
        return 0
    return cost if -(2**31) <= cost < 2**31 else 0


def held_until(worker: Worker, snapshot: Snapshot) -> dt.datetime | None:
    """None where no job is there. Where jobs were not asked for, what was last written on the pod."""
    if worker.slurm is not None and not worker.slurm.is_busy:
        return None
    jobs = jobs_on(worker.hostname, snapshot)
    if jobs is None:
        return _written(worker) or (FOREVER if worker.slurm is not None and worker.slurm.is_busy else None)
    if not jobs:
        if worker.slurm is None or not worker.slurm.is_busy:
            return None
        return (None if snapshot.slurm.knows_all_jobs else _written(worker)) or FOREVER
    return max((job.ends or FOREVER) for job in jobs)


def _written(worker: Worker) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(worker.pod.metadata.annotations.get(marks.DEADLINE, ""))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _seconds(moment: dt.datetime | None) -> float:
    return moment.timestamp() if moment else 0.0
