"""What administrators and users do to a cluster of the operator's, and which faults come meanwhile: from the seed alone.

Comes in: a seed, how long. Goes out: deeds and jobs by time, and faults. What must stay true: the same numbers give the same plan; a NodeSet whose nodes an administrator drains is never deleted, so that its records in Slurm stay his; no NodeSet
has a deadline, so that nothing allows a job to be killed.
"""

import random
from collections.abc import Iterator

import msgspec

from slinky.sandbox.shape import Shape
from tests.chaos.schedule import Fault, Kinds, Requests, deck, schedule

__all__ = ["NODESETS", "SHAPE", "Deed", "OperatorPlan", "WorkerJob"]

SHAPE = Shape(nodes=8, node_cpus=32, node_memory_mib=64 * 1024, node_gpus=0, register=False)
NODESETS = {"steady": 4, "moving": 4, "passing": 3}  # workers at the start
DRAINED = "steady"
DELETED = "passing"
MOST = 6

KINDS: Kinds = {
    "leader-killed": (5, (0, 1)),
    "leader-stopped": (4, (1, 18)),
    "leader-restart": (1, (0, 0)),
    "waiting-one-killed": (1, (0, 1)),
    "lease-taken": (2, (0, 0)),
    "slurmctld-restart": (1, (0, 2)),
    "slurmctld-stopped": (2, (1, 8)),
    "slurmrestd-restart": (2, (0, 2)),
    "apiserver-restart": (1, (0, 2)),
    "slurm-unreachable": (2, (1, 10)),
    "kube-unreachable": (2, (1, 12)),
}
REQUESTS: Requests = {
    "slurm": {"any": 4, "nodes": 4, "looks": 3, "states": 2, "end": 2},
    "kube": {"any": 4, "create": 3, "patch": 3, "end": 3, "lease": 1},
}
DEEDS = {"scale": 6, "roll": 3, "delete": 1, "cordon": 3, "evict": 4, "drain-in-slurm": 2}
EVERY = (1.5, 5.0)  # seconds between deeds


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """`number`: how many workers, or a number that chooses among what there is when the time comes. `seconds`: how long it lasts."""

    at: float
    kind: str
    nodeset: str = ""
    number: int = 0
    seconds: float = 0.0


class WorkerJob(msgspec.Struct, frozen=True, kw_only=True):
    """On `nodes` workers of a NodeSet, for `seconds` once it runs."""

    at: float
    name: str
    nodeset: str
    nodes: int = 1
    seconds: float = 5.0


class OperatorPlan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    seconds: float = 120.0
    faults_per_second: float = 3.0
    jobs_per_second: float = 0.5

    @property
    def shape(self) -> Shape:
        return SHAPE

    @property
    def faults(self) -> list[Fault]:
        return schedule(self.seed, self.seconds, self.faults_per_second, kinds=KINDS, requests=REQUESTS)

    @property
    def deeds(self) -> list[Deed]:
        return list(_deeds(random.Random(f"operator deeds {self.seed}"), self.seconds))

    @property
    def jobs(self) -> list[WorkerJob]:
        return list(_jobs(random.Random(f"operator jobs {self.seed}"), self.seconds, self.jobs_per_second))


def _deeds(dice: random.Random, seconds: float) -> Iterator[Deed]:
    kinds = deck(dice, DEEDS)
    moment = 2.0
    while (moment := moment + dice.uniform(*EVERY)) < seconds:
        kind = next(kinds)
        nodeset = {"delete": DELETED, "drain-in-slurm": DRAINED}.get(kind) or dice.choice(sorted(NODESETS))
        number = dice.randint(0, MOST) if kind == "scale" else dice.randrange(1_000_000)
        lasts = dice.uniform(3, 15) if kind in ("cordon", "drain-in-slurm") else 0.0
        yield Deed(at=round(moment, 3), kind=kind, nodeset=nodeset, number=number, seconds=round(lasts, 3))


def _jobs(dice: random.Random, seconds: float, per_second: float) -> Iterator[WorkerJob]:
    moment, number = 0.0, 0
    while per_second > 0 and (moment := moment + dice.expovariate(per_second)) < seconds:
        number += 1
        yield WorkerJob(
            at=round(moment, 3),
            name=f"work-{number:04}",
            nodeset=dice.choice(sorted(NODESETS)),
            nodes=dice.choice([1, 1, 1, 2]),
            seconds=round(dice.uniform(2, 20), 3),
        )
