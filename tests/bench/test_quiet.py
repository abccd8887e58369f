"""When a machine is quiet, by what the kernel counts."""

import asyncio
from pathlib import Path

import pytest
from bench.quiet import busy_share, until_quiet

from bench import quiet

BEFORE = "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n"


@pytest.mark.parametrize(
    ("after", "share"),
    [
        ("cpu  100 0 50 900 50 0 0 0 0 0\n", 0.0),
        ("cpu  150 0 100 800 50 0 0 0 0 0\n", 1.0),
        ("cpu  110 0 60 860 70 0 0 0 0 0\n", 0.2),  # waiting for a disk is idle time
        ("cpu  100 0 50 800 50 0 0 0 0 0\n", 1.0),  # no time has passed: nothing is known
    ],
)
def test_the_busy_share_of_all_cores(after: str, share: float) -> None:
    assert busy_share(BEFORE, after) == pytest.approx(share)


async def test_it_is_quiet_after_some_quiet_spans_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    counts = [0, 0]  # busy, idle
    steps = iter([(5, 5), (0, 10), (8, 2), *[(1, 9)] * 10])

    async def passes(_: float) -> None:
        busy, idle = next(steps)
        counts[0], counts[1] = counts[0] + busy, counts[1] + idle
        write()

    def write() -> None:
        (tmp_path / "stat").write_text(f"cpu {counts[0]} 0 0 {counts[1]} 0 0 0 0\n")

    write()
    monkeypatch.setattr(quiet, "COUNTS", tmp_path / "stat")
    monkeypatch.setattr(asyncio, "sleep", passes)
    await until_quiet(said.append)
    assert said[0].startswith("the machine is quiet")
    assert len(list(steps)) == 7


async def test_a_machine_that_is_never_quiet_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    (tmp_path / "stat").write_text(BEFORE)
    monkeypatch.setattr(quiet, "COUNTS", tmp_path / "stat")
    monkeypatch.setattr(quiet, "MOST_SECONDS", 0.01)
    monkeypatch.setattr(quiet, "SPAN_SECONDS", 0.005)
    await until_quiet(said.append)
    assert "still busy (100%)" in said[0]
