"""JobSets as their real controller runs them: each start-up policy, each failure policy, its success policy, suspended and gated."""

from contextlib import suppress
from typing import Any

import pytest

from slinky.bridge.keys import JOB_ID, SETTINGS
from slinky.kube import PODS, ConflictError, NotFoundError, PatchKind, Resource
from slinky.sandbox.handle import Sandbox
from slinky.slurm import JobState
from tests.bridge_sandbox.conftest import Team, open_team
from tests.bridge_sandbox.sets import FOR_EVER, JOBSETS, fail, job_id, jobset, procids, replicated, until_anew, until_bound, until_pods
from tests.conftest import Partition

pytestmark = pytest.mark.sandbox


async def test_without_an_order_a_jobset_is_one_gang_in_rank_order(team: Team, sandbox: Sandbox, partition: Partition) -> None:
    """And another of the same name, in another namespace, is another."""
    async with open_team(sandbox, partition) as other:
        for each in (team, other):
            await each.create(
                jobset(each, "train", replicated(each, "driver", run_for="2s"), replicated(each, "worker", 2, 2, run_for="2s"))
            )
        found = [job_id(await until_bound(each, "train-", 5)) for each in (team, other)]
        assert found[0] != found[1]
        pods = await until_pods(team, "train-", 5)
        assert [pod.metadata.name.rpartition("-")[0] for pod in pods] == [
            f"train-{part}" for part in ("driver-0-0", "worker-0-0", "worker-0-1", "worker-1-0", "worker-1-1")
        ]
        assert procids(pods) == [0, 1, 2, 3, 4]
        job = await team.until_job(found[0], JobState.COMPLETED)
        assert (job.name, job.tasks) == (f"{team.namespace}/train", 5)


async def test_each_start_up_policy_has_its_gangs(team: Team) -> None:
    """In order, and after another is ready: two jobs that run side by side. After it is complete: one after the other."""
    first: dict[str, Any] = {"run_for": "10s"}  # longer than it takes the others to start, on a busy machine too
    order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    await team.create(jobset(team, "inorder", replicated(team, "a", **first), replicated(team, "b", 2), **order))
    for status in ("Ready", "Complete"):
        after: dict[str, Any] = {"dependsOn": [{"name": "a", "status": status}]}
        parts = [replicated(team, "a", **first), replicated(team, "b", 1, 2, **after), replicated(team, "c", **after)]
        await team.create(jobset(team, status.lower(), *parts))
    for name, later, tasks in (("inorder", "b", 2), ("ready", "b", 3), ("complete", "b", 3)):
        pods = await until_pods(team, f"{name}-", 1 + tasks, lambda pod: pod.is_over, "over")
        own = [pod for pod in pods if pod.metadata.name.startswith(f"{name}-a-")]
        rest = [pod for pod in pods if pod not in own]
        jobs = [await team.until_job(job_id(group), JobState.COMPLETED) for group in (own, rest)]
        assert [job.name for job in jobs] == [f"{team.namespace}/{name}-a", f"{team.namespace}/{name}-{later}"]
        assert [job.tasks for job in jobs] == [1, tasks]
        assert jobs[1].submit_time >= jobs[0].start_time  # type: ignore[operator]
        assert (jobs[1].start_time >= jobs[0].end_time) is (name == "complete")  # type: ignore[operator]


AGAIN = {
    "default": {"maxRestarts": 1},
    "blocking": {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"},
    "ignore": {"maxRestarts": 0, "rules": [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]},
    "restart": {"maxRestarts": 1, "rules": [{"name": "r", "action": "RestartJobSet"}]},
}
FAILS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "zero": {"maxRestarts": 0},
    "fail": {"maxRestarts": 5, "rules": [{"name": "r", "action": "FailJobSet"}]},
}


async def test_a_jobset_that_restarts_keeps_its_allocation(team: Team) -> None:
    """One pod fails; all are made anew and take the places of the first ones; the job ends as the last ones did."""
    for name, policy in AGAIN.items():
        await team.create(jobset(team, name, replicated(team, "w", 2, 2, run_for="8s"), failurePolicy=policy))
    first = {name: await until_bound(team, f"{name}-", 4) for name in AGAIN}
    for pods in first.values():
        await fail(team, pods[1])
    for name, before in first.items():
        gone = {pod.metadata.uid for pod in before}
        again = await until_anew(team, f"{name}-", 4, gone)
        assert job_id(again) == job_id(before), name
        assert procids(again) == [0, 1, 2, 3]
    for name, before in first.items():
        job = await team.until_job(job_id(before), JobState.COMPLETED)
        assert job.exit_code is not None
        assert job.exit_code.code == 0, name


async def test_a_jobset_that_failed_ends_its_job_with_the_exit_code(team: Team) -> None:
    for name, policy in FAILS.items():
        await team.create(
            jobset(team, name, replicated(team, "w", 2, 2, run_for=FOR_EVER), **({"failurePolicy": policy} if policy else {}))
        )
    first = {name: await until_bound(team, f"{name}-", 4) for name in FAILS}
    for pods in first.values():
        await fail(team, pods[2])
    for name, pods in first.items():
        job = await team.until_job(job_id(pods), JobState.FAILED)
        assert job.exit_code is not None
        assert job.exit_code.code == 3, name


async def test_a_success_policy_ends_the_job_well(team: Team) -> None:
    done = {"operator": "Any", "targetReplicatedJobs": ["driver"]}
    await team.create(
        jobset(team, "s", replicated(team, "driver", run_for="1s"), replicated(team, "worker", 1, 2, run_for=FOR_EVER), successPolicy=done)
    )
    pods = await until_bound(team, "s-", 3)
    job = await team.until_job(job_id(pods), JobState.COMPLETED)
    assert job.tasks == 3


