"""A watch's bytes as events: lines of any length out of chunks of any size, and each line as a typed event.

Pure. In: bytes as they arrive. Out: `WatchEvent`s; an ERROR event is raised as the ApiError it describes.
What must stay true: one pass of the decoder per object; an object that cannot be read is reported (`object` is None) and never ends the stream.
"""

from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from slinky.kube.errors import BadAnswerError, Status, refusal_by_status
from slinky.kube.objects import KubeObject, Meta

__all__ = ["EventReader", "LineSplitter", "WatchEvent"]

T = TypeVar("T", bound=KubeObject)
INITIAL_END = "k8s.io/initial-events-end"


class LineSplitter:
    """Gathers chunks until a line is whole. A long line's parts are joined once, so its cost grows with its length and not with its square."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        head, newline, rest = chunk.partition(b"\n")
        if not newline:
            self._parts.append(chunk)
            return []
        lines = [b"".join([*self._parts, head]), *rest.split(b"\n")]
        last = lines.pop()
        self._parts = [last] if last else []
        return [line for line in lines if line]


class WatchEvent(msgspec.Struct, Generic[T], gc=False):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; `object` is None where it could not be read, and then `problem` says why."""

    type: str
    object: T | None
    problem: str | None = None

    @property
    def ends_initial(self) -> bool:
        return self.type == "BOOKMARK" and self.object is not None and INITIAL_END in self.object.metadata.annotations


class _Bare(msgspec.Struct):
    """What can be read of any event."""

    type: str
    object: msgspec.Raw


class EventReader(Generic[T]):
    """Lines to events of one type."""

    def __init__(self, kind: type[T], path: str) -> None:
        self._decode = _decoder(kind).decode
        self._kind = kind
        self._path = path

    def read(self, line: bytes) -> WatchEvent[T]:
        try:
            event: WatchEvent[T] = self._decode(line)
        except msgspec.DecodeError as error:
            return self._read_bare(line, str(error))
        if event.type == "ERROR":
            return self._read_bare(line, "")
        return event

    def _read_bare(self, line: bytes, problem: str) -> WatchEvent[T]:
        """Bookmarks (whose objects are half empty), errors, and what does not fit the type."""
        try:
            bare = msgspec.json.decode(line, type=_Bare)
            if bare.type == "ERROR":
                raise refusal_by_status("GET", self._path, msgspec.json.decode(bare.object, type=Status))
            metadata = msgspec.json.decode(bare.object, type=KubeObject).metadata
        except msgspec.DecodeError as error:
            raise BadAnswerError("GET", self._path, f"not a watch event: {error}") from None
        if bare.type == "BOOKMARK":
            return WatchEvent("BOOKMARK", self._kind(metadata=metadata))
        return WatchEvent(bare.type, None, f"{_named(metadata)}: {problem}")


def _named(metadata: Meta) -> str:
    return str(metadata.key)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(WatchEvent[kind])
