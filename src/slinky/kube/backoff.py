"""How long to wait before trying again: exponential, jittered, capped. Pure: the caller brings the number of failures and the dice.

What must stay true: a wait is never longer than `most`, and never shorter than half of what the number of failures asks for.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Backoff"]

LARGEST_POWER = 40


@dataclass(frozen=True)
class Backoff:
    """`first` seconds after the first failure, `factor` times as long after each further one, at most `most`; half of it is chance."""

    first: float = 0.2
    most: float = 30.0
    factor: float = 2.0

    def seconds(self, failures: int, dice: Callable[[], float] = random.random) -> float:
        whole = min(self.most, self.first * self.factor ** min(max(failures, 1) - 1, LARGEST_POWER))
        return whole * (0.5 + 0.5 * dice())
