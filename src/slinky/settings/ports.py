"""A port that cannot be listened on is a setting that has to be another."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from slinky.settings.sections import SettingsError

__all__ = ["listening"]


@asynccontextmanager
async def listening(server: AbstractAsyncContextManager[object], port: int, key: str) -> AsyncIterator[None]:
    """While `server` runs. Raises SettingsError, which names the key, where it cannot begin to."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise SettingsError(f"{key} {port} cannot be listened on: {error.strerror}; choose another, or end what has it") from error
        yield
