"""Pods that wait for each other, on the real servers: a submit limit keeps the order, and pods that may not share a place are submitted one after the other."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slinky.bridge.keys import JOB_ID
from slinky.bridge.lines import PATIENCE, STEP
from slinky.kube import PODS
from slinky.sandbox.bridge import SandboxBridge
from slinky.sandbox.handle import Sandbox
from slinky.slurm import Job
from tests.bridge_sandbox.conftest import Team, background_bridge, open_team
from tests.bridge_sandbox.sets import FOR_EVER, jobset, replicated
from tests.bridge_sandbox.test_whereabouts import labelled, let_start, until_event, with_port, with_spec
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox

HOSTNAME, ZONE = "kubernetes.io/hostname", "example.com/hall"


@pytest.fixture(scope="module")
def whole(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBridge]:
    """A bridge for partition `bridge`, which has all kwok nodes."""
    folder = tmp_path_factory.mktemp("lines")
    settings: dict[str, Any] = {
        "name": "lines",
        "managedNamespaceSelector": {"matchLabels": {"bridge": "lines"}},
        "policy": {"default": {"partitions": ["*"], "accounts": ["*"], "users": ["*"], "groups": ["*"], "qoses": ["*"]}},
        "status": {"seconds": 1, "rate": 50},
    }
    with background_bridge(sandbox, folder, **settings) as found:
        yield found


@asynccontextmanager
async def team_on_all_nodes(sandbox: Sandbox) -> AsyncIterator[Team]:
    async with open_team(sandbox, Partition("bridge", ()), "lines") as team:
        yield team


async def jobs_of(team: Team) -> list[Job]:
    """All that the namespace ever had, as long as Slurm remembers them."""
    return [job async for job in team.slurm.jobs.stream() if job.name.startswith(f"{team.namespace}/")]


def apart(team: Team, name: str, key: str = HOSTNAME) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": key}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return with_spec(team.pod(name, labels={"app": "apart"}), affinity=affinity)


async def nodes_of(team: Team, names: list[str]) -> list[str]:
    return [pod.spec.node_name for pod in await team.until_running(*names)]


async def test_thirty_pods_that_keep_apart_cost_thirty_jobs(sandbox: Sandbox, whole: SandboxBridge) -> None:
    assert whole
    async with team_on_all_nodes(sandbox) as team:
        names = [f"p{number}" for number in range(30)]
        await team.create_all([apart(team, name) for name in names])
        assert len(set(await nodes_of(team, names))) == 30
        assert len(await jobs_of(team)) <= 35


async def test_on_a_full_cluster_pods_that_keep_apart_are_queued_soon_and_find_their_nodes_when_it_empties(team: Team) -> None:
    """Slurm puts several on one node then: all but one are given back, and go one after the other."""
    await let_start(team, yes=False)
    names = [f"p{number}" for number in range(4)]
    await team.create_all([apart(team, name) for name in names])

    async def all_are_queued() -> bool:
        return len([job for job in await jobs_of(team) if job.is_pending]) == 4

    await team.until("all four were in Slurm's queue", all_are_queued, PATIENCE + 4 * STEP)
    await let_start(team, yes=True)
    assert len(set(await nodes_of(team, names))) == 4
    assert len(await jobs_of(team)) <= 4 + 3 + 2


async def test_pods_with_one_host_port_cost_a_job_each(sandbox: Sandbox, whole: SandboxBridge) -> None:
    assert whole
    async with team_on_all_nodes(sandbox) as team:
        names = [f"p{number}" for number in range(20)]
        await team.create_all([with_port(team.pod(name), 7100) for name in names])
        assert len(set(await nodes_of(team, names))) == 20
        assert len(await jobs_of(team)) <= 23


async def test_a_spread_over_zones_costs_a_job_each(team: Team) -> None:
    first, second, *_ = nodes = team.partition.nodes
    zones = {node: {ZONE: "a" if node in (first, second) else "b"} for node in nodes}
    constraint = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }
    async with labelled(team, zones):
        names = [f"p{number}" for number in range(12)]
        even = [with_spec(team.pod(name, labels={"app": "even"}), topologySpreadConstraints=[constraint]) for name in names]
        await team.create_all(even)
        found = await nodes_of(team, names)
        assert sum(zones[node][ZONE] == "a" for node in found) == 6
        assert len(await jobs_of(team)) <= 14


async def test_jobs_with_a_node_each_cost_two_slurm_jobs_each(team: Team) -> None:
    """Of a JobSet with exclusive topology: one for the leader, one for the workers."""
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": HOSTNAME}
    await team.create(jobset(team, "x", replicated(team, "w", 4, 2, run_for=FOR_EVER), annotations=exclusive))

    async def bound() -> bool:
        found = [pod for pod in await team.pods() if pod.spec.node_name]
        return len(found) == 8 and len({pod.spec.node_name for pod in found}) == 4

    await team.until("four Jobs of two pods had a node each", bound, 90)
    assert len(await jobs_of(team)) <= 9


async def test_where_nodes_run_out_the_rest_waits_without_jobs(team: Team) -> None:
    names = [f"p{number}" for number in range(7)]
    await team.create_all([apart(team, name) for name in names])

    async def settled() -> bool:
        pods = await team.pods()
        said = [pod.condition("slinky.slurm.net/Slurm") for pod in pods if not pod.spec.node_name]
        return len(said) == 3 and all(found is not None and found.reason == "Parked" for found in said)

    await team.until("four ran and three said why they wait", settled, 90)
    assert len(await jobs_of(team)) <= 5
    [gone, *_] = [pod.metadata.name for pod in await team.pods() if pod.spec.node_name]
    await team.kube.delete(PODS, gone, team.namespace, grace_seconds=0)

    async def another() -> bool:
        return sum(bool(pod.spec.node_name) for pod in await team.pods() if pod.metadata.name != gone) == 4

    await team.until("another took the free node", another)


async def test_a_job_that_is_given_back_says_why_in_its_comment(team: Team) -> None:
    """The port is taken after the submit, on the only node that the pod asks for; and the pod goes there when it is free."""
    node = team.partition.nodes[0]
    await let_start(team, yes=False)
    pinned = with_spec(with_port(team.pod("pinned"), 7201), nodeSelector={HOSTNAME: node})
    await team.create(pinned)
    [first] = await team.until_labelled("pinned")
    foreign = with_spec(with_port(team.pod("foreign"), 7201), nodeName=node, schedulerName="somebody-else")
    await team.create(foreign)
    await let_start(team, yes=True)
    message = await team.until_condition("pinned", "Parked")
    assert f"no free port 7201/TCP: pod {team.namespace}/foreign has it" in message
    assert "did not work out" not in message
    given_back = await team.slurm.jobs.get(first)
    assert given_back.comment.startswith("cancelled by slurm-bridge: ")
    assert "7201" in given_back.comment
    await team.kube.delete(PODS, "foreign", team.namespace, grace_seconds=0)
    [pod] = await team.until_running("pinned")
    assert pod.spec.node_name == node


async def limit(team: Team, user: str, most: int) -> None:
    """Jobs that the user may have in Slurm, in account physics."""
    await team.head("sacctmgr", "-i", "-Q", "modify", "user", user, "where", "account=physics", "set", f"MaxSubmitJobs={most}")


async def test_a_submit_limit_keeps_the_order(sandbox: Sandbox, whole: SandboxBridge) -> None:
    assert whole
    async with team_on_all_nodes(sandbox) as team:
        said = {"user-id": "alice", "group-id": "users", "account": "physics"}
        await limit(team, "alice", 2)
        try:
            for number in range(8):
                await team.create(team.pod(f"p{number}", said=said))
            await team.until_running("p0", "p1")
            message = await team.until_condition("p4", "SubmitLimit")
            assert "it is number 3 in line" in message
            scheduled = (await team.get("p4")).condition("PodScheduled")
            assert scheduled
            assert scheduled.reason == "WaitingForSlurm"
            for number in range(6):
                await team.kube.delete(PODS, f"p{number}", team.namespace, grace_seconds=0)
                await team.until_running(f"p{number + 2}")
                later = [pod for pod in await team.pods() if int(pod.metadata.name[1:]) > number + 2]
                assert not any(JOB_ID in pod.metadata.labels for pod in later)
        finally:
            await limit(team, "alice", -1)


async def test_a_pod_that_is_too_large_for_a_limit_does_not_hold_up_the_line(sandbox: Sandbox, whole: SandboxBridge) -> None:
    """Slurm gives the same error for a submit limit and for a job that is too large."""
    assert whole
    async with team_on_all_nodes(sandbox) as team:
        said = {"user-id": "alice", "group-id": "users", "account": "physics", "qos": "tight"}
        manager = ("sacctmgr", "-i", "-Q")  # the QoS is for this test alone, and goes with the sandbox
        await team.head(*manager, "add", "qos", "tight", "MaxTRESPerJob=cpu=2", "Flags=DenyOnLimit")
        await team.head(*manager, "modify", "user", "alice", "where", "account=physics", "set", "qos+=tight")
        await team.create(team.pod("large", cpus=4, said=said))
        await team.until_condition("large", "SubmitLimit")
        await team.create_all([team.pod(f"p{number}", said=said) for number in range(4)])
        await team.until_running(*(f"p{number}" for number in range(4)))
        assert "accounting" in await team.until_condition("large", "Parked")
        await until_event(team, "large", "Parked")
