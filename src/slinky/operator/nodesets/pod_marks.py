"""What stands on a worker's pod beside its cordon: whether it is protected, until when jobs hold it, and where its node is in Slurm's topology.

In: a snapshot and who is to go. Out: one change for each pod that is not as it should be.
What must stay true: a pod is protected from evictions for as long as Slurm may give it a job or has one there, and not only while it has one: a job that starts at this moment is protected too. Where Slurm does not answer, protection stays.
"""

from collections.abc import Iterator

from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import ChangePod, Tell
from slinky.operator.nodesets.choice import Cause, Choice, live
from slinky.operator.nodesets.cordons import cause_of, cordon_marks, stamp
from slinky.operator.nodesets.drains import Verdict, Word, jobs_on, known_of, may_go
from slinky.operator.nodesets.ranking import held_until
from slinky.operator.nodesets.snapshot import Snapshot, Worker

__all__ = ["pod_marks"]


def pod_marks(snapshot: Snapshot, choice: Choice) -> Iterator[ChangePod | Tell]:
    for worker in live(snapshot):
        annotations = cordon_marks(snapshot, worker, choice) | _deadline(snapshot, worker) | _topology(worker)
        word = may_go(worker, snapshot, cause_of(worker, choice))
        labels = _protection(snapshot, worker, word)
        if labels.get(marks.PROTECT, "") is None and word.allowed is not None:
            yield Tell(
                word.allowed,
                f"Pod {worker.name} on cordoned node {worker.pod.spec.node_name} may be evicted now: {word.why}; {known_of(word)} there",
                warning=True,
            )
        if labels or annotations:
            yield ChangePod(worker.name, worker.uid, labels=labels, annotations=annotations)


def _protection(snapshot: Snapshot, worker: Worker, word: Word) -> dict[str, str | None]:
    is_protected = worker.pod.metadata.labels.get(marks.PROTECT) == "true"
    if not snapshot.nodeset.spec.workload_disruption_protection:
        return {marks.PROTECT: None} if is_protected else {}
    if not worker.is_assigned:
        return {}  # nobody evicts it, and it is to be protected from its first moment on a node
    if word.verdict is Verdict.LOOK:
        return {}  # jobs are asked for where it is protected; one that was found free stays so until Slurm says otherwise
    if word.goes and (word.allowed is None or worker.cause.startswith(Cause.NODE)):
        return {marks.PROTECT: None} if is_protected else {}
    return {} if is_protected else {marks.PROTECT: "true"}


def _deadline(snapshot: Snapshot, worker: Worker) -> dict[str, str | None]:
    """Where jobs were asked for, and are known where there are some."""
    if snapshot.slurm.jobs is None or not snapshot.slurm.is_current:
        return {}
    if worker.slurm is not None and worker.slurm.is_busy and not jobs_on(worker.hostname, snapshot):
        return {}
    until = held_until(worker, snapshot)
    wanted = None if until is None else stamp(until)
    return {} if worker.pod.metadata.annotations.get(marks.DEADLINE) == wanted else {marks.DEADLINE: wanted}


def _topology(worker: Worker) -> dict[str, str | None]:
    """The Kubernetes node's, which its pod hands on to slurmd."""
    wanted = worker.node.metadata.annotations.get(marks.TOPOLOGY) if worker.node is not None else None
    return {marks.TOPOLOGY: wanted} if wanted and worker.pod.metadata.annotations.get(marks.TOPOLOGY) != wanted else {}
