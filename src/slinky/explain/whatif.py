"""When would this start? What is asked for, in words; Slurm's own answer (`sbatch --test-only`, its will-run test), read; and an estimate where Slurm cannot be asked.

Pure. What must stay true: an estimate is never called Slurm's word; it is the earliest moment at which enough is free if running jobs end at their limits and nobody goes first.
"""

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from slinky.bridge.standing import KNOWN_SECONDS, is_endless, rests_on_endless
from slinky.explain.facts import SlurmFacts
from slinky.explain.nodes import devices_in_slurm
from slinky.slurm import Job, Node, expand

__all__ = [
    "Answer",
    "Ask",
    "AskError",
    "answer_lines",
    "checked",
    "estimate",
    "is_doubtful",
    "parse",
    "read_test",
    "sbatch_words",
]

_WORD = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_STARTS = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_NODES = re.compile(r"on nodes? (\S+)")
_TRES = re.compile(r"(?:^|,)([\w/:.-]+)=(\d+(?:\.\d+)?)([KMGTP]?)")
MINUTES = {"m": 1, "min": 1, "minutes": 1, "minute": 1, "h": 60, "hour": 60, "hours": 60, "d": 1440, "day": 1440, "days": 1440}
MEMORY = {
    "mi": 1,
    "mib": 1,
    "mb": 1,
    "g": 1024,
    "gi": 1024,
    "gib": 1024,
    "gb": 1024,
    "t": 1024**2,
    "ti": 1024**2,
    "tib": 1024**2,
    "tb": 1024**2,
}
COUNTS = {"gpu": "gpus", "gpus": "gpus", "cpu": "cpus", "cpus": "cpus", "core": "cpus", "cores": "cpus", "node": "nodes", "nodes": "nodes"}
RIGHT = 'it would be like "8 gpu 4h" or "2 nodes 64 cpu 128G 30m"'
DOUBTFUL = dt.timedelta(days=1)  # an answer of Slurm's further away is compared with the queue
MOST_HOURS = 48  # above, a wait is told in days
MEBIBYTES = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}


