"""May a pod go? The one place that answers, and it answers no until Slurm has said that no job is there.

In: a worker and the snapshot it is of. Out: a `Word`, with the sentence that says why.
What must stay true: GO for a pod that may hold a job only where Slurm is current, has the node drained and names no job on it, or where an administrator has said so in writing: a deadline in the NodeSet's spec that is over, or the annotation that gives
its jobs up. A node that is down and not drained may come back and take a job at any moment. Whatever is not known is WAIT.
"""

import datetime as dt
import enum
from dataclasses import dataclass

from slinky.operator.nodesets.snapshot import ClusterStands, JobOnNodes, Snapshot, Worker
from slinky.slurm import Node as SlurmNode

__all__ = ["Verdict", "Word", "is_drained", "is_overdue", "jobs_on", "known_of", "may_go", "told", "unasked"]

# For a slurmd that was never ready to make itself known to Slurm. It answers within seconds, and
# without an answer it takes no job; longer would only keep a corrected template waiting.
PATIENCE = dt.timedelta(seconds=30)


class Verdict(enum.Enum):
    GO = enum.auto()
    DRAIN = enum.auto()  # it takes jobs still
    BUSY = enum.auto()
    LOOK = enum.auto()  # jobs have to be asked for first
    WAIT = enum.auto()  # nobody can tell


class Allowed(enum.StrEnum):
    """Who lets a worker go with what may run there: the reason of the Event that says so."""

    DEADLINE = "DrainDeadlineExceeded"
    ABANDONED = "JobsAbandoned"


@dataclass(frozen=True, slots=True)
class Word:
    """`on_slurm`: GO because Slurm said so. `unchanged`: GO for the pod as it was seen, and for no later version of it. `allowed`: GO whatever runs there; `killed`: the jobs that are known to."""

    verdict: Verdict
    why: str
    on_slurm: bool = False
    unchanged: bool = False
    allowed: Allowed | None = None
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
    if snapshot.is_abandoned and cause is not None:
        return Word(Verdict.GO, "its jobs are given up", allowed=Allowed.ABANDONED, killed=_known_on(worker.hostname, snapshot))
    overdue = is_overdue(worker, snapshot, cause)
    if not snapshot.slurm.is_current:
        return _unheard(snapshot, overdue)
    if worker.slurm is None:
        return _unknown(worker, snapshot, overdue)
    return _known(worker.slurm, snapshot, overdue)


def unasked(snapshot: Snapshot) -> str:
    """Why nobody can be asked, and not for now only; empty where Slurm is silent and may answer again."""
    match snapshot.controller:
        case ClusterStands.MUTE:
            return "the cluster has no RestApi"
        case ClusterStands.GONE:
            return f"Controller {snapshot.nodeset.spec.controller_ref.name} is gone"
    return ""


def _unheard(snapshot: Snapshot, overdue: bool) -> Word:
    """A deadline counts where it was written knowing that nobody can be asked, and not while Slurm is silent for a moment."""
    if not (why := unasked(snapshot)):
        return Word(Verdict.WAIT, "Slurm does not answer")
    if overdue:
        return Word(Verdict.GO, f"its deadline is over, and {why}", allowed=Allowed.DEADLINE)
    return Word(Verdict.WAIT, f"{why}, so nobody can say whether jobs run there")


def _unknown(worker: Worker, snapshot: Snapshot, overdue: bool) -> Word:
    """Slurm answers and has no such node. That is no word on jobs while slurmd runs: Slurm may have lost its memory. A slurmd that never answered its readiness probe, which asks at the port that jobs come by, has none."""
    if worker.is_stopped:
        return Word(Verdict.GO, "its slurmd does not run, and Slurm does not know it", unchanged=True)
    quiet_since, answers_since = worker.never_ready_since, snapshot.slurm.current_since
    if quiet_since and answers_since and snapshot.now - max(quiet_since, answers_since) >= PATIENCE:
        return Word(Verdict.GO, "it was never ready, and Slurm has not known it for long", unchanged=True)
    if overdue:
        return Word(Verdict.GO, "its deadline is over, and Slurm does not know it", allowed=Allowed.DEADLINE)
    return Word(
        Verdict.WAIT,
        f"Slurm does not know node {worker.hostname}, though its slurmd runs: jobs of a Slurm that lost its memory may be there",
    )


def _known(node: SlurmNode, snapshot: Snapshot, overdue: bool) -> Word:
    if not is_drained(node):
        return Word(Verdict.DRAIN, f"Slurm may still give jobs to node {node.name}")
    jobs = jobs_on(node.name, snapshot)
    if jobs is None and (overdue or not node.is_busy):  # a suspended job does not show on its node
        return Word(Verdict.LOOK, f"jobs on node {node.name} are not known yet")
    if not node.is_busy and not jobs:
        return Word(Verdict.GO, f"node {node.name} is drained", on_slurm=True)
    if overdue:
        return Word(Verdict.GO, "its deadline is over", allowed=Allowed.DEADLINE, killed=jobs or None)
    return Word(Verdict.BUSY, f"{told(jobs)} on node {node.name}")


def is_drained(node: SlurmNode) -> bool:
    """Slurm gives it no job before somebody says so. Being down is not that: a slurmd that comes back is used again (ReturnToService=2)."""
    return "DRAIN" in node.states and "UNDRAIN" not in node.states


def jobs_on(name: str, snapshot: Snapshot) -> tuple[JobOnNodes, ...] | None:
    return None if snapshot.slurm.jobs is None else snapshot.slurm.jobs_by_node.get(name, ())


def _known_on(name: str, snapshot: Snapshot) -> tuple[JobOnNodes, ...] | None:
    """None where some may be there that were not read."""
    jobs = jobs_on(name, snapshot)
    return jobs or (jobs if snapshot.slurm.knows_all_jobs else None)


def is_overdue(worker: Worker, snapshot: Snapshot, cause: str | None) -> bool:
    """Of one whose NodeSet goes and of which nobody can be asked, the deadline counts from the NodeSet's deletion: it may never have been cordoned."""
    seconds = snapshot.nodeset.spec.drain_deadline_seconds
    since = worker.leaves_since
    if cause is None:
        return False
    if worker.cause.partition(";")[0] != cause:
        since = snapshot.nodeset.metadata.deletion_timestamp if unasked(snapshot) else None
    return seconds is not None and since is not None and snapshot.now - since >= dt.timedelta(seconds=seconds)


def told(jobs: tuple[JobOnNodes, ...] | None) -> str:
    if not jobs:
        return "a job is"
    named = ", ".join(str(job.id) for job in jobs[:10]) + (" …" if len(jobs) > 10 else "")
    return f"job {named} is" if len(jobs) == 1 else f"jobs {named} are"


def known_of(word: Word) -> str:
    """Of a worker that goes whatever runs there."""
    if word.killed is None:
        return "nobody could say which jobs are"
    return told(word.killed) if word.killed else "no job is"
