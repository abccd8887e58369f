"""Queue, nodes, and pods beside their jobs, on one screen.

Pure. Comes in: `Facts` of both sides. Goes out: something that rich can draw, cut to a height. What must stay true: a side that does not answer is said on the screen, and the other is shown all the same.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from slinky.explain.facts import Facts
from slinky.explain.leader import is_held
from slinky.explain.nodes import devices_in_slurm
from slinky.explain.pods import job_of
from slinky.kube import Pod
from slinky.slurm import Job, Node

__all__ = ["view"]

COLOURS = {"RUNNING": "green", "PENDING": "yellow", "SUSPENDED": "magenta", "COMPLETING": "cyan"}
LEAST_ROWS = 3
# Shares of the width: the same from one look to the next, whatever stands in them.
NODE_COLUMNS = {"PARTITION": 14, "NODES": 6, "IDLE": 6, "IN USE": 7, "OUT": 5, "CPUS": 19, "MEMORY": 21, "GPUS": 17}
JOB_COLUMNS = {"JOB": 7, "NAME": 20, "USER": 8, "PARTITION": 10, "STATE": 11, "TIME": 8, "NODES OR REASON": 17, "PODS": 25}
FRAMES = 6  # lines: of two tables, the heads, and the frames around them


def view(facts: Facts, height: int = 40) -> RenderableType:
    parts = list(_parts(facts))
    groups = _groups(facts.slurm.nodes)
    rows = max(LEAST_ROWS, height - len(parts) - len(groups) - FRAMES)
    return Group(*parts, _nodes(groups), _queue(facts, rows))


def _parts(facts: Facts) -> Iterator[RenderableType]:
    queue, pods = facts.slurm.queue, facts.kube.pods
    nothing = "none" if queue is not None else "not known"
    jobs = ", ".join(f"{count} {state.lower()}" for state, count in sorted(_counts(facts).items(), key=lambda each: -each[1])) or nothing
    phases = ", ".join(f"{count} {phase.lower()}" for phase, count in Counter(pod.status.phase for pod in pods).most_common()) or "none"
    holder = facts.kube.lease.spec.holder_identity if facts.kube.lease and is_held(facts.kube.lease, facts.now) else ""
    leads = f"led by {holder}" if holder else "nobody leads" if facts.kube.knows("lease") else "not known"
    yield Text(f"{facts.now:%H:%M:%S} UTC   jobs: {jobs}   pods with a job: {phases}   bridge: {leads}", no_wrap=True, overflow="ellipsis")
    for trouble in facts.troubles:
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


def _queue(facts: Facts, rows: int) -> RenderableType:
    pods: dict[int, list[Pod]] = {}
    for pod in facts.kube.pods:
        pods.setdefault(job_of(pod), []).append(pod)
    jobs = sorted(facts.slurm.queue or (), key=_order)
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for column, ratio in JOB_COLUMNS.items():
        table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=ratio)
    for job in jobs[:rows]:
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
    total, shown = sum(_counts(facts).values()), min(rows, len(jobs))
    left = f", {total - shown} more" if total > shown else ""
    return Panel(table, title=f"queue ({total} job{'' if total == 1 else 's'}{left})", title_align="left")


def _order(job: Job) -> tuple[bool, int, int]:
    """What runs, the latest first; then what waits, the next first."""
    priority = job.priority if isinstance(job.priority, int) else 0
    return (job.is_pending, -priority if job.is_pending else 0, job.job_id if job.is_pending else -job.job_id)


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
