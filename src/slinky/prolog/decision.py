"""Whom a job that is about to begin must wait for. Pure.

Comes in: the pods on the node, which of their jobs Slurm still has running here, and pods that the kubelet has taken but not started yet. Goes out: who is waited for, and why, in words; nobody where the job may begin. What must stay true: a pod of a job that runs here is
never waited for, nor one that is not the bridge's; of a pod that cannot be told yet, only for moments.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

__all__ = ["Awaited", "Look", "PodHere", "Starters", "in_words", "waits_for"]

MOST_NAMED = 5


class PodHere(NamedTuple):
    """`name` is namespace/name; `job_id` 0 where it is no pod of the bridge's; `alive`: something of it runs or may run yet."""

    uid: str
    name: str
    job_id: int
    alive: bool


class Look(NamedTuple):
    """What was seen at one moment. `running`: the jobs, of those that pods name, that have this node from Slurm now. `starting`: UIDs of pods that the kubelet took up a moment ago and the runtime does not have yet. `lingering`: UIDs of pods whose processes are there though the runtime says they ended."""

    pods: Sequence[PodHere]
    running: Collection[int] = ()
    starting: Collection[str] = ()
    lingering: Collection[str] = ()


class Awaited(NamedTuple):
    who: str
    why: str


class Starters:
    """The pods that were being started at the first look, for `settle` seconds.

    *Invariants:* a pod that comes later never counts, so a stream of new pods does not hold the job.
    """

    def __init__(self, settle: float) -> None:
        self._settle = settle
        self._first: frozenset[str] | None = None
        self._until = 0.0

    def among(self, starting: Collection[str], now: float) -> set[str]:
        """Those of `starting` that the job still waits for. The first call is the first look."""
        if self._first is None:
            self._first, self._until = frozenset(starting), now + self._settle
        return set(self._first.intersection(starting)) if now <= self._until else set()


def waits_for(look: Look, own_job: int) -> list[Awaited]:
    """`own_job` is the one that is about to begin: a pod that names it is of an earlier job that had the number."""
    found: list[Awaited] = []
    for pod in look.pods:
        rightful = pod.job_id in look.running and pod.job_id != own_job
        if pod.job_id and not rightful and (pod.alive or pod.uid in look.lingering):
            found.append(Awaited(pod.name, f"job {pod.job_id} does not have the node any more, and {_what(pod)}"))
    seen = {pod.uid for pod in look.pods}
    return found + [Awaited(f"pod {uid}", "it is just being started") for uid in sorted(set(look.starting) - seen)]


def _what(pod: PodHere) -> str:
    return "its containers are not gone" if pod.alive else "processes of it are left"


def in_words(awaited: Sequence[Awaited]) -> str:
    named = "; ".join(f"{found.who} ({found.why})" for found in awaited[:MOST_NAMED])
    more = len(awaited) - MOST_NAMED
    return named + (f" and {more} more" if more > 0 else "")
