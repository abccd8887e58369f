"""Lines before Slurm: the order of arrival, one probe at a time, and the same effort for each event however many wait."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slinky.bridge.annotations import JobSettings
from slinky.bridge.eligibility import InFlight
from slinky.bridge.lines import (
    FRONT,
    MOST_AT_ONCE,
    MOST_CALLED,
    MOST_STRIKES,
    MOST_TOGETHER,
    PATIENCE,
    PROBE,
    STEP,
    Line,
    Scope,
    Siblings,
    SubmitLimits,
    scope_of,
)
from slinky.bridge.submission import Submission
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Meta, Pod
from slinky.slurm import RefusedError
from tests.bridge.both_sides import World, runs, told
from tests.bridge.eligibility.things import a_pod, port

SCOPE = Scope("ns", "alice", "physics", "", "bridge")
WHY = "a limit is reached"


def key(number: int, namespace: str = "ns") -> WorkloadKey:
    return WorkloadKey("Pod", namespace, f"{number:06}")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * FRONT)), max_size=6 * FRONT))
def test_a_line_is_in_order_of_arrival_whatever_comes_and_goes(happens: list[tuple[bool, int]]) -> None:
    line, model = Line(), set[int]()
    for comes, number in happens:
        if comes:
            line.add(key(number), number)
            model.add(number)
        else:
            line.remove(key(number))
            model.discard(number)
        first = sorted(model)[:FRONT]
        assert line.first(FRONT) == [key(found) for found in first]
        assert len(line) == len(model)
    for place, number in enumerate(sorted(model), 1):
        assert line.position(key(number)) == (place if place <= FRONT else 0)


def test_one_that_moves_to_the_front_is_told() -> None:
    line = Line()
    for number in range(FRONT + 2):
        line.add(key(number), number)
    assert line.remove(key(FRONT + 1)) is None
    assert line.remove(key(3)) == key(FRONT)


class Limits:
    """A Slurm that takes so many jobs, and the line before it, as the bridge uses it. `called` is who is to be looked at, and when."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.now = 0.0
        self.called: dict[WorkloadKey, float] = {}
        self.calls = 0
        self.limits = SubmitLimits(self.call)
        self.taken: list[WorkloadKey] = []
        self.too_large: set[WorkloadKey] = set()
        self.parked: list[WorkloadKey] = []
        self.probes = 0

    def call(self, who: WorkloadKey, seconds: float) -> None:
        self.calls += 1
        self.called[who] = min(self.called.get(who, float("inf")), self.now + seconds)

    def look(self, who: WorkloadKey) -> None:
        number = int(who.name)
        if who in self.taken or who in self.parked or not self.limits.may_try(who, SCOPE, number, self.now):
            return
        self.probes += 1
        if self.room > 0 and who not in self.too_large:
            self.room -= 1
            self.taken.append(who)
            self.limits.passed(who, self.now)
        elif not self.limits.refused(who, SCOPE, number, WHY, self.now):
            self.parked.append(who)

    def go_on(self, seconds: float = 0.0) -> None:
        """All that is due by then, in order."""
        end = self.now + seconds
        while due := [(when, who) for who, when in self.called.items() if when <= end]:
            when, who = min(due)
            self.now = max(self.now, when)
            del self.called[who]
            self.look(who)
        self.now = end

    def free(self, jobs: int = 1) -> None:
        self.room += jobs
        self.limits.job_ended(SCOPE, self.now)
        self.go_on()


def test_who_was_refused_goes_before_those_who_come_later() -> None:
    slurm = Limits(2)
    for number in range(10):
        slurm.look(key(number))
    assert slurm.taken == [key(0), key(1)]
    for number in range(2, 10):
        slurm.look(key(number + 100))  # one comes for each that ends
        slurm.free()
        assert slurm.taken[-1] == key(number)
    assert slurm.limits.standing(key(102)) == (WHY, 1)


def test_other_peoples_jobs_end_too_and_the_first_finds_out_by_itself() -> None:
    slurm = Limits(0)
    for number in range(5):
        slurm.look(key(number))
    slurm.room = 5
    slurm.go_on(2 * PROBE.most)
    assert slurm.taken == [key(number) for number in range(5)]
    assert not len(slurm.limits)


