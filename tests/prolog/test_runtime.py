"""What the container runtime tells, over a socket of its own: read with nothing but Python's library. The real containerd is in tests/bridge_sandbox/test_hybrid.py."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slinky.prolog.decision import PodHere
from slinky.prolog.grpc import PREFACE, RuntimeSilentError, call
from slinky.prolog.runtime import JOB_LABEL, NODE_ANNOTATION, pods_from


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    body = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + varint(len(body)) + body


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def sandbox(id_: str, name: str, labels: dict[str, str], state: int = 0, *, placed: bool = True) -> bytes:
    """`placed` by the bridge: then it has what only the Binding writes."""
    about = field(1, name) + field(2, f"{name}-uid") + field(3, "team") + field(4, 1)
    entries = b"".join(field(5, field(1, key) + field(2, value)) for key, value in labels.items())
    padding = field(6, field(1, "note") + field(2, "x" * 300))
    if placed:
        padding += field(6, field(1, NODE_ANNOTATION) + field(2, "w1"))
    return field(1, field(1, id_) + field(2, about) + field(3, state) + field(4, 1 << 60) + entries + padding)


def container(sandbox_id: str, state: int) -> bytes:
    return field(1, field(1, "c") + field(2, sandbox_id) + field(6, state))


JOB = {JOB_LABEL: "7"}


def test_a_pod_that_the_bridge_did_not_place_holds_no_job_whatever_its_label_says() -> None:
    """A DaemonSet with the label in its template would hold every job on its nodes, and then drain them."""
    assert pods_from(sandbox("s", "p", JOB, placed=False), b"") == [PodHere("p-uid", "team/p", 0, True)]


@pytest.mark.parametrize(
    ("state", "containers", "alive"),
    [
        (0, b"", True),  # ready: what is not created yet may come
        (1, b"", False),
        (1, container("s", 2), False),
        (1, container("s", 2) + container("s", 1), True),
        (1, container("s", 0), True),
        (1, container("other", 1), False),
        (0, container("s", 2), True),
    ],
)
def test_a_pod_is_alive_until_its_sandbox_is_stopped_and_its_containers_have_exited(state: int, containers: bytes, alive: bool) -> None:
    assert pods_from(sandbox("s", "p", JOB, state), containers) == [PodHere("p-uid", "team/p", 7, alive)]


def test_pods_without_the_label_or_with_nonsense_in_it_are_not_the_bridges() -> None:
    found = pods_from(sandbox("a", "plain", {"app": "web"}) + sandbox("b", "odd", {JOB_LABEL: "x"}), b"")
    assert [pod.job_id for pod in found] == [0, 0]


def test_a_pod_whose_sandbox_was_made_anew_is_one_pod() -> None:
    assert pods_from(sandbox("a", "p", JOB) + sandbox("b", "p", JOB, 1), b"") == [PodHere("p-uid", "team/p", 7, True)]


# The wire


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


SETTINGS, ENDED = frame(4, 0, 0, b""), frame(1, 5, 1, b"\x88")
HEADERS = frame(1, 4, 1, b"\x88")


def message(body: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(body)) + body


@contextmanager
def server(path: Path, talk: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path / "cri.sock"))
        listening.listen()

        def serve() -> None:
            wire, _ = listening.accept()
            with wire:
                assert wire.recv(1 << 16).startswith(PREFACE)
                talk(wire)
                wire.shutdown(socket.SHUT_WR)
                while wire.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield str(path / "cri.sock")
        thread.join(5)


def test_an_answer_in_pieces_between_other_frames_is_put_together(tmp_path: Path) -> None:
    whole = message(b"answer" * 5000)
    replies: list[bytes] = []

    def talk(wire: socket.socket) -> None:
        pieces = [frame(0, 0, 1, whole[at : at + 7000]) for at in range(0, len(whole), 7000)]
        wire.sendall(SETTINGS + frame(6, 0, 0, b"12345678") + HEADERS + pieces[0] + frame(8, 0, 0, b"\0\0\1\0"))
        padded = frame(0, 8, 1, b"\3" + whole[7000:14000] + b"\0\0\0")
        wire.sendall(padded + b"".join(pieces[2:]) + ENDED)
        wire.settimeout(5)
        while len(b"".join(replies)) < 26:
            replies.append(wire.recv(1 << 16))

    with server(tmp_path, talk) as path:
        assert call(path, "/a.B/C", b"", 5) == b"answer" * 5000
    assert frame(4, 1, 0, b"") in b"".join(replies)  # settings and ping are acknowledged, as must be
    assert frame(6, 1, 0, b"12345678") in b"".join(replies)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (SETTINGS + ENDED, "refused"),
        (SETTINGS + HEADERS + frame(0, 0, 1, message(b"half")[:-1]) + ENDED, "refused"),
        (SETTINGS + frame(3, 0, 1, b"\0\0\0\1"), "broke the call off"),
        (SETTINGS, "closed the connection"),
    ],
    ids=["no message", "half a message", "reset", "closed"],
)
def test_an_answer_that_is_not_whole_is_none(tmp_path: Path, said: bytes, why: str) -> None:
    with server(tmp_path, lambda wire: wire.sendall(said)) as path, pytest.raises(RuntimeSilentError, match=why):
        call(path, "/a.B/C", b"", 5)


def test_a_runtime_that_says_nothing_is_not_waited_for_longer_than_asked(tmp_path: Path) -> None:
    done = threading.Event()

    def talk(_: socket.socket) -> None:
        done.wait(5)

    with server(tmp_path, talk) as path:
        with pytest.raises(RuntimeSilentError):
            call(path, "/a.B/C", b"", 0.1)
        done.set()
    with pytest.raises(RuntimeSilentError):
        call(str(tmp_path / "nothing"), "/a.B/C", b"", 0.1)
