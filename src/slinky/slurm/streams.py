"""A list too large to be held, read one item at a time.

`Splitter` is pure: bytes go in as they arrive, whole JSON objects of one top-level array come out, as bytes. It looks at brackets and strings only and leaves the
decoding to msgspec. What must stay true: memory is bounded: an answer of up to 64 MB is held and decoded as a whole, which is ten times as fast; of a longer one never more than an object and the piece that just arrived.
"""

import re
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

import msgspec

from slinky.slurm.connection import Connection
from slinky.slurm.errors import BadAnswerError
from slinky.slurm.lanes import Lane
from slinky.slurm.models.jobs import Job
from slinky.slurm.requests import Request

__all__ = ["Splitter", "stream", "stream_jobs"]

T = TypeVar("T")

LARGEST_ITEM = 32 * 1024 * 1024
LIST_SECONDS = 300.0
AT_ONCE = 64 * 1024 * 1024  # of an answer that is held in memory to be decoded as a whole

# A whole string, a string whose end has not come yet, or a bracket.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|"|[\[\]{}]', re.DOTALL)


class Splitter:
    """Cuts `{"jobs": [{…}, {…}], …}` into its objects. `complete` when the whole document has been seen."""

    def __init__(self, key: str) -> None:
        self._key = f'"{key}"'.encode()
        self._buffer = bytearray()
        self._scanned = 0
        self._depth = 0
        self._start: int | None = None
        self._inside = False
        self._last_string = b""
        self.complete = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The objects that ended in this piece."""
        self._buffer += piece
        position = self._scanned
        for match in _TOKEN.finditer(self._buffer, position):
            token = self._buffer[match.start()]
            if token == 0x22:  # a quote
                if match.end() - match.start() == 1:
                    position = match.start()
                    break
                if self._depth == 1:
                    self._last_string = match.group()
            elif token in b"{[":
                self._depth += 1
                if self._depth == 2 and token == 0x5B and self._last_string == self._key:
                    self._inside = True
                elif self._depth == 3 and self._inside:
                    self._start = match.start()
            else:
                self._depth -= 1
                if self._depth == 2 and self._start is not None:
                    yield bytes(memoryview(self._buffer)[self._start : match.end()])
                    self._start = None
                elif self._depth == 1:
                    self._inside = False
                elif self._depth == 0:
                    self.complete = True
            position = match.end()
        self._forget(position)

    def _forget(self, position: int) -> None:
        keep = position if self._start is None else self._start
        if len(self._buffer) - keep > LARGEST_ITEM:
            raise BadAnswerError(f"one item of the list is larger than {LARGEST_ITEM // 1024 // 1024} MiB")
        del self._buffer[:keep]
        self._scanned = position - keep
        if self._start is not None:
            self._start = 0


async def stream(connection: Connection, path: str, key: str, item: type[T]) -> AsyncIterator[T]:
    """The items of a list, decoded one by one. BadAnswerError at the end, if there was no end."""
    request = Request(method="GET", path=await connection.path(path), lane=Lane.BULK, deadline=connection.deadline or LIST_SECONDS)
    decoder = msgspec.json.Decoder(item)
    splitter = Splitter(key)
    pieces = connection.transport.stream(request)
    held: list[bytes] | None = []  # the beginning; None once it is too much
    room = AT_ONCE
    try:
        async for piece in pieces:
            if held is not None:
                held.append(piece)
                room -= len(piece)
                if room > 0:
                    continue
                piece, held = b"".join(held), None
            for text in splitter.feed(piece):
                try:
                    yield decoder.decode(text)
                except msgspec.DecodeError as error:
                    raise BadAnswerError(f"an item of {key} cannot be read: {error}", request=request.label) from error
        if held is not None:
            for found in _decoded(b"".join(held), key, item, request.label):
                yield found
            return
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]
    if not splitter.complete:
        raise BadAnswerError(f"the list of {key} ends in the middle", request=request.label)


def _decoded(text: bytes, key: str, item: type[T], label: str) -> list[T]:
    """All at once, ten times as fast as one by one; for what may be held."""
    document = msgspec.defstruct("Document", [(key, list[item] | None, None)])  # type: ignore[valid-type]
    try:
        found: list[T] | None = getattr(msgspec.json.decode(text, type=document), key)
    except msgspec.ValidationError as error:
        raise BadAnswerError(f"an item of {key} cannot be read: {error}", request=label) from error
    except msgspec.DecodeError as error:
        raise BadAnswerError(f"the list of {key} ends in the middle, or is no JSON: {error}", request=label) from error
    return found or []


def stream_jobs(connection: Connection) -> AsyncIterator[Job]:
    return stream(connection, "slurm/jobs/", "jobs", Job)
