"""Cordons and drains, both ways: what is written on pods and said to Slurm so that no new job comes to a worker that is not to have one.

In: a snapshot and who is to go. Out: acts that cordon, drain, uncordon and resume.
What must stay true: a worker is drained where it is to go, where somebody wrote pod-cordon on it, or where its Kubernetes node is cordoned; a drain is undone only where it is ours and none of these holds;
a drain by somebody else is neither undone nor given another reason, and writes no cordon on the pod. Slurm is told only while it is current; where nobody can ever be asked, the cordon alone is written, for deadlines count from it.
"""

import datetime as dt
from collections.abc import Iterator

from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import Act, Drain, Resume, in_order
from slinky.operator.nodesets.choice import Cause, Choice, live
from slinky.operator.nodesets.drains import is_drained, unasked
from slinky.operator.nodesets.reasons import by_hand, of_cause, of_node
from slinky.operator.nodesets.snapshot import Snapshot, Worker
from slinky.slurm import Node as SlurmNode

__all__ = ["cause_of", "cordon_marks", "cordons", "stamp"]

KEPT = ";kept"  # behind a cause: somebody had cordoned the pod before us, and that stays


def cordons(snapshot: Snapshot, choice: Choice) -> Iterator[Act]:
    """What Slurm is told."""
    if not snapshot.slurm.is_current:
        return
    drains: dict[str, list[str]] = {}
    resumed: list[str] = []
    for worker in live(snapshot):
        if worker.slurm is None:
            continue
        reason = _reason(snapshot, worker, choice)
        if reason and _wants_drain(worker.slurm, reason):
            drains.setdefault(reason, []).append(worker.hostname)
        elif not reason and _is_ours_to_undo(worker.slurm) and worker.is_ready:
            resumed.append(worker.hostname)
    yield from (Drain(in_order(names), reason) for reason, names in sorted(drains.items()))
    if resumed:
        yield Resume(in_order(resumed))


def cordon_marks(snapshot: Snapshot, worker: Worker, choice: Choice) -> dict[str, str | None]:
    """The annotations of our cordon that are not as they should be."""
    if not snapshot.slurm.is_current and not unasked(snapshot):
        return {}
    cause = cause_of(worker, choice)
    was, _, kept = worker.cause.partition(";")
    if cause is None:
        if not worker.cause:
            return {}
        taken = (marks.CAUSE, marks.SINCE) if kept else (marks.CORDON, marks.CAUSE, marks.SINCE)
        return dict.fromkeys(taken)
    if was == cause and worker.is_cordoned and worker.leaves_since:
        return {}
    by_others = bool(kept) or (worker.is_cordoned and not worker.cause)
    since = worker.leaves_since if was == cause and worker.leaves_since else snapshot.now
    return {marks.CORDON: "true", marks.CAUSE: f"{cause}{KEPT if by_others else ''}", marks.SINCE: stamp(since)}


def cause_of(worker: Worker, choice: Choice) -> Cause | None:
    """Why we cordon it, if we do."""
    going = choice.going.get(worker.uid)
    if going is None and worker.node is not None and worker.node.spec.unschedulable:
        return Cause.NODE
    return going


def _reason(snapshot: Snapshot, worker: Worker, choice: Choice) -> str:
    """Why the worker is to take no jobs; empty where it may."""
    cause = choice.going.get(worker.uid)
    if cause is not None:
        return of_cause(cause, snapshot)
    if worker.node is not None and worker.node.spec.unschedulable:
        return of_node(worker.node, snapshot)
    if worker.is_cordoned and (not worker.cause or worker.cause.endswith(KEPT)):
        return by_hand(snapshot)
    return ""


def _wants_drain(node: SlurmNode, reason: str) -> bool:
    """Also of one that is down: it may come back. What somebody said of it then stays behind ours (`Carrier`)."""
    if not is_drained(node):
        return True
    return marks.is_ours(node.reason) and marks.without_before(node.reason) != reason


def _is_ours_to_undo(node: SlurmNode) -> bool:
    return marks.is_ours(node.reason) and ("DRAIN" in node.states or node.is_down)


def stamp(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
