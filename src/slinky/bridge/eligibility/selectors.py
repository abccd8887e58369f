"""Labels and what is asked of them, as Kubernetes' own matcher sees it.

Comes in: selectors and requirements as the API writes them. Goes out: `Selector`s, which can be compared, kept and asked whether labels match. What must stay true: a key that is missing satisfies NotIn and
DoesNotExist; a selector that is not there matches nothing, one that is empty everything; numbers are compared as Go reads them (64 bits, digits only); what cannot be parsed never matches by accident: it is a SelectorError.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slinky.kube.objects import LabelSelector, SelectorRequirement

__all__ = ["EVERYTHING", "NOTHING", "Requirement", "Selector", "SelectorError", "meets", "requirement_of", "selector_of"]

INTEGER = re.compile(r"[+-]?[0-9]+")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
MOST_DIGITS = 63  # as long as a label's value can be
SETS = ("In", "NotIn")
BARE = ("Exists", "DoesNotExist")
NUMBERS = ("Gt", "Lt")
MOST_SHOWN, MOST_TEXT = 4, 200  # of requirements and of values, and characters, in a message
FEW = 16  # values that are looked through one by one


class SelectorError(ValueError):
    """A requirement that the API server should not have let pass. kube-scheduler places no pod that makes it."""


class Requirement(NamedTuple):
    """One condition on one label. `values` are sorted, so that equal conditions are equal."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "NotIn" if len(self.values) == 1:
                return f"{self.key}!={self.values[0]}"
            case "In":
                return f"{self.key} in ({_few_of(self.values)})"
            case "NotIn":
                return f"{self.key} not in ({_few_of(self.values)})"
            case "Exists":
                return f"{self.key}"
            case "DoesNotExist":
                return f"no {self.key}"
            case _:
                return f"{self.key} {'>' if self.operator == 'Gt' else '<'} {' '.join(self.values)}"


def requirement_of(said: SelectorRequirement, operators: tuple[str, ...] = SETS + BARE) -> Requirement:
    """Raises SelectorError where kube-scheduler could not parse it."""
    operator, values = said.operator, said.values
    if operator not in operators:
        raise SelectorError(f"{said.key} {operator}: the operators are {', '.join(operators)}")
    if operator in SETS and not values:
        raise SelectorError(f"{said.key} {operator}: needs values")
    if operator in BARE and values:
        raise SelectorError(f"{said.key} {operator}: takes no values")
    if operator in NUMBERS and (len(values) != 1 or integer(values[0]) is None):
        raise SelectorError(f"{said.key} {operator} {', '.join(values)}: needs one whole number")
    if wrong := [value for value in values if not LABEL_VALUE.fullmatch(value)]:
        raise SelectorError(f"{said.key} {operator} {wrong[0]}: no label can have this value")
    return Requirement(said.key, operator, tuple(sorted(set(values))))


def integer(text: str) -> int | None:
    """As Go's ParseInt reads it: no spaces, no underscores, 64 bits."""
    if len(text) > MOST_DIGITS or not INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def meets(labels: Mapping[str, str], requirement: Requirement) -> bool:
    key, operator, values = requirement
    value = labels.get(key)
    match operator:
        case "In":
            return _is_among(value, values)
        case "NotIn":
            return not _is_among(value, values)
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return value is not None and _compares(value, operator, values[0])


def _is_among(value: str | None, values: tuple[str, ...]) -> bool:
    """`values` are sorted."""
    if len(values) <= FEW or value is None:
        return value in values
    index = bisect_left(values, value)
    return index < len(values) and values[index] == value


def _compares(value: str, operator: str, bound: str) -> bool:
    number, limit = integer(value), integer(bound)
    if number is None or limit is None:
        return False
    return number > limit if operator == "Gt" else number < limit


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements at once; None matches nothing. Hash and equality go by what it says."""

    requirements: tuple[Requirement, ...] | None

    @property
    def is_everything(self) -> bool:
        return self.requirements == ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.requirements is None:
            return False
        for requirement in self.requirements:  # noqa: SIM110 asked of each pod: faster than `all`
            if not meets(labels, requirement):
                return False
        return True

    def narrowed(self, more: Iterable[Requirement]) -> "Selector":
        """With these on top. What matches nothing still does."""
        return self if self.requirements is None else _selector({*self.requirements, *more})

    def __str__(self) -> str:
        """Short, whatever a user wrote: it is repeated for each node that is refused."""
        if self.requirements is None:
            return "nothing"
        said = " and ".join(map(str, self.requirements[:MOST_SHOWN])) or "any label"
        more = len(self.requirements) - MOST_SHOWN
        if len(said) > MOST_TEXT:
            said = said[:MOST_TEXT] + "…"
        return f"{said} and {more} more conditions" if more > 0 else said


def _few_of(values: Sequence[str]) -> str:
    shown = ", ".join(values[:MOST_SHOWN])
    return f"{shown} and {len(values) - MOST_SHOWN} more" if len(values) > MOST_SHOWN else shown


NOTHING = Selector(None)
EVERYTHING = Selector(())


def _selector(requirements: Iterable[Requirement]) -> Selector:
    return Selector(tuple(sorted(set(requirements))))


def selector_of(said: LabelSelector | None) -> Selector:
    """Raises SelectorError where kube-scheduler could not parse it."""
    if said is None:
        return NOTHING
    plain = [SelectorRequirement(key=key, operator="In", values=(value,)) for key, value in said.match_labels.items()]
    return _selector(requirement_of(requirement) for requirement in (*plain, *said.match_expressions))
