"""Labels: names that people and servers chose, made harmless and few.

Pure. Comes in: names as Slurm has them, and sums by label values. Goes out: the same with every value printable and short, and with at most so many values a label; what is beyond is summed up as `other`.
What must stay true: no sum changes by it, and no two samples have the same labels.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

__all__ = ["OTHER", "Sums", "add", "bounded", "clean", "top", "weights", "within"]

OTHER = "other"
LONGEST = 128

Sums = dict[tuple[str, ...], float]


@lru_cache(maxsize=100_000)
def clean(name: str) -> str:
    """Nothing that could break a line of the exposition or a terminal; not longer than 128 characters. Quotes and backslashes are escaped by whoever writes it out."""
    if not name.isprintable():
        name = "".join(
            letter if letter.isprintable() and unicodedata.category(letter) != "Cs" else "\N{REPLACEMENT CHARACTER}" for letter in name
        )
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def add(sums: Sums, labels: tuple[str, ...], value: float) -> None:
    sums[labels] = sums.get(labels, 0.0) + value


def weights(sums: Sums, place: int) -> dict[str, float]:
    """What each value of the label at `place` sums up to."""
    found: dict[str, float] = {}
    for labels, value in sums.items():
        found[labels[place]] = found.get(labels[place], 0.0) + value
    return found


def top(weights: Mapping[str, float], most: int) -> frozenset[str]:
    """The heaviest; by name where they weigh the same, so that the same are chosen each time."""
    return frozenset(sorted(weights, key=lambda name: (-weights[name], name))[:most])


def within(sums: Mapping[tuple[str, ...], float], place: int, kept: frozenset[str]) -> Sums:
    """Those whose label at `place` is not kept become `other` there."""
    found: Sums = {}
    for labels, value in sums.items():
        if labels[place] not in kept:
            labels = (*labels[:place], OTHER, *labels[place + 1 :])
        add(found, labels, value)
    return found


def bounded(many: Sequence[Sums], limits: Sequence[tuple[int, int]], weigh: Callable[[int], Mapping[str, float]], most: int) -> list[Sums]:
    """Several sums by the same labels, with the same values kept in all of them.

    `limits` are (place of a label, values to keep), those first that are given up first where a sum would have more than `most` samples; `weigh` says what the values at a place weigh.
    """
    keep = dict(limits)
    weighed = {place: weigh(place) for place in keep}
    found = list(many)
    while True:
        # What is kept later is a part of what was kept before, so each round may go on from the last.
        kept = {place: top(weighed[place], number) for place, number in keep.items()}
        found = [_within_all(sums, kept) for sums in found]
        if max(map(len, found), default=0) <= most or not any(keep.values()):
            return found
        place = next(place for place, number in keep.items() if number)
        keep[place] = min(keep[place], len(weighed[place])) // 2


def _within_all(sums: Sums, kept: Mapping[int, frozenset[str]]) -> Sums:
    """`within` at several places, in one go."""
    found: Sums = {}
    for labels, value in sums.items():
        made = list(labels)
        for place, names in kept.items():
            if made[place] not in names:
                made[place] = OTHER
        add(found, tuple(made), value)
    return found
