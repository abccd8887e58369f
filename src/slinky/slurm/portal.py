"""The bridge from plain code to the async client: one thread with an event loop, into which calls are handed and waited for.

What must stay true: everything async happens in that one thread, also in a notebook that has a loop of its own; Ctrl-C cancels the call that is waited for;
nobody waits for a portal that has been closed.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from slinky.slurm.errors import ConfigurationError, OutcomeUnknownError

__all__ = ["Portal"]

T = TypeVar("T")


class Portal:
    """Started with the first call, ended by `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for what an async call gives."""
        waiting = self._handed_in(call)
        try:
            return waiting.result()
        except concurrent.futures.CancelledError:
            raise OutcomeUnknownError("the client was closed while this was waited for") from None
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
            if not self._closed:  # otherwise it has been closed with the loop
                self.run(_close(source))

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for `last`, end what is still waited for, then the loop and its thread. A second time nothing is left to do."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._loop and self._thread:
            asyncio.run_coroutine_threadsafe(_end(last), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _handed_in(self, call: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        with self._lock:  # not while it is being closed: a loop that has stopped would never come to it
            if self._closed:
                call.close()
                raise ConfigurationError("the client has been closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="slinky.slurm", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(call, self._loop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await last()
    finally:
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _close(source: AsyncIterator[Any]) -> None:
    if close := getattr(source, "aclose", None):
        await close()
