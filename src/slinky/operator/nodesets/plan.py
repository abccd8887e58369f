"""What is to be done about a NodeSet, from one snapshot of it.

In: a Snapshot. Out: acts, in an order that is safe to carry out from the first on. Nothing else is known and nothing is remembered.
What must stay true: a pod is deleted only on a `Word` that it may go; where Slurm is not current nothing is asked of it; only drains that are ours are undone, and none that is still wanted.
"""

import enum
from collections.abc import Iterator

from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import Act, DeletePod, Tell
from slinky.operator.nodesets.choice import Cause, Choice, by_number, ended
from slinky.operator.nodesets.claims import claims, going_with, has_stale_claims, wrongly_owned
from slinky.operator.nodesets.cordons import cause_of, cordons
from slinky.operator.nodesets.daemons import by_node
from slinky.operator.nodesets.drains import Verdict, Word, known_of, may_go
from slinky.operator.nodesets.leaving import all_go, last_acts
from slinky.operator.nodesets.pod_conditions import pod_conditions
from slinky.operator.nodesets.pod_marks import pod_marks
from slinky.operator.nodesets.slurm_marks import renewals, slurm_marks
from slinky.operator.nodesets.snapshot import Snapshot, Worker

__all__ = ["JobsNeeded", "choose", "jobs_needed", "plan", "which_matters"]


def choose(snapshot: Snapshot) -> Choice:
    if snapshot.is_being_deleted:
        return all_go(snapshot)
    return by_node(snapshot) if snapshot.nodeset.spec.is_daemon_set else by_number(snapshot)


def plan(snapshot: Snapshot) -> list[Act]:
    choice = choose(snapshot)
    words = {worker.uid: may_go(worker, snapshot, cause) for worker in snapshot.workers if (cause := choice.going.get(worker.uid))}
    renewed = dict(renewals(snapshot, choice.missing))
    # Who comes before its old record is gone would lose the new one; who comes before its old claim is gone would keep it from going, and never run.
    missing = [pod for pod in choice.missing if pod not in renewed and not has_stale_claims(snapshot, pod.name)]
    departures = list(_departures(snapshot, choice, words))
    gone = {act.uid for act in departures if isinstance(act, DeletePod)}
    written = [act for act in (*pod_marks(snapshot, choice), *pod_conditions(snapshot)) if isinstance(act, Tell) or act.uid not in gone]
    return [
        *cordons(snapshot, choice),
        *slurm_marks(snapshot),
        *renewed.values(),
        *written,
        *departures,
        *claims(snapshot, choice, missing),
        *missing,
        *(last_acts(snapshot) if snapshot.is_being_deleted else ()),
    ]


def _departures(snapshot: Snapshot, choice: Choice, words: dict[str, Word]) -> Iterator[Act]:
    for worker in ended(snapshot):
        yield DeletePod(worker.name, worker.uid, f"its containers have ended ({worker.pod.status.reason or worker.pod.status.phase})")
    for worker in snapshot.workers:
        word = words.get(worker.uid)
        if word is not None and word.goes and not wrongly_owned(snapshot, worker, choice.going[worker.uid]):
            yield from _departure(snapshot, worker, choice.going[worker.uid], word)


def _departure(snapshot: Snapshot, worker: Worker, cause: Cause, word: Word) -> Iterator[Act]:
    if word.allowed is not None:
        yield Tell(word.allowed, f"Pod {worker.name} goes ({cause}): {word.why}; {known_of(word)} on node {worker.hostname}", warning=True)
    yield DeletePod(
        worker.name,
        worker.uid,
        f"{cause}: {word.why}",
        on_word=worker.hostname if word.on_slurm else "",
        version=worker.pod.metadata.resource_version if word.unchanged else "",
        claims=going_with(snapshot, worker.name, cause),
        at_once=worker.is_assigned and worker.node is None and (word.on_slurm or word.allowed is not None),
    )


class JobsNeeded(enum.IntEnum):
    """How lately jobs have to have been asked for."""

    NOT = 0
    LATELY = 1  # to rank by, and to name what is waited for: half a minute does no harm
    NOW = 2  # after the nodes were: a pod's life hangs on it


def jobs_needed(snapshot: Snapshot) -> JobsNeeded:
    """Of a snapshot without jobs."""
    if not snapshot.slurm.is_current:
        return JobsNeeded.NOT
    if snapshot.is_being_deleted and not snapshot.pods:
        return JobsNeeded.NOW
    choice = choose(snapshot)
    for worker in snapshot.workers:
        matters = worker.uid in choice.going or _is_protected(worker)
        if matters and not worker.is_leaving and may_go(worker, snapshot, cause_of(worker, choice)).verdict is Verdict.LOOK:
            return JobsNeeded.NOW
    return JobsNeeded.LATELY if which_matters(snapshot) else JobsNeeded.NOT


def which_matters(snapshot: Snapshot) -> bool:
    """Whether workers with jobs are to go: then it matters which jobs these are, and until when they run. Idle workers go first, whatever the others do."""
    going = choose(snapshot).going
    return any(worker.uid in going for worker in snapshot.workers if worker.slurm is not None and worker.slurm.is_busy)


def _is_protected(worker: Worker) -> bool:
    return marks.PROTECT in worker.pod.metadata.labels
