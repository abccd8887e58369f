"""The cache: an entry is there whole or not at all; a lock is held by one, also where its file is removed."""

import fcntl
import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slinky.sandbox import cache
from slinky.sandbox.down import down
from slinky.sandbox.errors import CircumstanceError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLINKY_CACHE", str(tmp_path))


def test_an_entry_is_built_once() -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        (folder / "file").write_text("content")

    first = cache.entry("things/a", build)
    assert cache.entry("things/a", build) == first
    assert (first / "file").read_text() == "content"
    assert len(builds) == 1


def test_a_failed_build_leaves_no_entry_and_the_next_one_starts_clean(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        cache.entry("things/a", fail)
    assert not (tmp_path / "things/a").exists()
    built = cache.entry("things/a", lambda folder: (folder / "whole").touch())
    assert [path.name for path in built.iterdir()] == ["whole"]
    assert not list((tmp_path / "things").glob("*.partial-*"))


def _build_slowly(folder: Path) -> None:
    with (folder.parent.parent / "builds").open("a") as log:
        log.write("x")
    (folder / "file").touch()


def _enter(_: int) -> None:
    cache.entry("things/a", _build_slowly)


def test_two_processes_build_an_entry_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_enter, range(8))
    assert (tmp_path / "builds").read_text() == "x"


def test_no_room_is_said_before_anything_starts() -> None:
    with pytest.raises(CircumstanceError, match=r"needs 1e\+09 GB.*make room, or set SLINKY_CACHE"):
        cache.require_room(1e9, "everything")


def _waits_for(path: Path) -> bool:
    """Whether somebody waits for the lock on the file that is there: `1: -> FLOCK …:INODE 0 EOF`."""
    number = path.stat().st_ino
    return any(" -> " in line and f":{number} " in line for line in Path("/proc/locks").read_text().splitlines())


def _until(probe: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not probe():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_waited_for_a_lock_that_was_removed_holds_the_one_that_is_there(tmp_path: Path) -> None:
    place, inside, leave = tmp_path / "a.lock", threading.Event(), threading.Event()

    def wait() -> None:
        with cache.lock(place):
            inside.set()
            leave.wait(60)

    with ThreadPoolExecutor(1) as pool:
        with cache.lock(place):
            waiting = pool.submit(wait)
            _until(lambda: _waits_for(place))
            place.unlink()
        assert inside.wait(60)
        try:
            with place.open("w") as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            leave.set()
        waiting.result(60)


def test_of_many_that_remove_it_one_holds_a_lock_at_a_time(tmp_path: Path) -> None:
    place, inside = tmp_path / "a.lock", []

    def turns(_: int) -> None:
        for _ in range(50):
            with cache.lock(place):
                inside.append(1)
                assert len(inside) == 1
                time.sleep(0)  # another's turn, if it could
                inside.pop()
                place.unlink()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(turns, range(8)))
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_that_is_down_leaves_no_lock() -> None:
    folder = cache.sandbox_folder("one")
    folder.mkdir(parents=True)
    assert down("one")
    assert list(folder.parent.iterdir()) == []
    assert not down("one")
    assert list(folder.parent.iterdir()) == []
