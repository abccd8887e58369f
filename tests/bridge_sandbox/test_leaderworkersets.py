"""LeaderWorkerSets as their real controller runs them: each start-up and restart policy, exclusive topology and subgroups, scaled and rolled out."""

from typing import Any

import pytest

from slinky.bridge.keys import JOB_ID
from slinky.bridge.leaderworkersets import place_in_group
from slinky.kube import PODS, PatchKind, Pod
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.sets import SETS, job_id, lws, procids, until_anew, until_bound, until_pods

pytestmark = pytest.mark.sandbox

PREFIX = "leaderworkerset.sigs.k8s.io/"


def _group(pods: list[Pod], index: int) -> list[Pod]:
    return [pod for pod in pods if (place := place_in_group(pod)) and place.group == index]


async def _change(team: Team, name: str, spec: dict[str, Any]) -> None:
    await team.kube.patch(SETS, name, {"spec": spec}, team.namespace, kind=PatchKind.MERGE)


@pytest.mark.parametrize("policy", ["LeaderCreated", "LeaderReady"])
async def test_each_group_is_one_job_led_by_its_leader(team: Team, policy: str) -> None:
    await team.create(lws(team, "serve", 3, 2, startupPolicy=policy))
    pods = await until_bound(team, "serve-", 6)
    jobs = []
    for index in (0, 1):
        group = _group(pods, index)
        assert procids(group) == [0, 1, 2]
        assert [place.worker for pod in group if (place := place_in_group(pod))] == [0, 1, 2]
        job = await team.slurm.jobs.get(job_id(group))
        assert (job.name, job.tasks) == (f"{team.namespace}/serve-{index}", 3)
        jobs.append(job.job_id)
    assert len(set(jobs)) == 2


async def test_two_groups_of_which_one_fits_never_hold_a_half_each(team: Team) -> None:
    """Four nodes, and two groups that want three each: leaders come first, and the second one's is not bound before its workers have room."""
    await team.create(lws(team, "serve", 3, 2, cpus=60, startupPolicy="LeaderReady"))

    async def one() -> bool:
        pods = await team.pods()
        return any(len([pod for pod in _group(pods, index) if pod.status.phase == "Running"]) == 3 for index in (0, 1))

    await team.until("one group ran whole", one)
    pods = await team.pods()
    [waits] = [index for index in (0, 1) if len(_group(pods, index)) == 1]
    [leader] = _group(pods, waits)
    assert not leader.spec.node_name
    [waiting] = await team.until_labelled(leader.metadata.name)
    job = await team.slurm.jobs.get(waiting)
    assert (job.is_pending, job.tasks) == (True, 3)
    running = job_id(_group(pods, 1 - waits))
    await team.head("scancel", str(running))

    async def other() -> bool:
        return len([pod for pod in _group(await team.pods(), waits) if pod.status.phase == "Running"]) == 3

    await team.until("the other group ran whole", other)


async def test_a_leader_that_needs_more_than_its_workers_has_its_own_part_of_one_job(team: Team) -> None:
    """A hetjob, submitted when there is only the leader: its workers' part waits for them."""
    await team.create(lws(team, "uneven", 3, cpus=1, leader=8, startupPolicy="LeaderReady"))
    pods = await until_bound(team, "uneven-", 3)
    assert procids(pods) == [0, 1, 2]
    parts = await team.slurm.jobs.parts(job_id(pods))
    assert [(part.tasks, part.cpus_per_task) for part in parts] == [(1, 8), (2, 1)]
    await team.kube.delete(PODS, pods[2].metadata.name, team.namespace)
    again = await until_anew(team, "uneven-", 3, {pod.metadata.uid for pod in pods}, 90)
    assert (job_id(again), procids(again)) == (job_id(pods), [0, 1, 2]), "all of the group was made anew, each in its own part"


