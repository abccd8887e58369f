"""What each pod and each job of Slurm's own did, phase by phase, as far as it was seen.

Pure. Comes in: sightings, each of one pod or job at one moment, in the order of time. Goes out: lives, made of spans that follow each other without a gap. What must stay true: a pod's phase is what its containers do, not
what Slurm thinks; between the moment at which Slurm gives it a node and the moment at which its containers run it is `PLACED`, and from the moment at which it is told to go until they are gone it is `ENDING`.
"""

import enum
import re
from collections.abc import Mapping

import msgspec

from slinky.bridge.keys import CONDITION, TASK
from slinky.kube import Pod
from slinky.slurm import Job, JobState
from slinky.slurm.hostlists import expand
from slinky.slurm.models.states import JobStates

__all__ = [
    "Life",
    "Link",
    "Phase",
    "Sighting",
    "Span",
    "dependencies",
    "grown",
    "held_by_prologs",
    "job_sighting",
    "line",
    "outcome_of_pod",
    "pod_sighting",
]

INDEX = "batch.kubernetes.io/job-completion-index"


class Phase(enum.StrEnum):
    """OVER is the end of a life, and has no span."""

    WAITING = "waiting"
    PLACED = "placed"
    RUNNING = "running"
    ENDING = "ending"
    OVER = "over"


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """`key` is a pod's uid or `job ID`; `rank` is for members of a gang; `why` tells what it waits for, `outcome` how it ended."""

    key: str
    name: str
    is_pod: bool
    phase: Phase
    job_id: int = 0
    nodes: tuple[str, ...] = ()
    rank: int = -1
    why: str = ""
    outcome: str = ""


class Span(msgspec.Struct, frozen=True):
    """Until the next one begins."""

    phase: Phase
    start: float


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """As last seen; `ended` None while it goes on."""

    last: Sighting
    spans: tuple[Span, ...]
    ended: float | None = None

    @property
    def start(self) -> float:
        return self.spans[0].start

    @property
    def title(self) -> str:
        """`pod low-0`, `sbatch urgent`."""
        return f"{'pod' if self.last.is_pod else 'sbatch'} {self.last.name}"

    def until(self, now: float) -> float:
        return now if self.ended is None else self.ended

    def pieces(self, now: float) -> list[tuple[Phase, float, float]]:
        """Its spans with their ends."""
        ends = [*(span.start for span in self.spans[1:]), self.until(now)]
        return [(span.phase, span.start, end) for span, end in zip(self.spans, ends, strict=True)]

    def began(self, phase: Phase) -> float | None:
        return next((span.start for span in self.spans if span.phase is phase), None)


class Link(msgspec.Struct, frozen=True):
    """From one job's life to another's: `afterok`, or `preempts`, which happened at a moment."""

    kind: str
    origin: int
    target: int
    at: float = 0.0


def grown(life: Life | None, seen: Sighting, at: float) -> Life:
    """The life after a sighting. What a later sighting does not tell (any more) stays as it was; who is over stays over."""
    if life is None:
        over = seen.phase is Phase.OVER
        return Life(last=seen, spans=(Span(Phase.WAITING if over else seen.phase, at),), ended=at if over else None)
    before = life.last
    kept = msgspec.structs.replace(
        seen,
        job_id=seen.job_id or before.job_id,
        nodes=seen.nodes or before.nodes,
        rank=seen.rank if seen.rank >= 0 else before.rank,
        outcome=seen.outcome or before.outcome,
        phase=Phase.OVER if life.ended is not None else seen.phase,
    )
    if life.ended is not None:
        return msgspec.structs.replace(life, last=kept)
    if seen.phase is Phase.OVER:
        return msgspec.structs.replace(life, last=kept, ended=at)
    spans = life.spans
    if seen.phase is Phase.PLACED and spans[-1].phase is Phase.RUNNING:  # what was said to run had not begun
        spans = (*spans[:-1], Span(Phase.PLACED, spans[-1].start))
    elif spans[-1].phase is not seen.phase:
        spans = (*spans, Span(seen.phase, at))
    return msgspec.structs.replace(life, last=kept, spans=spans)


def pod_sighting(pod: Pod, job: JobStates | None = None, job_id: int = 0, given: str = "") -> Sighting:
    """`job` is its job as Slurm told it last, if that is known, and `given` the nodes that Slurm gave it: of one, the pod's will be no other."""
    task = {key: pod.metadata.annotations.get(TASK + key, "") for key in ("procid", "ntasks")}
    said = pod.condition(CONDITION)
    phase = _pod_phase(pod, job, said.reason if said else "")
    nodes = [pod.spec.node_name] if pod.spec.node_name else expand(given) if given and phase is Phase.PLACED else []
    return Sighting(
        key=pod.metadata.uid,
        name=_short_name(pod),
        is_pod=True,
        phase=phase,
        job_id=job_id,
        nodes=tuple(nodes) if len(nodes) == 1 else (),
        rank=int(task["procid"]) if task["procid"].isdigit() and task["ntasks"] not in ("", "1") else -1,
        why=said.reason if said and phase in (Phase.WAITING, Phase.PLACED) and not pod.spec.node_name else "",
        outcome=str(job.state) if job is not None and job.state is JobState.PREEMPTED else outcome_of_pod(pod),
    )


