"""When a job that runs will end, as far as Slurm has said, and when its pods have to go. Pure.

Comes in: a job's record (a hetjob's, of all parts), the longest grace period of its pods, the time. Goes out: its end, if one is in sight. What must stay true: pods are told to go early enough for their grace period to pass before Slurm gives their
resources to others, and yet no job loses more than half of its time to that; a job without a limit that nobody preempts has no end.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from slinky.kube import Pod
from slinky.slurm import Job

__all__ = ["DEFAULT_GRACE", "MARGIN_SECONDS", "End", "Ending", "end_of", "is_credible", "longest_grace"]

MARGIN_SECONDS = 5.0  # for the way to the containers, and for their end to be seen
DEFAULT_GRACE = 30.0  # Kubernetes' own


class Ending(msgspec.Struct, frozen=True, gc=False):
    """It is time for a job's pods to go, though it still has its resources.

    `until`, by the loop's clock: how long that can wait. `at`, by Slurm's clock: when Slurm takes the resources, if it says.
    """

    reason: str
    why: str
    until: float
    at: int = 0

    def is_same_end(self, other: "Ending") -> bool:
        """Whether both tell of one end: `until` is reckoned anew with each look, and differs a little."""
        return (self.reason, self.at) == (other.reason, other.at)


class End(msgspec.Struct, frozen=True):
    """In seconds since 1970, by Slurm's clock: `at` Slurm takes the resources, at `evict_at` its pods are to go, and at `last_call` at the latest if they are to be gone then."""

    kind: Literal["preemption", "timelimit"]
    at: int
    evict_at: float
    last_call: float

    @property
    def reason(self) -> str:
        return "SlurmPreempted" if self.kind == "preemption" else "SlurmTimeout"

    def why(self, job_id: int) -> str:
        return f"Slurm job {job_id} {'is being preempted' if self.kind == 'preemption' else 'has reached its time limit'}"


def end_of(parts: Sequence[Job], grace: float, now: float | None, *, warned: bool = False) -> End | None:
    """`now` by Slurm's clock; None where that is not known: then only what is due at once, whatever the time, is an end. `warned`: the pods asked for a signal before the end, and get one; so what Slurm leaves a preempted job is theirs to use. Who asked for none would not know of it: TERM is its signal, as it is to a job of Slurm's own."""
    preempted = [part for part in parts if part.is_running and _number(part.preempt_time)]
    if preempted and (now is not None or not warned):
        at = min((end for part in preempted if (end := _number(part.end_time))), default=0)
        if now is None:
            return End("preemption", at, float("-inf"), float("-inf"))
        last_call = (at or now) - grace - MARGIN_SECONDS
        return End("preemption", at, max(last_call, now) if warned else now, last_call)
    limited = [part for part in parts if part.is_running and _number(part.end_time) and _is_limited(part)]
    if not limited or now is None:
        return None
    first = min(limited, key=lambda part: _number(part.end_time))
    at = _number(first.end_time)
    whole = at - (_number(first.start_time) or at)
    early = min(grace + MARGIN_SECONDS, whole / 2) if whole > 0 else grace + MARGIN_SECONDS
    return End("timelimit", at, at - early, at - early)


def is_credible(parts: Iterable[Job], now: float) -> bool:
    """Whether the records can have been made by a clock that shows `now`: no job that runs starts in the future."""
    return all(_number(part.start_time) <= now + MARGIN_SECONDS for part in parts if part.is_running)


def longest_grace(pods: Iterable[Pod]) -> float:
    """Of those whose containers may run."""
    graces = [pod.spec.termination_grace_period_seconds for pod in pods if pod.spec.node_name and not pod.is_over]
    return max((DEFAULT_GRACE if grace is None else float(grace) for grace in graces), default=0.0)


def _is_limited(part: Job) -> bool:
    """Without a limit, what Slurm gives as its end is a year from now."""
    return part.time_limit is None or isinstance(part.time_limit, int)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
