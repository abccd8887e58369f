"""What we wrote and the watch has not shown: believed until it is shown, and no longer."""

import msgspec

from slinky.bridge.annotations import JobSettings
from slinky.bridge.memory import Known, Written
from slinky.bridge.placement import Slot
from slinky.bridge.plan import PodView
from slinky.bridge.submission import Submission

POD = PodView(uid="a", state="waiting")


def but(pod: PodView, **changes: object) -> PodView:
    return msgspec.structs.replace(pod, **changes)


def test_a_label_that_was_written_holds_until_the_watch_shows_it() -> None:
    written = Written(labels={"a": 7}, ranks={}, released=set())
    assert written.over(POD).job_id == 7
    assert written.over(but(POD, job_id=7)).job_id == 7
    assert not written.is_changed("a", 7)
    assert written.over(POD).job_id == 7, "somebody else took it off: that does not count"
    assert written.is_changed("a", 0)
    assert written.is_changed("a", 8)
    written.label("a", 7)
    assert not written.is_changed("a", 0), "it was written again, and the watch does not show it yet"


def test_a_label_that_was_taken_off_is_off() -> None:
    written = Written(labels={"a": 0}, ranks={}, released=set())
    assert written.over(but(POD, job_id=7)).job_id == 0


def test_a_pod_that_was_bound_is_not_bound_again() -> None:
    written = Written(labels={}, ranks={"a": 3}, released=set())
    shown = written.over(POD)
    assert (shown.state, shown.rank) == ("bound", 3)
    assert written.over(but(POD, state="bound", rank=3)).rank == 3
    assert written.over(but(POD, state="bound", rank=5)).rank == 3, "what somebody else wrote does not count"


def test_a_finalizer_that_was_taken_off_is_not_taken_off_again() -> None:
    written = Written(labels={}, ranks={}, released={"a"})
    assert not written.over(POD).finalizer
    assert not written.over(but(POD, finalizer=False)).finalizer
    assert written.released == set()


def test_pods_that_are_gone_are_forgotten() -> None:
    written = Written(labels={"a": 1, "b": 1}, ranks={"b": 0, "c": 1}, released={"c", "a"})
    written.keep_only({"a"})
    assert (written.labels, written.ranks, written.released) == ({"a": 1}, {}, {"a"})


def test_two_workloads_share_no_memory() -> None:
    one, other = Known(), Known()
    one.written.labels["a"] = 1
    one.slots.append(Slot(node="n", rank=0, local_rank=0))
    assert (other.written.labels, other.slots) == ({}, [])


def test_a_new_job_begins_with_nothing_of_the_last_one() -> None:
    known = Known(
        over=True, lost=True, missing_since=1.0, incomplete_since=1.0, parked="no", parked_until=9.0, obstacle="full", started_at=1.0
    )
    known.take(Submission(job_id=7), epoch=2)
    assert (known.job_id, known.verified, known.over, known.lost, known.parked, known.obstacle) == (7, 2, False, False, "", "")
    assert (known.missing_since, known.incomplete_since, known.parked_until, known.started_at) == (0.0, 0.0, 0.0, 0.0)
    known.drop_job()
    assert (known.job_id, known.submission) == (0, None)


def test_a_place_in_the_queue_is_kept_for_a_job_that_asks_for_the_same_only() -> None:
    """Else a large job's priority, or that of a better QoS, could be had for a small one."""
    large = Submission(job_id=1, partition="p", account="a", qos="urgent", tasks=4)
    known = Known(job_id=1, submission=large, said=JobSettings(qos="urgent"))
    known.keep_place(900)
    known.drop_job()
    known.take(msgspec.structs.replace(large, job_id=2), 0)
    assert known.has_place() and known.priority == 900
    for other in (msgspec.structs.replace(large, qos="normal"), msgspec.structs.replace(large, tasks=1)):
        known.take(large, 0)
        known.keep_place(900)
        known.take(other, 0)
        assert not known.has_place() and not known.priority
    known.take(large, 0)
    known.keep_place(900)
    known.said = JobSettings(qos="urgent", nice=5)
    assert not known.has_place()
