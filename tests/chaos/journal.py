"""What was injected, as it happened: one JSON line a fault, and their number by kind.

What must stay true: a fault is counted when it struck, not when it was planned; what was planned and found nothing to strike is not counted.
"""

import json
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos.history import Act

__all__ = ["Journal"]


class Journal:
    """`acts` is what the run did that the invariants have to know."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", buffering=1)
        self.counts: Counter[str] = Counter()
        self.acts: list[Act] = []
        self.last = 0.0
        self.began = time.time()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def struck(self, kind: str, target: str, **more: object) -> None:
        self.counts[kind] += 1
        self._write("fault", kind, target, **more)
        self.last = time.time()

    def over(self, kind: str, target: str) -> None:
        """A fault that lasted has passed."""
        self._write("over", kind, target)
        self.last = time.time()

    def missed(self, kind: str, target: str) -> None:
        self._write("missed", kind, target)

    def act(self, kind: str, subject: str, detail: str = "") -> None:
        self.acts.append(Act(at=time.time(), kind=kind, subject=subject, detail=detail))  # type: ignore[arg-type]
        if kind != "binding":
            self._write("act", kind, subject, detail=detail)

    def note(self, kind: str, target: str, **more: object) -> None:
        """For who reads it; no invariant asks for it."""
        self._write("act", kind, target, **more)

    def _write(self, what: str, kind: str, target: str, **more: object) -> None:
        now = time.time()
        entry = {"time": round(now, 3), "second": round(now - self.began, 3), "what": what, "kind": kind, "target": target, **more}
        self._file.write(json.dumps(entry) + "\n")
