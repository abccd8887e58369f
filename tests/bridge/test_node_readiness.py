"""When a node counts as not ready, and when as flapping."""

from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.node_readiness import NodeReadiness, Verdict


def test_a_node_that_is_not_ready_for_a_moment_is_left_alone_and_one_for_long_is_not() -> None:
    readiness = NodeReadiness(40, 6, 600)
    readiness.note("n", False, 0)
    assert readiness.verdict("n", 10) == Verdict(again=30)
    readiness.note("n", False, 20)
    assert readiness.verdict("n", 40) == Verdict(not_ready=True)
    readiness.note("n", True, 41)
    assert readiness.verdict("n", 41) == Verdict()
    assert readiness.verdict("another", 41) == Verdict()


def test_a_node_that_changes_too_often_flaps_until_it_is_calm() -> None:
    readiness = NodeReadiness(40, 4, 100)
    readiness.note("n", True, 0)
    for moment, ready in enumerate((False, True, False), start=1):
        readiness.note("n", ready, moment * 10)
        assert not readiness.verdict("n", moment * 10).flapping
    readiness.note("n", True, 40)
    assert readiness.verdict("n", 40) == Verdict(flapping=True, again=100)
    readiness.note("n", False, 130)
    assert readiness.verdict("n", 140) == Verdict(flapping=True, again=30)
    assert readiness.verdict("n", 229) == Verdict(not_ready=True, flapping=True, again=1)
    assert readiness.verdict("n", 230) == Verdict(not_ready=True)
    readiness.note("n", True, 231)
    assert readiness.verdict("n", 231) == Verdict()


def test_changes_that_are_far_apart_are_no_flapping() -> None:
    readiness = NodeReadiness(40, 4, 100)
    for turn in range(20):
        readiness.note("n", turn % 2 == 0, turn * 50)
    assert not readiness.verdict("n", 1000).flapping


def test_one_that_flapped_before_our_time_has_to_be_calm_from_now_on() -> None:
    readiness = NodeReadiness(40, 4, 100)
    readiness.note("n", True, 0)
    readiness.adopt("n", 5)
    readiness.adopt("n", 50)
    assert readiness.verdict("n", 60) == Verdict(flapping=True, again=45)
    assert readiness.verdict("n", 105) == Verdict()
    readiness.adopt("n", 106)
    assert not readiness.verdict("n", 106).flapping, "it is drained no more when that is seen"


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 500)), max_size=60))
def test_whoever_asks_again_when_told_to_sees_every_change_of_the_verdict(history: list[tuple[bool, float]]) -> None:
    readiness, now = NodeReadiness(40, 4, 100), 0.0
    for ready, seconds in history:
        readiness.note("n", ready, now)
        verdict = readiness.verdict("n", now)
        assert not (verdict.not_ready and ready)
        end = now + seconds
        while verdict.again is not None and now + verdict.again <= end:
            before = readiness.verdict("n", now + verdict.again * 0.99)
            assert (before.not_ready, before.flapping) == (verdict.not_ready, verdict.flapping)
            now += verdict.again
            verdict = readiness.verdict("n", now)
        now = end
        assert (verdict.not_ready, verdict.flapping) == (readiness.verdict("n", now).not_ready, readiness.verdict("n", now).flapping)
