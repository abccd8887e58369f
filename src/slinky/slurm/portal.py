"""The bridge from plain code to the async client: one thread with an event loop, into which calls are handed and waited for.

What must stay true: everything async happens in that one thread, also in a notebook that has a loop of its own; Ctrl-C cancels the call that is waited for.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

__all__ = ["Portal"]

T = TypeVar("T")


class Portal:
    """Started with the first call, ended by `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for what an async call gives."""
        waiting = asyncio.run_coroutine_threadsafe(call, self._started())
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """Go through an async iterator; it is closed when the loop over this is left."""
        try:
            while True:
                try:
                    yield self.run(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            self.run(_close(source))

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop:
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(self._loop,), name="slinky.slurm", daemon=True).start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _close(source: AsyncIterator[Any]) -> None:
    if close := getattr(source, "aclose", None):
        await close()
