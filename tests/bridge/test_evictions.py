"""Evicting the pods of a job that ends, with disruption budgets in the way; and the loop around it."""

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from slinky.bridge.budgets import LONGEST_AGAIN, MANY, MOST_REFUSED, Budgets, name_of_budget, seconds_to_next
from slinky.bridge.ends import Ending
from slinky.bridge.eviction_settings import EvictionSettings
from slinky.bridge.evictions import Evictions, is_passed_over
from slinky.bridge.keys import JOB_ID
from slinky.bridge.memory import Known, Refusal
from slinky.bridge.metrics import BridgeMetrics
from slinky.bridge.pacing import seconds_between_looks
from slinky.bridge.plan import Evict, JobView, Shorten, Snapshot, plan
from slinky.bridge.submission import Component, Submission
from slinky.bridge.task import PerTask
from slinky.bridge.views import pod_view
from slinky.kube import ForbiddenError, Meta, Pod
from slinky.kube.errors import Status
from slinky.kube.objects import PodSpec
from slinky.slurm import JobStatus
from tests.bridge.both_sides import World, runs, told
from tests.bridge.large_gangs import LargeWorld, told_of_many
from tests.kube.virtual_time import run_in_virtual_time

POD = Pod(metadata=Meta(name="p", namespace="ns", uid="p-uid"))
BUDGET = "The disruption budget web needs 3 healthy pods and has 3 currently"


class Executor:
    def __init__(self) -> None:
        self.budget = BUDGET
        self.may_delete = True
        self.acts: list[tuple[float, str]] = []

    async def evict(self, pod: Pod, reason: str, why: str) -> str:  # noqa: ARG002
        self.acts.append((asyncio.get_running_loop().time(), "evict"))
        return self.budget

    async def remove(self, pod: Pod, reason: str, why: str) -> None:  # noqa: ARG002
        if not self.may_delete:
            raise ForbiddenError("DELETE", "pods/p", Status(code=403, message="no"))
        self.acts.append((asyncio.get_running_loop().time(), "remove"))


class Teller:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def __getattr__(self, kind: str) -> Callable[[Pod, str], None]:
        return lambda _, why: self.said.append((kind, why))


