"""The next pod starts when the last one's containers are gone, whatever ended the last one: by what ran, with containers that take 60 seconds to stop. While these go on in the background: what is done to a job in Slurm, and shows on its pods."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from slinky.bridge.keys import JOB_ID
from slinky.bridge.node_description import Wanted, wish_of
from slinky.bridge.node_plan import has_same_shape
from slinky.bridge.settings import NodeSettings, Settings
from slinky.kube import EVENTS, Meta, Node
from slinky.kube.objects import NodeStatus
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from slinky.sandbox.sink import ADDRESS
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team, open_team
from tests.bridge_sandbox.endings import NODES_OF, STORIES, Background, Case, Ended, let_go, partition_of, prepared
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def background(sandbox: Sandbox, bridge: SandboxBridge) -> Iterator[Background]:
    assert bridge
    found = Background()
    stack = AsyncExitStack()

    async def begin() -> None:
        await stack.enter_async_context(prepared(sandbox))
        team = await stack.enter_async_context(open_team(sandbox, Partition("bridge", ())))
        stack.push_async_callback(let_go, team)
        for name, story in STORIES.items():
            found.cases[name] = asyncio.run_coroutine_threadsafe(story(Case(team, name)), found.loop)

    try:
        found.call(begin())
        yield found
        found.call(stack.aclose())
    finally:
        found.end()


@pytest.fixture
async def team(sandbox: Sandbox, background: Background) -> AsyncIterator[Team]:
    """In the partition whose nodes a sink answers for."""
    assert background
    async with open_team(sandbox, Partition(partition_of("gang"), tuple(NODES_OF["gang"]))) as found:
        yield found


async def until_event(team: Team, name: str, reason: str) -> str:
    async def notes() -> list[str]:
        found = (await team.kube.list(EVENTS, team.namespace)).items
        return [event.note for event in found if event.regarding.name == name and event.reason == reason]

    async def told() -> bool:
        return bool(await notes())

    await team.until(f"pod {name} had an Event {reason}", told)
    return (await notes())[0]


async def healthy(team: Team, *nodes: str) -> bool:
    return all([(await team.slurm.nodes.get(node)).is_responding for node in nodes])


async def test_a_gang_gives_nodes_back_that_none_of_its_pods_will_use(team: Team) -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "ring", "annotations": team.said()},
        "spec": {"minMember": 2},
    }
    labels = {"scheduling.x-k8s.io/pod-group": "ring"}
    short, long = (team.pod(name, cpus=64, run_for=run_for, labels=labels) for name, run_for in (("short", "3s"), ("long", "")))
    await team.create(short, long, group)
    await team.until_running("short", "long")
    pod = await team.get("long")
    job_id = int(pod.metadata.labels[JOB_ID])

    async def smaller() -> bool:
        return (await team.slurm.jobs.get(job_id)).nodes == pod.spec.node_name

    await team.until("the job had one node", smaller)
    await team.create(team.pod("next", cpus=64))
    [following] = await team.until_running("next")
    assert following.spec.node_name != pod.spec.node_name
    assert (await team.get("long")).status.phase == "Running"
    assert await healthy(team, *NODES_OF["gang"])
    await team.create(team.pod("late", labels=labels))
    await team.until_labelled("late")
    assert int((await team.get("late")).metadata.labels[JOB_ID]) != job_id, "its slot is gone, so it gets a job of its own"


async def test_a_suspended_job_keeps_its_pods_and_says_so(team: Team) -> None:
    await team.create(team.pod("p"))
    await team.until_running("p")
    [job_id] = await team.until_labelled("p")
    await team.head("scontrol", "suspend", str(job_id))
    assert "its pods run on" in await team.until_condition("p", "Suspended")
    assert "is suspended" in await until_event(team, "p", "Suspended")
    await team.head("scontrol", "resume", str(job_id))
    await team.until_condition("p", "Running")
    pod = await team.get("p")
    assert (pod.status.phase, pod.metadata.deletion_timestamp) == ("Running", None)
    assert await healthy(team, *NODES_OF["gang"])


async def test_a_hold_and_a_priority_that_somebody_set_show_on_the_pod(team: Team) -> None:
    await team.create(team.pod("fills", cpus=64), team.pod("fills-too", cpus=64))
    await team.until_running("fills", "fills-too")
    await team.create(team.pod("p", cpus=64))
    [job_id] = await team.until_labelled("p")
    await team.head("scontrol", "hold", str(job_id))
    assert "(an administrator holds it)" in await team.until_condition("p", "JobHeldAdmin")
    await team.head("scontrol", "release", str(job_id))
    await team.until_condition("p", "Resources")
    await team.head("scontrol", "uhold", str(job_id))
    assert "(its owner holds it)" in await team.until_condition("p", "JobHeldUser")
    await team.head("scontrol", "release", str(job_id))
    await team.head("scontrol", "update", f"JobId={job_id}", "Priority=424242")

    async def shown() -> bool:
        found = (await team.get("p")).condition("slinky.slurm.net/Slurm")
        return found is not None and found.message.endswith("priority 424242")

    await team.until("the pod said its priority", shown)


async def test_a_requeue_is_refused_by_slurm_and_changes_nothing(team: Team) -> None:
    await team.create(team.pod("p"))
    await team.until_running("p")
    [job_id] = await team.until_labelled("p")
    for command in ("requeue", "requeuehold"):
        said = await team.head("sh", "-c", f"scontrol {command} {job_id} 2>&1 || true")
        assert "Only batch jobs are accepted" in said
    assert (await team.slurm.jobs.get(job_id)).states == ["RUNNING"]
    pod = await team.get("p")
    assert (pod.status.phase, pod.metadata.deletion_timestamp) == ("Running", None)


async def test_nodes_are_registered_with_the_sinks_address_and_port(team: Team) -> None:
    labels = {"scheduler.slinky.slurm.net/external-node": "true"}
    node = Node(metadata=Meta(name="behind-the-sink", labels=labels), status=NodeStatus(allocatable={"cpu": "4", "memory": "4Gi"}))
    wish = wish_of(node, Settings(partition="bridge", nodes=NodeSettings(sink=f"{ADDRESS}:7000")))
    assert isinstance(wish, Wanted)
    await team.slurm.nodes.create(wish.description)
    try:
        found = await team.slurm.nodes.get("behind-the-sink")
        assert (found.address, found.port) == (ADDRESS, 7000)
        assert has_same_shape(found, wish.description)
    finally:
        await team.slurm.nodes.delete("behind-the-sink")


@pytest.mark.parametrize("case", [name for name in STORIES if name != "time limit with time to spare"])
async def test_the_next_pod_starts_when_the_last_ones_containers_are_gone(background: Background, case: str) -> None:
    ended = await asyncio.wrap_future(background.cases[case])
    stopped, started = ran_until(ended), ran_from(ended)
    asked = ended.first.metadata.deletion_timestamp
    assert asked
    assert started >= stopped
    assert stopped - asked.timestamp() > -2, "its grace period, which ends with its deletion timestamp, was its own"


async def test_a_job_that_is_preempted_with_a_grace_time_ends_when_its_containers_are_gone(background: Background) -> None:
    ended = await asyncio.wrap_future(background.cases["preemption with a grace time"])
    assert ended.job.preempt_time
    assert ended.job.state is JobState.CANCELLED, "by the bridge, before its time was up"
    assert "is being preempted" in ended.job.comment
    assert isinstance(ended.job.end_time, int)
    assert ended.job.end_time >= ran_until(ended)


async def test_pods_are_gone_before_their_time_limit_where_their_grace_period_allows(background: Background) -> None:
    ended = await asyncio.wrap_future(background.cases["time limit with time to spare"])
    job = ended.job
    assert isinstance(job.start_time, int)
    assert isinstance(job.end_time, int)
    assert job.state is JobState.CANCELLED
    assert "has reached its time limit" in job.comment
    assert ran_until(ended) <= job.end_time <= job.start_time + 60


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("preemption", "SlurmPreempted"),
        ("preemption with a grace time", "SlurmPreempted"),
        ("scancel", "SlurmCancelled"),
        ("time limit", "SlurmTimeout"),
    ],
)
async def test_an_evicted_pod_says_why(background: Background, case: str, reason: str) -> None:
    found = (await asyncio.wrap_future(background.cases[case])).first.condition("DisruptionTarget")
    assert found
    assert (found.status, found.reason) == ("True", reason)
    assert "Slurm job" in found.message


async def test_a_grace_time_leaves_external_nodes_healthy_behind_a_sink(sandbox: Sandbox, background: Background) -> None:
    await asyncio.wrap_future(background.cases["preemption with a grace time"])
    async with sandbox.slurm_client() as slurm:
        assert (await slurm.nodes.get(NODES_OF["preemption with a grace time"][0])).is_responding


def ran_until(ended: Ended) -> float:
    [status] = ended.first.status.container_statuses
    assert status.state.terminated
    assert status.state.terminated.finished_at
    return status.state.terminated.finished_at.timestamp()


def ran_from(ended: Ended) -> float:
    [status] = ended.second.status.container_statuses
    assert status.state.running
    assert status.state.running.started_at
    return status.state.running.started_at.timestamp()
