"""What ran where at the same time. Pure.

Comes in: a history. Goes out: for each step at which containers began on a node, whether all that ran there then had room; and for each node on which Slurm's own jobs ran, whether those and the pods had room together.

What must stay true: between pods the order is that of the API server's revisions, so that no clock counts; a pod takes its node's room from the revision in which its containers run until that in which none does, or it is gone. Between pods and
Slurm's own jobs, whose times are whole seconds, only what surely ran at once counts.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tests.chaos.history import History, JobRecord, NodeSeen, PodSeen
from tests.chaos.lives import Life, lives

__all__ = ["double_booked", "shared_with_slurm"]

Finding = tuple[str, str]


class Amounts(msgspec.Struct, frozen=True):
    cpu: int = 0
    memory: int = 0
    gpus: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(self.cpu + other.cpu, self.memory + other.memory, self.gpus + other.gpus)

    def beyond(self, room: "Amounts") -> str:
        over = [
            f"{have} of {there} {name}"
            for name, have, there in (
                ("millicores", self.cpu, room.cpu),
                ("bytes", self.memory, room.memory),
                ("GPUs", self.gpus, room.gpus),
            )
            if have > there
        ]
        return ", ".join(over)


def amounts(seen: PodSeen | NodeSeen) -> Amounts:
    return Amounts(seen.cpu, seen.memory, seen.gpus)


def double_booked(history: History) -> Iterator[Finding]:
    """By the order of revisions."""
    steps: list[PodSeen | NodeSeen] = sorted([*history.pods, *history.nodes], key=lambda seen: seen.revision)
    rooms: dict[str, Amounts] = {}
    running: dict[str, dict[str, PodSeen]] = {}
    for seen in steps:
        if isinstance(seen, NodeSeen):
            if not seen.gone:
                rooms[seen.name] = amounts(seen)
            continue
        there = running.setdefault(seen.node, {})
        if seen.gone or seen.ended or not seen.begun:
            there.pop(seen.uid, None)
        elif seen.uid not in there and seen.node:
            there[seen.uid] = seen
            yield f"node {seen.node}, revision {seen.revision}", _too_much(list(there.values()), rooms.get(seen.node, Amounts()))


def _too_much(there: Sequence[PodSeen], room: Amounts) -> str:
    whole = Amounts()
    devices: dict[str, str] = {}
    for pod in there:
        whole += amounts(pod)
        for device in pod.devices:
            if device in devices:
                return f"{device} is both {devices[device]}'s and {pod.key}'s"
            devices[device] = pod.key
    if text := whole.beyond(room):
        return f"{text}: {', '.join(pod.key for pod in there)}"
    return ""


def shared_with_slurm(history: History) -> Iterator[Finding]:
    """On nodes where Slurm's own jobs ran too, by time."""
    foreign = [job for job in history.jobs if not job.cluster and job.start and job.end]
    rooms = {seen.name: amounts(seen) for seen in history.nodes if not seen.gone}
    everyone = lives(history.pods)
    for node in sorted({node for job in foreign for node in job.nodes} & rooms.keys()):
        intervals = [
            *(_of_job(job) for job in foreign if node in job.nodes),
            *(_of_pod(life, history.settled_at) for life in everyone if life.bound and life.bound.node == node),
        ]
        for at, *_ in intervals:
            together = [found for found in intervals if found[0] <= at < found[1]]
            whole = sum((found[2] for found in together), Amounts())
            text = whole.beyond(rooms[node])
            yield f"node {node} at {at:.0f}", f"{text}: {', '.join(found[3] for found in together)}" if text else ""


def _of_job(job: JobRecord) -> tuple[float, float, Amounts, str]:
    """Started and ended somewhere within the seconds that are told."""
    share = len(job.nodes)
    return job.start + 1, job.end, Amounts(job.cpus * 1000 // share, job.memory // share, job.gpus // share), f"job {job.job_id}"


def _of_pod(life: Life, until: float) -> tuple[float, float, Amounts, str]:
    begun, ended = life.first("begun"), life.first("ended", "gone")
    last = (ended.finished or ended.at) if ended else until
    return (begun.at if begun else last), last, amounts(life.last), f"pod {life.key}"
