"""What the original leaves in a namespace when it is stopped: objects of the kinds, and the children that it made of them, as far as they differ from ours."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from slinky.kube import ApiError, Resource
from slinky.operator.kinds import GROUP, VERSION
from tests.operator_sandbox.lab import Lab

__all__ = ["leave_behind", "leave_behind_several", "originals_rules", "written_in"]

SIGNING = "a2V5" * 11  # 33 bytes
THEIRS = "manager"  # as the original's program is called in managedFields
CRDS: Resource[dict[str, Any]] = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", dict, namespaced=False)
WRITTEN: tuple[Resource[dict[str, Any]], ...] = (
    *(Resource("", "v1", kind, dict) for kind in ("configmaps", "secrets", "services", "pods")),
    *(Resource("apps", "v1", kind, dict) for kind in ("statefulsets", "deployments")),
    Resource("policy", "v1", "poddisruptionbudgets", dict),
    *(Resource(GROUP, VERSION, kind, dict) for kind in ("controllers", "accountings", "restapis", "loginsets", "nodesets")),
)


async def leave_behind_several(lab: Lab, image: dict[str, str]) -> None:
    """The same with two slurmctld on one claim; besides an Accounting `a` with its slurmdbd, and a RestApi `r`."""
    storage = {"host": "mariadb", "username": "slurm", "passwordKeyRef": {"name": "mariadb", "key": "password"}}
    keys = {"slurmKeyRef": {"name": "keys", "key": "slurm.key"}, "jwtKeyRef": {"name": "keys", "key": "jwt.key"}}
    await lab.create("Secret", "keys", data={"slurm.key": "a2V5", "jwt.key": SIGNING})
    await lab.create("Secret", "mariadb", data={"password": "cGFzcw=="})
    await lab.create("Accounting", "a", {"slurmdbd": image, "storageConfig": storage, **keys})
    await lab.create("RestApi", "r", {"controllerRef": {"name": "c"}, "slurmrestd": image})
    claim = {"enabled": True, "existingClaim": "statesave"}
    await leave_behind(lab, image, replicas=2, ha={"enabled": True, "backups": 1}, persistence=claim, accountingRef={"name": "a"}, **keys)
    labels = _selector("slurmdbd", "a")
    spec = {"replicas": 1, "serviceName": "a-accounting", "selector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "slurmdbd", **image}]}}
    meta = await _meta(lab, "a-accounting", ("Accounting", "a"), labels)
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec | {"template": template}}
    await lab.kube.raw("POST", _place(lab, body), body=body, parameters={"fieldManager": THEIRS})


async def written_in(lab: Lab) -> dict[str, Any]:
    """All that stands in the namespace, but for statuses and what Kubernetes' own controllers write."""
    found: dict[str, Any] = {}
    for resource in WRITTEN:
        for each in (await lab.kube.list(resource, lab.namespace)).items:
            found[f"{resource.plural}/{each['metadata']['name']}"] = _as_written(each)
    return found


def _as_written(found: dict[str, Any]) -> dict[str, Any]:
    meta = found["metadata"]
    kept = {key: meta.get(key) for key in ("uid", "labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp")}
    return kept | {"generation": meta.get("generation"), "data": found.get("data")}


@contextlib.asynccontextmanager
async def originals_rules(lab: Lab) -> AsyncIterator[None]:
    """The API server takes what the original's CRD takes: several slurmctld. Ours refuses them when they are written."""
    name = f"controllers.{GROUP}"
    before = await lab.kube.get(CRDS, name)
    looser = await lab.kube.get(CRDS, name)
    for version in looser["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ha"].pop("x-kubernetes-validations")
    await _replace(lab, looser)
    probe = {"metadata": {"name": "probe"}, "apiVersion": f"{GROUP}/{VERSION}", "kind": "Controller", "spec": {"ha": {"enabled": True}}}

    async def is_taken() -> bool:
        with contextlib.suppress(ApiError):
            place = Resource(GROUP, VERSION, "controllers", dict).path(lab.namespace)
            await lab.kube.raw("POST", place, body=probe, parameters={"dryRun": "All"})
            return True
        return False

    await lab.until("the API server took several slurmctld", is_taken)
    try:
        yield
    finally:
        await _replace(lab, before)


