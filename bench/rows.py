"""One measured figure, the limit that was measured beside it in the same run, and what the figure should be."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Row", "against"]


@dataclass(frozen=True)
class Row:
    """At most `at_most`, at least `at_least`, where there is a goal at all. Where there is a `ratio` (to the `limit`), the goal is for that; else for the figure. `details` are for the JSON only, and so is the `part` of a measurement that has several."""

    what: str
    figure: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    limit: float | None = None
    ratio: float | None = None
    details: Mapping[str, float] | None = None
    part: str = ""

    @property
    def met(self) -> bool | None:
        if self.at_most is None and self.at_least is None:
            return None
        judged = self.figure if self.ratio is None else self.ratio
        return (self.at_most is None or judged <= self.at_most) and (self.at_least is None or judged >= self.at_least)

    @property
    def met_text(self) -> str:
        return {None: "", True: "yes", False: "NO"}[self.met]

    @property
    def goal_text(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else ""

    @property
    def cells(self) -> tuple[str, ...]:
        """For a table: what, figure, unit, limit, ratio, goal, met."""
        limit = "" if self.limit is None else f"{self.limit:,.4g}"
        ratio = "" if self.ratio is None else f"{self.ratio:.3g}"
        return (self.what, f"{self.figure:,.4g}", self.unit, limit, ratio, self.goal_text, self.met_text)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}


def against(
    what: str, figures: Sequence[float], limits: Sequence[float], unit: str, *, at_least: float | None = None, at_most: float | None = None
) -> Row:
    """A row from rounds in which both were measured in turn: medians, and the median of the rounds' own ratios (each of which is in the details), as what else the machine does hits both of a round."""
    ratios = [figure / limit for figure, limit in zip(figures, limits, strict=True)]
    rounds = {f"ratio of round {number}": round(ratio, 3) for number, ratio in enumerate(ratios, 1)}
    return Row(
        what,
        statistics.median(figures),
        unit,
        limit=statistics.median(limits),
        ratio=statistics.median(ratios),
        at_least=at_least,
        at_most=at_most,
        details=rounds,
    )