async def test_a_pod_that_is_replaced_takes_its_place(team: Team) -> None:
    """Policy None: the one pod; RecreateGroupOnPodRestart: all of the group; in the same allocation."""
    await team.create(lws(team, "one", 3, restartPolicy="None"))
    await team.create(lws(team, "all", 3, restartPolicy="RecreateGroupOnPodRestart"))
    started = {PREFIX + "experimental-recreate-group-after-start": "true"}
    await team.create(lws(team, "after", 3, restartPolicy="RecreateGroupOnPodRestart", startupPolicy="LeaderReady", annotations=started))
    before = {
        name: await until_pods(team, f"{name}-", 3, lambda pod: pod.status.phase == "Running", "running")
        for name in ("one", "all", "after")
    }
    for pods in before.values():
        await team.kube.delete(PODS, pods[1].metadata.name, team.namespace)
    for name, pods in before.items():
        gone = {pods[1].metadata.uid} if name == "one" else {pod.metadata.uid for pod in pods}
        now = await until_anew(team, f"{name}-", 3, gone, 90)
        assert job_id(now) == job_id(pods), name
        assert procids(now) == [0, 1, 2]
        kept = {pod.metadata.uid for pod in now} & {pod.metadata.uid for pod in pods}
        assert len(kept) == (2 if name == "one" else 0)
        assert (await team.slurm.jobs.get(job_id(now))).is_running


async def test_groups_come_and_go_with_the_sets_size(team: Team) -> None:
    await team.create(lws(team, "serve", 2))
    [first] = {job_id(await until_bound(team, "serve-", 2))}
    await _change(team, "serve", {"replicas": 2})
    second = job_id(_group(await until_bound(team, "serve-", 4), 1))
    await _change(team, "serve", {"replicas": 1})
    await team.until_job(second, JobState.CANCELLED)
    assert job_id(await until_bound(team, "serve-", 2)) == first
    await team.kube.delete(SETS, "serve", team.namespace)
    await team.until_job(first, JobState.CANCELLED)


async def test_a_new_template_keeps_the_allocation_if_that_holds_it(team: Team) -> None:
    """The same needs: the same job. More: another one."""
    await team.create(lws(team, "serve", 2, rolloutStrategy={"rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 1}}))
    before = await until_pods(team, "serve-", 2, lambda pod: pod.status.phase == "Running", "running")
    first = job_id(before)
    pods = lws(team, "serve", 2)["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    pods["metadata"]["labels"] = {"version": "2"}
    await _change(team, "serve", {"leaderWorkerTemplate": {"workerTemplate": pods}})
    second = await until_pods(
        team, "serve-", 2, lambda pod: pod.metadata.labels.get("version") == "2" and pod.status.phase == "Running", "new", 90
    )
    assert job_id(second) == first
    more = lws(team, "serve", 2, cpus=3)["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    more["metadata"]["labels"] = {"version": "3"}
    await _change(team, "serve", {"leaderWorkerTemplate": {"workerTemplate": more}})
    third = await until_pods(
        team, "serve-", 2, lambda pod: pod.metadata.labels.get("version") == "3" and pod.status.phase == "Running", "new", 90
    )
    job = await team.slurm.jobs.get(job_id(third))
    assert (job.job_id > first, job.cpus_per_task) == (True, 3)
    await team.until_job(first, JobState.CANCELLED)


async def test_with_exclusive_topology_workers_follow_their_leader(team: Team) -> None:
    await team.create(lws(team, "x", 3, annotations={PREFIX + "exclusive-topology": "sandbox.slinky.slurm.net/rack"}))
    pods = await until_bound(team, "x-", 3)
    jobs = [await team.job_of(pod.metadata.name) for pod in pods]
    assert [job.name for job in jobs] == [f"{team.namespace}/x-0-{role}" for role in ("leader", "workers", "workers")]
    assert [job.tasks for job in jobs] == [1, 2, 2]
    assert [procids([pod]) for pod in pods] == [[0], [0], [1]]


async def test_subgroups_are_neighbours_in_one_job(team: Team) -> None:
    await team.create(lws(team, "sub", 4, cpus=20, subGroupPolicy={"subGroupSize": 2}))
    pods = await until_bound(team, "sub-", 4)
    assert [pod.metadata.labels[PREFIX + "subgroup-index"] for pod in pods] == ["0", "0", "1", "1"]
    assert procids(pods) == [0, 1, 2, 3]
    assert JOB_ID in pods[0].metadata.labels
    assert (await team.slurm.jobs.get(job_id(pods))).tasks == 4
