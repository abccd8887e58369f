"""What users will do: pods, Jobs, gangs and JobSets that come at random, and some that are deleted, from the seed alone.

Comes in: a seed, how long, how many a second. Goes out: arrivals by time, each with its Kubernetes objects. What must stay true: the same numbers give the same arrivals; every pod ends by itself soon, but for a few that stay; nothing asks
for more than a node has, so that whatever waits can start once the others are gone.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from slinky.bridge.keys import GANG, SETTINGS
from tests.chaos.schedule import deck

__all__ = ["NAMESPACES", "NODE_CPUS", "NODE_GPUS", "Arrival", "arrivals"]

NAMESPACES = ("chaos-a", "chaos-b")
NODE_CPUS, NODE_GPUS = 16, 4
SANDBOX = "sandbox.slinky.slurm.net/"
STAY = "86400s"

SHAPES = {"pod": 12, "job": 3, "gang-job": 3, "pod-group": 3, "jobset": 1, "stays": 1}
QOSES = {"normal": 6, "low": 4, "high": 1}


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """`documents` in the order in which they are to be made, the first one first. `deleted_after`: seconds until its user deletes it (0: never), with `grace` as she says it (None: as the pods say)."""

    at: float
    name: str
    shape: str
    namespace: str
    documents: tuple[dict[str, Any], ...]
    deleted_after: float = 0.0
    grace: int | None = None
    pods: int = 1


def arrivals(seed: int, seconds: float, per_second: float, tolerations: Sequence[dict[str, str]] = ()) -> list[Arrival]:
    """By time. All pods have the `tolerations`."""
    return list(_arrivals(random.Random(f"workload {seed}"), seconds, per_second, tolerations))


def _arrivals(dice: random.Random, seconds: float, per_second: float, tolerations: Sequence[dict[str, str]]) -> Iterator[Arrival]:
    shapes, qoses = deck(dice, SHAPES), deck(dice, QOSES)
    moment, number = 0.0, 0
    while per_second > 0 and (moment := moment + dice.expovariate(per_second)) < seconds:
        number += 1
        shape = next(shapes)
        name = f"{shape}-{number:04}"
        template, said = _template(dice, shape, next(qoses))
        template["spec"]["tolerations"] = list(tolerations)
        count = 1 if shape in ("pod", "stays") else dice.randint(2, 5)
        documents = _documents(dice, shape, name, count, template, said)
        deleted = shape != "stays" and dice.random() < 0.3
        yield Arrival(
            at=round(moment, 3),
            name=name,
            shape=shape,
            namespace=dice.choice(NAMESPACES),
            documents=documents,
            deleted_after=round(dice.uniform(0.1, 6), 3) if deleted else 0.0,
            grace=dice.choice([None, None, 0]) if deleted else None,
            pods=count,
        )


def _template(dice: random.Random, shape: str, qos: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A pod's metadata and spec, and what is said about its job."""
    gpus = dice.choice([0, 0, 0, 1, 2])
    amounts = {"cpu": str(dice.choice([1, 1, 2, 3, 4, 8])), "memory": f"{dice.choice([256, 1024, 4096])}Mi"}
    amounts |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
    annotations = {f"{SANDBOX}run-for": STAY if shape == "stays" else f"{dice.uniform(0.5, 6):.1f}s"}
    if dice.random() < 0.4:
        annotations[f"{SANDBOX}stop-after"] = f"{dice.uniform(0.5, 5):.1f}s"
    if shape != "stays" and dice.random() < 0.1:
        annotations[f"{SANDBOX}exit-code"] = "3"
    spec = {
        "containers": [{"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
    }
    return {"metadata": {"annotations": annotations}, "spec": spec}, {f"{SETTINGS}qos": "low" if shape == "stays" else qos}


def _documents(
    dice: random.Random, shape: str, name: str, count: int, template: dict[str, Any], said: dict[str, str]
) -> tuple[dict[str, Any], ...]:
    meta = {"name": name, "annotations": said}
    if shape in ("pod", "stays"):
        return (_pod(name, template, said),)
    fails = f"{SANDBOX}exit-code" in template["metadata"]["annotations"]
    spec: dict[str, Any] = {"parallelism": count, "completions": count, "backoffLimit": 0 if fails else 30, "template": template}
    if shape == "jobset":
        jobs = [{"name": "w", "replicas": dice.randint(1, 2), "template": {"spec": spec}}]
        spec = {"replicatedJobs": jobs, "network": {"enableDNSHostnames": False}, "failurePolicy": {"maxRestarts": 2}}
        return ({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec},)
    if shape == "pod-group":
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta, "spec": {"minMember": count}}
        label = {"scheduling.x-k8s.io/pod-group": name}
        return group, *(_pod(f"{name}-{index}", template, {}, label) for index in range(count))
    if shape == "gang-job":
        meta["annotations"] = said | {GANG: "true"}
    return ({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec},)


def _pod(name: str, template: dict[str, Any], said: dict[str, str], labels: dict[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": name, "labels": labels or {}, "annotations": template["metadata"]["annotations"] | said}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
