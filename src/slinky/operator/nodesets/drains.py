"""May a pod go? The one place that answers, and it answers no until Slurm has said that no job is there.

In: a worker and the snapshot it is of. Out: a `Word`, with the sentence that says why. Also whose a Slurm node's drain is.
What must stay true: GO for a pod that may hold a job only where Slurm is current, has the node drained (or down for good) and names no job on it, or where the NodeSet's own deadline is over; whatever is not known is WAIT.
"""

import datetime as dt
import enum
from dataclasses import dataclass

from slinky.operator.nodesets.snapshot import ClusterStands, JobOnNodes, Snapshot, Worker
from slinky.slurm import Node as SlurmNode

__all__ = ["Verdict", "Word", "is_out_of_use", "is_overdue", "jobs_on", "may_go", "told"]

PATIENCE = dt.timedelta(minutes=5)  # for a slurmd that is not ready to make itself known to Slurm
NOT_RESPONDING = "Not responding"  # slurmctld's own reason: such a node may come back by itself


class Verdict(enum.Enum):
    GO = enum.auto()
    DRAIN = enum.auto()  # it takes jobs still
    BUSY = enum.auto()
    LOOK = enum.auto()  # jobs have to be asked for first
    WAIT = enum.auto()  # nobody can tell


@dataclass(frozen=True, slots=True)
class Word:
    """`on_slurm`: GO because Slurm said so. `unchanged`: GO for the pod as it was seen, and for no later version of it. `killed`: jobs that go with it."""

    verdict: Verdict
    why: str
    on_slurm: bool = False
    unchanged: bool = False
    killed: tuple[JobOnNodes, ...] | None = None

    @property
    def goes(self) -> bool:
        return self.verdict is Verdict.GO


def may_go(worker: Worker, snapshot: Snapshot, cause: str | None = None) -> Word:
    """`cause`: why it is to go now; a deadline counts from when it was cordoned for that, and for nothing else."""
    if worker.pod.is_over:
        return Word(Verdict.GO, "its containers have ended")
    if not worker.is_assigned:
        return Word(Verdict.GO, "it was never on a node", unchanged=True)
    if worker.was_never_started:
        return Word(Verdict.GO, "its slurmd never started", unchanged=True)
    if snapshot.controller is ClusterStands.GONE and snapshot.is_being_deleted:
        return Word(Verdict.GO, "its cluster's Controller is deleted, and so is its NodeSet")
    if not snapshot.slurm.is_current:
        return Word(Verdict.WAIT, "Slurm does not answer")
    if worker.slurm is None:
        return _unknown(worker, snapshot)
    return _known(worker.slurm, snapshot, is_overdue(worker, snapshot, cause))


def _unknown(worker: Worker, snapshot: Snapshot) -> Word:
    """Slurm answers and has no such node. That is no word on jobs while slurmd runs: Slurm may have lost its memory."""
    if worker.is_stopped:
        return Word(Verdict.GO, "its slurmd does not run, and Slurm does not know it", unchanged=True)
    quiet_since = worker.ready_changed_at
    answers_since = snapshot.slurm.current_since
    if not worker.is_ready and quiet_since and answers_since and snapshot.now - max(quiet_since, answers_since) >= PATIENCE:
        return Word(Verdict.GO, "it is not ready, and Slurm has not known it for long", unchanged=True)
    return Word(Verdict.WAIT, f"Slurm does not know node {worker.hostname}, though its pod runs")


def _known(node: SlurmNode, snapshot: Snapshot, overdue: bool) -> Word:
    if not is_out_of_use(node):
        return Word(Verdict.DRAIN, f"Slurm may still give jobs to node {node.name}")
    jobs = jobs_on(node.name, snapshot)
    if jobs is None and (overdue or not node.is_busy):  # a suspended job does not show on its node
        return Word(Verdict.LOOK, f"jobs on node {node.name} are not known yet")
    if not node.is_busy and not jobs:
        return Word(Verdict.GO, f"node {node.name} is drained", on_slurm=True)
    if overdue:
        return Word(Verdict.GO, "its deadline is over", killed=jobs)
    return Word(Verdict.BUSY, f"{told(jobs)} on node {node.name}")


def is_out_of_use(node: SlurmNode) -> bool:
    """Slurm gives it no job before somebody says so. A node that is down for not responding may come back by itself."""
    if "DRAIN" in node.states:
        return "UNDRAIN" not in node.states
    return node.is_down and bool(node.reason) and not node.reason.startswith(NOT_RESPONDING)


def jobs_on(name: str, snapshot: Snapshot) -> tuple[JobOnNodes, ...] | None:
    return None if snapshot.slurm.jobs is None else snapshot.slurm.jobs_by_node.get(name, ())


def is_overdue(worker: Worker, snapshot: Snapshot, cause: str | None) -> bool:
    seconds = snapshot.nodeset.spec.drain_deadline_seconds
    since = worker.leaves_since
    if cause is None or worker.cause.partition(";")[0] != cause:
        return False
    return seconds is not None and since is not None and snapshot.now - since >= dt.timedelta(seconds=seconds)


def told(jobs: tuple[JobOnNodes, ...] | None) -> str:
    if not jobs:
        return "a job is"
    named = ", ".join(str(job.id) for job in jobs[:10]) + (" …" if len(jobs) > 10 else "")
    return f"job {named} is" if len(jobs) == 1 else f"jobs {named} are"