class AskError(ValueError):
    """It cannot be understood."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """In all, not for each node; `minutes` 0: the partition's default."""

    gpus: int = 0
    cpus: int = 0
    memory: int = 0  # MiB
    nodes: int = 0
    minutes: int = 0

    @property
    def tasks(self) -> int:
        return self.gpus or self.nodes or self.cpus or 1

    @property
    def cpus_each(self) -> int:
        return max(1, math.ceil(self.cpus / self.tasks))

    @property
    def memory_each(self) -> int:
        """MiB a CPU."""
        return math.ceil(self.memory / (self.tasks * self.cpus_each))


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`start` None: not at all, or, where it is `unknown`, at a time that cannot be told; `why` says the reason. `by` says whose word it is."""

    by: str
    unknown: bool = False
    start: dt.datetime | None = None
    nodes: str = ""
    why: str = ""
    first: int | None = None  # jobs that wait in that partition already


def parse(text: str) -> Ask:
    found: dict[str, int] = {}
    rest = _WORD.sub("", text.replace(",", " ")).strip()
    for amount, unit in _WORD.findall(text):
        number, word = float(amount), unit if unit in ("M", "m") else unit.lower()
        if word in COUNTS:
            key, value = COUNTS[word], number
        elif word == "M" or word in MEMORY:
            key, value = "memory", number * MEMORY.get(word, 1)
        elif word in MINUTES:
            key, value = "minutes", number * MINUTES[word]
        else:
            raise AskError(f"{amount} {unit}: {unit!r} is no unit that is known here; {RIGHT}")
        found[key] = found.get(key, 0) + math.ceil(value)
    if rest or not found.keys() & {"gpus", "cpus", "nodes", "memory"}:
        raise AskError(f"{text!r} " + (f"has {rest!r}, which says nothing" if rest else "asks for nothing") + f"; {RIGHT}")
    return Ask(**found)


# Slurm's word


def sbatch_words(ask: Ask, partition: str, account: str = "", qos: str = "", memory: int = 0) -> list[str]:
    """What comes after `sbatch`. `memory` MiB for each CPU, where nothing is asked for: to Slurm, none means all."""
    words = [
        "--external",
        "--test-only",
        f"--ntasks={ask.tasks}",
        f"--cpus-per-task={ask.cpus_each}",
        f"--mem-per-cpu={ask.memory_each or memory}",
    ]
    words += [f"--partition={partition}"] if partition else []
    words += ["--gpus-per-task=1"] if ask.gpus else []
    words += [f"--nodes={ask.nodes}"] if ask.nodes else []
    words += [f"--time={ask.minutes}"] if ask.minutes else []
    words += [f"--account={account}"] if account else []
    return [*words, f"--qos={qos}"] if qos else words


def read_test(output: str) -> Answer:
    """What `sbatch --test-only` printed, with its clock in UTC."""
    by = "Slurm's own test"
    if found := _STARTS.search(output):
        nodes = _NODES.search(output)
        return Answer(by=by, start=dt.datetime.fromisoformat(found[1]).replace(tzinfo=dt.UTC), nodes=nodes[1] if nodes else "")
    why = "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in output.splitlines() if line.strip())
    return Answer(by=by, why=why or "it said nothing")


# An estimate


class _Free(msgspec.Struct):
    cpus: float
    memory: float
    gpus: float


def estimate(ask: Ask, slurm: SlurmFacts, partition: str, now: dt.datetime, memory: int = 0) -> Answer:
    by = "an estimate: it assumes that no other job goes first and that every job runs to its time limit"
    nodes = [node for node in slurm.nodes_of(partition) if node.takes_jobs]
    waiting = sum(job.is_pending and job.partition == partition for job in slurm.queue) if slurm.queue is not None else None
    each = _Free(cpus=ask.cpus_each, memory=(ask.memory_each or memory) * ask.cpus_each, gpus=1 if ask.gpus else 0)
    if _fits(ask, each, {node.name: _all(node) for node in nodes}) is None:
        why = f"the {len(nodes)} nodes of partition {partition} that take jobs could not hold it, were they empty"
        return Answer(by=by, why=why, first=waiting)
    free = {node.name: _now_free(node) for node in nodes}
    if (found := _fits(ask, each, free)) is not None:
        return Answer(by=by, start=now, nodes=",".join(found), first=waiting)
    for job in sorted(_that_end(slurm.queue or ()), key=_end):
        _give_back(job, free)
        if (found := _fits(ask, each, free)) is not None:
            start = dt.datetime.fromtimestamp(max(_end(job), now.timestamp()), dt.UTC)
            return Answer(by=by, start=start, nodes=",".join(found), first=waiting)
    return Answer(by=by, unknown=True, why="jobs without a time limit hold the resources it needs", first=waiting)


def _that_end(queue: Sequence[Job]) -> list[Job]:
    """Running jobs with a time limit. For the others, Slurm writes an end a year after their start."""
    return [job for job in queue if job.is_running and not is_endless(job) and isinstance(job.end_time, int) and job.end_time]


def _end(job: Job) -> int:
    return job.end_time if isinstance(job.end_time, int) else 0


def _all(node: Node) -> _Free:
    return _Free(cpus=node.cpus, memory=node.real_memory, gpus=devices_in_slurm(node).get("gpu", 0))


def _now_free(node: Node) -> _Free:
    used = sum(int(count) for count in re.findall(r"(?:^|,)gpu(?::[A-Za-z_][\w.-]*)?:(\d+)", node.gres_used))
    whole = _all(node)
    return _Free(cpus=whole.cpus - node.alloc_cpus, memory=whole.memory - node.alloc_memory, gpus=whole.gpus - used)


def _give_back(job: Job, free: Mapping[str, _Free]) -> None:
    """What it has, on each of its nodes alike: its record does not say how it is spread."""
    names = expand(job.nodes) if job.nodes else []
    has = {name: float(value) * (MEBIBYTES[power] if name == "mem" else 1) for name, value, power in _TRES.findall(job.tres_alloc_str)}
    for name in names:
        if name in free:
            free[name].cpus += has.get("cpu", 0) / len(names)
            free[name].memory += has.get("mem", 0) / len(names)
            free[name].gpus += has.get("gres/gpu", 0) / len(names)


def _fits(ask: Ask, each: _Free, free: Mapping[str, _Free]) -> list[str] | None:
    """The nodes that would do, the emptiest first."""
    room = {name: _tasks(each, there) for name, there in free.items()}
    chosen: list[str] = []
    left = ask.tasks
    for name in sorted(room, key=lambda name: (-room[name], name)):
        if room[name] < 1 or (left <= 0 and len(chosen) >= ask.nodes):
            break
        chosen.append(name)
        left -= room[name]
    return chosen if left <= 0 and len(chosen) >= max(1, ask.nodes) and (not ask.nodes or len(chosen) == ask.nodes) else None


def _tasks(each: _Free, there: _Free) -> int:
    counts = [there.cpus / each.cpus]
    counts += [there.memory / each.memory] if each.memory else []
    counts += [there.gpus / each.gpus] if each.gpus else []
    return max(0, math.floor(min(counts) + 1e-9))


def is_doubtful(answer: Answer, now: dt.datetime) -> bool:
    """Whether Slurm's answer is so far away that the queue tells if it is one: see `checked`."""
    return answer.start is not None and answer.start - now > DOUBTFUL


def checked(answer: Answer, queue: Sequence[Job] | None, now: dt.datetime) -> Answer:
    """Slurm's answer, or that the start is unknown.

    `queue` are the jobs that wait or run; None if they are not known.
    """
    if answer.start is None:
        return answer
    why = ""
    if rests_on_endless(answer.start.timestamp(), queue or ()):
        why = "jobs without a time limit are ahead of it"
    elif answer.start - now >= dt.timedelta(seconds=KNOWN_SECONDS):
        why = "Slurm plans it more than 30 days ahead, as it does behind jobs without a time limit"
    return msgspec.structs.replace(answer, start=None, nodes="", unknown=True, why=why) if why else answer


def _in_words(wait: int) -> str:
    if wait < 60:
        return "at once"
    if wait < 3600:
        return f"in {wait // 60} min"
    hours = wait // 3600
    return f"in {hours // 24} d {hours % 24} h" if hours >= MOST_HOURS else f"in {hours} h {wait % 3600 // 60} min"


def answer_lines(answer: Answer, now: dt.datetime) -> list[str]:
    if answer.start is None:
        lines = [f"{'the start time is unknown' if answer.unknown else 'it would not start'}: {answer.why}"]
    else:
        when = _in_words(max(0, int((answer.start - now).total_seconds())))
        lines = [f"it would start {when} ({answer.start:%Y-%m-%d %H:%M} UTC)" + (f" on {answer.nodes}" if answer.nodes else "")]
    lines.append(f"by {answer.by}")
    if answer.first is not None:
        lines.append(f"{answer.first} jobs wait in that partition already")
    return lines
