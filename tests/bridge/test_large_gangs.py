"""What a gang of thousands of pods costs: little more for each pod than a small one's, in short turns, and with all checks of a small one."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from slinky.bridge import binding, pacing
from slinky.bridge.acts import Acts
from slinky.bridge.eligibility import within_gang
from slinky.bridge.eligibility.gang import LEAST_COMPARISONS, MOST_COMPARISONS
from slinky.bridge.eligibility.surroundings import Placed
from slinky.bridge.hetjobs import components_for
from slinky.bridge.keys import JOB_ID
from slinky.bridge.memory import Known
from slinky.bridge.pacing import MOST_ACTS, Pace, all_of, seconds_between_looks
from slinky.bridge.submission import Component, Submission
from slinky.bridge.task import PerTask, exceeds
from slinky.kube import Key, Meta, Node, Pod
from slinky.kube.objects import (
    Affinity,
    Container,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceNeeds,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from tests.bridge.both_sides import SITE, Silent
from tests.bridge.eligibility.things import World, a_node
from tests.bridge.large_gangs import HOSTNAME, LargeWorld, growth, operations, told_of_many

LINEAR = 1.4  # what grows with n log n, and what is done now and then, stays below; n² is 4

SAME_APP = LabelSelector(match_labels={"app": "train"})
APART = Affinity(pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(topology_key=HOSTNAME, label_selector=SAME_APP),)))


@pytest.mark.parametrize("affinity", [None, APART], ids=["plain", "one a node"])
def test_a_gangs_whole_way_costs_as_much_a_pod_however_many_there_are(affinity: Affinity | None) -> None:
    """Created, submitted, bound on a node each, ended."""

    async def story(world: LargeWorld) -> None:
        world.create()
        await world.starts()
        await world.until(lambda: world.bound == world.number and world.is_idle)
        for pod in world.pods.list():
            world.ends(pod.metadata.name, "Succeeded")
        await world.until(lambda: any(act.startswith("end 1") for act in world.acts) and world.is_idle)

    assert growth(lambda n: operations(lambda: told_of_many(story, n, n, affinity))) < LINEAR


def test_many_pods_on_few_nodes_too() -> None:
    async def story(world: LargeWorld) -> None:
        world.create()
        await world.starts()
        await world.until(lambda: world.bound == world.number and world.is_idle)

    assert growth(lambda n: operations(lambda: told_of_many(story, n, n // 8))) < LINEAR


def test_pods_that_come_and_end_one_after_the_other_are_few_looks() -> None:
    """A look each would be n² pods looked at."""

    async def story(world: LargeWorld) -> None:
        world.create_job()
        for index in range(world.number):
            world.create_one(index)
            await asyncio.sleep(0.001)
        await world.starts()
        await world.until(lambda: world.bound == world.number and world.is_idle)
        before = world.looked_at
        assert before < 20 * world.number
        for pod in world.pods.list():
            world.ends(pod.metadata.name, "Succeeded")
            await asyncio.sleep(0.001)
        await world.until(lambda: any(act.startswith("end 1") for act in world.acts))
        assert world.looked_at - before < 20 * world.number

    told_of_many(story, 2000, 250)


def test_a_small_gang_is_looked_at_at_once() -> None:
    assert seconds_between_looks(1) == seconds_between_looks(100) == 0
    assert 0 < seconds_between_looks(1000) < seconds_between_looks(10_000) <= 2


class _Labels(dict[str, int]):
    """Counts how often all of it is taken."""

    taken = 0

    def keys(self):  # type: ignore[no-untyped-def]
        self.taken += 1
        return super().keys()


def test_whether_the_labels_of_bound_pods_were_written_is_worked_out_once_for_all() -> None:
    known, labels = Known(job_id=1), _Labels()
    spec = PodSpec(node_name="n")
    pods = [Pod(metadata=Meta(name=f"p{index}", namespace="ns", uid=f"p{index}", labels={JOB_ID: "1"}), spec=spec) for index in range(50)]
    known.written.labels = labels
    for pod in pods:
        known.written.label(pod.metadata.uid, 1)
    acts = Acts(*[Silent()] * 5)  # type: ignore[arg-type]
    asyncio.run(acts.check_labels(pods, known))
    assert labels.taken == 1


# In short turns, and as soundly as in one


@pytest.fixture
def shortest_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SLICE_SECONDS", 0.0)


@pytest.mark.usefixtures("shortest_turns")
def test_other_tasks_run_while_a_gang_is_checked() -> None:
    async def story(world: LargeWorld) -> None:
        place, others = world.judge.place, 0

        async def watched(placements: Sequence[tuple[Pod, str]], pace: Pace) -> Placed:
            nonlocal others
            judged = False

            async def other() -> None:
                nonlocal others
                while not judged:
                    others += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            try:
                return await place(placements, pace)
            finally:
                judged = True
                await task

        world.judge.place = watched
        world.create()
        await world.starts()
        await world.until(lambda: world.bound == world.number)
        assert others >= world.number

    told_of_many(story, 200, 50)


class _MeanwhileError(Exception):
    pass


def _meanwhile(world: LargeWorld, what: str) -> None:
    """Something happens to the first node after its turn, before the last node has had its own."""
    obstacle, seen = world.ledger.obstacle, []

    def watched(node, *more):  # type: ignore[no-untyped-def]
        seen.append(node)
        if len(seen) == len(world.given) // 2:
            if what == "a pod comes":
                spec = PodSpec(
                    node_name=world.given[0], containers=(Container(resources=ResourceNeeds(requests={"cpu": "64", "memory": "1Gi"})),)
                )
                meta = Meta(name="other", namespace="ns", uid="other-uid")
                world.pods.put(Pod(metadata=meta, spec=spec, status=PodStatus(phase="Running")))
            else:
                world.put_node(world.given[0], unschedulable=True)
        return obstacle(node, *more)

    world.ledger.obstacle = watched  # type: ignore[method-assign]


@pytest.mark.usefixtures("shortest_turns")
def test_what_comes_onto_a_node_after_its_turn_holds_the_whole_gang() -> None:
    async def story(world: LargeWorld) -> None:
        _meanwhile(world, "a pod comes")
        world.create()
        await world.starts()
        known = next(known for key, known in world.loop.known.items() if key.name == "train")
        await world.until(lambda: known.obstacle)
        assert world.given[0] in known.obstacle
        assert world.bound == 1  # the other's own
        other = world.pods.by_key(Key("ns", "other"))
        assert other
        world.pods.remove(other.key)
        await world.until(lambda: world.bound == world.number)

    told_of_many(story, 60, 60)


@pytest.mark.usefixtures("shortest_turns")
def test_a_node_that_is_cordoned_after_its_turn_sends_the_gang_back() -> None:
    async def story(world: LargeWorld) -> None:
        _meanwhile(world, "cordon")
        world.create()
        await world.starts()
        await world.until(lambda: "end 1 None" in world.acts)
        assert world.bound == 0

    told_of_many(story, 60, 60)


@pytest.mark.usefixtures("shortest_turns")
def test_what_was_counted_for_a_gang_that_is_held_is_counted_no_more() -> None:
    async def story(world: LargeWorld) -> None:
        full = ResourceNeeds(requests={"cpu": "64"})
        spec = PodSpec(node_name=world.given[-1], containers=(Container(resources=full),))
        world.pods.put(Pod(metadata=Meta(name="other", namespace="ns", uid="other-uid"), spec=spec, status=PodStatus(phase="Running")))
        world.create()
        await world.starts()
        known = next(known for key, known in world.loop.known.items() if key.name == "train")
        await world.until(lambda: known.obstacle and world.is_idle)
        meant = LabelSelector(match_labels={"app": "train"})
        apart = Affinity(pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(topology_key=HOSTNAME, label_selector=meant),)))
        asks = Pod(metadata=Meta(name="asks", namespace="ns", uid="asks"), spec=PodSpec(affinity=apart))
        assert world.judge.refusal(asks, world.given[0]) == ""
        assert len(world.ledger._counted) == 1

    told_of_many(story, 40, 40)


# Many acts


def test_acts_are_carried_out_all_and_few_at_once() -> None:
    async def story() -> None:
        running = most = done = 0

        async def act(index: int) -> None:
            nonlocal running, most, done
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            done += 1
            if index in (3, 700):
                raise _MeanwhileError(str(index))

        acts: list[Awaitable[None]] = [act(index) for index in range(1000)]
        with pytest.raises(_MeanwhileError, match=r"^3$"):
            await all_of(acts)
        assert (most, done) == (MOST_ACTS, 1000)

    asyncio.run(story())


def test_acts_that_were_not_begun_when_all_is_cancelled_never_are() -> None:
    async def story() -> None:
        begun = 0

        async def act() -> None:
            nonlocal begun
            begun += 1
            await asyncio.sleep(3600)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await all_of([act() for _ in range(1000)])
        assert begun == MOST_ACTS

    asyncio.run(story())


# Rules between pods


def _members(count: int, affinity: Affinity | None = None, spread: tuple[TopologySpreadConstraint, ...] = ()) -> list[Pod]:
    spec = PodSpec(affinity=affinity, topology_spread_constraints=spread)
    return [
        Pod(metadata=Meta(name=f"p{index}", namespace="ns", uid=f"p{index}", labels={"app": "train", "index": str(index)}), spec=spec)
        for index in range(count)
    ]


OF_ITS_OWN = PodAffinityTerm(topology_key="zone", label_selector=SAME_APP, match_label_keys=("index",))
SPREAD_OF_ITS_OWN = TopologySpreadConstraint(
    max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=SAME_APP, match_label_keys=("index",)
)


@pytest.mark.parametrize(
    ("affinity", "spread"),
    [
        (Affinity(pod_anti_affinity=PodAffinity(required=(OF_ITS_OWN,))), ()),
        (Affinity(pod_affinity=PodAffinity(required=(OF_ITS_OWN,))), ()),
        (None, (SPREAD_OF_ITS_OWN,)),
    ],
    ids=["anti-affinity", "affinity", "spread"],
)
def test_a_gang_each_of_whose_pods_has_a_rule_of_its_own_costs_no_square(
    affinity: Affinity | None, spread: tuple[TopologySpreadConstraint, ...]
) -> None:
    assert within_gang(_members(5, affinity, spread)).refusal == ""
    assert growth(lambda n: operations(lambda: within_gang(_members(n, affinity, spread)))) < LINEAR


def test_a_gang_whose_rules_cannot_be_judged_in_bounded_work_is_refused_in_words() -> None:
    pods = []
    for index in range(600):
        asks = LabelSelector(match_expressions=(SelectorRequirement(key=f"key{index}", operator="Exists"),))
        apart = Affinity(pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(topology_key="zone", label_selector=asks),)))
        pods.append(Pod(metadata=Meta(name=f"p{index}", namespace="ns", uid=f"p{index}"), spec=PodSpec(affinity=apart)))
    assert "too many different affinity terms" in within_gang(pods).refusal
    each = 10  # calls that one comparison takes at most: some are saved where a like term was read before
    assert operations(lambda: within_gang(pods)) < each * (LEAST_COMPARISONS + MOST_COMPARISONS * len(pods)) + 100 * len(pods)


def test_a_spread_over_nodes_is_not_counted_anew_for_each_pod() -> None:
    spread = (TopologySpreadConstraint(max_skew=1, topology_key=HOSTNAME, when_unsatisfiable="DoNotSchedule", label_selector=SAME_APP),)

    def cost(count: int) -> int:
        names = [f"n{index:05}" for index in range(count)]
        world = World(*map(a_node, names))
        placements = list(zip(_members(count, spread=spread), names, strict=True))

        def judge() -> None:
            assert world.judge.first_refusal(placements) is None

        return operations(judge)

    assert growth(cost) < LINEAR


def test_a_chain_of_pods_that_want_one_another_near_is_placed_from_either_end() -> None:
    """Each wants to be where the one before it is."""

    def chain(count: int) -> list[tuple[Pod, str]]:
        found = []
        for index in range(count):
            near = LabelSelector(match_labels={"index": str(max(index - 1, 0))})
            affinity = Affinity(pod_affinity=PodAffinity(required=(PodAffinityTerm(topology_key=HOSTNAME, label_selector=near),)))
            meta = Meta(name=f"p{index}", namespace="ns", uid=f"p{index}", labels={"index": str(index)})
            found.append((Pod(metadata=meta, spec=PodSpec(affinity=affinity)), "n"))
        return found

    world = World(a_node("n", zone="a"))
    assert world.judge.first_refusal(chain(200)) is None
    assert world.judge.first_refusal(chain(200)[::-1]) is None

    def cost(count: int) -> int:
        placements = chain(count)
        placements = placements[1::2] + placements[::2]
        return operations(lambda: world.judge.first_refusal(placements))

    assert growth(cost) < LINEAR


def test_which_component_each_pod_of_a_hetjob_is_for_is_worked_out_once_a_template() -> None:
    async def story(world: LargeWorld) -> None:
        world.create()
        key = next(iter(world.membership.keys()))
        workload = world.loop.knowledge.workload(key, world.loop.knowledge.pods(key), Known())
        assert workload
        parts = tuple(Component(job_id=number, ranks=(number,), task=PerTask(cpus=1, memory=1024)) for number in (1, 2))
        job = Submission(job_id=1, tasks=2, components=parts)
        costs.append(operations(lambda: components_for(workload, SITE, job)))

    costs: list[int] = []
    for pods in (100, 400):
        told_of_many(story, pods, 10)
    assert costs[1] - costs[0] < 15 * 300  # the rest of it is the same


def test_nodes_that_are_gone_leave_nothing_in_the_ledger() -> None:
    async def story(world: LargeWorld) -> None:
        for name in world.given:
            world.nodes.remove(Key("", name))
        world.nodes.remove(Key("", "n"))
        assert world.ledger._versions == {}
        before = world.ledger.version("n00000")
        world.nodes.put(Node(metadata=Meta(name="n00000")))
        assert world.ledger.version("n00000") != before

    told_of_many(story, 0, 3)


def test_a_pod_that_outlives_its_node_leaves_nothing_in_the_ledger_either() -> None:
    async def story(world: LargeWorld) -> None:
        spec = PodSpec(node_name="n00000", containers=(Container(),))
        pod = Pod(metadata=Meta(name="late", namespace="ns", uid="late-uid"), spec=spec, status=PodStatus(phase="Running"))
        world.pods.put(pod)
        world.nodes.remove(Key("", "n00000"))
        world.pods.remove(pod.key)
        assert "n00000" not in world.ledger._versions

    told_of_many(story, 0, 3)


def test_whether_its_job_covers_each_pod_is_worked_out_once_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counted(*said: Any, **more: Any) -> str:
        nonlocal asked
        asked += 1
        return exceeds(*said, **more)

    async def story(world: LargeWorld) -> None:
        world.create()
        await world.starts()
        await world.until(lambda: world.bound == world.number)

    monkeypatch.setattr(binding, "exceeds", counted)
    told_of_many(story, 200, 50)
    assert asked == 1


def test_a_pod_whose_index_is_known_later_takes_its_place_among_the_others() -> None:
    async def story(world: LargeWorld) -> None:
        world.create()
        key = next(iter(world.membership.keys()))
        world.change("train-0", annotations={"batch.kubernetes.io/job-completion-index": "9"})
        assert [pod.metadata.name for pod in world.membership.in_rank_order(key)] == ["train-1", "train-2", "train-0"]

    told_of_many(story, 3, 3)