class Case:
    def __init__(self, **said: Any) -> None:
        self.executor, self.teller, self.known = Executor(), Teller(), Known()
        executor, teller = self.executor, self.teller
        self.evictions = Evictions(executor, teller, BridgeMetrics(CollectorRegistry()), EvictionSettings(**said))  # type: ignore[arg-type]

    async def looks(self, seconds: float, until: float = 0.0) -> None:
        """As often as it is asked to, and more often."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end and (self.known.refusals or not self.executor.acts):
            await self.evictions.evict(POD, Evict("p-uid", "SlurmCancelled", "Slurm job 7 is CANCELLED", until), self.known)
            await asyncio.sleep(0.2)

    @property
    def removed_after(self) -> float:
        return next((at - self.executor.acts[0][0] for at, act in self.executor.acts if act == "remove"), float("inf"))


def play(case: Case, seconds: float, until: float = 0.0) -> Case:
    run_in_virtual_time(case.looks(seconds, until))
    return case


def test_without_a_budget_in_the_way_it_is_one_eviction() -> None:
    case = Case()
    case.executor.budget = ""
    play(case, 100)
    assert [act for _, act in case.executor.acts] == ["evict"]
    assert case.teller.said == [("evicted", "Slurm job 7 is CANCELLED")]


def test_a_budget_is_honoured_for_its_time_and_then_passed_over_with_its_name() -> None:
    case = play(Case(budget_seconds=60.0), 200)
    assert 60 <= case.removed_after < 62
    assert len(case.executor.acts) < 12, "tried more and more rarely"
    assert [kind for kind, _ in case.teller.said] == ["spared", "overridden"]
    assert all(BUDGET in why for _, why in case.teller.said)
    assert not case.known.refusals


def test_a_budget_is_honoured_for_longer_where_slurms_decision_can_wait() -> None:
    assert 300 <= play(Case(budget_seconds=60.0), 400, until=300.0).removed_after < 302


def test_a_site_may_have_budgets_honoured_for_ever_or_not_at_all() -> None:
    kept = play(Case(budgets="honour"), 3600)
    assert kept.removed_after == float("inf")
    assert 3600 / LONGEST_AGAIN / 1.3 < len(kept.executor.acts) < 3600 / LONGEST_AGAIN * 1.5
    assert [kind for kind, _ in kept.teller.said] == ["spared"]
    ignored = play(Case(budgets="ignore"), 100)
    assert [act for _, act in ignored.executor.acts] == ["remove"]
    assert [kind for kind, _ in ignored.teller.said] == ["evicted"]


def test_a_budget_that_gives_way_in_time_is_not_passed_over() -> None:
    case = Case()

    async def story() -> None:
        await case.looks(20)
        case.executor.budget = ""
        await case.looks(100)

    run_in_virtual_time(story())
    assert case.removed_after == float("inf")
    assert [kind for kind, _ in case.teller.said] == ["spared", "evicted"]


def test_who_may_not_delete_pods_goes_on_asking() -> None:
    case = Case(budget_seconds=5.0)
    case.executor.may_delete = False
    play(case, 600)
    assert case.removed_after == float("inf")
    assert case.known.refusals


@given(tries=st.integers(1, 10_000))
def test_tries_come_more_and_more_rarely_up_to_a_limit(tries: int) -> None:
    assert 0 < seconds_to_next(tries) <= seconds_to_next(tries + 1) <= LONGEST_AGAIN


@pytest.mark.parametrize(
    ("mode", "now", "passed"), [("override", 59, False), ("override", 60, True), ("honour", 1e9, False), ("ignore", 0, True)]
)
def test_when_a_budget_is_passed_over(mode: Any, now: float, passed: bool) -> None:
    assert is_passed_over(mode, 0.0, 0.0, 60.0, now) is passed


# In the loop


def test_a_job_that_is_about_to_end_evicts_its_pods_and_ends_when_their_containers_are_gone() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        world.loop.job_ends(next(iter(world.loop.known)), 1, Ending("SlurmPreempted", "Slurm job 1 is being preempted", 0.0))
        await world.until(lambda: "evict a" in world.acts)
        assert world.reasons == {"a": "SlurmPreempted"}
        await asyncio.sleep(60)
        assert "end 1 None" not in world.acts, "its containers run"
        world.ends("a")
        await world.until(lambda: "end 1 None" in world.acts)
        await world.until(world.is_empty)
        assert world.acts.count("evict a") == 1

    told(story)


def test_a_signal_to_a_part_of_a_hetjob_is_one_to_the_whole() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        assert not world.loop.is_signalled(1)
        known = next(iter(world.loop.known.values()))
        parts = tuple(Component(job_id=job_id, ranks=(rank,), task=PerTask()) for rank, job_id in enumerate((1, 2)))
        known.submission = Submission(job_id=1, tasks=2, components=parts)
        world.poller.states[2] = JobStatus("2", ["RUNNING", "SIGNALING"])
        assert world.loop.is_signalled(1)

    told(story)


def test_a_limit_that_is_made_longer_in_time_leaves_the_pods_alone() -> None:
    async def story(world: World) -> None:
        world.budget = BUDGET
        world.make("a")
        await runs(world, 1, "a")
        key = next(iter(world.loop.known))
        world.loop.job_ends(key, 1, Ending("SlurmTimeout", "Slurm job 1 has reached its time limit", 1e9))
        await world.until(lambda: "refused a" in world.acts)
        world.loop.job_ends(key, 1, None)
        await asyncio.sleep(120)
        assert "evict a" not in world.acts
        assert "remove a" not in world.acts
        world.budget = ""
        await asyncio.sleep(120)
        assert "evict a" not in world.acts

    told(story)


def test_a_budget_that_stood_in_the_way_of_an_end_that_did_not_come_is_asked_at_the_next() -> None:
    async def story(world: World) -> None:
        world.budget = BUDGET
        world.make("a")
        await runs(world, 1, "a")
        key, end = next(iter(world.loop.known)), Ending("SlurmTimeout", "Slurm job 1 has reached its time limit", 0.0)
        world.loop.job_ends(key, 1, end)
        await world.until(lambda: "refused a" in world.acts)
        world.loop.job_ends(key, 1, None)
        await asyncio.sleep(3600)
        world.budget = ""
        world.loop.job_ends(key, 1, end)
        await world.until(lambda: world.reasons)
        assert "evict a" in world.acts, "not past its budget, which says nothing any more"

    told(story)


def test_a_budget_is_passed_over_when_the_job_is_over_and_its_time_is_up() -> None:
    async def story(world: World) -> None:
        world.budget = BUDGET
        world.make("a")
        await runs(world, 1, "a")
        world.set_job(1, "NODE_FAIL")
        await world.until(lambda: "remove a" in world.acts)
        assert world.reasons == {"a": "SlurmNodeFail"}
        world.ends("a")
        await world.until(world.is_empty)

    told(story)


CANCELLED = Ending("SlurmPreempted", "Slurm job 1 is being preempted", 1e9)


def asked(world: World) -> int:
    return sum(act.startswith(("refused", "evict ")) for act in world.acts)


def test_a_budget_of_a_large_gang_is_asked_by_one_pod_at_a_time_and_lets_all_go_when_it_may() -> None:
    """Each pod learns once which budget is in its way."""

    async def story(world: LargeWorld) -> None:
        world.budget = BUDGET
        world.create()
        await world.starts()
        await world.until(lambda: world.bound == world.number and world.is_idle)
        world.loop.job_ends(next(iter(world.loop.known)), 1, CANCELLED)
        await world.until(lambda: asked(world) >= world.number)
        before, looked_at = asked(world), world.looked_at
        await asyncio.sleep(600)
        assert asked(world) - before < 2 * 600 / LONGEST_AGAIN
        assert world.looked_at - looked_at < 3 * 600 / LONGEST_AGAIN * world.number
        world.budget = ""
        await world.until(lambda: len(world.reasons) == world.number, 2 * LONGEST_AGAIN)

    told_of_many(story, 1000, 125)


def test_budgets_of_single_pods_in_one_gang_do_not_make_looks_without_end() -> None:
    async def story(world: LargeWorld) -> None:
        evict = world.evict

        async def own_budget(pod: Pod, reason: str, why: str) -> str:
            world.budget = BUDGET.replace("web", f"of-{pod.metadata.name}")
            return await evict(pod, reason, why)

        world.evict = own_budget  # type: ignore[method-assign, assignment]
        world.create()
        await world.starts()
        await world.until(lambda: world.bound == world.number and world.is_idle)
        world.loop.job_ends(next(iter(world.loop.known)), 1, CANCELLED)
        await world.until(lambda: asked(world) >= world.number)
        looked_at = world.looked_at
        await asyncio.sleep(60)
        most = 60 / seconds_between_looks(world.number)
        assert world.looked_at - looked_at <= most * world.number

    told_of_many(story, 1000, 125)


def test_a_budget_of_many_workloads_is_asked_by_one_of_them() -> None:
    async def story() -> None:
        case = Case(budgets="honour")
        pods = [msgspec.structs.replace(POD, metadata=Meta(name=f"p{n}", namespace="ns", uid=f"u{n}")) for n in range(200)]
        known = [Known(job_id=number) for number in range(len(pods))]
        loop = asyncio.get_running_loop()

        async def look() -> None:
            for pod, own in zip(pods, known, strict=True):
                if own.refusals or not case.teller.said:
                    await case.evictions.evict(pod, Evict(pod.metadata.uid, "SlurmCancelled", "cancelled"), own)

        for pod, own in zip(pods, known, strict=True):
            await case.evictions.evict(pod, Evict(pod.metadata.uid, "SlurmCancelled", "cancelled"), own)
        assert len(case.executor.acts) == len(pods)
        end = loop.time() + 600
        while loop.time() < end:
            await asyncio.sleep(0.2)
            await look()
        assert len(case.executor.acts) - len(pods) < 2 * 600 / LONGEST_AGAIN
        case.executor.budget = ""
        end = loop.time() + 2 * LONGEST_AGAIN
        while loop.time() < end:
            await asyncio.sleep(0.2)
            await look()
        assert not any(own.refusals for own in known)

    run_in_virtual_time(story())


def test_budgets_of_one_namespace_say_no_a_limited_number_of_times_a_second_and_others_are_asked_meanwhile() -> None:
    async def story() -> None:
        case, asked_of = Case(budgets="honour"), Counter[str]()

        async def evict(pod: Pod, reason: str, why: str) -> str:  # noqa: ARG001
            asked_of[pod.metadata.namespace] += 1
            return BUDGET.replace("web", pod.metadata.name)

        case.executor.evict = evict  # type: ignore[method-assign]
        names = [("many", f"p{n}") for n in range(1000)] + [("few", "p")]
        pods = [msgspec.structs.replace(POD, metadata=Meta(name=name, namespace=space, uid=space + name)) for space, name in names]
        known = [Known(job_id=number) for number in range(len(pods))]
        loop = asyncio.get_running_loop()
        end = loop.time() + 600
        while loop.time() < end:
            for pod, own in zip(pods, known, strict=True):
                await case.evictions.evict(pod, Evict(pod.metadata.uid, "SlurmCancelled", "cancelled"), own)
            await asyncio.sleep(0.5)
        assert asked_of["many"] <= 1000 + (600 + 1) * MOST_REFUSED
        assert asked_of["few"] > 600 / LONGEST_AGAIN / 1.5
        assert all(own.refusals for own in known)

    run_in_virtual_time(story())


def test_a_budget_that_lets_some_go_is_asked_until_it_says_no() -> None:
    """By pods in turn; and pods that are not ready are asked for by themselves."""

    async def story() -> None:
        budgets, allowed, order = Budgets(), 0, list[int]()

        async def ask(number: int, *, ready: bool = True) -> bool:
            nonlocal allowed
            budget = budgets.of("ns", "web", 0.0, ready=ready)
            if not await budget.may_ask():
                return False
            order.append(number)
            await asyncio.sleep(0.01)
            if allowed > 0:
                allowed -= 1
                budget.granted()
            else:
                budget.refused(asyncio.get_running_loop().time())
            budget.left()
            return True

        await asyncio.gather(*(ask(number) for number in range(100)))
        assert len(order) == 1
        assert await ask(1000, ready=False)
        allowed = 20
        await asyncio.sleep(2 * LONGEST_AGAIN)
        order.clear()
        await asyncio.gather(*(ask(number) for number in range(100)))
        assert 20 < len(order) < 60, "1, 2, 4, 8, 16 side by side"
        assert allowed == 0
        for number in range(5 * MANY):
            budgets.of("ns", f"b{number}", float(number), ready=True)
        assert len(budgets) <= MANY + 1

    run_in_virtual_time(story())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (f"Cannot evict pod as it would violate the pod's disruption budget. {BUDGET}", "web"),
        ("The disruption budget a.b is still being processed by the server.", "a.b"),
        ("This pod has more than one PodDisruptionBudget", "This pod has more than one PodDisruptionBudget"),
    ],
)
def test_a_refusal_names_its_budget(words: str, name: str) -> None:
    assert name_of_budget(words) == name


def test_pods_that_asked_least_often_ask_first() -> None:
    wanted = [Evict(uid, "SlurmCancelled", "cancelled") for uid in ("a", "b", "c")]
    known = Known(refusals={uid: Refusal(0.0, tries, 0.0, BUDGET) for uid, tries in (("a", 2), ("b", 1), ("c", 2))})
    assert [each.uid for each in Evictions.in_turn(wanted, known)] == ["b", "a", "c"]


def test_a_pod_that_was_deleted_with_a_longer_grace_period_than_its_own_gets_its_own_once_its_job_is_over() -> None:
    """Else its owner keeps what Slurm has given to others, for as long as he likes."""
    grace = {"deletion_timestamp": dt.datetime(2057, 1, 1, tzinfo=dt.UTC), "deletion_grace_period_seconds": 10**9}
    long = msgspec.structs.replace(
        POD,
        metadata=msgspec.structs.replace(POD.metadata, labels={JOB_ID: "7"}, **grace),
        spec=PodSpec(node_name="n", termination_grace_period_seconds=60),
    )
    own = msgspec.structs.replace(long, metadata=msgspec.structs.replace(long.metadata, deletion_grace_period_seconds=60))
    assert pod_view(long).lingers
    assert not pod_view(own).lingers
    for state, expected in (("over", [Shorten("p-uid")]), ("ending", [Shorten("p-uid")]), ("running", [])):
        job = JobView(job_id=7, state=state, reason="SlurmTimeout")  # type: ignore[arg-type]
        actions = plan(Snapshot(pods=[pod_view(long)], size=1, job=job))
        assert [action for action in actions if isinstance(action, Shorten | Evict)] == expected
        assert not [action for action in plan(Snapshot(pods=[pod_view(own)], size=1, job=job)) if isinstance(action, Shorten | Evict)]
