"""When a pod gets its job's label, with both sides in memory, and what rests on that. Time is virtual: a minute in which nothing may happen costs none."""

import asyncio
from functools import partial

from slinky.bridge.keys import JOB_ID
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Key
from tests.bridge.both_sides import World, runs, told


def test_a_label_goes_along_with_the_binding_or_by_itself_if_that_takes_long() -> None:
    async def story(world: World) -> None:
        world.make("quick")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: world.pod("quick").spec.node_name)
        assert world.pod("quick").metadata.labels[JOB_ID] == "1"
        assert world.labels_written == 0
        world.make("waits")
        await world.until(lambda: world.pod("waits").metadata.labels.get(JOB_ID) == "2")
        assert world.labels_written == 1
        assert not world.pod("waits").spec.node_name

    told(story)


def test_an_api_server_that_takes_no_labels_with_a_binding_gets_them_before_it() -> None:
    async def story(world: World) -> None:
        world.takes_labels = False
        for number, name in enumerate(("first", "second"), start=1):
            world.make(name)
            await world.until(partial(world.held.get, number))
            world.set_job(number, "RUNNING")
            await runs(world, number, name)
        assert world.labels_written == 2
        assert not world.labels_go_along

    told(story)


def test_a_job_that_is_cancelled_before_its_label_is_written_takes_its_pod_along() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "CANCELLED")
        await world.until(lambda: "evict a" in world.acts)
        assert len(world.held) == 1

    told(story)


def test_of_a_gang_whose_submit_was_never_answered_all_go_when_its_job_is_cancelled_before_all_have_its_label() -> None:
    """Whoever stayed would wait for the others for ever. And none goes before all have it: who leads next could not tell that the rest is to follow."""

    async def story(world: World) -> None:
        world.lose_answers, world.out_of_reach = 1, {"b"}
        world.gang("a", "b")
        await world.until(lambda: world.down)
        world.down = False
        await world.until(lambda: world.pod("a").metadata.labels)
        world.set_job(1, "CANCELLED")
        await asyncio.sleep(60)
        assert world.acts == ["submit 1 x2"]
        world.out_of_reach = set()
        await world.until(lambda: {"evict a", "evict b"} <= set(world.acts))

    told(story)


def test_a_gang_whose_job_is_cancelled_right_after_its_submit_has_its_label_before_the_first_of_it_goes() -> None:
    async def story(world: World) -> None:
        world.out_of_reach = {"b"}
        world.gang("a", "b")
        await world.until(lambda: 1 in world.held)
        assert not world.labels_written, "it goes along with their Bindings"
        world.set_job(1, "CANCELLED")
        await asyncio.sleep(60)
        assert world.acts == ["submit 1 x2"]
        world.out_of_reach = set()
        await world.until(lambda: {"evict a", "evict b"} <= set(world.acts))

    told(story)


def test_one_whose_binding_was_lost_has_its_label_before_the_first_of_its_gang_goes() -> None:
    """Nobody knows whether it is there: so it is written again."""

    async def story(world: World) -> None:
        world.gang("a", "b")
        world.lost_bindings = {"b"}
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: world.pod("a").spec.node_name)
        await asyncio.sleep(1)
        world.out_of_reach = {"b"}
        world.set_job(1, "CANCELLED")
        await asyncio.sleep(60)
        assert world.acts == ["submit 1 x2", "bind a"]
        world.out_of_reach = set()
        await world.until(lambda: {"evict a", "evict b"} <= set(world.acts))

    told(story)


def test_a_pod_that_has_its_job_to_itself_goes_whether_its_label_was_written_or_not() -> None:
    async def story(world: World) -> None:
        world.out_of_reach = {"a"}
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "CANCELLED")
        await world.until(lambda: "evict a" in world.acts)

    told(story)


def test_a_pod_that_vanishes_before_its_label_is_written_is_not_looked_for_without_end() -> None:
    async def story(world: World) -> None:
        world.gang("a", "b", completions=2)
        await world.until(lambda: 1 in world.held)
        world.pods.remove(Key("ns", "b"))
        known = world.loop.known[WorkloadKey("Job", "ns", "train")]
        await world.until(lambda: not known.unwritten)

    told(story)
