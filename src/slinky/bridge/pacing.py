"""Long work in short turns, so that a gang of thousands of pods never blocks the event loop.

`Pace` lets other tasks run after every few milliseconds of work. `all_of` carries out any number of acts, a limited number side by side. `seconds_between_looks` says how often a large workload is looked at.

*Invariants:* one turn takes at most `SLICE_SECONDS`, plus one step of the work; all acts of `all_of` are carried out, also where one fails; the looks at one workload take a bounded share of the process's time, however
many of its pods change.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["MOST_ACTS", "Pace", "all_of", "in_turns", "seconds_between_looks"]

T = TypeVar("T")

SLICE_SECONDS = 0.02
MOST_ACTS = 128  # requests side by side: a few times the connections that a client has
FEW_PODS = 100
SECONDS_A_POD = 0.0002  # a look costs about 0.00004 s a pod: looks at one gang take a fifth of a core at most


class Pace:
    """`await pace.step()` once for each step of a long loop: other tasks get a turn when the slice is used up."""

    __slots__ = ("_since", "turns")

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self.turns = 0

    async def step(self) -> None:
        if time.perf_counter() - self._since >= SLICE_SECONDS:
            await self.turn()

    async def turn(self) -> None:
        """Let other tasks run now."""
        self.turns += 1
        await asyncio.sleep(0)
        self._since = time.perf_counter()


async def in_turns(items: Iterable[T], each: Callable[[T], object], pace: Pace | None = None) -> None:
    """Call `each` for all items, in order."""
    pace = pace or Pace()
    for item in items:
        each(item)
        await pace.step()


async def all_of(acts: Sequence[Awaitable[None]]) -> None:
    """Carry out all of them, at most `MOST_ACTS` side by side, also where one fails; then raise the first failure."""
    if len(acts) == 1:  # as a rule: no task for it
        await acts[0]
        return
    if len(acts) <= MOST_ACTS:
        results = await asyncio.gather(*acts, return_exceptions=True)
    else:
        results = await _side_by_side(acts)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _side_by_side(acts: Sequence[Awaitable[None]]) -> list[BaseException | None]:
    results: list[BaseException | None] = [None] * len(acts)
    left: Iterator[tuple[int, Awaitable[None]]] = iter(enumerate(acts))
    pace = Pace()

    async def worker() -> None:
        for index, act in left:
            try:
                await act
            except Exception as error:
                results[index] = error
            await pace.step()

    workers = [asyncio.create_task(worker()) for _ in range(MOST_ACTS)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        for _, act in left:  # what was never begun, because this was cancelled
            if isinstance(act, Coroutine):
                act.close()
    return results


def seconds_between_looks(pods: int) -> float:
    """How long a workload of so many pods is left alone after a look, when nothing but its pods has changed."""
    return pods * SECONDS_A_POD if pods > FEW_PODS else 0.0
