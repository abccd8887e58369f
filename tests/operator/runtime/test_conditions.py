"""What a status says, and when it is written."""

import datetime as dt

from slinky.kube.objects import Condition
from slinky.operator.conditions import (
    AVAILABLE,
    DEGRADED,
    PROGRESSING,
    READY,
    broken,
    is_available,
    says_the_same,
    settled,
    under_way,
    was_available,
    written,
)

THEN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def held(type_: str, status: str, reason: str = "AsWritten", message: str = "fine") -> Condition:
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=THEN)


def by_type(conditions: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    return {condition["type"]: condition for condition in conditions}


def test_the_moment_is_that_of_the_last_change_of_status() -> None:
    found = by_type(written([held(READY, "True"), held(DEGRADED, "True")], settled("other words"), NOW))
    assert found[READY]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert found[READY]["message"] == "other words"
    assert found[DEGRADED]["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    assert found[PROGRESSING]["lastTransitionTime"] == "2026-01-02T00:00:00Z"


def test_conditions_of_others_stay_as_they_are() -> None:
    found = by_type(written([held("ReservationCreated", "True")], broken("Refused", "no"), NOW))
    assert found["ReservationCreated"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert found[DEGRADED] | {"lastTransitionTime": ""} == {
        "type": DEGRADED,
        "status": "True",
        "reason": "Refused",
        "message": "no",
        "lastTransitionTime": "",
    }


def test_what_stands_there_already_is_not_written_again() -> None:
    standing = under_way("NotReady", "0 of 1 slurmctld ready")
    before = [
        Condition(type=each["type"], status=each["status"], reason=each["reason"], message=each["message"])
        for each in written([], standing, NOW)
    ]
    assert says_the_same(before, standing)
    assert not says_the_same(before, under_way("NotReady", "1 of 2 slurmctld ready"))
    assert not says_the_same(before[:2], standing)


def test_a_message_of_any_length_is_cut_and_still_the_same() -> None:
    standing = broken("Refused", "x" * 5000)
    before = [Condition(**{key: each[key] for key in ("type", "status", "reason", "message")}) for each in written([], standing, NOW)]
    assert says_the_same(before, standing)


def test_every_condition_has_a_reason() -> None:
    for standing in (settled("a"), under_way("B", "b"), broken("C", "c")):
        assert set(standing) == {READY, AVAILABLE, PROGRESSING, DEGRADED}
        assert all(said.reason for said in standing.values())


def test_ready_never_stands_beside_degraded_and_available_tells_the_rest() -> None:
    for standing in (broken("A", "a"), broken("A", "a", available=True)):
        assert standing[DEGRADED].status and not standing[READY].status
    assert is_available(broken("A", "a", available=True))
    assert not is_available(broken("A", "a"))
    assert is_available(under_way("A", "a", ready=True))
    assert not is_available(under_way("A", "a"))


def test_a_status_of_an_earlier_operator_says_by_ready_whether_it_can_be_used() -> None:
    assert was_available([held(READY, "True")])
    assert not was_available([held(READY, "True"), held(AVAILABLE, "False")])
    assert not was_available([])
