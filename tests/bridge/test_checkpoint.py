"""When a job's pods get their checkpoint signal, and which of their containers."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.annotations import AnnotationError, read_settings
from slinky.bridge.checkpoint import EARLY_SECONDS, NEVER, SHORTEST_LOOK, Occasion, next_occasion
from slinky.bridge.delivery import running_containers
from slinky.bridge.keys import SETTINGS
from slinky.kube import Pod

NOW = 1_800_000_000.0


def test_nothing_is_due_while_the_end_is_far() -> None:
    occasion, wait = next_occasion(int(NOW) + 7200, None, 300, NOW)
    assert occasion is None
    assert wait == 7200 - 300 - EARLY_SECONDS, "what changes before that is seen by other looks"


def test_the_next_look_is_at_the_moment_itself_when_it_is_near() -> None:
    occasion, wait = next_occasion(int(NOW) + 300 + 14, None, 300, NOW)
    assert occasion is None
    assert wait == 14 - EARLY_SECONDS


@pytest.mark.parametrize("left", [300, 300 + int(EARLY_SECONDS), 10, 0, -20])
def test_it_is_due_a_little_before_and_from_then_on(left: int) -> None:
    end = int(NOW) + left
    assert next_occasion(end, None, 300, NOW)[0] == Occasion("timelimit", end)


def test_a_preemption_is_due_at_once_and_is_one_occasion_though_the_end_moved() -> None:
    first, _ = next_occasion(int(NOW) + 30, int(NOW), 60, NOW)
    later, _ = next_occasion(int(NOW) + 31, int(NOW), 60, NOW + 20)
    assert first == later == Occasion("preemption", int(NOW))


def test_a_limit_that_is_made_longer_is_another_occasion() -> None:
    first, _ = next_occasion(int(NOW) + 30, None, 60, NOW)
    assert first
    assert next_occasion(int(NOW) + 3600, None, 60, NOW)[0] is None
    later, _ = next_occasion(int(NOW) + 3600, None, 60, NOW + 3590)
    assert later
    assert later.word != first.word


def test_without_a_limit_only_a_preemption_counts() -> None:
    assert next_occasion(None, None, 60, NOW) == (None, NEVER)


@given(end=st.integers(0, 100_000), seconds=st.integers(1, 65535), start=st.integers(0, 1000))
def test_who_looks_when_told_to_is_never_late(end: int, seconds: int, start: int) -> None:
    """Unless it was late from the beginning."""
    now = NOW + start
    end += int(NOW)
    for _ in range(100_000):
        occasion, wait = next_occasion(end, None, seconds, now)
        if occasion:
            break
        assert wait >= SHORTEST_LOOK or wait > 0
        now += wait
    assert now <= max(end - seconds - EARLY_SECONDS + SHORTEST_LOOK, NOW + start)


def test_containers_that_run_get_it_sidecars_too() -> None:
    def status(name: str, state: str) -> dict[str, object]:
        return {"name": name, "state": {state: {}}}

    pod = msgspec.convert(
        {
            "status": {
                "initContainerStatuses": [status("setup", "terminated"), status("proxy", "running")],
                "containerStatuses": [status("train", "running"), status("late", "waiting")],
            }
        },
        Pod,
    )
    assert running_containers(pod) == ["proxy", "train"]


@pytest.mark.parametrize(("text", "expected"), [("USR1@300", ("USR1", 300)), ("TERM", ("TERM", 60)), ("SIGUSR2@5", ("USR2", 5))])
def test_what_users_write(text: str, expected: tuple[str, int]) -> None:
    signal = read_settings({f"{SETTINGS}signal": text}).signal
    assert signal is not None
    assert (signal.name, signal.seconds) == expected


@pytest.mark.parametrize("text", ["", "USR1@", "@60", "USR1@-5", "USR1;reboot@5", "USR1 1@5"])
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(AnnotationError, match="such as USR1"):
        read_settings({f"{SETTINGS}signal": text})