def test_while_the_limit_holds_slurm_is_asked_by_two_and_more_and_more_rarely() -> None:
    slurm = Limits(0)
    for number in range(1000):
        slurm.look(key(number))
    assert slurm.probes == 1
    slurm.go_on(600)
    assert slurm.probes < 2 * (600 / (PROBE.most / 2) + 8)
    assert slurm.limits.standing(key(0)) == (WHY, 1)


def test_an_event_costs_the_same_however_many_wait() -> None:
    """And when there is room for all of them at once, they go side by side."""
    slurm = Limits(0)
    for number in range(100_000):
        slurm.look(key(number))
    before = slurm.calls
    slurm.limits.job_ended(SCOPE, slurm.now)
    assert slurm.calls - before <= 1
    slurm.room = 1000
    slurm.go_on()
    assert slurm.taken == [key(number) for number in range(1000)]
    assert slurm.calls - before <= 1000 * (MOST_AT_ONCE + 2)


def test_one_that_asks_for_too_much_itself_holds_up_nothing_for_long() -> None:
    slurm = Limits(100)
    slurm.too_large = {key(0)}
    for number in range(MOST_STRIKES + 4):
        slurm.look(key(number))
    assert not slurm.taken
    slurm.go_on(4 * PROBE.first)
    assert slurm.parked == [key(0)]
    assert slurm.taken == [key(number) for number in range(1, MOST_STRIKES + 4)]


def test_who_leaves_and_comes_back_keeps_its_place_and_who_is_gone_holds_up_nothing() -> None:
    slurm = Limits(0)
    for number in range(4):
        slurm.look(key(number))
    slurm.limits.left(key(1), slurm.now)
    slurm.look(key(1))
    assert slurm.limits.standing(key(1)) == (WHY, 2)
    slurm.called.clear()
    slurm.limits.left(key(0), slurm.now)
    assert list(slurm.called) == [key(1)]
    for number in range(4):
        slurm.limits.left(key(number), slurm.now)
    assert not len(slurm.limits)
    assert slurm.limits.may_try(key(9), SCOPE, 9, slurm.now)


def test_lines_are_of_one_namespace_and_the_end_of_any_job_of_the_account_counts() -> None:
    called: list[WorkloadKey] = []
    limits = SubmitLimits(lambda who, _: called.append(who))
    other = Scope("other", "bob", "physics", "high", "gpu")
    limits.refused(key(1), SCOPE, 1, WHY, 0.0)
    assert limits.may_try(key(2, "other"), other, 2, 0.0)
    called.clear()
    limits.job_ended(Scope("other", "bob", "ai", "high", "gpu"), 0.0)
    assert not called
    limits.job_ended(other, 0.0)
    assert called == [key(1)]


def test_a_scope_is_what_slurm_counts_by() -> None:
    said = JobSettings(user_id="alice", account="physics", partition="bridge", job_name="any")
    assert scope_of("ns", said) == SCOPE


@given(st.lists(st.sampled_from(["bridge", "gpu", "long"]), min_size=1, max_size=9))
def test_no_way_to_write_the_same_partitions_opens_another_line(written: list[str]) -> None:
    """`gpu`, `gpu,gpu` and so on were places in the queue of their own, each with a probe."""
    scope = scope_of("ns", JobSettings(partition=",".join(written)))
    assert scope == scope_of("ns", JobSettings(partition=",".join(sorted(set(written)))))
    assert scope.partition.count(",") == len(set(written)) - 1


# Pods in flight


