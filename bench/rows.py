"""One measured figure, and what it should be."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Row"]


@dataclass(frozen=True)
class Row:
    """At most `at_most`, at least `at_least`, where there is a goal at all."""

    what: str
    figure: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        if self.at_most is None and self.at_least is None:
            return None
        return (self.at_most is None or self.figure <= self.at_most) and (self.at_least is None or self.figure >= self.at_least)

    @property
    def met_text(self) -> str:
        return {None: "", True: "yes", False: "NO"}[self.met]

    @property
    def goal_text(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "figure": self.figure,
            "unit": self.unit,
            "at_most": self.at_most,
            "at_least": self.at_least,
            "met": self.met,
        }
