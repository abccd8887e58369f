"""Transitions from states, without a server: what changed, and how often to look."""

from hypothesis import given
from hypothesis import strategies as st

from slinky.slurm import JobStatus, Pace
from slinky.slurm.watch import changes

words = st.lists(st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "COMPLETED"]), min_size=1, max_size=2)
worlds = st.dictionaries(st.sampled_from(["1", "2", "3_1", "4+0"]), words).map(
    lambda world: {label: JobStatus(label, states) for label, states in world.items()}
)


@given(st.lists(worlds, min_size=1))
def test_whoever_applies_the_changes_knows_the_world(history: list[dict[str, JobStatus]]) -> None:
    known: dict[str, JobStatus] = {}
    before: dict[str, JobStatus] = {}
    for after in history:
        for label, then, now in changes(before, after):
            assert known.get(label) == then
            assert then != now
            if now is None:
                del known[label]
            else:
                known[label] = now
        assert known == after
        before = after


@given(worlds)
def test_nothing_changed_is_nothing_told(world: dict[str, JobStatus]) -> None:
    assert changes(world, dict(world)) == []


@given(st.lists(st.booleans(), max_size=50))
def test_the_pace_is_fast_after_a_change_and_slows_down_to_its_limit(history: list[bool]) -> None:
    pace = Pace(fastest=0.1, slowest=2, slower=2)
    last = pace.fastest
    for changed in history:
        following = pace.next(last, changed)
        assert 0.1 <= following <= 2
        assert following == 0.1 if changed else following >= last
        last = following


@given(st.floats(0, 100), st.floats(0.01, 1))
def test_looking_takes_no_more_than_its_share_of_the_time_and_never_waits_longer_than_half_a_minute(cost: float, share: float) -> None:
    pace = Pace(fastest=2, slowest=5, share=share)
    rest = pace.rest(2, cost)
    assert 2 <= rest <= 30
    assert rest == 30 or cost <= (cost + rest) * share * 1.000001
