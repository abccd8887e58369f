"""The sandbox's Kubernetes is a whole one: RBAC, ServiceAccounts, webhooks, volumes on first use, gang APIs, add-ons; its kwok nodes run pods."""

from typing import Any

import pytest

from slinky.sandbox.client import HttpError, Kube
from slinky.sandbox.handle import Sandbox
from tests.conftest import Cli

pytestmark = pytest.mark.sandbox


def pod(name: str, **more: Any) -> dict[str, Any]:
    annotations = {f"sandbox.slinky.slurm.net/{key}": value for key, value in more.pop("annotations", {}).items()}
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]} | more
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


async def until_phase(sandbox: Sandbox, kube: Kube, namespace: str, name: str, phase: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def reached() -> bool:
        found[:] = [await kube.get(f"/api/v1/namespaces/{namespace}/pods/{name}")]
        return bool(found[0]["status"]["phase"] == phase)

    await sandbox.until("kwok", f"pod {name} was {phase}", reached)
    return found[0]


async def test_a_pod_runs_and_ends_as_it_was_told(sandbox: Sandbox, namespace: str) -> None:
    async with sandbox.kube() as kube:
        pods = f"/api/v1/namespaces/{namespace}/pods"
        await kube.post(pods, pod("stays"))
        await kube.post(pods, pod("ends", annotations={"run-for": "1s"}))
        await kube.post(pods, pod("fails", annotations={"run-for": "1s", "exit-code": "3"}))
        assert (await until_phase(sandbox, kube, namespace, "stays", "Running"))["status"]["podIP"]
        await until_phase(sandbox, kube, namespace, "ends", "Succeeded")
        failed = await until_phase(sandbox, kube, namespace, "fails", "Failed")
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_a_deleted_pod_goes_when_its_containers_have_stopped(sandbox: Sandbox, namespace: str) -> None:
    async with sandbox.kube() as kube:
        path = f"/api/v1/namespaces/{namespace}/pods/slow"
        await kube.post(f"/api/v1/namespaces/{namespace}/pods", pod("slow", annotations={"stop-after": "2s"}))
        await until_phase(sandbox, kube, namespace, "slow", "Running")
        await kube.delete(path)
        dying = await kube.get(path)
        assert dying["metadata"]["deletionTimestamp"]
        assert dying["status"]["phase"] == "Running"
        await until_gone(sandbox, kube, path)


async def until_gone(sandbox: Sandbox, kube: Kube, path: str) -> None:
    async def gone() -> bool:
        try:
            await kube.get(path)
        except HttpError as error:
            return error.status == 404
        return False

    await sandbox.until("kwok", f"{path} was gone", gone)


async def test_volumes_bind_on_first_use_to_the_node_of_the_pod(sandbox: Sandbox, namespace: str) -> None:
    async with sandbox.kube() as kube:
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await kube.post(claims, {"metadata": {"name": "data"}, "spec": spec})
        assert (await kube.get(f"{claims}/data"))["status"]["phase"] == "Pending"
        volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
        await kube.post(f"/api/v1/namespaces/{namespace}/pods", pod("user", volumes=volumes))
        placed = await until_phase(sandbox, kube, namespace, "user", "Running")
        claim = await kube.get(f"{claims}/data")
        volume = await kube.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert terms[0]["matchExpressions"][0]["values"] == [placed["spec"]["nodeName"]]
        await kube.delete(f"/api/v1/namespaces/{namespace}/pods/user")
        await kube.delete(f"{claims}/data")
        await until_gone(sandbox, kube, f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


async def test_rbac_holds(sandbox: Sandbox, namespace: str, cli: Cli) -> None:
    asked = ["sandbox", "kubectl", "--name", sandbox.record.name, "auth", "can-i", "list", "pods"]
    who = f"--as=system:serviceaccount:{namespace}:default"
    assert cli(*asked, "--namespace", namespace, who).stdout.strip() == "no"
    assert cli(*asked).stdout.strip() == "yes"


async def test_webhooks_are_asked(sandbox: Sandbox, namespace: str) -> None:
    """JobSet's own validating webhook refuses what its schema lets pass."""
    job = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}}}
    spec = {"replicatedJobs": [{"name": "a", "template": job}], "successPolicy": {"operator": "All", "targetReplicatedJobs": ["b"]}}
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": spec}
    async with sandbox.kube() as kube:
        with pytest.raises(HttpError, match="admission webhook") as caught:
            await kube.post(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets", body)
    assert caught.value.status in (403, 422)


async def test_jobset_and_leaderworkerset_make_pods_that_run(sandbox: Sandbox, namespace: str) -> None:
    containers = {"containers": [{"name": "c", "image": "none"}]}
    template = {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"restartPolicy": "Never", **containers}}}}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}}
    group = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "group"}}
    async with sandbox.kube() as kube:
        root = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
        await kube.post(root, jobset | {"spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": template}]}})
        groups = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{namespace}/leaderworkersets"
        await kube.post(
            groups, group | {"spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": containers}}}}
        )

        async def completed() -> bool:
            return bool((await kube.get(f"{root}/set")).get("status", {}).get("terminalState") == "Completed")

        async def ready() -> bool:
            return bool((await kube.get(f"{groups}/group")).get("status", {}).get("readyReplicas") == 1)

        await sandbox.until("jobset", "the JobSet completed", completed)
        await sandbox.until("lws", "the group was ready", ready)


async def test_both_podgroup_apis_are_served(sandbox: Sandbox, namespace: str) -> None:
    async with sandbox.kube() as kube:
        own = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        await kube.post(f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups", own)
        await kube.post(
            f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups",
            {"metadata": {"name": "g"}, "spec": {"minMember": 2}} | {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"},
        )
