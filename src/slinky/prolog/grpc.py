"""One unary gRPC call over a Unix socket, in the few words of HTTP/2 that it takes.

Comes in: a socket's path, a method, an encoded message. Goes out: the encoded answer. What must stay true: there is a deadline; an answer is believed only if it came whole. Header lists of the server are not decoded: an answer without a message is a refusal.
"""

import socket
import struct
import time

__all__ = ["RuntimeSilentError", "call"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
END_STREAM, ACK, END_HEADERS, PADDED = 0x1, 0x1, 0x4, 0x8
INITIAL_WINDOW, FRAME_SIZE = 0x4, 0x5
LARGEST_WINDOW, LARGEST_FRAME, FIRST_WINDOW = 0x7FFFFFFF, 0xFFFFFF, 0xFFFF
MOST_BYTES = 64 << 20
STREAM = 1


class RuntimeSilentError(Exception):
    """The container runtime did not answer, or not to the point."""


def call(path: str, method: str, message: bytes, seconds: float) -> bytes:
    """`method` as in /runtime.v1.RuntimeService/ListPodSandbox. Raises RuntimeSilentError."""
    deadline = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.settimeout(seconds)
            wire.connect(path)
            wire.sendall(_asked(method, message))
            return _message(_answer(wire, deadline), method)
    except OSError as error:
        raise RuntimeSilentError(f"{path}: {error}") from error


def _asked(method: str, message: bytes) -> bytes:
    settings = struct.pack(">HI", INITIAL_WINDOW, LARGEST_WINDOW) + struct.pack(">HI", FRAME_SIZE, LARGEST_FRAME)
    return b"".join(
        [
            PREFACE,
            _frame(SETTINGS, 0, 0, settings),
            _frame(WINDOW, 0, 0, struct.pack(">I", LARGEST_WINDOW - FIRST_WINDOW)),
            _frame(HEADERS, END_HEADERS, STREAM, _headers(method)),
            _frame(DATA, END_STREAM, STREAM, b"\0" + struct.pack(">I", len(message)) + message),
        ]
    )


def _headers(method: str) -> bytes:
    """POST and http by their numbers in HTTP/2's table, names by theirs where they have one; nothing is to be remembered."""
    return b"".join(
        [b"\x83\x86", b"\x04", _text(method), b"\x01", _text("localhost"), b"\x0f\x10", _text("application/grpc"), b"\x00", _text("te")]
    ) + _text("trailers")


def _text(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _answer(wire: socket.socket, deadline: float) -> bytes:
    """What was said on our stream until it ended."""
    said = bytearray()
    while True:
        head = _read(wire, 9, deadline)
        length, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big") & LARGEST_WINDOW
        body = _read(wire, length, deadline)
        if kind == SETTINGS and not flags & ACK:
            wire.sendall(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            wire.sendall(_frame(PING, ACK, 0, body))
        elif kind in (RESET, GOAWAY):
            raise RuntimeSilentError("the runtime broke the call off")
        elif kind == DATA and stream == STREAM:
            said += body[1 : length - body[0]] if flags & PADDED else body
            if len(said) > MOST_BYTES:
                raise RuntimeSilentError("the runtime says more than can be")
        if kind in (DATA, HEADERS) and stream == STREAM and flags & END_STREAM:
            return bytes(said)


def _read(wire: socket.socket, count: int, deadline: float) -> bytes:
    found = bytearray()
    while len(found) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RuntimeSilentError("the runtime did not answer in time")
        wire.settimeout(left)
        part = wire.recv(min(count - len(found), 1 << 20))
        if not part:
            raise RuntimeSilentError("the runtime closed the connection")
        found += part
    return bytes(found)


def _message(said: bytes, method: str) -> bytes:
    if len(said) < 5 or said[0] or int.from_bytes(said[1:5], "big") != len(said) - 5:
        raise RuntimeSilentError(f"the runtime refused {method}")
    return said[5:]
