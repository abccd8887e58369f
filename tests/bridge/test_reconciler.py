"""The loop, with both sides in memory: what a watch, an API server and Slurm do to it in an awkward order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from slinky.bridge.directions import MOST_AVOIDED
from slinky.bridge.keeping import SWEEP_SECONDS, Keeper
from slinky.bridge.keys import JOB_ID, SETTINGS
from slinky.bridge.policy import Policy
from slinky.bridge.settings import Settings
from slinky.bridge.submission import Submission
from slinky.bridge.submitting import MOST_REQUEUES, PARKED
from slinky.bridge.task import PerTask
from slinky.bridge.workload import Workload, WorkloadKey
from slinky.kube import Key, Meta
from slinky.slurm import RefusedError
from slinky.slurm.answers import failed_answer
from tests.bridge.both_sides import World, runs, told


def test_a_pods_whole_way_leaves_nothing_behind() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        world.ends("a", "Succeeded")
        await world.until(lambda: not world.pod("a").metadata.finalizers)
        assert world.acts == ["submit 1 x1", "bind a", "end 1 0"]
        await world.until(lambda: not world.loop.knowledge.owners)
        assert +world.metrics._pods == {"over": 1}
        world.pods.remove(Key("ns", "a"))
        await world.until(world.is_empty)
        assert not world.ledger._counted
        assert not +world.metrics._pods

    told(story)


def test_a_job_that_ends_while_its_allocation_is_asked_for_binds_nothing() -> None:
    """Slurm was slow to answer, and by then had told that the job is over."""

    async def story(world: World) -> None:
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.answers.clear()
        world.set_job(1, "RUNNING")
        await world.until(lambda: world.allocations_asked)
        world.set_job(1, "PREEMPTED")
        await world.until(lambda: world.poller.states[1].is_finished)
        world.answers.set()
        await world.until(lambda: 2 in world.held)
        assert "bind a" not in world.acts

    told(story)


def test_a_pod_that_is_deleted_while_it_is_bound_is_let_go_and_its_job_ended() -> None:
    """The API server refuses to bind a pod that is being deleted."""

    async def story(world: World) -> None:
        world.refuse_binding.add("a")
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: Key("ns", "a") not in world.pods)
        await world.until(world.is_empty)
        assert world.acts == ["submit 1 x1", "end 1 None"]
        assert not world.ledger._counted

    told(story)


def test_a_pod_that_vanishes_while_it_is_submitted_leaves_no_job() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await world.until(lambda: world.tries)
        world.pods.remove(Key("ns", "a"))
        await world.until(lambda: world.acts == ["submit 1 x1", "end 1 None"])
        await world.until(world.is_empty)

    told(story)


def test_while_slurm_is_down_submits_come_later_and_later_and_go_on_soon_after() -> None:
    async def story(world: World) -> None:
        world.down = True
        world.make("a")
        await asyncio.sleep(600)
        assert 10 < world.tries < 60
        world.down = False
        await world.until(lambda: world.held, seconds=45)
        assert world.acts == ["submit 1 x1"]

    told(story)


def test_a_job_whose_submit_was_never_answered_is_ended_where_its_pod_is_gone_by_then() -> None:
    async def story(world: World) -> None:
        world.lose_answers = 1
        world.make("a")
        await world.until(lambda: world.down)
        world.pods.remove(Key("ns", "a"))
        await asyncio.sleep(60)
        world.down = False
        await world.until(lambda: world.acts == ["submit 1 x1", "end 1 None"])
        await world.until(world.is_empty)

    told(story)


def test_a_job_whose_submit_was_never_answered_is_found_before_another_is_made() -> None:
    """Also where another pod has come in the stead of one of those it was for."""

    async def story(world: World) -> None:
        world.lose_answers = 1
        world.gang("a", "b")
        await world.until(lambda: world.down)
        world.pods.remove(Key("ns", "b"))
        world.make("c", gang=True)
        world.down = False
        await runs(world, 1, "a", "c")
        assert world.acts == ["submit 1 x2", "bind a", "bind c"]

    told(story)


def test_a_submit_that_was_lost_on_the_way_is_made_again() -> None:
    async def story(world: World) -> None:
        world.lose_answers = 1
        world.make("a")
        await world.until(lambda: world.down)
        world.held.clear()
        world.down = False
        await runs(world, 1, "a")
        assert world.acts == ["submit 1 x1", "submit 1 x1", "bind a"]

    told(story)


def test_a_gang_that_loses_a_member_gives_its_job_back_and_gets_another_when_it_is_whole() -> None:
    async def story(world: World) -> None:
        world.gang("a", "b")
        await world.until(lambda: 1 in world.held)
        world.delete("b")
        await world.until(lambda: "end 1 None" in world.acts)
        await world.until(lambda: not world.pod("a").metadata.labels)
        world.make("c", gang=True)
        await runs(world, 2, "a", "c")
        assert "evict a" not in world.acts

    told(story)


def test_a_job_that_slurm_ends_takes_its_pods_with_it() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await runs(world, 1, "a")
        world.set_job(1, "PREEMPTED")
        await world.until(lambda: "evict a" in world.acts)
        world.ends("a")
        await world.until(world.is_empty)
        assert "end 1" not in " ".join(world.acts)

    told(story)


def test_a_job_that_another_leader_left_waiting_counts_in_the_window() -> None:
    async def story(world: World) -> None:
        world.make("a")
        await world.until(lambda: world.held)
        key = WorkloadKey("Pod", "ns", "a-uid")
        world.window.leave(key)
        world.loop.queue.add(key)
        await world.until(lambda: world.window.inside == 1)

    told(story)


def test_a_node_that_kubernetes_refuses_sends_the_workload_back_into_the_queue_without_it() -> None:
    async def story(world: World) -> None:
        world.slurm_nodes = ["m", "n"]
        world.unfit = {"n": "node n has a taint"}
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.priorities[1] = 700
        world.set_job(1, "RUNNING")
        await world.until(lambda: 2 in world.held)
        assert world.held[1].is_finished
        known = world.loop.known[WorkloadKey("Pod", "ns", "a-uid")]
        await world.until(lambda: known.where is not None and known.job_id == 2)
        assert known.where
        assert known.where[0].excluded == ("n",)
        assert [act for act in world.acts if act.startswith(("submit", "end", "priority"))] == [
            "submit 1 x1",
            "end 1 None",
            "submit 2 x1",
            "priority 2 700",
        ]
        assert not world.pod("a").metadata.labels.get(JOB_ID) or world.pod("a").metadata.labels[JOB_ID] == "2"
        world.unfit = {}
        world.set_job(2, "RUNNING")
        await world.until(lambda: world.pod("a").spec.node_name)
        assert known.requeues == 0

    told(story)


def test_a_node_that_was_refused_is_judged_again_when_it_changes_and_the_reason_is_the_true_one() -> None:
    async def story(world: World) -> None:
        world.unfit = {"n": "node n has no free port 80/TCP: pod ns/foreign has it"}
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        known = world.loop.known[WorkloadKey("Pod", "ns", "a-uid")]
        await world.until(lambda: known.parked)
        assert "pod ns/foreign has it" in known.parked
        assert "pod ns/foreign has it" in world.comments[1]
        assert world.comments[1].startswith("cancelled by slurm-bridge: ")
        world.unfit = {}
        me: Any = world
        loop = world.loop
        keeper = Keeper(me, world.directions, loop.waiting, loop.lookup, loop.queue.add, loop.is_still_own, world.membership.pods)
        async with running(keeper):
            await asyncio.sleep(3 * SWEEP_SECONDS)
            parkings = known.parkings
            world.directions.node_changed("other")
            keeper.pods_changed()
            await asyncio.sleep(3 * SWEEP_SECONDS)
            assert (1 in world.held, 2 in world.held, known.parkings) == (True, False, parkings), "nothing tells that it is over"
            assert not known.depends_on_pods, "only by what it avoids it is known that pods matter"
            world.directions.node_changed("n")  # as the leader says of a node from which a pod is gone
            keeper.pods_changed()
            await world.until(lambda: 2 in world.held, seconds=3 * SWEEP_SECONDS)
            await runs(world, 2, "a")

    told(story)


@asynccontextmanager
async def running(keeper: Keeper) -> AsyncIterator[None]:
    task = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        task.cancel()


def test_nodes_that_are_avoided_are_remembered_up_to_a_number() -> None:
    async def story(world: World) -> None:
        first = world.directions.avoid("n0", "why")
        for number in range(MOST_AVOIDED):
            world.directions.avoid(f"m{number}", "why")
        assert len(world.directions._versions) == MOST_AVOIDED
        assert world.directions._still_avoided({"n0": first}) == {}  # forgotten, so it is judged again

    told(story)


def test_a_workload_is_sent_back_a_limited_number_of_times_and_then_parked() -> None:
    async def story(world: World) -> None:
        world.slurm_nodes = ["m", "n"]
        world.unfit = {"n": "node n has a taint"}
        world.make("a")
        for number in range(1, MOST_REQUEUES + 2):
            await world.until(partial(world.held.get, number))
            world.set_job(number, "RUNNING")
        known = world.loop.known[WorkloadKey("Pod", "ns", "a-uid")]
        await world.until(lambda: known.parked)
        assert known.parked == f"cancelled and submitted again {MOST_REQUEUES + 1} times in a row: node n has a taint"
        await world.until(lambda: world.held[MOST_REQUEUES + 1].is_finished)
        assert not world.pod("a").metadata.labels.get(JOB_ID)
        world.unfit = {}
        world.loop.slurm_nodes_changed()
        await runs(world, MOST_REQUEUES + 2, "a")
        assert known.requeues == 0

    told(story)


def test_a_job_whose_allocation_has_too_little_room_is_given_back() -> None:
    async def story(world: World) -> None:
        world.slurm_nodes = ["m", "n"]
        world.given = []
        world.make("a")
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: 2 in world.held)
        assert world.held[1].is_finished
        world.given = ["n"]
        await runs(world, 2, "a")

    told(story)


def test_a_replacement_does_not_go_to_a_node_that_its_job_has_lost() -> None:
    async def story(world: World) -> None:
        world.slurm_nodes = world.given = ["m", "n"]
        node = world.nodes.get("n")
        assert node
        world.nodes.put(msgspec.structs.replace(node, metadata=Meta(name="m")))
        world.gang("a", "b", completions=4)
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: world.pod("a").spec.node_name and world.pod("b").spec.node_name)
        lost = world.pod("a").spec.node_name
        world.given = [node for node in ("m", "n") if node != lost]
        world.ends("a", "Failed")
        world.make("c", gang=True)
        key = WorkloadKey("Job", "ns", "train")
        await world.until(lambda: any(pod.metadata.name == "c" for pod in world.membership.pods(key)))
        await asyncio.sleep(20)
        assert not world.pod("c").spec.node_name
        world.given = ["m", "n"]
        world.loop.queue.add(key)
        await world.until(lambda: world.pod("c").spec.node_name)
        assert world.pod("c").spec.node_name == lost

    told(story)


def test_what_slurm_refuses_twice_is_told_and_not_tried_every_second() -> None:
    async def story(world: World) -> None:
        world.slurm_nodes = ["m", "n"]
        world.seen_unfit = {"m": "node m has a taint"}
        world.refuse_submit = RefusedError("Invalid feature specification", number=2029)
        world.make("a")
        key = WorkloadKey("Pod", "ns", "a-uid")
        await world.until(lambda: key in world.loop.known and world.loop.known[key].parked)
        assert "Invalid feature specification" in world.loop.known[key].parked
        assert world.tries == 2
        world.refuse_submit = None
        world.loop.known[key].parked_until = 0.0
        world.loop.queue.add(key)
        await runs(world, 1, "a")
        assert not world.loop.known[key].too_large

    told(story)


def test_a_token_that_slurm_does_not_accept_parks_nothing() -> None:
    """6010 is what slurmctld says to a submit with the token of a user it does not know."""

    async def story(world: World) -> None:
        fault = failed_answer("POST /job/submit", True, 500, b'{"errors": [{"error_number": 6010, "error": "Rejecting user nobody"}]}')
        world.refuse_submit = fault.error
        world.make("a")
        key = WorkloadKey("Pod", "ns", "a-uid")
        await world.until(lambda: world.tries > 2)
        assert not world.loop.known[key].parked
        world.refuse_submit = None
        await runs(world, 1, "a")

    told(story)


def test_what_slurm_refuses_for_want_of_a_node_is_tried_again_at_once_and_when_nodes_change() -> None:
    """Slurm says so for moments after nodes were made, and while the only one that fits is drained."""

    async def story(world: World) -> None:
        world.refuse_submit = RefusedError("Requested node configuration is not available", number=2014)
        world.make("a")
        key = WorkloadKey("Pod", "ns", "a-uid")
        await world.until(lambda: key in world.loop.known and world.loop.known[key].parked)
        assert world.tries == 2
        world.refuse_submit = None
        world.loop.slurm_nodes_changed()
        assert world.loop.known[key].parked_until == 0.0
        await runs(world, 1, "a")

    told(story)


def test_what_no_node_will_take_waits_in_the_bridge() -> None:
    async def story(world: World) -> None:
        world.seen_unfit = {"n": "node n is cordoned"}
        world.make("a")
        key = WorkloadKey("Pod", "ns", "a-uid")
        await world.until(lambda: key in world.loop.known and world.loop.known[key].parked)
        assert "node n is cordoned" in world.loop.known[key].parked
        assert not world.held
        world.seen_unfit = {}
        world.loop.slurm_nodes_changed()
        await runs(world, 1, "a")

    told(story)


def test_what_the_policy_refuses_is_parked_until_something_else_is_said_or_the_namespace_has_other_labels() -> None:
    account = {f"{SETTINGS}account": "rich"}

    async def story(world: World) -> None:
        world.make("a")
        world.change("a", annotations=account)
        key = WorkloadKey("Pod", "ns", "a-uid")
        await world.until(lambda: key in world.loop.known and world.loop.known[key].parked)
        why = f"annotation {SETTINGS}account is 'rich', and namespace ns may name no account: leave it out"
        assert world.loop.known[key].parked == why
        assert world.tries == 0
        began = asyncio.get_running_loop().time()
        world.change("a", annotations={})
        await world.until(lambda: world.held)
        world.change("a", annotations=account)  # to no effect, now that it has a job
        await runs(world, 1, "a")
        world.make("b")
        world.change("b", annotations=account)
        other = WorkloadKey("Pod", "ns", "b-uid")
        await world.until(lambda: other in world.loop.known and world.loop.known[other].parked)
        world.granted = Policy(msgspec.convert({"policy": {"default": {"accounts": ["rich"]}}}, Settings)).grant("ns", {})
        world.loop.namespace_changed("ns")
        await world.until(lambda: 2 in world.held)
        assert asyncio.get_running_loop().time() - began < PARKED.first
        assert world.acts == ["submit 1 x1", "bind a", "submit 2 x1"]

    told(story)


def test_a_namespace_that_is_not_known_yet_is_waited_for() -> None:
    async def story(world: World) -> None:
        granted, world.granted = world.granted, None
        world.make("a")
        await asyncio.sleep(5)
        assert world.tries == 0
        world.granted = granted
        await runs(world, 1, "a")

    told(story)


def test_who_waited_for_a_node_and_is_gone_is_forgotten_though_the_node_is_never_free() -> None:
    async def story(world: World) -> None:
        world.make("large", cpus=64)
        await runs(world, 1, "large")
        world.make("a", cpus=1)
        await world.until(lambda: 2 in world.held)
        world.set_job(2, "RUNNING")
        await world.until(lambda: world.loop.binder._waiting)
        world.delete("a")
        await world.until(lambda: len(world.loop.known) == 1)
        assert not world.loop.binder._waiting

    told(story)


def test_a_pod_that_requests_more_than_its_part_of_the_job_is_never_bound(caplog: pytest.LogCaptureFixture) -> None:
    """The last guard: the job was changed in Slurm, or was submitted by a release that counted otherwise."""

    async def story(world: World) -> None:
        submit = world.submit

        async def less(workload: Workload, *more: Any) -> Submission:
            return msgspec.structs.replace(await submit(workload, *more), task=PerTask(cpus=1, memory=256))

        world.submit = less  # type: ignore[method-assign, assignment]
        world.make("a", cpus=4)
        await world.until(lambda: 1 in world.held)
        world.set_job(1, "RUNNING")
        await world.until(lambda: "end 1 None" in world.acts)
        assert "bind a" not in world.acts
        [known] = world.loop.known.values()
        assert not known.avoided, "no other node would help"
        world.submit = submit  # type: ignore[method-assign]
        await world.until(lambda: 2 in world.held)
        assert "pod ns/a requests 4 CPUs, but its share of the job is 1 (job 1, node n)" in caplog.text

    told(story)
