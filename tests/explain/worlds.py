"""Situations to be judged, as plain values: a cluster in which all is well, and how to break one thing of it."""

import datetime as dt
from typing import Any

import msgspec

from slinky.bridge.keys import CONDITION, EXTERNAL_NODE, JOB_ID
from slinky.bridge.settings import Settings
from slinky.explain.facts import Facts, KubeFacts, SlurmFacts
from slinky.kube import Lease, Namespace, Pod
from slinky.kube import Node as KubeNode
from slinky.slurm import Job, Node, Partition, Reservation

NOW = dt.datetime(2026, 11, 15, 12, 0, tzinfo=dt.UTC)
STAMP = int(NOW.timestamp())
SCHEDULER = "slurm-bridge-scheduler"
SETTINGS = Settings(managed_namespaces=["team"], namespace="slinky")


def pod(name: str = "train-0", namespace: str = "team", *, job: int = 0, standing: tuple[str, str] | None = None, **more: Any) -> Pod:
    """`standing` is the reason and message of the bridge's condition."""
    spec = {"schedulerName": SCHEDULER, **more.pop("spec", {})}
    status = {"phase": "Pending", **more.pop("status", {})}
    if standing:
        status["conditions"] = [{"type": CONDITION, "status": "False", "reason": standing[0], "message": standing[1]}]
    labels = {JOB_ID: str(job)} if job else {}
    meta = {"name": name, "namespace": namespace, "labels": labels, "creationTimestamp": "2026-11-15T11:00:00Z", **more}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


def lease(holder: str = "bridge-0", ago: float = 1.0) -> Lease:
    renewed = f"{NOW - dt.timedelta(seconds=ago):%Y-%m-%dT%H:%M:%S.%fZ}"
    return msgspec.convert(
        {
            "metadata": {"name": "slurm-bridge", "namespace": "slinky"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        },
        Lease,
    )


def claim_lease(job_id: int = 0) -> Lease:
    """The Lease of the bridge's claim: with a conflict over this job, or without one."""
    said = {"slinky.slurm.net/claim": "3.aa.7"}
    if job_id:
        said["slinky.slurm.net/claim-conflict"] = f'{{"jobId":{job_id},"claim":"9.zz.4"}}'
    meta = {"name": "slurm-bridge-claim", "namespace": "slinky", "annotations": said}
    return msgspec.convert({"metadata": meta, "spec": {}}, Lease)


def namespace(name: str = "team", **labels: str) -> Namespace:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def job(job_id: int = 4711, state: str = "PENDING", reason: str = "Resources", **more: Any) -> Job:
    plain = {
        "job_id": job_id,
        "name": "team/train-0",
        "job_state": state.split("+"),
        "state_reason": reason,
        "partition": "bridge",
        "user_name": "root",
        "account": "physics",
        "qos": "normal",
        "priority": number(100),
        "time_limit": number(60),
        "node_count": number(1),
    }
    return msgspec.convert(plain | more, Job)


def partition(name: str = "bridge", state: str = "UP", **more: Any) -> Partition:
    return msgspec.convert({"name": name, "partition": {"state": [state]}, **more}, Partition)


def node(name: str = "w1", states: str = "IDLE+EXTERNAL", **more: Any) -> Node:
    plain = {"name": name, "state": states.split("+"), "partitions": ["bridge"], "cpus": 8, "address": "10.0.0.1", "gres": "gpu:2"}
    return msgspec.convert(plain | more, Node)


def kube_node(name: str = "w1", *, ready: bool = True, gpus: int = 2, **more: Any) -> KubeNode:
    meta = {"name": name, "labels": {EXTERNAL_NODE: "true"}, "annotations": more.pop("annotations", {}), **more.pop("metadata", {})}
    status = {
        "allocatable": {"cpu": "8", "nvidia.com/gpu": str(gpus)},
        "conditions": [
            {"type": "Ready", "status": "True" if ready else "Unknown", "message": "kubelet stopped posting" if not ready else ""}
        ],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    return msgspec.convert({"metadata": meta, "spec": more.pop("spec", {}), "status": status}, KubeNode)


def reservation(name: str = "maint", starts: int = 600, nodes: str = "w1", **more: Any) -> Reservation:
    plain = {"name": name, "node_list": nodes, "start_time": number(STAMP + starts), "end_time": number(STAMP + starts + 3600)}
    return msgspec.convert(plain | more, Reservation)


def facts(kube: dict[str, Any] | None = None, slurm: dict[str, Any] | None = None, settings: Settings = SETTINGS, **more: Any) -> Facts:
    """A pod that waits, in a cluster in which all is well."""
    kube_facts = {"pod": pod(), "namespace": namespace(), "lease": lease(), **(kube or {})}
    slurm_facts = {"partitions": (partition(),), "nodes": (node(),), **(slurm or {})}
    return Facts(
        now=NOW,
        settings=settings,
        **{"name": "train-0", "namespace": "team", **more},
        kube=KubeFacts(**kube_facts),
        slurm=SlurmFacts(**slurm_facts),
    )


def with_job(found: Job, *others: Job, kube: dict[str, Any] | None = None, **slurm: Any) -> Facts:
    """A pod that waits for this job."""
    return facts({"pod": pod(job=found.job_id), **(kube or {})}, {"asked": found.job_id, "jobs": (found, *others), **slurm})
