"""A NodeSet that is deleted: its workers go as they become free, then their records in Slurm, and last its own finalizer.

In: a snapshot of a NodeSet that is being deleted. Out: what is left to do.
What must stay true: its finalizer stays while a pod is there, or while a job waits in its partition: its lines stand in slurm.conf for as long, as slurmctld may not survive their loss. Where the whole cluster goes, its queue goes with it, and no waiting job holds anything. Where there is nobody to ask any more and no pod is left, nobody is waited for.
"""

import datetime as dt
from collections.abc import Iterator

from slinky.operator.nodesets.acts import Act, DeleteSlurmNode, LetGo, Tell
from slinky.operator.nodesets.choice import Cause, Choice, live
from slinky.operator.nodesets.slurm_marks import own_records, refusal_of
from slinky.operator.nodesets.snapshot import ClusterStands, Snapshot

__all__ = ["all_go", "last_acts"]


def all_go(snapshot: Snapshot) -> Choice:
    return Choice(going={worker.uid: Cause.DELETION for worker in live(snapshot)})


def last_acts(snapshot: Snapshot) -> Iterator[Act]:
    """What is done once no pod is left."""
    if snapshot.pods or snapshot.created:
        return
    if not snapshot.slurm.is_current:
        if snapshot.controller is not ClusterStands.HERE or snapshot.is_abandoned:
            yield LetGo()
        return
    records = [node for node, _ in own_records(snapshot)]
    left = [node for node in records if refusal_of(DeleteSlurmNode(node.name)) not in snapshot.refused]
    yield from (DeleteSlurmNode(node.name) for node in left if not node.is_busy)
    if snapshot.is_abandoned:  # a record that its jobs still hold stays in Slurm, which ends them by itself
        yield LetGo()
        return
    waiting = snapshot.slurm.waiting
    if waiting and not _is_overdue(snapshot) and snapshot.controller is not ClusterStands.LEAVING:
        named = ", ".join(map(str, waiting[:10])) + (" …" if len(waiting) > 10 else "")
        note = f"jobs wait in partition {snapshot.nodeset.slurm_name}, which goes with this NodeSet: {named}. Cancel them, or move them to another partition"
        yield Tell("JobsWaitInPartition", note, warning=True)
    elif not left and snapshot.slurm.jobs is not None:
        yield LetGo()


def _is_overdue(snapshot: Snapshot) -> bool:
    seconds, since = snapshot.nodeset.spec.drain_deadline_seconds, snapshot.nodeset.metadata.deletion_timestamp
    return seconds is not None and since is not None and snapshot.now - since >= dt.timedelta(seconds=seconds)
