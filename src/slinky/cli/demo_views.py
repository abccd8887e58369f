"""What the demo shows: both queues side by side, and the story's lines.

Comes in: the pods of a namespace as the API server tells them, Slurm's queue as squeue tells it, and lines of the story. Goes out: on a terminal, the lines with both queues live below them; elsewhere the
lines, with both queues where the story asks for a snapshot. What must stay true: the views only look; nothing that they fail to read keeps the story from going on.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from slinky.bridge.keys import TASK
from slinky.bridge.views import job_id_of
from slinky.kube import Cache, Pod
from slinky.sandbox.errors import SandboxError
from slinky.sandbox.handle import Sandbox

__all__ = ["QueuedJob", "Show", "read_squeue", "state_of"]

SQUEUE = "%i|%j|%a|%q|%T|%M|%R"
STORY_LINES = 14  # of a terminal's height, kept for what stands above the queues
MOST_ROWS = 16
WIDE = 120
LOOK_SECONDS = 0.3
READING_SECONDS = 1.5
SLOW_SECONDS = 3.0
COLOURS = {"RUNNING": "green", "Running": "green", "PENDING": "yellow", "Pending": "yellow", "Failed": "red", "Terminating": "red"}


class QueuedJob(msgspec.Struct, frozen=True):
    """A line of squeue; `where` is the nodes, or why there are none yet."""

    job_id: int
    name: str
    account: str
    qos: str
    state: str
    time: str
    where: str


def read_squeue(text: str) -> list[QueuedJob]:
    """What `squeue --noheader --format=SQUEUE` printed, latest first; a line that is cut short is left out."""
    rows = (line.strip().split("|", 6) for line in text.splitlines())
    return sorted((QueuedJob(int(row[0]), *row[1:]) for row in rows if len(row) == 7 and row[0].isdigit()), key=lambda job: -job.job_id)


def state_of(pod: Pod) -> str:
    """Its phase, but for two things that the phase does not tell."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    return "Bound" if pod.status.phase == "Pending" and pod.spec.node_name else pod.status.phase


def tally(states: Iterable[str], what: str) -> str:
    """`3 pods: 2 Running, 1 Pending`."""
    counted = Counter(states)
    total = f"{counted.total()} {what}{'' if counted.total() == 1 else 's'}"
    return f"{total}: {', '.join(f'{count} {state}' for state, count in counted.most_common())}" if counted else f"no {what}s"


def side_by_side(jobs: list[QueuedJob], pods: list[Pod], rows: int, *, wide: bool = True) -> RenderableType:
    """Slurm's queue on the left, the pods on the right, the latest jobs first on both; where it is not wide, only what matters most."""
    left = _table("JOB", "NAME", *(["ACCOUNT", "QOS"] if wide else []), "STATE", *(["TIME"] if wide else []), "NODES")
    for job in jobs[:rows]:
        owner, elapsed = ([job.account, job.qos], [job.time]) if wide else ([], [])
        left.add_row(str(job.job_id), job.name, *owner, _coloured(job.state), *elapsed, job.where)
    right = _table("POD", "STATE", "NODE", *(["JOB", "GPU"] if wide else []))
    for pod in sorted(pods, key=_latest_first)[:rows]:
        more = [str(job_id_of(pod) or ""), pod.metadata.annotations.get(TASK + "gpus", "")] if wide else []
        right.add_row(pod.metadata.name, _coloured(state_of(pod)), pod.spec.node_name, *more)
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(
        Panel(left, title=f"Slurm · {tally((job.state for job in jobs), 'job')}", title_align="left"),
        Panel(right, title=f"Kubernetes · {tally(map(state_of, pods), 'pod')}", title_align="left"),
    )
    return grid


def _latest_first(pod: Pod) -> tuple[int, int, str]:
    """Within a job by rank; those without a job are last."""
    rank = pod.metadata.annotations.get(TASK + "procid", "")
    return -job_id_of(pod), int(rank) if rank.isdigit() else 0, pod.metadata.name


