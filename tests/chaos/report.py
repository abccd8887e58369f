"""What a run came to: faults by kind, invariants with their counts, the pods' lives, and the verdict; as a table and as JSON."""

import re
from collections import Counter, deque
from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.chaos.history import History
from tests.chaos.invariants import Checked
from tests.chaos.lives import fate, first_failures, jobs_by_id, lives

__all__ = ["Report", "fates", "held", "show", "write_report"]

MOST_SHOWN = 20
LAST_LINES = 12
WORDS = re.compile(r"warning|error|critical", re.IGNORECASE)


class Report(msgspec.Struct, kw_only=True):
    """`troubles` are crashes of the bridge's processes and errors in their logs that nobody caught: those count as violations too."""

    seed: int
    seconds: float
    faults: dict[str, int]
    invariants: list[Checked]
    lives: dict[str, int]
    jobs: int = 0
    took: float = 0.0
    settled_after: float = 0.0
    gaps: int = 0
    troubles: tuple[str, ...] = ()

    @property
    def injected(self) -> int:
        return sum(self.faults.values())

    @property
    def violations(self) -> list[str]:
        return [f"{checked.name}: {text}" for checked in self.invariants for text in checked.violations] + list(self.troubles)


def fates(history: History) -> dict[str, int]:
    """How many pods ended in which way."""
    found = lives(history.pods)
    jobs, failed = jobs_by_id(history.jobs, history.cluster), first_failures(found)
    return dict(Counter(fate(life, history, jobs, failed) or "undecided" for life in found).most_common())


def show(report: Report, console: Console) -> None:
    faults = Table("fault", "struck", title=f"seed {report.seed}: {report.injected} faults in {report.seconds:g} s")
    for kind, count in sorted(report.faults.items(), key=lambda pair: -pair[1]):
        faults.add_row(kind, str(count))
    pods = Table("pods", "", title=f"{sum(report.lives.values())} pods, {report.jobs} jobs")
    for word, count in report.lives.items():
        pods.add_row(word, str(count))
    invariants = Table("invariant", "looked at", "violations", title=f"settled {report.settled_after:.0f} s after the last fault")
    for checked in report.invariants:
        invariants.add_row(checked.name, str(checked.looked_at), str(len(checked.violations)))
    for table in (faults, pods, invariants):
        console.print(table)
    for text in report.violations[:MOST_SHOWN]:
        console.print(text, markup=False, soft_wrap=True)
    if (more := len(report.violations) - MOST_SHOWN) > 0:
        console.print(f"and {more} more")
    console.print("VIOLATED" if report.violations else "all invariants hold")


def write_report(report: Report, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    return path


def _last_words(folder: Path, console: Console) -> None:
    """What each process said last: the folder may be gone when somebody asks."""
    for path in sorted(folder.glob("*/*.log")):
        with path.open(errors="replace") as log:
            lines = deque(log, maxlen=10 * LAST_LINES)
        serious = [line for line in lines if WORDS.search(line)][-LAST_LINES:]
        console.print(f"{path.relative_to(folder)}:", markup=False)
        for line in serious or list(lines)[-LAST_LINES:]:
            console.print(line[:300].rstrip(), markup=False, soft_wrap=True, highlight=False)


def held(report: Report, folder: Path, least_faults: int) -> None:
    """What a test asserts of a run: all that must hold did, and it was looked for while enough went wrong."""
    write_report(report, folder)
    text = StringIO()
    console = Console(file=text, width=160)
    show(report, console)
    if report.violations:
        _last_words(folder, console)
    print(text.getvalue())
    assert not report.violations, text.getvalue()
    assert report.injected >= least_faults
    assert all(checked.looked_at for checked in report.invariants)