async def _replace(lab: Lab, crd: dict[str, Any]) -> None:
    there = await lab.kube.get(CRDS, crd["metadata"]["name"])
    body = {**crd, "metadata": {**crd["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}}
    await lab.kube.raw("PUT", CRDS.path(name=crd["metadata"]["name"]), body=body)


async def leave_behind(lab: Lab, image: dict[str, str], *, replicas: int = 1, **controller: Any) -> None:
    """A Controller `c`, a LoginSet `l` and a NodeSet `n` with one worker, and their children."""
    await lab.create("Controller", "c", {"slurmctld": image, **controller})
    await lab.create("LoginSet", "l", {"controllerRef": {"name": "c"}, "login": image})
    workers = {"controllerRef": {"name": "c"}, "slurmd": image, "replicas": 1, "updateStrategy": {"type": "OnDelete"}}
    await lab.create("NodeSet", "n", workers)
    await lab.patch("NodeSet", "n", {"metadata": {"finalizers": ["nodeset.slinky.slurm.net/reservation"]}})
    for body in [
        await _stateful_set(lab, image, replicas),
        await _service(
            lab, "c-controller", ("Controller", "c"), _selector("slurmctld", "c") | {"controller.slinky.slurm.net/active": "true"}
        ),
        await _service(lab, "slurm-workers-c", ("NodeSet", "n"), {"app.kubernetes.io/name": "slurmd"}, shared=True, clusterIP="None"),
        await _deployment(lab, image),
        await _worker(lab, image),
    ]:
        await lab.kube.raw("POST", _place(lab, body), body=body, parameters={"fieldManager": THEIRS})


def _place(lab: Lab, body: dict[str, Any]) -> str:
    group, _, version = body["apiVersion"].rpartition("/")
    return Resource(group, version, body["kind"].lower() + "s", dict).path(lab.namespace)


async def _meta(lab: Lab, name: str, owner: tuple[str, str], labels: dict[str, str], *, shared: bool = False) -> dict[str, Any]:
    kind, whose = owner
    uid = (await lab.get(kind, whose))["metadata"]["uid"]
    reference = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "name": whose, "uid": uid}
    more = {} if shared else {"controller": True, "blockOwnerDeletion": True}
    return {"name": name, "namespace": lab.namespace, "labels": labels, "ownerReferences": [reference | more]}


def _selector(daemon: str, name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": daemon, "app.kubernetes.io/instance": name}


async def _stateful_set(lab: Lab, image: dict[str, str], replicas: int) -> dict[str, Any]:
    """With another serviceName, which cannot be changed."""
    labels = _selector("slurmctld", "c")
    sidecar = {"name": "logfile", "restartPolicy": "Always", **image}
    pod = {"initContainers": [sidecar], "containers": [{"name": "slurmctld", **image}], "dnsPolicy": "ClusterFirst"}
    spec = {"replicas": replicas, "serviceName": "c-older", "selector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels, "annotations": {"slinky.slurm.net/slurm-config-hash": "x"}}, "spec": pod}
    meta = await _meta(lab, "c-controller", ("Controller", "c"), labels)
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec | {"template": template}}


async def _service(
    lab: Lab, name: str, owner: tuple[str, str], selector: dict[str, str], *, shared: bool = False, **more: Any
) -> dict[str, Any]:
    meta = await _meta(lab, name, owner, selector, shared=shared)
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": selector, "ports": [{"port": 6817}], **more}}


async def _deployment(lab: Lab, image: dict[str, str]) -> dict[str, Any]:
    labels = _selector("login", "l")
    pod = {"containers": [{"name": "login", "env": [{"name": "THEIRS", "value": "yes"}], **image}, {"name": "sidecar", **image}]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": await _meta(lab, "l", ("LoginSet", "l"), labels), "spec": spec}


async def _worker(lab: Lab, image: dict[str, str]) -> dict[str, Any]:
    more = {
        "app.kubernetes.io/component": "worker",
        "slinky.slurm.net/cluster": "c",
        "nodeset.slinky.slurm.net/pod-name": "n-0",
        "nodeset.slinky.slurm.net/pod-index": "0",
        "nodeset.slinky.slurm.net/pod-hostname": "n-0",
        "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet",
        "controller-revision-hash": "theirs",
    }
    meta = await _meta(lab, "n-0", ("NodeSet", "n"), _selector("slurmd", "n") | more)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"hostname": "n-0", "containers": [{"name": "slurmd", **image}]}}
