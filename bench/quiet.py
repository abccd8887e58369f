"""Waiting until the machine has nothing left to do of what came before, so that one measurement does not pay for another.

Comes in: nothing but what the kernel counts. Goes out: the moment. What must stay true: a machine that is never quiet is waited for only so long, and it is said that it was not.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["busy_share", "until_quiet"]

SPAN_SECONDS = 1.0
SPANS = 3  # in a row
MOST_SECONDS = 120.0
QUIET = 0.2  # of all cores
COUNTS = Path("/proc/stat")


def busy_share(before: str, after: str) -> float:
    """Of the time of all cores between two looks at `/proc/stat`: what was neither idle nor waiting for a disk."""
    earlier, later = ([int(each) for each in text.splitlines()[0].split()[1:9]] for text in (before, after))
    spent = [now - then for then, now in zip(earlier, later, strict=True)]
    return 1 - (spent[3] + spent[4]) / max(sum(spent), 1)


async def until_quiet(say: Callable[[str], None], most: float | None = None) -> None:
    """`most`: seconds to wait at most. What was written meanwhile is on the disk then, too: the kernel would write it seconds later, in the middle of what is measured."""
    began, quiet, share = time.monotonic(), 0, 1.0
    most = MOST_SECONDS if most is None else most
    await asyncio.to_thread(os.sync)
    while quiet < SPANS and time.monotonic() < began + most:
        before = COUNTS.read_text()
        await asyncio.sleep(SPAN_SECONDS)
        share = busy_share(before, COUNTS.read_text())
        quiet = quiet + 1 if share < QUIET else 0
    took = time.monotonic() - began
    say(
        f"the machine is quiet after {took:.0f} s"
        if quiet == SPANS
        else f"the machine is still busy ({share:.0%}) after {took:.0f} s; measured all the same"
    )
