"""A finding: what was seen on which object, how bad it is, and what would help; and the entry of the catalogue that it is made from.

Pure. What must stay true: a finding's code is an entry's; its advice is that entry's, with the object's own names filled in, so that the reference in the docs and what people are told are one text.
"""

import enum
import re
from collections.abc import Iterable

import msgspec

__all__ = ["Entry", "Finding", "Severity", "worst"]


class Severity(enum.StrEnum):
    """`note`: how things are. `warning`: works, but not as it should. `error`: does not work."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


ORDER = {severity: rank for rank, severity in enumerate(Severity)}


class Entry(msgspec.Struct, frozen=True):
    """One kind of finding. `{names}` in `change` are filled in; the docs show them in capitals."""

    code: str
    area: str
    severity: Severity
    meaning: str
    change: str

    @property
    def general_change(self) -> str:
        """For everyone, with no names filled in."""
        return re.sub(r"\{(\w+)\}", lambda found: found[1].upper().replace("_", "-"), self.change)

    def found(self, about: str, seen: str, **names: object) -> "Finding":
        return Finding(code=self.code, area=self.area, severity=self.severity, about=about, seen=seen, change=self.change.format(**names))


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`about` names the object; `change` is what to do, empty where there is nothing to do."""

    code: str
    area: str
    severity: Severity
    about: str
    seen: str
    change: str = ""


def worst(findings: Iterable[Finding]) -> Severity:
    return max((found.severity for found in findings), key=ORDER.__getitem__, default=Severity.NOTE)
