"""The status of PodGroups on the real API server; and pods that come when their group's job has no place for them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slinky.bridge.keys import APART, JOB_ID
from slinky.kube import NAMESPACES, PODS, Client, Resource, from_kubeconfig
from slinky.sandbox.bridge import sandbox_bridge
from slinky.sandbox.shape import Shape
from tests.bridge_sandbox.conftest import Team
from tests.bridge_sandbox.sets import procids, until_bound, until_pods
from tests.bridge_sandbox.test_path import job
from tests.conftest import Starter

pytestmark = pytest.mark.sandbox

COSCHEDULING = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", dict)
BUILTIN = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", dict)


async def _until_status(team: Team, resource: Resource[Any], name: str, **wanted: Any) -> dict[str, Any]:
    async def so() -> bool:
        status = (await team.kube.get(resource, name, team.namespace)).get("status", {})
        return all(status.get(key) == value for key, value in wanted.items())

    await team.until(f"the status of {name} was {wanted}", so)
    found: dict[str, Any] = (await team.kube.get(resource, name, team.namespace))["status"]
    return found


async def test_a_coscheduling_groups_status_follows_its_pods(team: Team) -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2}}
    await team.create(group | {"metadata": {"name": "ring", "annotations": team.said()}})
    labels = {"scheduling.x-k8s.io/pod-group": "ring"}
    await team.create(*(team.pod(f"r-{index}", run_for="4s", labels=labels) for index in range(2)))
    running = await _until_status(team, COSCHEDULING, "ring", phase="Running", running=2)
    assert running["scheduleStartTime"]
    finished = await _until_status(team, COSCHEDULING, "ring", phase="Finished", succeeded=2, running=0)
    assert finished["scheduleStartTime"] == running["scheduleStartTime"]
    await team.delete_all()
    await until_pods(team, "r-", 0)
    await _until_status(team, COSCHEDULING, "ring", phase="Finished", succeeded=2)


async def test_a_built_in_groups_condition_says_whether_it_was_scheduled(team: Team) -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    held = team.said(priority="0")
    for name, words in (("held", held), ("runs", team.said())):
        await team.create(
            {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": name, "annotations": words},
                "spec": policy,
            }
        )
        for index in range(2):
            pod = team.pod(f"{name}-{index}")
            pod["spec"]["schedulingGroup"] = {"podGroupName": name}
            await team.create(pod)

    async def said() -> bool:
        found = [(await team.kube.get(BUILTIN, name, team.namespace)).get("status", {}).get("conditions", []) for name in ("held", "runs")]
        return all(found)

    await team.until("both groups had their condition", said)
    conditions = {name: (await team.kube.get(BUILTIN, name, team.namespace))["status"]["conditions"][0] for name in ("held", "runs")}
    assert {each["type"] for each in conditions.values()} == {"PodGroupScheduled"}
    assert (conditions["runs"]["status"], conditions["runs"]["reason"]) == ("True", "Scheduled")
    assert (conditions["held"]["status"], conditions["held"]["reason"]) == ("False", "WaitingForSlurm")
    assert "Slurm job" in conditions["held"]["message"]


async def test_a_pod_that_comes_too_late_for_its_groups_job_is_scheduled_by_itself(team: Team) -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2}}
    await team.create(group | {"metadata": {"name": "ring", "annotations": team.said()}})
    labels = {"scheduling.x-k8s.io/pod-group": "ring"}

    def member(name: str) -> dict[str, Any]:
        pod = team.pod(name, labels=labels)
        pod["metadata"]["annotations"] = {}
        return pod

    await team.create(member("r-0"), member("r-1"))
    gang = await until_bound(team, "r-", 2)
    await team.create(member("late"))
    [late] = await team.until_running("late")
    assert late.metadata.annotations[APART] == "true"
    assert late.metadata.labels[JOB_ID] != gang[0].metadata.labels[JOB_ID]
    assert (await team.job_of("late")).partition == team.partition.name, "what the group says holds for it too"


async def test_a_jobs_pod_for_which_there_is_no_place_waits_and_says_so(team: Team) -> None:
    """Its parallelism was raised while it ran: the next pod has the first place that is free."""
    document = job(team, "grow", 2, completions=3, run_for="8s", gang="true")
    await team.create(document)
    first = await until_bound(team, "grow-", 2)
    jobs = Resource("batch", "v1", "jobs", dict)
    await team.kube.patch(jobs, "grow", {"spec": {"parallelism": 3}}, team.namespace)
    pods = await until_pods(team, "grow-", 3)
    [late] = [pod for pod in pods if pod.metadata.uid not in {each.metadata.uid for each in first}]
    message = await team.until_condition(late.metadata.name, "Surplus")
    assert "was submitted for 2 pods" in message
    bound = await until_bound(team, "grow-", 3)
    assert len({pod.metadata.labels[JOB_ID] for pod in bound}) == 1
    assert sorted(procids(bound)) in ([0, 0, 1], [0, 1, 1])


@pytest.mark.long
async def test_a_later_release_has_another_name_for_the_condition(start_sandbox: Starter, tmp_path: Path) -> None:
    sandbox = await asyncio.to_thread(start_sandbox, "status137", Shape(nodes=2, kubernetes="1.37"))
    groups = Resource("scheduling.k8s.io", "v1beta1", "podgroups", dict)
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "100Mi"}}}
    async with sandbox_bridge(sandbox, tmp_path, managedNamespaces=["team"]), Client(from_kubeconfig(sandbox.kubeconfig)) as kube:
        await kube.create(NAMESPACES.untyped, {"metadata": {"name": "team"}})
        await kube.create(
            groups, {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "ring"}, "spec": policy}, "team"
        )
        for index in range(2):
            spec = {"containers": [container], "schedulingGroup": {"podGroupName": "ring"}}
            await kube.create(PODS.untyped, {"metadata": {"name": f"r-{index}"}, "spec": spec}, "team")

        async def said() -> bool:
            found = (await kube.get(groups, "ring", "team")).get("status", {}).get("conditions", [])
            return [(each["type"], each["status"]) for each in found] == [("PodGroupInitiallyScheduled", "True")]

        await sandbox.until("kube-apiserver", "the group had its condition", said)
        await kube.raw("DELETE", "/api/v1/namespaces/team/pods")

        async def gone() -> bool:
            return not (await kube.list(PODS, "team")).items

        await sandbox.until("kube-apiserver", "its pods were gone", gone)
