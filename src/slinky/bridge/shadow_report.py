"""The report of shadow mode: what Slurm would have done with the pods that Kubernetes placed. As it is written, read again and shown.

Totals by namespace, and the cases worth a look: those refused, those that would have been evicted, those that waited longest, those that wait now, the latest. Bounded, whatever the cluster's size.
"""

from collections.abc import Iterable

import msgspec

__all__ = ["Case", "Report", "Tally", "total_of"]


class Case(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A workload. Times are seconds since 1970, waits in seconds. `state`: gathering, refused, waiting, running, ended, missed (it ended in Kubernetes before Slurm would have started it) or evicted."""

    workload: str
    namespace: str
    pods: int = 0
    state: str = "gathering"
    reason: str = ""
    job: int = 0
    seen: float = 0.0
    submitted: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    slurm_wait: float | None = None
    kube_wait: float | None = None
    slurm_nodes: str = ""
    kube_nodes: str = ""
    same_node: int = 0


class Tally(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Of a namespace, since the beginning: workloads, but for those that count pods. `waiting` and `running` are now. Waits are sums, over those that were started."""

    submitted: int = 0
    refused: int = 0
    started: int = 0
    ended: int = 0
    missed: int = 0
    evicted: int = 0
    waiting: int = 0
    running: int = 0
    slurm_wait: float = 0.0
    slurm_wait_most: float = 0.0
    kube_wait: float = 0.0
    kube_wait_most: float = 0.0
    pods_placed: int = 0
    pods_same_node: int = 0

    def plus(self, other: "Tally") -> "Tally":
        mine = msgspec.structs.asdict(self)
        theirs = msgspec.structs.asdict(other)
        return Tally(**{name: max(value, theirs[name]) if name.endswith("_most") else value + theirs[name] for name, value in mine.items()})


class Report(msgspec.Struct, kw_only=True, rename="camel"):
    """What is written and read again. `evicted_uids` are pods that would be gone, for the next one who leads."""

    since: float
    written: float
    total: Tally = msgspec.field(default_factory=Tally)
    namespaces: dict[str, Tally] = {}
    refused: list[Case] = []
    evicted: list[Case] = []
    longest: list[Case] = []
    waiting: list[Case] = []
    latest: list[Case] = []
    evicted_uids: list[str] = []


def total_of(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total = total.plus(tally)
    return total
