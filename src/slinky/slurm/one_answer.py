"""One answer to one request, whatever slurmrestd writes.

slurmrestd 26.05 writes most of its errors twice on one connection: the whole answer with `Connection: Close`, and after it a second status line. aiohttp, by
the book, then throws away the first one too and reports bad HTTP. Here the bytes after a closing answer are dropped before the parser sees them.

What must stay true: bytes of an answer that keeps its connection open pass untouched, and cost one look at their beginning.
"""

import re
from functools import partial

import aiohttp
from aiohttp.client_proto import ResponseHandler

__all__ = ["OneAnswer", "first_answer", "take_one_answer"]

_CLOSES = re.compile(rb"\r\n[Cc]onnection:[ \t]*[Cc]lose[ \t]*(?=\r\n)")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
LONGEST_HEAD = 1024  # slurmrestd's have 100 bytes


def first_answer(data: bytes) -> int | None:
    """How many bytes the first answer in `data` has in all, if it closes its connection and says its length."""
    if not data.startswith(b"HTTP/1.") or not (closes := _CLOSES.search(data, 0, LONGEST_HEAD)):
        return None
    end = data.find(b"\r\n\r\n", 0, LONGEST_HEAD)
    length = _LENGTH.search(data, 0, end + 2)
    return end + 4 + int(length[1]) if length and closes.start() < end else None


class OneAnswer(ResponseHandler):
    """aiohttp's side of one connection, deaf after an answer that closes it."""

    _left: int | None = None  # bytes that may still come; None while connections are kept

    def data_received(self, data: bytes) -> None:
        if self._left is None:
            self._left = first_answer(data)
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            if not data:
                return
        super().data_received(data)


def take_one_answer(connector: aiohttp.BaseConnector) -> aiohttp.BaseConnector:
    """The connector, making such connections."""
    connector._factory = partial(OneAnswer, loop=connector._loop)  # type: ignore[assignment]
    return connector
