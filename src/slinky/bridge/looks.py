"""What one look at a workload sees, and when it is to be looked at again. Pure but for what it notes in the workload's memory.

Comes in: pods as the watch shows them, what we did that it does not show yet, the time. Goes out: what the plan looks at, and the next moment at which nothing but time may change what is to be done. What must stay true: no moment that is past is waited for: what was due was just looked at.
"""

from collections.abc import Callable, Sequence

import msgspec

from slinky.bridge.memory import SETTLE_SECONDS, Known
from slinky.bridge.pacing import Pace
from slinky.bridge.plan import JobView, PodView, Snapshot
from slinky.bridge.shrinking import SHRINK_SECONDS
from slinky.bridge.submitting import LABEL_SECONDS
from slinky.bridge.views import pod_view
from slinky.bridge.volumes.patience import next_look
from slinky.kube import Pod

__all__ = ["INCOMPLETE_SECONDS", "is_broken", "next_moment", "phase_of", "views_in_turns", "views_of"]

INCOMPLETE_SECONDS = 30.0
ABSENT_SECONDS = 30.0  # between two looks at a job that Slurm does not know, when it could be settled and is not
OBSTACLE_SECONDS = 30.0  # between two looks at a node that has no room yet, where nothing tells


def views_of(pods: Sequence[Pod], known: Known, is_gone: Callable[[Pod], bool] = lambda _: False) -> list[PodView]:
    """`is_gone`: its node is, and so it counts as over, though nobody says how it ended."""
    views = [_view(pod, known, is_gone) for pod in pods]
    _keep_only(views, known)
    return views


async def views_in_turns(pods: Sequence[Pod], known: Known, is_gone: Callable[[Pod], bool], pace: Pace) -> list[PodView]:
    """The same, with turns for other tasks in between."""
    views = []
    for pod in pods:
        views.append(_view(pod, known, is_gone))
        await pace.step()
    _keep_only(views, known)
    return views


def _view(pod: Pod, known: Known, is_gone: Callable[[Pod], bool]) -> PodView:
    view = known.written.over(pod_view(pod))
    return msgspec.structs.replace(view, state="over", deleting=True) if is_gone(pod) else view


def _keep_only(views: Sequence[PodView], known: Known) -> None:
    """Of pods that are gone nothing is remembered."""
    known.written.keep_only({view.uid for view in views})
    if known.refusals:
        alive = {view.uid for view in views if not view.deleting}
        known.refusals = {uid: refusal for uid, refusal in known.refusals.items() if uid in alive}


def is_broken(pods: Sequence[PodView], size: int, job: JobView | None, known: Known, now: float, seconds: float) -> bool:
    """Members of a gang that has a job and has not begun are missing, and have been for a while."""
    waiting = [pod for pod in pods if pod.state == "waiting" and not pod.deleting]
    if job is None or len(waiting) >= min(size, job.tasks) or any(pod.state != "waiting" and pod.job_id == job.job_id for pod in pods):
        known.incomplete_since = 0.0
        return False
    known.incomplete_since = known.incomplete_since or now
    return now - known.incomplete_since >= seconds


def phase_of(now: Snapshot, in_window: bool) -> str:
    """For the metric: where a workload stands."""
    if now.pods and all(pod.state == "over" for pod in now.pods):
        return "over"
    if now.job is None:
        if now.parked:
            return "parked"
        if in_window:
            return "window"
        return "gated" if now.gated else "gathering"
    if now.job.state == "running":
        return "running" if all(pod.state != "waiting" for pod in now.pods) else "starting"
    return now.job.state


def next_moment(known: Known, now: float, replacement_seconds: float) -> float:
    """0 where there is none."""
    moments = (
        known.parked_until,
        *(known.incomplete_since + each for each in (INCOMPLETE_SECONDS, replacement_seconds) if known.incomplete_since),
        known.vacant_since + replacement_seconds if known.vacant_since and known.job_id else 0.0,
        _settled_at(known, now) if known.missing_since and not known.lost else 0.0,
        now + OBSTACLE_SECONDS if known.obstacle else 0.0,
        known.submitted_at + LABEL_SECONDS if known.unwritten else 0.0,
        next_look(known),
        known.vacated_at + SHRINK_SECONDS if known.vacated_at else 0.0,
        *(refusal.again for refusal in known.refusals.values()),
    )
    return min((moment for moment in moments if moment > now), default=0.0)


def _settled_at(known: Known, now: float) -> float:
    due = known.missing_since + SETTLE_SECONDS
    return due if due > now else now + ABSENT_SECONDS
