"""Queue, nodes, and pods beside their jobs, on one screen. Pure: `view` draws, `press` tells what a key does to what is shown.

*Invariants:* the screen names a side that does not answer and shows the other all the same; running jobs never push
waiting ones off the screen, nor the other way round.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from slinky.explain.facts import MOST_COUNTED, Facts
from slinky.explain.leader import claim_finding, is_held
from slinky.explain.nodes import devices_in_slurm
from slinky.explain.pods import job_of
from slinky.kube import Pod
from slinky.slurm import Job, Node

__all__ = ["HELP", "Shown", "keys", "press", "view"]

COLOURS = {"RUNNING": "green", "PENDING": "yellow", "SUSPENDED": "magenta", "COMPLETING": "cyan"}
LEAST_ROWS = 3
# Shares of the width: the same from one look to the next, whatever stands in them.
NODE_COLUMNS = {"PARTITION": 14, "NODES": 6, "IDLE": 6, "IN USE": 7, "OUT": 5, "CPUS": 19, "MEMORY": 21, "GPUS": 17}
JOB_COLUMNS = {"JOB": 7, "NAME": 20, "USER": 8, "PARTITION": 10, "STATE": 11, "TIME": 8, "NODES OR REASON": 17, "PODS": 25}
FRAMES = 6  # lines: of two tables, the heads, and the frames around them
HELP = "q quit  ↑↓ PgUp PgDn Home scroll  w waiting  r running  a all"
KEYS = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|.", re.DOTALL)
SHOWS: Mapping[str, Literal["all", "waiting", "running"]] = {"w": "waiting", "r": "running", "a": "all"}
UP, DOWN = ("\x1b[A", "k"), ("\x1b[B", "j")
PAGE_UP, PAGE_DOWN = ("\x1b[5~", "b"), ("\x1b[6~", " ")
HOME = ("\x1b[H", "\x1b[1~", "g")


class Shown(msgspec.Struct, frozen=True):
    """Which jobs are on the screen: of which kind, and from which one on."""

    jobs: Literal["all", "waiting", "running"] = "all"
    offset: int = 0


def keys(typed: str) -> list[str]:
    """What was typed, key by key: an arrow arrives as several characters."""
    return KEYS.findall(typed)


def press(shown: Shown, key: str, page: int) -> Shown | None:
    """What is shown after a key was pressed; None to leave."""
    if key == "q":
        return None
    if key in SHOWS:
        return Shown(SHOWS[key])
    steps = {UP: -1, DOWN: 1, PAGE_UP: -page, PAGE_DOWN: page, HOME: -shown.offset}
    step = next((steps[names] for names in steps if key in names), 0)
    return Shown(shown.jobs, max(0, shown.offset + step))


def view(facts: Facts, height: int = 40, shown: Shown | None = None) -> RenderableType:
    """With a line of help where it is `shown` on a terminal."""
    parts = list(_parts(facts))
    groups = _groups(facts.slurm.nodes)
    foot = [Text(HELP, style="dim", no_wrap=True, overflow="ellipsis")] if shown else []
    rows = max(LEAST_ROWS, height - len(parts) - len(groups) - FRAMES - len(foot))
    return Group(*parts, _nodes(groups), _queue(facts, rows, shown or Shown()), *foot)


def _parts(facts: Facts) -> Iterator[RenderableType]:
    queue, pods = facts.slurm.queue, facts.kube.pods
    nothing = "none" if queue is not None else "not known"
    jobs = ", ".join(f"{count} {state.lower()}" for state, count in sorted(_counts(facts).items(), key=lambda each: -each[1])) or nothing
    phases = ", ".join(f"{count} {phase.lower()}" for phase, count in Counter(pod.status.phase for pod in pods).most_common()) or "none"
    holder = facts.kube.lease.spec.holder_identity if facts.kube.lease and is_held(facts.kube.lease, facts.now) else ""
    conflict = claim_finding(facts.kube.lease, facts.kube.claim, facts.now)
    leads = (
        f"led by {holder}, does nothing"
        if conflict
        else f"led by {holder}"
        if holder
        else "no leader"
        if facts.kube.knows("lease")
        else "not known"
    )
    head = f"{facts.now:%H:%M:%S} UTC   bridge: {leads}   jobs: {jobs}   pods with a job: {phases}"
    if count := facts.kube.without_job:
        head += f"   waiting without a job: {count}{' or more' if count >= MOST_COUNTED else ''}"
    yield Text(head, no_wrap=True, overflow="ellipsis")
    for trouble in (*((conflict,) if conflict else ()), *facts.troubles):
        yield Text(f"{trouble.code}: {trouble.seen}", style="bold red", no_wrap=True, overflow="ellipsis")


def _counts(facts: Facts) -> Mapping[str, int]:
    return facts.slurm.counts or Counter(str(job.state) for job in facts.slurm.queue or ())


def _groups(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.partitions or ["(none)"]:
            found.setdefault(name, []).append(node)
    return found


def _nodes(groups: dict[str, list[Node]]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for column, ratio in NODE_COLUMNS.items():
        table.add_column(column, no_wrap=True, ratio=ratio)
    for name, nodes in groups.items():
        out = [node for node in nodes if not node.takes_jobs]
        idle = [node for node in nodes if node.takes_jobs and not node.is_busy]
        gpus, used = sum(devices_in_slurm(node).get("gpu", 0) for node in nodes), sum(_used(node) for node in nodes)
        table.add_row(
            name,
            str(len(nodes)),
            str(len(idle)),
            str(len(nodes) - len(out) - len(idle)),
            Text(str(len(out)), style="red" if out else ""),
            _share(sum(node.alloc_cpus for node in nodes), sum(node.cpus for node in nodes)),
            _share(sum(node.alloc_memory for node in nodes) // 1024, sum(node.real_memory for node in nodes) // 1024, "G"),
            _share(used, gpus) if gpus else "-",
        )
    return Panel(table, title="nodes", title_align="left")


def _used(node: Node) -> int:
    """`gpu:h100:2(IDX:0-1)`."""
    return sum(int(word.partition("(")[0].rpartition(":")[2] or 0) for word in node.gres_used.split(",") if word.startswith("gpu:"))


def _share(part: int, whole: int, unit: str = "") -> str:
    filled = round(8 * part / whole) if whole else 0
    return f"{'█' * filled}{'░' * (8 - filled)} {part}/{whole}{unit}"


def _queue(facts: Facts, rows: int, shown: Shown) -> RenderableType:
    pods: dict[int, list[Pod]] = {}
    for pod in facts.kube.pods:
        pods.setdefault(job_of(pod), []).append(pod)
    counts = _counts(facts)
    waiting = counts.get("PENDING", 0)
    kinds = {"waiting": waiting, "running": sum(counts.values()) - waiting}
    jobs = _on_screen(facts.slurm.queue or (), rows, shown, kinds)
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for column, ratio in JOB_COLUMNS.items():
        table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=ratio)
    for job in jobs:
        state = "+".join(job.states)
        table.add_row(
            str(job.job_id),
            job.name,
            job.user_name,
            job.partition,
            Text(state, style=COLOURS.get(job.states[0] if job.states else "", "")),
            _time(job, facts.now.timestamp()),
            job.nodes if not job.is_pending else job.state_reason,
            _pods(pods.get(job.job_id, ())),
        )
    total = kinds.get(shown.jobs, sum(kinds.values()))
    left = f", {total - len(jobs)} more" if total > len(jobs) else ""
    kind = "" if shown.jobs == "all" else f"{shown.jobs} "
    start = f", from {shown.offset + 1}" if shown.offset else ""
    order = ", too many to sort by priority: by job id" if sum(kinds.values()) > len(facts.slurm.queue or ()) > 0 else ""
    return Panel(table, title=f"queue ({total} {kind}job{'' if total == 1 else 's'}{left}{start}{order})", title_align="left")


def _on_screen(queue: Iterable[Job], rows: int, shown: Shown, kinds: Mapping[str, int]) -> list[Job]:
    """Running jobs, the latest first; then waiting ones, the next to start first. Each kind has half of the rows, or what the other leaves.

    `kinds` is how many there are of each: of a long queue, only those from the offset on were read.
    """
    jobs = list(queue)
    running = sorted((job for job in jobs if not job.is_pending), key=lambda job: -job.job_id) if shown.jobs != "waiting" else []
    waiting = sorted((job for job in jobs if job.is_pending), key=_turn) if shown.jobs != "running" else []
    half = max(rows // 2, rows - len(waiting))
    first = _window(running, shown.offset, half, kinds["running"])
    return first + _window(waiting, shown.offset, rows - len(first), kinds["waiting"])


def _window(jobs: Sequence[Job], offset: int, rows: int, total: int) -> list[Job]:
    """The last page, where the offset is beyond it. Of `total` jobs these were read."""
    offset -= min(offset, max(0, total - len(jobs)))
    start = min(offset, max(0, len(jobs) - rows))
    return list(jobs[start : start + rows])


def _turn(job: Job) -> tuple[bool, int, int]:
    """Held jobs come last."""
    return (job.is_held, -job.priority if isinstance(job.priority, int) else 0, job.job_id)


def _time(job: Job, now: float) -> str:
    since = job.submit_time if job.is_pending else job.start_time
    if not isinstance(since, int) or not since:
        return ""
    minutes, seconds = divmod(max(0, int(now - since)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def _pods(pods: Sequence[Pod]) -> str:
    if not pods:
        return ""
    if len(pods) == 1:
        return f"{pods[0].metadata.key} {pods[0].status.phase}"
    phases = ", ".join(f"{count} {phase}" for phase, count in Counter(pod.status.phase for pod in pods).most_common())
    return f"{len(pods)} of {pods[0].metadata.namespace}: {phases}"
