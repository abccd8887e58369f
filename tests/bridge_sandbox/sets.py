"""JobSets, LeaderWorkerSets and their pods, as tests make and look at them."""

from collections.abc import Callable
from typing import Any

from slinky.bridge.keys import JOB_ID
from slinky.bridge.workload import rank_of
from slinky.kube import PODS, PatchKind, Pod, Resource
from tests.bridge_sandbox.conftest import Team

__all__ = [
    "FOR_EVER",
    "JOBSETS",
    "SETS",
    "fail",
    "job_id",
    "jobset",
    "lws",
    "procids",
    "replicated",
    "until_anew",
    "until_bound",
    "until_pods",
]

JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", dict)
SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", dict)
RUN_FOR = "sandbox.slinky.slurm.net/run-for"
FOR_EVER = "3600s"


def template(team: Team, cpus: int = 1, run_for: str = "", **spec: Any) -> dict[str, Any]:
    pod = team.pod("unnamed", cpus=cpus)["spec"]
    return {"metadata": {"annotations": {RUN_FOR: run_for} if run_for else {}}, "spec": {**pod, **spec}}


def replicated(
    team: Team, name: str, replicas: int = 1, parallelism: int = 1, run_for: str = "1s", cpus: int = 1, **more: Any
) -> dict[str, Any]:
    """`more`: `dependsOn`, `completions`, `backoffLimit`, and for the pods `gates`."""
    pods = template(team, cpus, run_for)
    if gates := more.pop("gates", None):
        pods["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    spec = {
        "parallelism": parallelism,
        "completions": more.pop("completions", parallelism),
        "backoffLimit": more.pop("backoffLimit", 0),
        "template": pods,
    }
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def jobset(
    team: Team, name: str, *jobs: dict[str, Any], annotations: dict[str, str] | None = None, said: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    meta = {"name": name, "annotations": {**team.said(**(said or {})), **(annotations or {})}}
    spec = {"replicatedJobs": list(jobs), "network": {"enableDNSHostnames": False}, **spec}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}


def lws(
    team: Team, name: str, size: int, replicas: int = 1, cpus: int = 1, annotations: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """`more`: `restartPolicy` and `subGroupPolicy` of the template, `leader` its CPUs if they are others, the rest of the spec."""
    pods = template(team, cpus, restartPolicy="Always")
    within: dict[str, Any] = {key: more.pop(key) for key in ("restartPolicy", "subGroupPolicy") if key in more}
    if leader := more.pop("leader", 0):
        within["leaderTemplate"] = template(team, leader, restartPolicy="Always")
    spec: dict[str, Any] = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": pods, **within}, **more}
    meta = {"name": name, "annotations": {**team.said(), **(annotations or {})}}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": meta, "spec": spec}


def _of(prefix: str) -> Callable[[Pod], bool]:
    return lambda pod: pod.metadata.name.startswith(prefix) and pod.metadata.deletion_timestamp is None


async def until_pods(
    team: Team, prefix: str, count: int, holds: Callable[[Pod], Any] = bool, what: str = "there", seconds: float = 60
) -> list[Pod]:
    """Until just so many pods whose names begin so are there and not being deleted, and each is as it should be. In rank order."""

    async def so() -> bool:
        found = list(filter(_of(prefix), await team.pods()))
        return len(found) == count and all(map(holds, found))

    await team.until(f"{count} pods {prefix}* were {what}", so, seconds)
    return sorted(filter(_of(prefix), await team.pods()), key=rank_of)


async def until_bound(team: Team, prefix: str, count: int, seconds: float = 60) -> list[Pod]:
    return await until_pods(team, prefix, count, lambda pod: pod.spec.node_name and JOB_ID in pod.metadata.labels, "bound", seconds)


async def until_anew(team: Team, prefix: str, count: int, gone: set[str], seconds: float = 60) -> list[Pod]:
    """Bound, and none of them one of those that must be gone (by UID)."""
    return await until_pods(
        team, prefix, count, lambda pod: pod.spec.node_name and pod.metadata.uid not in gone, "made anew and bound", seconds
    )


def job_id(pods: list[Pod]) -> int:
    [found] = {int(pod.metadata.labels[JOB_ID]) for pod in pods}
    return found


def procids(pods: list[Pod]) -> list[int]:
    return [int(pod.metadata.annotations["task.slinky.slurm.net/procid"]) for pod in pods]


async def fail(team: Team, pod: Pod, code: int = 3) -> None:
    """As its kubelet would say that its container ended so; with 0, well."""
    ended = {"name": "c", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
    change = {"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}}
    await team.kube.patch(PODS, pod.metadata.name, change, team.namespace, kind=PatchKind.MERGE, subresource="status")
