"""What an EventLog remembers, counts and holds back."""

from hypothesis import given
from hypothesis import strategies as st

from slinky.kube.eventlog import EventLog, Noted, Write
from slinky.kube.objects import ObjectReference


def noted(name: str = "a", reason: str = "Waiting", note: str = "for resources") -> Noted:
    return Noted(ObjectReference(kind="Pod", namespace="n", name=name, uid=f"uid-{name}"), "Normal", reason, note, reason)


def written(log: EventLog, now: float) -> list[Write]:
    writes = []
    while (write := log.take(now)) is not None:
        log.written(write.noted, write.name or f"event-{write.noted.regarding.name}")
        writes.append(write)
    return writes


def test_a_repetition_is_counted_and_written_once_in_a_while() -> None:
    log = EventLog(count_every=30)
    counts = []
    for second in range(100):
        log.note(noted(), float(second))
        counts += [(second, write.count, bool(write.name)) for write in written(log, float(second))]
    assert counts == [(0, 1, False), (30, 31, True), (60, 61, True), (90, 91, True)]


def test_the_last_count_is_due_when_nothing_more_is_noted() -> None:
    log = EventLog(count_every=30)
    log.note(noted(), 0.0)
    written(log, 0.0)
    log.note(noted(), 1.0)
    assert written(log, 1.0) == []
    assert log.next_due() == 30.0
    assert [write.count for write in written(log, 30.0)] == [2]
    assert log.next_due() is None


def test_after_a_long_pause_it_is_a_new_event() -> None:
    log = EventLog(series_seconds=360)
    for now in (0.0, 1000.0):
        log.note(noted(), now)
        assert [(write.count, write.name) for write in written(log, now)] == [(1, "")]


def test_a_chatty_object_is_held_back_and_others_are_not() -> None:
    log = EventLog(burst=25, refill_seconds=300)
    taken = sum(log.note(noted(note=str(number)), 0.0) for number in range(1000))
    assert (taken, log.dropped) == (25, 975)
    assert log.note(noted("b"), 0.0)
    assert not log.note(noted(note="more"), 299.0)
    assert log.note(noted(note="later"), 300.0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.booleans())))
def test_memory_is_bounded_and_every_due_write_belongs_to_something_remembered(steps: list[tuple[int, int, bool]]) -> None:
    log = EventLog(most=8)
    for now, (name, reason, write) in enumerate(steps):
        log.note(noted(str(name), str(reason)), float(now))
        if write and (due := log.take(float(now))):
            log.written(due.noted, "x")
        assert len(log) <= 8
        assert log.waiting <= 8
        assert len(log._buckets) <= 8
    written(log, 1e9)
    assert log.waiting == 0
