"""What the original leaves in a namespace when it is stopped: objects of the kinds, and the children that it made of them, as far as they differ from ours."""

from typing import Any

from slinky.kube import Resource
from slinky.operator.kinds import GROUP, VERSION
from tests.operator_sandbox.lab import Lab

__all__ = ["leave_behind"]

THEIRS = "manager"  # as the original's program is called in managedFields


async def leave_behind(lab: Lab, image: dict[str, str]) -> None:
    """A Controller `c`, a LoginSet `l` and a NodeSet `n` with one worker, and their children."""
    await lab.create("Controller", "c", {"slurmctld": image})
    await lab.create("LoginSet", "l", {"controllerRef": {"name": "c"}, "login": image})
    workers = {"controllerRef": {"name": "c"}, "slurmd": image, "replicas": 1, "updateStrategy": {"type": "OnDelete"}}
    await lab.create("NodeSet", "n", workers)
    await lab.patch("NodeSet", "n", {"metadata": {"finalizers": ["nodeset.slinky.slurm.net/reservation"]}})
    for body in [
        await _stateful_set(lab, image),
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


async def _stateful_set(lab: Lab, image: dict[str, str]) -> dict[str, Any]:
    """With another serviceName, which cannot be changed."""
    labels = _selector("slurmctld", "c")
    sidecar = {"name": "logfile", "restartPolicy": "Always", **image}
    pod = {"initContainers": [sidecar], "containers": [{"name": "slurmctld", **image}], "dnsPolicy": "ClusterFirst"}
    spec = {"replicas": 1, "serviceName": "c-older", "selector": {"matchLabels": labels}}
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