class Flights:
    """Pods of which no two may be in flight together, if they have the same label `app`; `plain` ones wait for none, and are waited for."""

    def __init__(self) -> None:
        self.called: list[WorkloadKey] = []
        self.now = 0.0
        self.asked = 0
        self.siblings = Siblings(lambda: InFlight(lambda *_: None), self.interference, lambda who, _: self.called.append(who))

    def interference(self, pod: Pod, _: str, others: InFlight) -> str:
        self.asked += 1
        own = pod.metadata.labels["app"]
        return "not both" if own != "plain" and any(one.labels["app"] in (own, "plain") for one in others.pods) else ""

    def enter(self, number: int, app: str = "web") -> bool:
        pod = a_pod(f"p{number}", labels={"app": app}, containers=[{"name": "c", "ports": [port(80)]}])
        return self.siblings.enter(key(number), SCOPE, [pod], number, self.now)


def test_siblings_are_in_flight_one_after_the_other_in_order() -> None:
    flights = Flights()
    numbers = list(range(1, 30))
    random.Random(1).shuffle(numbers)
    assert flights.enter(0)
    for number in numbers:
        assert not flights.enter(number)
    for number in range(29):
        flights.called.clear()
        flights.siblings.land(key(number))
        assert flights.called == [key(number + 1)]
        assert not flights.siblings.waits(key(number + 1), flights.now)
        assert flights.enter(number + 1)
    flights.siblings.land(key(29))
    assert not len(flights.siblings)
    assert not flights.siblings.in_flight
    assert not flights.siblings._scopes


def test_the_first_in_line_is_tried_only_when_something_changed() -> None:
    """Otherwise it would be looked at without end."""
    flights = Flights()
    assert flights.enter(0)
    assert not flights.enter(1)
    assert flights.siblings.waits(key(1), flights.now)


def test_a_job_that_stays_in_slurms_queue_holds_up_a_line_for_a_while_only() -> None:
    flights = Flights()
    assert flights.enter(0)
    assert not flights.enter(1)
    assert not flights.enter(2)
    flights.now = PATIENCE
    assert not flights.siblings.waits(key(1), flights.now)
    assert flights.enter(1)
    assert flights.siblings.standing(key(2)) == ("not both", 1)
    assert not flights.enter(2)
    flights.now = 2 * PATIENCE
    assert flights.enter(2)


def test_jobs_that_have_been_in_slurms_queue_for_long_are_not_waited_for() -> None:
    """On a full cluster a thousand of them hold up nothing."""
    flights = Flights()
    assert flights.enter(0)
    flights.now = PATIENCE
    assert flights.enter(1)
    assert not flights.enter(2)
    flights.siblings.land(key(0))
    assert not flights.enter(2)
    flights.siblings.land(key(1))
    assert flights.enter(2)
    flights.siblings.land(key(2))
    assert not flights.siblings._scopes
    assert not flights.siblings.in_flight


def full_cluster(flights: Flights, number: int, seconds: int) -> list[int]:
    """Nothing in flight ever gets a node. How many of so many siblings are in Slurm's queue after each second."""
    queued, counts = set[int](), []
    flights.enter(0)
    queued.add(0)
    for other in range(1, number):
        assert not flights.enter(other)
    for second in range(1, seconds):
        flights.now = float(second)
        first = max(queued) + 1
        while first < number and not flights.siblings.waits(key(first), flights.now) and flights.enter(first):
            queued.add(first)
            first += 1
        counts.append(len(queued))
    return counts


