"""One writer at a time for a job's `admin_comment`, which several parts of the bridge read, change and write back."""

import asyncio
from weakref import WeakValueDictionary

__all__ = ["CommentLocks"]


class CommentLocks:
    """A lock for each job whose comment is being changed."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def of(self, job_id: int) -> asyncio.Lock:
        """Hold it from the read of the comment to its write."""
        lock = self._locks.get(job_id)
        if lock is None:
            lock = self._locks[job_id] = asyncio.Lock()
        return lock
