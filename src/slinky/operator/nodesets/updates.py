"""How workers come to a new template: which of the old ones are to go now.

In: the workers that stay otherwise. Out: those of an earlier revision that are condemned.
What must stay true: no more healthy workers are away than maxUnavailable says; one that is broken already is condemned beside that number, so that a bad template never keeps its correction out; OnDelete condemns none, and neither does a template that is not known.
"""

import math

from slinky.operator.kinds.nodeset import Update
from slinky.operator.nodesets.ranking import by_need
from slinky.operator.nodesets.snapshot import Snapshot, Worker

__all__ = ["condemned", "most_away"]


def most_away(snapshot: Snapshot, total: int) -> int:
    """maxUnavailable as a number, at least 1."""
    written = snapshot.nodeset.spec.update_strategy.rolling_update.max_unavailable
    if isinstance(written, int):
        return max(1, written)
    share = written.strip().removesuffix("%")
    if not written.strip().endswith("%"):
        return max(1, int(share)) if share.isdecimal() else 1
    return max(1, math.ceil(int(share) * total / 100)) if share.isdecimal() else 1


def condemned(snapshot: Snapshot, staying: list[Worker], total: int) -> list[Worker]:
    """`staying`: those that are wanted, whatever their template; `total`: how many are wanted."""
    strategy = snapshot.nodeset.spec.update_strategy
    old = [worker for worker in staying if worker.revision != snapshot.revision]
    if strategy.type is not Update.ROLLING or not old or not snapshot.revision:
        return []
    present = [worker for worker in staying if worker.revision == snapshot.revision]
    available = snapshot.nodeset.spec.min_ready_seconds
    broken = [worker for worker in old if not worker.is_ready]
    healthy = sorted((worker for worker in old if worker.is_ready), key=lambda worker: by_need(worker, snapshot))
    away = max(0, total - len(staying)) + sum(not worker.is_available(snapshot.now, available) for worker in present) + len(broken)
    return broken + healthy[: max(0, most_away(snapshot, total) - away)]