def test_on_a_full_cluster_siblings_enter_slurms_queue_in_growing_steps() -> None:
    """A thousand of them within minutes: priority, age and backfill need to see them."""
    flights = Flights()
    counts = full_cluster(flights, 1000, 600)
    assert counts[int(PATIENCE) - 2] == 1
    assert counts[int(PATIENCE)] == 2
    steps = [now - before for before, now in pairwise(counts) if now > before]
    assert steps[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert max(steps) == MOST_TOGETHER
    assert counts[-1] == 1000
    assert counts.index(1000) < PATIENCE + (len(steps) + 1) * STEP


def test_after_a_job_was_given_back_siblings_go_one_by_one_again_and_it_goes_first() -> None:
    flights = Flights()
    counts = full_cluster(flights, 100, int(PATIENCE + 3 * STEP))
    assert counts[-1] == 8
    flights.siblings.started(key(2))
    flights.siblings.rejected(key(2), 2)
    assert key(2) in flights.siblings
    assert flights.siblings.standing(key(2)) == ("not both", 1)
    assert not flights.enter(2)  # others are in flight
    for number in (0, 1, 3, 4, 5, 6, 7):
        flights.siblings.land(key(number))
    assert flights.enter(2)
    assert not flights.enter(8)
    flights.now += PATIENCE - 1
    assert not flights.enter(8)
    flights.siblings.land(key(2))
    assert flights.enter(8)
    assert not flights.enter(9)


def test_jobs_that_run_and_are_not_placed_yet_are_no_sign_of_a_full_cluster() -> None:
    """Their pods may wait for a container to stop: the next goes alone, and the steps do not grow."""
    flights = Flights()
    queued = 0
    flights.enter(0)
    for number in range(1, 20):
        assert not flights.enter(number)
    for second in range(1, int(4 * PATIENCE + 10)):
        flights.now = float(second)
        for number in range(queued + 1):
            flights.siblings.started(key(number))
        if not flights.siblings.waits(key(queued + 1), flights.now) and flights.enter(queued + 1):
            queued += 1
    assert queued == 4


def test_a_stream_of_newcomers_does_not_keep_the_first_waiting_for_ever() -> None:
    flights = Flights()
    assert flights.enter(0)
    assert not flights.enter(1)
    for second in range(1, int(PATIENCE)):
        flights.now = second
        pod = a_pod(f"n{second}", labels={"app": "plain"})
        assert flights.siblings.enter(key(1000 + second), SCOPE, [pod], 1000 + second, flights.now)
    flights.now = PATIENCE + 1
    assert flights.enter(1)


def test_pods_of_another_scope_are_not_waited_for() -> None:
    flights = Flights()
    assert flights.enter(0)
    pod = a_pod("other", labels={"app": "web"})
    assert flights.siblings.enter(key(1), SCOPE._replace(namespace="other"), [pod], 1, 0.0)


def test_one_in_flight_that_lands_costs_the_same_however_many_wait() -> None:
    flights = Flights()
    for number in range(20_000):
        flights.enter(number)
    flights.called.clear()
    flights.asked = 0
    for number in range(200):
        flights.siblings.land(key(number))
        assert flights.enter(number + 1)
    assert flights.asked == 200
    assert len(flights.called) <= 2 * 200 * MOST_CALLED


def test_whoever_leaves_the_line_lets_the_next_go() -> None:
    flights = Flights()
    for number in range(4):
        flights.enter(number)
    flights.siblings.leave(key(1))
    flights.called.clear()
    flights.siblings.land(key(0))
    assert flights.called == [key(2)]
    flights.called.clear()
    flights.siblings.leave(key(2))
    assert flights.called == [key(3)]
    assert flights.enter(3)


# In the loop


def limit_of(world: World, most: int, too_large: str = "") -> None:
    """Slurm has room for so many jobs, and none for that pod."""
    submit: Callable[..., Awaitable[Submission]] = partial(World.submit, world)
    one_at_a_time = asyncio.Lock()
    refusal = RefusedError("Job violates accounting/QOS policy (job submit limit, ...)", number=2050)

    async def limited(workload: Workload, *args: Any) -> Submission:
        async with one_at_a_time:
            full = sum(not job.is_finished for job in world.held.values()) >= most
            if full or workload.pods[0].metadata.name == too_large:
                world.tries += 1
                raise refusal
            return await submit(workload, *args)

    world.submit = limited  # type: ignore[method-assign, assignment]


def test_a_pod_that_was_refused_for_a_submit_limit_goes_before_newcomers() -> None:
    async def story(world: World) -> None:
        limit_of(world, 2)
        for number in range(5):
            world.make(f"p{number}")
        await runs(world, 1, "p0")
        await runs(world, 2, "p1")
        for number in range(2, 5):
            world.make(f"new{number}")
            world.ends(f"p{number - 2}", "Succeeded")
            await world.until(partial(world.held.get, number + 1), 5)
            await runs(world, number + 1, f"p{number}")
            assert not world.pod(f"new{number}").metadata.labels
        known = world.loop.known[WorkloadKey("Pod", "ns", "new2-uid")]
        assert not known.parked

    told(story)


def test_the_first_in_line_is_tried_again_though_nothing_tells_that_the_limit_is_another() -> None:
    async def story(world: World) -> None:
        limit_of(world, 0)
        for number in range(3):
            world.make(f"p{number}")
        await world.until(lambda: len(world.loop._submitter.limits) == 3)
        await asyncio.sleep(100)
        assert world.tries < 50
        limit_of(world, 3)
        await world.until(lambda: len(world.held) == 3, PROBE.most + 1)
        for number in range(3):
            await runs(world, number + 1, f"p{number}")

    told(story)


def test_a_pod_that_an_accounting_limit_can_never_take_is_parked_and_those_behind_it_go_on() -> None:
    async def story(world: World) -> None:
        limit_of(world, 100, too_large="p0")
        for number in range(5):
            world.make(f"p{number}")
        await world.until(lambda: len(world.held) == 4)
        known = world.loop.known[WorkloadKey("Pod", "ns", "p0-uid")]
        await world.until(lambda: known.parked)
        assert "accounting/QOS policy" in known.parked
        world.make("p5")
        await world.until(lambda: len(world.held) == 5, 5)
        await asyncio.sleep(300)  # it was tried again, and has made no line
        assert world.tries > 5
        assert not len(world.loop._submitter.limits)

    told(story)


def test_siblings_that_may_not_be_in_flight_together_cost_a_job_each() -> None:
    """The second is submitted when the first has its node."""

    async def story(world: World) -> None:
        world.interferes = "may not share a node"
        for number in range(4):
            world.make(f"p{number}")
        for number in range(4):
            await world.until(partial(world.held.get, number + 1))
            await asyncio.sleep(5)
            assert len(world.held) == number + 1
            await runs(world, number + 1, f"p{number}")
        assert not len(world.loop._submitter.siblings)

    told(story)


def test_siblings_whose_jobs_stay_in_slurms_queue_are_waited_for_less_and_less() -> None:
    async def story(world: World) -> None:
        world.interferes = "may not share a node"
        for number in range(5):
            world.make(f"p{number}")
        await world.until(lambda: 1 in world.held)
        await asyncio.sleep(PATIENCE - 5)
        assert len(world.held) == 1
        await asyncio.sleep(10)
        assert len(world.held) == 2
        await asyncio.sleep(STEP)
        assert len(world.held) == 4
        for number in range(4):
            world.delete(f"p{number}")
        await world.until(lambda: 5 in world.held, 5)

    told(story)


def test_a_sibling_whose_job_is_given_back_waits_for_those_in_flight() -> None:
    """Otherwise all of a step that Slurm put on one node would come back together, onto the next node."""

    async def story(world: World) -> None:
        world.interferes = "may not share a node"
        for number in range(3):
            world.make(f"p{number}")
        await world.until(lambda: 2 in world.held, PATIENCE + 5)
        world.unfit = {"n": "a pod of the same Deployment is there"}
        world.nodes.put(msgspec.structs.replace(world.nodes.list()[0], metadata=Meta(name="m")))
        world.set_job(1, "RUNNING")
        await world.until(lambda: world.held[1].is_finished, 5)
        await asyncio.sleep(STEP)
        assert len(world.held) == 2  # the other is in flight
        world.given, world.slurm_nodes, world.version = ["m"], ["n", "m"], 1
        await runs(world, 2, "p1")
        await world.until(lambda: 3 in world.held, 10)
        await runs(world, 3, "p0")

    told(story)


def test_a_line_is_forgotten_with_its_pods() -> None:
    async def story(world: World) -> None:
        limit_of(world, 1)
        for number in range(4):
            world.make(f"p{number}")
        await runs(world, 1, "p0")
        limits = world.loop._submitter.limits
        await world.until(lambda: len(limits) == 3)
        for number in range(4):
            world.delete(f"p{number}")
            if number == 0:
                world.ends("p0")
        await world.until(world.is_empty)
        assert not len(limits)

    told(story)
