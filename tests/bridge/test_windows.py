"""The window, used as the loop uses it: on generated histories neither limit is passed, and everyone gets in."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slinky.bridge.windows import Window
from slinky.bridge.workload import WorkloadKey


def key(namespace: str, name: int) -> WorkloadKey:
    return WorkloadKey("Pod", namespace, str(name))


class Loop(RuleBasedStateMachine):
    """`queue` is what the loop will look at; `wants` who is to be submitted; `pending` whose job waits in Slurm."""

    @initialize(namespace=st.integers(1, 3), total=st.integers(1, 5))
    def begin(self, namespace: int, total: int) -> None:
        self.limits = (namespace, total)
        self.window = Window(namespace, total)
        self.queue: list[WorkloadKey] = []
        self.wants: set[WorkloadKey] = set()
        self.pending: set[WorkloadKey] = set()
        self.inherited: set[WorkloadKey] = set()
        self.made = 0

    def look(self, found: WorkloadKey) -> None:
        """As the reconciler does."""
        if found in self.pending:
            self.add(self.window.keep(found))
        elif found not in self.wants:
            self.add(self.window.leave(found))
        elif self.window.enter(found):
            self.add(self.window.next())
            self.wants.discard(found)
            self.pending.add(found)

    def add(self, keys: Iterable[WorkloadKey]) -> None:
        self.queue += [found for found in keys if found not in self.queue]

    @rule(namespace=st.sampled_from("abc"))
    def one_comes(self, namespace: str) -> None:
        self.made += 1
        self.wants.add(key(namespace, self.made))
        self.add([key(namespace, self.made)])

    @rule(namespace=st.sampled_from("abc"))
    def one_is_taken_over_from_another_leader(self, namespace: str) -> None:
        self.made += 1
        found = key(namespace, self.made)
        self.pending.add(found)
        self.inherited.add(found)
        self.window.keep(found)

    @rule(data=st.data())
    @precondition(lambda self: self.queue)
    def one_is_looked_at(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(self.queue))
        self.queue.remove(found)
        self.look(found)

    @rule(data=st.data())
    @precondition(lambda self: self.wants)
    def one_goes_away_while_it_waits(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(sorted(self.wants)))
        self.wants.discard(found)
        self.add([found])

    @rule(data=st.data())
    @precondition(lambda self: self.wants)
    def one_that_waits_is_looked_at_for_another_reason(self, data: st.DataObject) -> None:
        self.add([data.draw(st.sampled_from(sorted(self.wants)))])

    @rule(data=st.data())
    @precondition(lambda self: self.wants)
    def one_that_waits_turns_out_to_have_a_job(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(sorted(self.wants)))
        self.wants.discard(found)
        self.pending.add(found)
        self.inherited.add(found)
        self.add([found])

    @rule(data=st.data())
    @precondition(lambda self: self.pending)
    def a_job_starts(self, data: st.DataObject) -> None:
        found = data.draw(st.sampled_from(sorted(self.pending)))
        self.pending.discard(found)
        self.inherited.discard(found)
        self.add([found])

    @invariant()
    def neither_limit_is_passed(self) -> None:
        if not hasattr(self, "limits"):
            return
        most, total = self.limits
        new = self.pending - self.inherited
        assert len(new) <= total
        for namespace in "abc":
            assert sum(found.namespace == namespace for found in new) <= most
        assert self.window.inside >= len(self.pending - set(self.queue))

    def teardown(self) -> None:
        """Nothing more comes, and jobs start: everyone gets in, and nothing is remembered."""
        for _ in range(3 * self.made + 3) if hasattr(self, "made") else ():
            while self.queue:
                self.look(self.queue.pop(0))
            for found in sorted(self.pending)[:1]:
                self.pending.discard(found)
                self.add([found])
        if hasattr(self, "made"):
            assert not self.wants, "somebody waits for ever"
            assert (self.window.inside, self.window.waiting) == (0, 0)


TestLoop = Loop.TestCase
TestLoop.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_namespaces_take_turns_and_within_one_the_first_comes_first() -> None:
    window = Window(10, 1)
    assert window.enter(key("x", 0))
    for number in range(3):
        for namespace in ("a", "b"):
            assert not window.enter(key(namespace, number))
    order, inside = [], key("x", 0)
    for _ in range(6):
        (inside,) = window.leave(inside)
        assert window.enter(inside)
        order.append(f"{inside.namespace}{inside.name}")
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_newcomer_does_not_take_the_room_that_another_was_told_of() -> None:
    window = Window(10, 1)
    assert window.enter(key("a", 0))
    assert not window.enter(key("b", 0))
    assert window.leave(key("a", 0)) == [key("b", 0)]
    assert not window.enter(key("c", 0)), "b has waited for it"
    assert window.enter(key("b", 0))


def test_a_namespace_at_its_limit_keeps_nobody_else_back() -> None:
    window = Window(1, 3)
    assert window.enter(key("a", 0))
    assert not window.enter(key("a", 1))
    assert window.enter(key("b", 0))
    assert window.next() == []
    assert window.leave(key("a", 0)) == [key("a", 1)]


def test_a_job_that_is_there_already_counts_even_above_the_limits() -> None:
    window = Window(1, 1)
    window.keep(key("a", 0))
    window.keep(key("a", 1))
    window.keep(key("a", 1))
    assert window.inside == 2
    assert not window.enter(key("b", 0))
    assert window.leave(key("a", 0)) == []
    assert window.leave(key("a", 1)) == [key("b", 0)]


def test_whoever_waits_and_turns_out_to_have_a_job_no_longer_stands_in_the_way() -> None:
    window = Window(1, 2)
    assert window.enter(key("a", 0))
    assert not window.enter(key("a", 1))
    assert not window.enter(key("a", 2))
    assert window.keep(key("a", 1)) == []
    assert window.leave(key("a", 0)) == []
    assert window.leave(key("a", 1)) == [key("a", 2)]


def test_a_namespace_may_have_a_limit_of_its_own() -> None:
    window = Window(2, 100, {"wide": 3, "narrow": 1}.__getitem__)
    for namespace, limit in (("wide", 3), ("narrow", 1)):
        assert [window.enter(WorkloadKey("Pod", namespace, str(number))) for number in range(5)] == [number < limit for number in range(5)]


def test_one_that_comes_back_goes_before_the_others_of_its_namespace() -> None:
    """It had its turn, and had to wait for something else."""
    window = Window(1, 10)
    assert window.enter(key("a", 1))
    for name in (2, 3):
        assert not window.enter(key("a", name))
    assert not window.enter(key("a", 9), again=True)
    assert window.leave(key("a", 1)) == [key("a", 9)]
    assert window.enter(key("a", 9), again=True)
    assert window.leave(key("a", 9)) == [key("a", 2)]
    assert not window.enter(key("a", 3))
    assert window.enter(key("a", 3), again=True)
