"""What is done next for a new configuration, and when it is done."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slinky.operator.reconfiguration import BLIND_SECONDS, FILES_SECONDS, Progress, Step, behind, next_step, older, started
from slinky.slurm import Node


def node(name: str, start: int, *states: str) -> Node:
    return msgspec.convert({"name": name, "state": list(states) or ["IDLE"], "slurmd_start_time": {"set": True, "number": start}}, Node)


def test_only_slurmds_that_answer_are_waited_for() -> None:
    nodes = {
        each.name: each
        for each in (
            node("a", 5),
            node("b", 5, "DOWN"),
            node("c", 5, "IDLE", "NOT_RESPONDING"),
            node("d", 5, "IDLE", "EXTERNAL"),
            node("e", 0),
        )
    }
    assert started(nodes) == {"a": 5}


def test_a_slurmd_that_began_anew_or_left_is_not_behind() -> None:
    nodes = {each.name: each for each in (node("a", 5), node("b", 9), node("new", 3))}
    assert behind({"a": 5, "b": 5, "gone": 5}, nodes) == {"a"}


def test_the_kubelet_is_told_before_slurm_is() -> None:
    progress = Progress("new", confirmed="old", running="old")
    assert next_step(progress, "pod", 100.0)[0] is Step.TOUCH
    progress.touched, progress.touched_at = "pod new", 100.0
    assert next_step(progress, "pod", 100.5) == (Step.WAIT, FILES_SECONDS - 0.5)
    assert next_step(progress, "pod", 102.0)[0] is Step.ASK


def test_a_new_pod_is_told_too() -> None:
    progress = Progress("new", running="old", touched="pod new", touched_at=1.0)
    assert next_step(progress, "another", 100.0)[0] is Step.TOUCH


def test_what_was_confirmed_and_runs_is_left_alone() -> None:
    assert next_step(Progress("same", confirmed="same", running="same"), "pod", 0.0)[0] is Step.DONE


def test_what_was_confirmed_and_does_not_run_any_more_is_asked_for() -> None:
    assert next_step(Progress("same", confirmed="same", running="other"), "pod", 0.0)[0] is not Step.DONE


def test_a_slurm_that_cannot_say_what_it_runs_is_asked_twice() -> None:
    progress = Progress("new", tells=False, touched="pod new", touched_at=1.0, asked=1, asked_at=100.0)
    assert next_step(progress, "pod", 100.0 + BLIND_SECONDS - 1)[0] is Step.WAIT
    assert next_step(progress, "pod", 100.0 + BLIND_SECONDS)[0] is Step.ASK
    progress.asked = 2
    assert next_step(progress, "pod", 101.0)[0] is Step.DONE


def test_a_refused_configuration_is_never_done_and_asked_for_ever_more_rarely() -> None:
    progress, waits, clock = Progress("bad", running="good", touched="pod bad", touched_at=1.0), [], 10.0
    for _ in range(400):
        step, wait = next_step(progress, "pod", clock)
        assert step is not Step.DONE
        if step is Step.ASK:
            waits.append(clock - progress.asked_at)
            progress.asked, progress.asked_at, progress.refused = progress.asked + 1, clock, True
        clock += max(wait, 0.1)
    rounded = [round(each) for each in waits[1:]]
    assert rounded == sorted(rounded) and rounded[-1] == 60


def test_what_runs_already_is_asked_for_all_the_same_where_it_was_not_confirmed() -> None:
    """After a refusal slurmctld hands out what it refused, until it is asked again with files that it can read."""
    assert next_step(Progress("good", confirmed="", running="good"), "pod", 0.0)[0] is Step.ASK


def test_a_slurmd_that_was_away_is_known_by_when_it_began() -> None:
    nodes = {each.name: each for each in (node("came-back", 5), node("new", 20), node("away", 5, "DOWN"))}
    assert older(10, nodes) == {"came-back"}
    assert older(0, nodes) == frozenset()


def test_what_was_confirmed_before_us_counts_only_once_it_is_seen() -> None:
    progress = Progress("same", confirmed="same")
    assert not progress.done and next_step(progress, "", 0.0)[0] is not Step.DONE
    progress.running, progress.late = "same", frozenset({"came-back"})
    assert next_step(progress, "pod", 0.0)[0] is Step.ASK


def test_one_that_stays_behind_does_not_have_all_others_begin_anew_every_minute() -> None:
    progress, asks, clock = Progress("new", running="new", asked=1, late=frozenset({"static"})), [], 0.0
    while clock < 24 * 3600:
        step, wait = next_step(progress, "pod", clock)
        if step is Step.ASK:
            asks.append(clock)
            progress.asked, progress.asked_at = progress.asked + 1, clock
        clock += max(wait, 0.1)
    assert len(asks) < 32 and asks[0] == 20.0


def test_going_back_to_what_runs_brings_its_files_back_first() -> None:
    """The files of the one that was refused are in the pod still."""
    progress = Progress("good", confirmed="", running="good")
    assert next_step(progress, "pod", 10.0, told="bad")[0] is Step.TOUCH
    progress.touched, progress.touched_at = "pod good", 10.0
    assert next_step(progress, "pod", 10.5, told="good")[0] is Step.WAIT
    assert next_step(progress, "pod", 12.0, told="good")[0] is Step.ASK
    progress.asked, progress.asked_at = 1, 12.0
    assert next_step(progress, "pod", 12.5, told="good")[0] is Step.DONE


@dataclass
class Played:
    """A cluster whose kubelet takes its time, and whose slurmds may miss a call."""

    brings_after: float
    deaf: int  # calls that the slurmds do not hear
    clock: float = 0.0
    files_at: float = float("inf")
    running: str = "old"
    asked: int = 0
    nodes: dict[str, Node] = field(default_factory=lambda: {"a": node("a", 1), "b": node("b", 1)})

    def touch(self) -> None:
        self.files_at = min(self.files_at, self.clock + self.brings_after)

    def ask(self) -> None:
        self.asked += 1
        if self.clock >= self.files_at:
            self.running = "new"
        start = int(self.clock) + 2
        self.nodes = {"a": node("a", start), "b": self.nodes["b"] if self.asked <= self.deaf else node("b", start)}


@given(st.floats(0, 90), st.integers(0, 3))
def test_in_the_end_all_run_it_and_nothing_is_called_done_before(brings_after: float, deaf: int) -> None:
    played, progress = Played(brings_after, deaf), Progress("new", confirmed="old")
    for _ in range(2000):
        progress.running = played.running
        if progress.asked:
            progress.late = behind(progress.before, played.nodes)
        step, wait = next_step(progress, "pod", played.clock)
        match step:
            case Step.DONE:
                assert played.running == "new" and all(each.slurmd_start_time != 1 for each in played.nodes.values())
                return
            case Step.TOUCH:
                played.touch()
                progress.touched, progress.touched_at = "pod new", played.clock
            case Step.ASK:
                progress.before, progress.asked, progress.asked_at = started(played.nodes), progress.asked + 1, played.clock
                progress.late = frozenset(progress.before)
                played.ask()
        played.clock += max(wait, 0.1)
    raise AssertionError(f"never done: {progress}")
