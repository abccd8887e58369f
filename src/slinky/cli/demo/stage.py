"""A demo's sandbox, from its first process to its last.

Comes in: a name for it and what is to be told on it. Goes out: how long that took, if all of it came true; afterwards nothing is left, or, where it is to be kept, how to go on. What must stay true: Ctrl-C, SIGTERM and SIGHUP end the story and not the taking down,
also where a shell started it in the background.
"""

import asyncio
import signal
import time
from collections.abc import Coroutine
from typing import Any

from rich.console import Console

from slinky.sandbox.down import down
from slinky.sandbox.handle import names
from slinky.sandbox.progress import Progress

__all__ = ["tell_and_leave"]

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def tell_and_leave(console: Console, name: str, story: Coroutine[Any, Any, None], kept: str = "") -> None:
    """`kept` is what is said of a sandbox that stays; without it the sandbox goes."""
    started = time.monotonic()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background ignores
    for number in ENDINGS[1:]:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        asyncio.run(story)
        console.print(f"\nall of it came true, in {time.monotonic() - started:.0f} s")
    finally:
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not keep the rest from going
        if kept and name in names():
            console.print(kept, markup=False)
        else:
            _leave(console, name)


def _leave(console: Console, name: str) -> None:
    try:
        with Progress() as progress, progress.step("taking everything down"):
            down(name)
    finally:
        down(name)  # also where the terminal is gone, and nothing can be said any more
    console.print("the sandbox is down: no process, mount or interface is left")
