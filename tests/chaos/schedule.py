"""Which faults there will be, and when: from the seed alone, so that a run can be had again.

Comes in: a seed, how long, how many a second. Goes out: faults by time. What must stay true: the same numbers give the same schedule; each kind occurs as often as its share says, since kinds are drawn from a deck that is dealt to its end
before it is shuffled anew; faults of servers leave them time to come back.
"""

import itertools
import random
from collections.abc import Iterator, Mapping

import msgspec

__all__ = ["KINDS", "OLD_STATE", "REQUEST_KINDS", "Fault", "Kinds", "Requests", "deck", "schedule"]

Kinds = Mapping[str, tuple[int, tuple[float, float]]]
Requests = Mapping[str, Mapping[str, int]]

BETWEEN = (2.0, 7.0)  # seconds from one fault of a server or a process to the next
QUIET_START = 2.0


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """`target` is for a request whose and which (`slurm submit`), else a number that chooses among what there is when the time comes. `seconds`: how long it lasts."""

    at: float
    kind: str
    target: str = ""
    seconds: float = 0.0


# What becomes of single requests: kind → how many of them in a deck. `done-` marks those that the server carries out.
REQUEST_KINDS: Mapping[str, int] = {
    "delay": 6,
    "reset": 4,
    "done-reset": 4,
    "half": 2,
    "late": 1,
    "429": 2,
    "500": 1,
    "done-500": 1,
    "503": 2,
    "504": 1,
    "done-504": 2,
    "409": 2,
    "410": 1,
    "watch-cut": 2,
}

# Which requests, by side: a name of `lines.CLASSES` → how many in a deck.
REQUESTS: Requests = {
    "slurm": {"any": 4, "submit": 4, "states": 3, "allocation": 2, "end": 2},
    "kube": {"any": 4, "binding": 4, "patch": 3, "eviction": 2, "lease": 1},
}
ONE_SIDE: Mapping[str, str] = {"409": "kube", "410": "kube", "watch-cut": "kube"}  # what only the API server says

# What happens to servers, processes, nodes and jobs: kind → (how many in a deck, how long it may last).
KINDS: Kinds = {
    "slurmrestd-restart": (2, (0, 2)),
    "slurmctld-restart": (2, (0, 2)),
    "slurmctld-stopped": (2, (1, 8)),
    "slurmdbd-restart": (1, (0, 3)),
    "apiserver-restart": (2, (0, 2)),
    "leader-killed": (3, (0, 1)),
    "leader-stopped": (3, (1, 18)),
    "leader-restart": (1, (0, 0)),
    "waiting-one-killed": (1, (0, 1)),
    "lease-taken": (1, (0, 0)),
    "slurm-unreachable": (2, (1, 10)),
    "kube-unreachable": (2, (1, 12)),
    "webhook-down": (1, (1, 5)),
    "node-deleted": (1, (2, 10)),
    "node-not-ready": (2, (1, 10)),
    "node-down-in-slurm": (1, (1, 5)),
    "node-drained-in-slurm": (1, (2, 8)),
    "label-edited": (2, (0, 0)),
    "token-rotated": (1, (0, 0)),
    "token-expired": (1, (0.5, 3)),
    "job-cancelled": (6, (0, 0)),
}
OLD_STATE = "old-slurm-state"


def schedule(
    seed: int, seconds: float, per_second: float, *, old_state: bool = False, kinds: Kinds = KINDS, requests: Requests = REQUESTS
) -> list[Fault]:
    """By time. `per_second` is of single requests; what happens to servers has a pace of its own. With `old_state`, Slurm is once set back to how it was a while ago."""
    single, servers = random.Random(f"requests {seed}"), random.Random(f"servers {seed}")
    found = [*_of_requests(single, seconds, per_second, requests), *_of_servers(servers, seconds, kinds)]
    if old_state:
        found.append(Fault(at=round(seconds * servers.uniform(0.5, 0.7), 3), kind=OLD_STATE, seconds=round(servers.uniform(5, 15), 3)))
    return sorted(found, key=lambda fault: fault.at)


def _of_requests(dice: random.Random, seconds: float, per_second: float, requests: Requests) -> Iterator[Fault]:
    kinds = deck(dice, REQUEST_KINDS)
    sides = deck(dice, {"slurm": 1, "kube": 1})
    classes = {side: deck(dice, shares) for side, shares in requests.items()}
    moment = QUIET_START
    while per_second > 0 and (moment := moment + dice.expovariate(per_second)) < seconds:
        kind = next(kinds)
        side = ONE_SIDE.get(kind) or next(sides)
        which = "watch" if kind in ("watch-cut", "410") else next(classes[side])
        lasts = dice.uniform(0.05, 1.5) if kind == "delay" else dice.uniform(2, 6) if kind == "late" else 0.0
        yield Fault(at=round(moment, 3), kind=kind, target=f"{side} {which}", seconds=round(lasts, 3))


def _of_servers(dice: random.Random, seconds: float, shares: Kinds) -> Iterator[Fault]:
    kinds = deck(dice, {kind: count for kind, (count, _) in shares.items()})
    moment = QUIET_START
    while (moment := moment + dice.uniform(*BETWEEN)) < seconds:
        kind = next(kinds)
        lasts = round(dice.uniform(*shares[kind][1]), 3)
        yield Fault(at=round(moment, 3), kind=kind, target=str(dice.randrange(1_000_000)), seconds=lasts)


def deck(dice: random.Random, counts: Mapping[str, int]) -> Iterator[str]:
    """For ever; all of a deck before the next."""
    cards = list(itertools.chain.from_iterable([name] * count for name, count in counts.items()))
    while True:
        dice.shuffle(cards)
        yield from tuple(cards)
