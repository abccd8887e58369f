"""How often disruption budgets that say no are asked again.

*Invariants:* after a refusal, a budget is asked again by one pod alone, whatever number of pods it covers. While it says
yes, one pod more asks side by side for each that goes. Pods that are not ready count as another budget, as some budgets let
those go. All budgets of a namespace together say no a limited number of times a second, besides the first time to each pod.
What is kept is bounded by the number of budgets that said no in the last minutes.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterable

__all__ = ["LONGEST_AGAIN", "MOST_REFUSED", "Budget", "Budgets", "name_of_budget", "seconds_to_next"]

FIRST_AGAIN = 1.0
LONGEST_AGAIN = 15.0
MOST_DOUBLINGS = 10
MOST_SIDE_BY_SIDE = 128
KEPT_SECONDS = 120.0  # a budget that nothing asked for so long is forgotten
MANY = 1000  # budgets, above which it is looked which of them can be forgotten
MOST_REFUSED = 20  # in a second, to pods of one namespace that were refused before
SPREAD_SECONDS = 3.0  # over so long the workloads that one budget puts off come again

_NAME = re.compile(r"The disruption budget (\S+) ")


def name_of_budget(words: str) -> str:
    """As the API server names it in its refusal. The whole refusal, where it names none."""
    found = _NAME.search(words)
    return found[1] if found else words


def seconds_to_next(tries: int) -> float:
    """After so many refusals in a row, one or more."""
    return float(min(FIRST_AGAIN * 2 ** min(tries - 1, MOST_DOUBLINGS), LONGEST_AGAIN))


class Budget:
    """One budget, as far as it is known from its answers. Belongs to one event loop."""

    __slots__ = ("_asking", "_changed", "_most", "_tries", "closed_until", "used_at")

    def __init__(self) -> None:
        self.closed_until = 0.0
        self.used_at = 0.0
        self._tries = 0
        self._asking = 0
        self._most = 1
        self._changed: asyncio.Future[None] | None = None

    @property
    def is_in_use(self) -> bool:
        return self._asking > 0

    async def may_ask(self) -> bool:
        """Whether a pod that it refused may ask again; `answered` or `left` must follow then. Waits for those that ask now."""
        loop = asyncio.get_running_loop()
        while True:
            self.used_at = loop.time()
            if self.used_at < self.closed_until:
                return False
            if self._asking < self._most:
                self._asking += 1
                return True
            if self._changed is None:
                self._changed = loop.create_future()
            await asyncio.shield(self._changed)

    def left(self) -> None:
        """One that might ask has done so, or has failed."""
        self._asking -= 1
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def granted(self) -> None:
        """It let a pod go."""
        self._tries, self._most = 0, min(self._most + 1, MOST_SIDE_BY_SIDE)

    def refused(self, now: float) -> None:
        """It did not. Of several refusals side by side, one counts."""
        self._most, self.used_at = 1, now
        if now >= self.closed_until:
            self._tries += 1
            self.closed_until = now + seconds_to_next(self._tries) * random.uniform(0.8, 1.2)  # noqa: S311

    def again(self, workload: int) -> float:
        """When a pod of this workload (a number) comes again: all pods of a workload at once."""
        return self.closed_until + workload * 0.618 % 1 * min(SPREAD_SECONDS, 0.2 * seconds_to_next(max(self._tries, 1)))

    def reopen(self) -> None:
        """It is to be asked again at once."""
        self.closed_until, self._tries = 0.0, 0


class Budgets:
    """Those that have said no, by namespace and name."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str, bool], Budget] = {}
        self._look_above = MANY
        self._second = 0.0
        self._refused: Counter[str] = Counter()  # since that second began, by namespace

    def __len__(self) -> int:
        return len(self._of)

    def of(self, namespace: str, name: str, now: float, *, ready: bool) -> Budget:
        """`ready`: the budget as it counts for pods that are."""
        key = (namespace, name, ready)
        found = self._of.get(key)
        if found is None:
            if len(self._of) >= self._look_above:
                self._of = {key: one for key, one in self._of.items() if one.is_in_use or now - one.used_at < KEPT_SECONDS}
                self._look_above = max(MANY, 2 * len(self._of))
            found = self._of[key] = Budget()
            found.used_at = now
        return found

    def may_ask(self, namespace: str, now: float) -> bool:
        """Whether the namespace's budgets have not said no too often in this second."""
        if now - self._second >= 1:
            self._second = now
            self._refused.clear()
        return self._refused[namespace] < MOST_REFUSED

    def refused(self, namespace: str) -> None:
        """One of the namespace's budgets said no to a pod that it had refused before."""
        self._refused[namespace] += 1

    def reopen(self, namespace: str, names: Iterable[str]) -> None:
        for name in names:
            for ready in (True, False):
                if found := self._of.get((namespace, name, ready)):
                    found.reopen()
