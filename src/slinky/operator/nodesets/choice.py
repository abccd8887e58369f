"""Who is wanted, who is to go, and who is missing: the same answer for both scaling modes.

In: a snapshot. Out: a `Choice`. This module answers for mode StatefulSet, `daemons` for mode DaemonSet.
What must stay true: a worker whose deletion has begun is neither wanted nor to go, but its name is taken until it is gone; a pod that has ended is replaced, never drained.
"""

import datetime as dt
import enum
from dataclasses import dataclass, field

from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import CreatePod
from slinky.operator.nodesets.placing import placing_of
from slinky.operator.nodesets.ranking import by_need
from slinky.operator.nodesets.snapshot import Snapshot, Worker, target_of
from slinky.operator.nodesets.updates import condemned
from slinky.operator.objects.worker_names import host_name, pod_name

__all__ = ["Cause", "Choice", "by_number", "ended", "live", "of_mode", "ordinal_of"]

REST = dt.timedelta(seconds=30)  # the least age of a pod that ended, before it is made anew


class Cause(enum.StrEnum):
    """Why a worker is cordoned. All but NODE: it is to go."""

    SCALE_IN = "scale-in"
    UPDATE = "update"
    DELETION = "deletion"
    MODE = "scaling-mode"
    PLACE = "place"  # its Kubernetes node is not for this NodeSet, or has it twice, or another name
    NODE = "node"  # its Kubernetes node is cordoned


@dataclass(frozen=True)
class Choice:
    staying: list[Worker] = field(default_factory=list)
    going: dict[str, Cause] = field(default_factory=dict)  # by uid
    missing: list[CreatePod] = field(default_factory=list)
    total: int = 0
    taken: dict[str, str] = field(default_factory=dict)  # names in Slurm that are wanted, and the NodeSets that have them


def live(snapshot: Snapshot) -> list[Worker]:
    return [worker for worker in snapshot.workers if not worker.is_leaving and not worker.pod.is_over]


def ended(snapshot: Snapshot) -> list[Worker]:
    """Those that ended by themselves and may be replaced by now."""

    def is_rested(worker: Worker) -> bool:
        created = worker.pod.metadata.creation_timestamp
        return created is None or snapshot.now - created >= REST

    return [worker for worker in snapshot.workers if worker.pod.is_over and not worker.is_leaving and is_rested(worker)]


def of_mode(workers: list[Worker], snapshot: Snapshot) -> tuple[list[Worker], list[Worker]]:
    """Those of the present scaling mode, and the others."""
    mode = str(snapshot.nodeset.spec.scaling_mode)
    sides: tuple[list[Worker], list[Worker]] = ([], [])
    for worker in workers:
        sides[worker.pod.metadata.labels.get(marks.SCALING_MODE, mode) != mode].append(worker)
    return sides


def by_number(snapshot: Snapshot) -> Choice:
    """As many as replicas says, at the lowest numbers that are free."""
    workers, others = of_mode(live(snapshot), snapshot)
    going = {worker.uid: Cause.MODE for worker in others}
    going |= {worker.uid: Cause.PLACE for worker in workers if _waits_for_a_node_that_is_gone(worker, snapshot)}
    workers = [worker for worker in workers if worker.uid not in going]
    total = snapshot.nodeset.spec.replicas
    coming = snapshot.created - snapshot.pods.keys()
    excess = len(workers) + len(coming) - total
    ranked = sorted(workers, key=lambda worker: by_need(worker, snapshot)) if excess > 0 else workers
    victims, staying = ranked[: max(0, excess)], ranked[max(0, excess) :]
    old = condemned(snapshot, staying, total)
    going |= {worker.uid: Cause.SCALE_IN for worker in victims} | {worker.uid: Cause.UPDATE for worker in old}
    return Choice(
        staying=[worker for worker in staying if worker.uid not in going],
        going=going,
        missing=_missing(snapshot, workers, coming, -excess),
        total=total,
        taken=_taken(snapshot, workers, total),
    )


def _missing(snapshot: Snapshot, workers: list[Worker], coming: frozenset[str], count: int) -> list[CreatePod]:
    nodeset = snapshot.nodeset
    taken = {ordinal_of(worker.name) for worker in workers} | {ordinal_of(name) for name in coming}
    found: list[CreatePod] = []
    ordinal = 0
    while count > 0:
        if ordinal not in taken:
            count -= 1
            name = pod_name(nodeset, ordinal, None)
            if (
                name not in snapshot.pods and host_name(nodeset, ordinal, None) not in snapshot.lent
            ):  # one that is leaving or has ended goes first
                found.append(CreatePod(name, ordinal=ordinal, node=_pinned(snapshot, ordinal)))
        ordinal += 1
    return found


def _taken(snapshot: Snapshot, workers: list[Worker], total: int) -> dict[str, str]:
    """Names that workers have or are to have, and another namespace's workers have at the same external head."""
    if not snapshot.lent:
        return {}
    wanted = {worker.hostname for worker in workers} | {host_name(snapshot.nodeset, ordinal, None) for ordinal in range(total)}
    return {name: holder for name, holder in snapshot.lent.items() if name in wanted}


def _pinned(snapshot: Snapshot, ordinal: int) -> str:
    if not snapshot.nodeset.spec.pin_to_node:
        return ""
    node = snapshot.nodes.get((snapshot.nodeset.status.ordinal_to_node or {}).get(str(ordinal), ""))
    placing = placing_of(snapshot.nodeset)
    return node.metadata.name if node is not None and placing is not None and placing.keeps(node) else ""


def _waits_for_a_node_that_is_gone(worker: Worker, snapshot: Snapshot) -> bool:
    """Pinned where it can never be."""
    return not worker.is_assigned and bool(target := target_of(worker.pod)) and target not in snapshot.nodes


def ordinal_of(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1