def _short_name(pod: Pod) -> str:
    """Of an indexed Job's pod, without the letters at its end that tell one try from the next."""
    name, index = pod.metadata.name, pod.metadata.labels.get(INDEX)
    return name.rpartition("-")[0] if index is not None and name.rpartition("-")[0].endswith(f"-{index}") else name


def _pod_phase(pod: Pod, job: JobStates | None, reason: str) -> Phase:
    states = [status.state for status in pod.status.container_statuses]
    runs = any(state.running for state in states)
    if pod.is_over or (states and all(state.terminated for state in states)):
        return Phase.OVER
    if pod.metadata.deletion_timestamp is not None:
        return Phase.ENDING if pod.spec.node_name else Phase.OVER
    if runs:
        return Phase.RUNNING
    has_node = bool(pod.spec.node_name) or reason == "NodeNotFree" or (job is not None and job.is_running)
    return Phase.PLACED if has_node else Phase.WAITING


def outcome_of_pod(pod: Pod) -> str:
    """How it ended, or why it has to go; empty before."""
    target = pod.condition("DisruptionTarget")
    if target is not None and target.status == "True":
        return target.reason
    return pod.status.phase if pod.is_over else ""


def held_by_prologs(said: str) -> dict[int, str]:
    """The jobs whose prolog waits, by the last word of each in the prologs' logs, and what it waits for."""
    found: dict[int, str] = {}
    for job_id, words in re.findall(r"^job (\d+) (.*)$", said, re.MULTILINE):
        waits = re.fullmatch(r"waits on \S+ for (.*)", words)
        if waits:
            found[int(job_id)] = waits[1]
        else:
            found.pop(int(job_id), None)
    return found


def job_sighting(job: Job, states: JobStates, held: str = "") -> Sighting:
    """Of a job of Slurm's own. `states` may be later than the record. While its prolog waits (`held` tells for what) Slurm says RUNNING, and nothing of it runs."""
    waits = states.is_pending and not states.is_completing
    reason = job.state_reason if job.state_reason != "None" else ""
    return Sighting(
        key=f"job {job.job_id}",
        name=job.name,
        is_pod=False,
        phase=Phase.PLACED if held and states.is_running else _job_phase(states),
        job_id=job.job_id,
        nodes=tuple(expand(job.nodes)) if job.nodes and not waits else (),
        why=(job.dependency.partition("(")[0] or reason) if waits else held.partition(" ")[0],
        outcome=str(states.state) if states.is_finished else "",
    )


def _job_phase(states: JobStates) -> Phase:
    if states.is_completing:
        return Phase.ENDING
    if states.is_finished:
        return Phase.OVER
    if "CONFIGURING" in states.states:
        return Phase.PLACED  # Slurm gave it the node, and the prolog has not ended
    return Phase.WAITING if states.state is JobState.PENDING else Phase.RUNNING


def dependencies(job_id: int, said: str) -> list[Link]:
    """Of what Slurm says a job waits for: `afterok:7(unfulfilled),afterany:8`."""
    return [Link(kind, int(other), job_id) for kind, other in re.findall(r"(after\w+):(\d+)", said)]


WORDS: Mapping[Phase, str] = {
    Phase.WAITING: "waits in Slurm's queue",
    Phase.PLACED: "has its node from Slurm, and is held back",
    Phase.RUNNING: "runs",
    Phase.ENDING: "is told to go, and ends",
    Phase.OVER: "is over",
}


def line(life: Life) -> str:
    """What it came to, in a line for who has no terminal to draw on: `pod ring-0 (job 3, rank 0) runs on node-0`."""
    last = life.last
    known = [f"job {last.job_id}"] if last.job_id and last.is_pod else [str(last.job_id)] if last.job_id else []
    about = ", ".join([*known, *([f"rank {last.rank}"] if last.rank >= 0 else [])])
    where = f" on {','.join(last.nodes)}" if last.nodes and last.phase in (Phase.RUNNING, Phase.ENDING) else ""
    why = f": {last.outcome}" if last.outcome and last.phase in (Phase.OVER, Phase.ENDING) else f": {last.why}" if last.why else ""
    return f"{life.title}{f' ({about})' if about else ''} {WORDS[last.phase]}{where}{why}"