async def test_a_suspended_jobset_has_no_job_and_gets_one_when_it_goes_on(team: Team) -> None:
    """As Kueue holds it back, admits it, and takes it back."""

    async def suspend(value: bool) -> None:
        await team.kube.patch(JOBSETS, "held", {"spec": {"suspend": value}}, team.namespace, kind=PatchKind.MERGE)

    await team.create(jobset(team, "held", replicated(team, "w", 1, 2, run_for=FOR_EVER), suspend=True))
    await team.create(team.pod("meanwhile"))
    await team.until_running("meanwhile")
    assert not [pod for pod in await team.pods() if pod.metadata.name.startswith("held")]
    await suspend(False)
    first = job_id(await until_bound(team, "held-", 2))
    await suspend(True)
    await team.until_job(first, JobState.CANCELLED)
    await until_pods(team, "held-", 0)
    await suspend(False)
    assert job_id(await until_bound(team, "held-", 2)) > first


async def test_gated_pods_are_not_submitted_until_the_last_gate_is_gone(team: Team) -> None:
    gates = ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]
    await team.create(jobset(team, "gated", replicated(team, "w", 1, 2, run_for=FOR_EVER, gates=gates)))
    pods = await until_pods(team, "gated-", 2)
    for index, pod in enumerate(pods):
        await team.kube.patch(
            PODS,
            pod.metadata.name,
            {"spec": {"schedulingGates": [{"name": gates[0]}] if index else None}},
            team.namespace,
            kind=PatchKind.MERGE,
        )
    await team.create(team.pod("meanwhile"))
    await team.until_running("meanwhile")
    assert not [pod for pod in await until_pods(team, "gated-", 2) if JOB_ID in pod.metadata.labels]
    await team.kube.patch(PODS, pods[1].metadata.name, {"spec": {"schedulingGates": None}}, team.namespace, kind=PatchKind.MERGE)
    assert procids(await until_bound(team, "gated-", 2)) == [0, 1]


async def test_a_jobset_that_wants_no_gang_is_one_job_a_pod(team: Team) -> None:
    await team.create(jobset(team, "loose", replicated(team, "w", 2, 2, run_for=FOR_EVER), said={"gang": "false"}))
    pods = await until_bound(team, "loose-", 4)
    jobs = {int(pod.metadata.labels[JOB_ID]) for pod in pods}
    assert len(jobs) == 4
    assert {(await team.slurm.jobs.get(each)).partition for each in jobs} == {team.partition.name}, "what the set says holds for each"


async def test_with_exclusive_topology_each_jobs_leader_comes_first(team: Team) -> None:
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
    await team.create(jobset(team, "x", replicated(team, "w", 2, 3, run_for=FOR_EVER), annotations=exclusive))
    pods = await until_bound(team, "x-", 6)
    assert len({pod.metadata.labels[JOB_ID] for pod in pods}) == 4
    for number in (0, 1):
        own = [pod for pod in pods if pod.metadata.name.startswith(f"x-w-{number}-")]
        leader = await team.job_of(own[0].metadata.name)
        workers = await team.slurm.jobs.get(job_id(own[1:]))
        assert [job.name for job in (leader, workers)] == [f"{team.namespace}/x-x-w-{number}-{role}" for role in ("leader", "workers")]
        assert (leader.tasks, workers.tasks) == (1, 2)


CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", dict, namespaced=False)
TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", dict)
TRAIN_JOB_KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "trainjobs.trainer.kubeflow.org"},
    "spec": {
        "group": "trainer.kubeflow.org",
        "scope": "Namespaced",
        "names": {"kind": "TrainJob", "plural": "trainjobs", "singular": "trainjob"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_a_train_job_is_scheduled_as_the_jobset_that_it_owns(team: Team) -> None:
    """With no word about its kind anywhere in the bridge."""
    with suppress(ConflictError):
        await team.kube.create(CRDS, TRAIN_JOB_KIND)
    uids: list[str] = []

    async def create() -> bool:
        document = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "llm"}}
        try:
            uids.append((await team.kube.create(TRAIN_JOBS, document, team.namespace))["metadata"]["uid"])
        except NotFoundError:
            return False
        return True

    await team.until("its kind was served", create)
    owned = jobset(team, "llm", replicated(team, "node", 1, 3, run_for=FOR_EVER))
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "llm", "uid": uids[0]}
    owned["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    await team.create(owned)
    pods = await until_bound(team, "llm-", 3)
    assert (procids(pods), (await team.slurm.jobs.get(job_id(pods))).name) == ([0, 1, 2], f"{team.namespace}/llm")


@pytest.mark.parametrize("size", [2, pytest.param(500, marks=pytest.mark.long)])
async def test_gangs_of_any_size_start_as_one(team: Team, size: int) -> None:
    """Of the larger one, all nodes of the sandbox."""
    said = {"partition": "bridge"} if size > 100 else {}
    await team.create(jobset(team, "big", replicated(team, "w", 2, size // 2, run_for=FOR_EVER), said=said))
    pods = await until_bound(team, "big-", size, seconds=300)
    assert procids(pods) == list(range(size))
    assert (await team.slurm.jobs.get(job_id(pods))).tasks == size
    assert SETTINGS + "partition" not in pods[0].metadata.annotations, "the set spoke for them"
    await team.kube.delete(JOBSETS, "big", team.namespace)
    await until_pods(team, "big-", 0, seconds=300)

    async def gone() -> bool:
        return not await team.pods()

    await team.until("all of them were gone", gone, 300)
