"""Which jobs are read by id: a bounded number at a time, and none for ever."""

from hypothesis import given
from hypothesis import strategies as st

from slinky.operator.nodesets.job_ledger import AT_MOST, GOOD_FOR, JobLedger


@given(st.sets(st.integers(1, 5000), max_size=1500), st.booleans())
def test_all_jobs_are_known_after_as_many_looks_as_it_takes_and_no_look_reads_more_than_it_may(job_ids: set[int], renew: bool) -> None:
    ledger, now, looks = JobLedger(), 0.0, 0
    while not job_ids <= ledger.known(job_ids, now).keys():
        now += 1.0
        some = ledger.next_to_read(job_ids, now, renew=renew)
        assert len(some) == len(set(some)) <= AT_MOST
        ledger.learn(dict.fromkeys(some, ()), now)
        looks += 1
    assert looks == -(-len(job_ids) // AT_MOST)


def test_the_oldest_jobs_are_read_first_and_then_those_that_were_read_longest_ago() -> None:
    ledger = JobLedger()
    assert ledger.next_to_read([9, 3, 7], 0.0) == [3, 7, 9]
    ledger.learn({9: ()}, 1.0)
    ledger.learn({3: ()}, 2.0)
    assert ledger.next_to_read([9, 3, 7], 3.0) == [7]
    assert ledger.next_to_read([9, 3, 7], 3.0, renew=True) == [7, 9, 3]


def test_what_was_read_long_ago_or_of_jobs_that_are_gone_is_not_used() -> None:
    ledger = JobLedger()
    ledger.learn({1: (), 2: ()}, 0.0)
    assert set(ledger.known([1, 2, 3], GOOD_FOR - 1)) == {1, 2}
    assert not ledger.known([1, 2], GOOD_FOR)
    ledger.keep([2])
    assert set(ledger.known([1, 2], 1.0)) == {2}