def _table(*columns: str) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    return table


def _coloured(state: str) -> Text:
    return Text(state, style=COLOURS.get(state, ""))


def _nothing() -> str:
    return ""


class Show:
    """`async with show.live(): …` around the story; `say`, `snapshot`, `until` within it."""

    def __init__(self, console: Console, sandbox: Sandbox, pods: Cache[Pod]) -> None:
        self.console = console
        self._sandbox, self._pods = sandbox, pods
        self._jobs: list[QueuedJob] = []
        self._live: Live | None = None
        self._waiting_for, self._since, self._how_far = "", 0.0, _nothing

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Where this is no terminal, nothing is redrawn."""
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, auto_refresh=False) as self._live:
            task = asyncio.create_task(self._look(self._live), name="the demo's view")
            try:
                yield
                await self._refresh(self._live)
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def chapter(self, title: str) -> None:
        self.console.print()
        self.console.rule(f"[bold]{title}", align="left")

    def say(self, text: str) -> None:
        self.console.print(f"→ {text}", markup=False, soft_wrap=not self.console.is_terminal)

    def table(self, table: RenderableType) -> None:
        self.console.print(table)

    def manifest(self, path: Path) -> None:
        """A file as it stands, without the comment at its top."""
        lines = path.read_text().splitlines()
        while lines and lines[0].startswith("#"):
            lines.pop(0)
        text = "\n".join(lines)
        shown = Syntax(text, "yaml", background_color="default", word_wrap=True) if self.console.is_terminal else Text(text)
        self.console.print(Panel(shown, title=f"{path.parent.name}/{path.name}", title_align="left", expand=False))

    async def snapshot(self, rows: int) -> None:
        """Both queues as they are now; on a terminal they are in sight anyway."""
        if self._live is None:
            await self._read_jobs()
            self.console.print(self._queues(rows))

    async def until(
        self, what: str, probe: Callable[[], Awaitable[bool]], seconds: float = 60, how_far: Callable[[], str] | None = None
    ) -> None:
        """Wait for something of which `what` says that it is true; says how far it is while it takes its time."""
        self._waiting_for, self._since, self._how_far = what, time.monotonic(), how_far or _nothing
        spoken = self._since
        while not await probe():
            now = time.monotonic()
            if now - self._since > seconds:
                raise SandboxError(f"the demo expected that {what}: that did not come true within {seconds:g} s")
            if self._live is None and now - spoken > SLOW_SECONDS:
                spoken = now
                self.console.print(f"  {self._waiting()}", markup=False, soft_wrap=True)
            await asyncio.sleep(0.05)
        self._waiting_for = ""

    async def breathe(self) -> None:
        """Time to read, where somebody sits before it."""
        if self._live is not None:
            await asyncio.sleep(READING_SECONDS)

    def _queues(self, rows: int) -> RenderableType:
        return side_by_side(self._jobs, self._pods.list(), rows, wide=self.console.width >= WIDE)

    async def _look(self, live: Live) -> None:
        while True:
            await self._refresh(live)
            await asyncio.sleep(LOOK_SECONDS)

    async def _refresh(self, live: Live) -> None:
        with suppress(SandboxError):
            await self._read_jobs()
        rows = max(3, min(MOST_ROWS, self.console.height - STORY_LINES))
        live.update(Group(self._queues(rows), Text(self._waiting(), style="dim")), refresh=True)

    def _waiting(self) -> str:
        if not self._waiting_for:
            return ""
        detail = self._how_far()
        return f"… until {self._waiting_for}{': ' if detail else ''}{detail} ({time.monotonic() - self._since:.0f} s)"

    async def _read_jobs(self) -> None:
        self._jobs = read_squeue(await self._sandbox.link.run("head", "squeue", "--noheader", f"--format={SQUEUE}"))
