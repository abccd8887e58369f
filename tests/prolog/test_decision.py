"""Whom a job of Slurm's own must wait for before it begins on a node that pods share."""

from hypothesis import given
from hypothesis import strategies as some

from slinky.prolog.decision import Awaited, Look, PodHere, Starters, in_words, waits_for

OWN = 99


def a_pod(name: str, job_id: int = 0, *, alive: bool = True) -> PodHere:
    return PodHere(f"{name}-uid", f"team/{name}", job_id, alive)


def test_nobody_is_waited_for_where_all_that_runs_may() -> None:
    look = Look([a_pod("daemon"), a_pod("sharing", 5), a_pod("gone", 4, alive=False)], running={5})
    assert waits_for(look, OWN) == []


def test_a_pod_whose_job_has_lost_the_node_is_waited_for_while_anything_of_it_is_left() -> None:
    look = Look([a_pod("dying", 5)], running=())
    assert waits_for(look, OWN) == [Awaited("team/dying", "job 5 does not have the node any more, and its containers are not gone")]
    ended = a_pod("dying", 5, alive=False)
    assert waits_for(Look([ended], lingering={ended.uid}), OWN) == [
        Awaited("team/dying", "job 5 does not have the node any more, and processes of it are left")
    ]
    assert waits_for(Look([ended]), OWN) == []


def test_a_pod_that_has_the_number_of_the_job_that_begins_is_of_an_earlier_one() -> None:
    """After Slurm lost its state, numbers start again."""
    assert waits_for(Look([a_pod("old", OWN)], running={OWN}), OWN)


def test_a_pod_that_is_just_being_started_is_waited_for_until_it_shows_whose_it_is() -> None:
    assert waits_for(Look([], starting={"u1"}), OWN) == [Awaited("pod u1", "it is just being started")]
    assert waits_for(Look([PodHere("u1", "team/other", 0, True)], starting={"u1"}), OWN) == []


def test_a_pod_that_comes_after_the_first_look_does_not_hold_the_job() -> None:
    starters = Starters(5)
    assert starters.among({"u1", "u2"}, 100) == {"u1", "u2"}
    assert starters.among({"u2", "u3"}, 101) == {"u2"}
    assert starters.among({"u3", "u4"}, 104) == set()
    assert starters.among({"u2"}, 106) == set(), "also where its folder looks young for ever"


@given(some.lists(some.tuples(some.floats(0, 50), some.sets(some.sampled_from("abcdefgh"))), min_size=1))
def test_whatever_starts_nothing_counts_for_longer_than_it_may_settle(looks: list[tuple[float, set[str]]]) -> None:
    looks.sort(key=lambda look: look[0])
    starters, began = Starters(5), looks[0][0]
    for now, young in looks:
        counted = starters.among(young, now)
        assert counted <= looks[0][1] & young
        assert not counted or now <= began + 5


PODS = some.builds(PodHere, some.sampled_from("abcde"), some.just("team/p"), some.integers(0, 4), some.booleans())


@given(some.lists(PODS, unique_by=lambda pod: pod.uid), some.sets(some.integers(1, 4)), some.sets(some.sampled_from("abcde")))
def test_whoever_is_waited_for_is_the_bridges_and_has_no_job_here(pods: list[PodHere], running: set[int], lingering: set[str]) -> None:
    found = waits_for(Look(pods, running, (), lingering), OWN)
    rest = [pod for pod in pods if pod.job_id and pod.job_id not in running and (pod.alive or pod.uid in lingering)]
    assert len(found) == len(rest)


def test_a_crowd_is_named_by_its_first() -> None:
    said = in_words([Awaited(f"team/p{number}", "why") for number in range(7)])
    assert said.startswith("team/p0 (why); ")
    assert said.endswith("team/p4 (why) and 2 more")
