"""All that was planned, each at its time, and until all of it is done."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

__all__ = ["Planned", "storm"]

Planned = tuple[float, Callable[[], Awaitable[None]]]  # the second, and the deed
PROGRESS_SECONDS = 30.0


async def storm(planned: Iterable[Planned], say: Callable[[str], None]) -> None:
    began = time.monotonic()

    async def at(second: float, deed: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(max(0.0, began + second - time.monotonic()))
        await deed()

    async def progress() -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            say(f"{time.monotonic() - began:.0f} s")

    ticker = asyncio.create_task(progress())
    try:
        async with asyncio.TaskGroup() as tasks:
            for second, deed in planned:
                tasks.create_task(at(second, deed))
    finally:
        ticker.cancel()
        await asyncio.gather(ticker, return_exceptions=True)
