"""A new configuration on its way to every daemon: what has been seen of it, and what is to be done next. Pure.

Comes in: the digest that is wanted, the one that slurmctld says it runs, since when each slurmd runs, and the time. Goes out: the next step. What must stay true: nothing is done that was not seen: slurmctld shows the digest, and no slurmd that answers has begun before it was asked;
who stays behind does not make all others begin anew for ever.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from slinky.kube import Backoff
from slinky.slurm import Node

__all__ = ["REFUSED", "Progress", "Step", "began", "behind", "next_step", "older", "started"]

FILES_SECONDS = 1.5  # what a kubelet takes, as a rule, to bring the files once it was told
BLIND_SECONDS = 90.0  # what it takes at the most, where it was not told
AGAIN = Backoff(first=3.0, most=60.0, factor=1.6)
LATE = Backoff(first=20.0, most=3600.0, factor=3.0)  # between requests for slurmds that stay behind: each makes all begin anew
LOOK_SECONDS = 1.0
SOON, SELDOM_SECONDS = 5, 5.0  # after so many times it will not be a matter of seconds
REFUSED = "slurmctld cannot read the configuration as written, and goes on with the one before; its log says which line"


class Step(enum.Enum):
    DONE = "done"
    TOUCH = "touch"
    ASK = "ask"
    WAIT = "wait"


@dataclass
class Progress:
    """Of one cluster's configuration. Times are of the event loop, but for those of slurmds, which are seconds since 1970."""

    wanted: str
    confirmed: str = ""  # the last that slurmctld and all slurmds were seen to run, as far as it is not in doubt
    oldest: int = 0  # a slurmd that began before runs an older one than `confirmed`
    done: bool = False
    running: str | None = None  # what slurmctld says; None where it did not yet
    touched: str = ""  # the pod that was told, by its UID, and of what
    touched_at: float = 0.0
    asked_at: float = 0.0
    asked: int = 0  # how often, for this configuration
    before: Mapping[str, int] = field(default_factory=dict)  # since when each slurmd ran when slurmctld was last asked
    late: frozenset[str] = frozenset()  # those that run something else
    since: float = 0.0
    problem: str = ""
    refused: bool = False  # slurmctld could not read it when it was last asked
    tells: bool = True  # whether this Slurm says what it runs (26.05 and later)

    def describe(self) -> str:
        if self.problem:
            return self.problem
        if self.running != self.wanted:
            return "slurmctld does not run the new configuration yet"
        some = ", ".join(sorted(self.late)[:5]) + (" …" if len(self.late) > 5 else "")
        return f"the new configuration has not reached {len(self.late)} nodes yet: {some}" if self.late else "the daemons are being asked"


def started(nodes: Mapping[str, Node]) -> dict[str, int]:
    """Since when each slurmd runs, of nodes that have one and answer."""
    return {
        name: moment
        for name, moment in began(nodes).items()
        if not nodes[name].is_external and not nodes[name].is_down and nodes[name].is_responding
    }


def began(nodes: Mapping[str, Node]) -> dict[str, int]:
    """The same of all that ever had one: who does not answer now may come back as it was."""
    moments = ((name, node.slurmd_start_time) for name, node in nodes.items())
    return {name: moment for name, moment in moments if isinstance(moment, int) and moment}


def behind(before: Mapping[str, int], nodes: Mapping[str, Node]) -> frozenset[str]:
    """Those that have not begun anew since: they run what they ran before."""
    now = started(nodes)
    return frozenset(name for name, moment in before.items() if now.get(name) == moment)


def older(oldest: int, nodes: Mapping[str, Node]) -> frozenset[str]:
    """Those that began before all daemons had the configuration, and were away then."""
    return frozenset(name for name, moment in started(nodes).items() if moment < oldest)


def next_step(progress: Progress, pod: str, now: float, told: str = "") -> tuple[Step, float]:
    """What is to be done, and after how many seconds to look again. `pod` is the UID of slurmctld's, `told` the configuration that its kubelet was last told of."""
    runs = progress.running == progress.wanted
    if runs and not progress.late and not progress.refused and (progress.asked or progress.confirmed == progress.wanted):
        return Step.DONE, 0.0  # what is seen counts, also where the answer to a request was lost
    if not progress.tells and progress.asked >= 2 and not progress.late:
        return Step.DONE, 0.0
    has_files = runs and told in ("", progress.wanted)
    if not has_files and pod and progress.touched != f"{pod} {progress.wanted}":
        return Step.TOUCH, FILES_SECONDS
    if progress.touched_at and now < progress.touched_at + FILES_SECONDS and not progress.asked:
        return Step.WAIT, progress.touched_at + FILES_SECONDS - now
    if not progress.asked:
        return Step.ASK, LOOK_SECONDS
    left = progress.asked_at + _patience(progress, runs) - now
    if left <= 0:
        return Step.ASK, LOOK_SECONDS
    return Step.WAIT, min(LOOK_SECONDS if progress.asked < SOON else SELDOM_SECONDS, left)


def _patience(progress: Progress, runs: bool) -> float:
    """Between two requests."""
    if not progress.tells and progress.asked == 1:
        return BLIND_SECONDS
    return (LATE if runs else AGAIN).seconds(progress.asked, lambda: 1.0)
