"""The rules of leader election, alone."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.kube import ConfigurationError, Lease, Meta
from slinky.kube.leases import ElectionTimes, Move, Observation, leader_until, next_move, released_spec, taken_spec
from slinky.kube.objects import LeaseSpec

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TIMES = ElectionTimes()


def lease(holder: str, version: str = "1", seconds: int = 15, transitions: int = 0) -> Lease:
    spec = LeaseSpec(
        holder_identity=holder, lease_duration_seconds=seconds, acquire_time=NOW, renew_time=NOW, lease_transitions=transitions
    )
    return Lease(metadata=Meta(name="l", resource_version=version), spec=spec)


@pytest.mark.parametrize(
    ("holder", "age", "move"),
    [("me", 100, Move.KEEP), ("", 0, Move.TAKE), ("other", 0, Move.WAIT), ("other", 14.9, Move.WAIT), ("other", 15, Move.TAKE)],
)
def test_whose_it_is(holder: str, age: float, move: Move) -> None:
    assert next_move(Observation(lease(holder), 1000.0), "me", 1000.0 + age) is move


def test_a_sign_of_life_begins_the_wait_anew_whatever_the_clock_in_it_says() -> None:
    seen = Observation(lease("other"), 0.0).updated(lease("other", version="1"), 10.0)
    assert next_move(seen, "me", 15.0) is Move.TAKE
    renewed = seen.updated(lease("other", version="2"), 14.0)
    assert next_move(renewed, "me", 28.9) is Move.WAIT
    assert next_move(renewed, "me", 29.0) is Move.TAKE


@given(
    sent=st.floats(0, 1e6),
    transit=st.floats(0, 100),
    renew=st.floats(3, 50),
    extra=st.floats(0.01, 50),
)
def test_we_never_call_ourselves_leader_when_another_may_take_it(sent: float, transit: float, renew: float, extra: float) -> None:
    """The other sees our renewal `transit` after we sent it, and waits for as long as the Lease says."""
    times = ElectionTimes(lease=renew + extra, renew=renew, retry=1)
    stated = taken_spec(None, "me", times, NOW)["leaseDurationSeconds"]
    seen = Observation(lease("me", seconds=stated), sent + transit)
    ours_ends = leader_until(sent, times)
    assert next_move(seen, "other", ours_ends) is Move.WAIT


def test_transitions_count_changes_of_hands() -> None:
    assert taken_spec(None, "me", TIMES, NOW)["leaseTransitions"] == 0
    assert taken_spec(lease("me", transitions=3), "me", TIMES, NOW)["leaseTransitions"] == 3
    taken = taken_spec(lease("other", transitions=3), "me", TIMES, NOW + dt.timedelta(hours=1))
    assert taken["leaseTransitions"] == 4
    assert taken["acquireTime"] == "2026-01-01T01:00:00.000000Z"


def test_a_released_lease_is_free_at_once() -> None:
    spec = released_spec(lease("me", transitions=3), NOW)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 3)


@pytest.mark.parametrize(("lease_", "renew", "retry"), [(10, 10, 2), (15, 2, 2), (15, 10, 0), (0.5, 0.4, 0.1)])
def test_times_that_cannot_work_are_refused(lease_: float, renew: float, retry: float) -> None:
    with pytest.raises(ConfigurationError, match="leader election"):
        ElectionTimes(lease_, renew, retry)
