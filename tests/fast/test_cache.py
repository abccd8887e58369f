"""The cache: an entry is there whole or not at all."""

import multiprocessing
from pathlib import Path

import pytest

from slinky.sandbox import cache
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
