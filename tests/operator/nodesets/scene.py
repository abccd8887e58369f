"""Snapshots for tests, in few words."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import msgspec

from slinky.kube import Meta, Node, Pod
from slinky.kube.objects import Condition
from slinky.operator.kinds import NodeSet, NodeSetSpec
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import Act
from slinky.operator.nodesets.snapshot import JobOnNodes, SlurmView, Snapshot
from slinky.slurm import Node as SlurmNode

NOW = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
EARLIER = NOW - dt.timedelta(hours=1)


def ago(**how_long: float) -> dt.datetime:
    return NOW - dt.timedelta(**how_long)


def a_nodeset(*, deleted: bool = False, status: dict[str, Any] | None = None, **spec: Any) -> NodeSet:
    meta = Meta(
        name="workers",
        namespace="hpc",
        uid="nodeset",
        generation=1,
        deletion_timestamp=EARLIER if deleted else None,
        finalizers=(marks.FINALIZER,),
    )
    made = NodeSet(metadata=meta, spec=msgspec.convert({"controllerRef": {"name": "c"}, **spec}, NodeSetSpec))
    return msgspec.structs.replace(made, status=msgspec.convert(status or {}, type(made.status)))


def a_pod(
    number: int = 0,
    *,
    name: str = "",
    node: str | None = None,
    phase: str = "Running",
    ready: bool = True,
    ready_since: dt.datetime = EARLIER,
    revision: str = "new",
    created: dt.datetime = EARLIER,
    leaving: bool = False,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    slurmd: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
) -> Pod:
    name = name or f"workers-{number}"
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "hpc",
                "uid": f"uid-{name}",
                "resourceVersion": "7",
                "labels": {marks.INDEX: str(number), marks.REVISION: revision, marks.SCALING_MODE: "StatefulSet", marks.PROTECT: "true"}
                | (labels or {}),
                "annotations": annotations or {},
                "creationTimestamp": created,
                "deletionTimestamp": NOW if leaving else None,
            },
            "spec": {"nodeName": f"k{number}" if node is None else node} | (spec or {}),
            "status": {
                "phase": phase,
                "conditions": [
                    msgspec.to_builtins(Condition(type="Ready", status=str(ready), last_transition_time=ready_since)),
                ],
                "containerStatuses": [{"name": "slurmd", "state": {"running": {}}} if slurmd is None else {"name": "slurmd"} | slurmd],
            },
        },
        Pod,
    )


def cordoned(cause: str, since: dt.datetime = EARLIER) -> dict[str, str]:
    return {marks.CORDON: "true", marks.CAUSE: cause, marks.SINCE: since.isoformat()}


def a_node(name: str, *, cordoned: bool = False, annotations: dict[str, str] | None = None, **more: Any) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations or {}, "labels": more.pop("labels", {})},
            "spec": {"unschedulable": cordoned, "taints": more.pop("taints", [])},
            "status": {"conditions": more.pop("conditions", [])},
        },
        Node,
    )


def in_slurm(name: str, *states: str, reason: str = "", **more: Any) -> SlurmNode:
    return SlurmNode(name, node_states=list(states or ("IDLE",)), reason=reason, **more)


def a_job(job_id: int, *nodes: str, ends: dt.datetime | None = NOW + dt.timedelta(hours=2), partition: str = "workers") -> JobOnNodes:
    return JobOnNodes(job_id, frozenset(nodes), ends, partition=partition)


def scene(
    nodeset: NodeSet,
    pods: Iterable[Pod] = (),
    slurm: Iterable[SlurmNode] = (),
    *,
    jobs: tuple[JobOnNodes, ...] | None = (),
    current: bool = True,
    nodes: Iterable[Node] | None = None,
    revision: str = "new",
    **more: Any,
) -> Snapshot:
    pods = list(pods)
    if nodes is None:
        nodes = [a_node(name) for name in {pod.spec.node_name for pod in pods if pod.spec.node_name}]
    waiting = more.pop("waiting", ())
    view = SlurmView(
        is_current=current,
        current_since=EARLIER if current else None,
        nodes={node.name: node for node in slurm},
        jobs=jobs,
        waiting=waiting,
    )
    return Snapshot(
        nodeset=nodeset,
        revision=revision,
        now=NOW,
        pods={pod.metadata.name: pod for pod in pods},
        nodes={node.metadata.name: node for node in nodes},
        slurm=view,
        **more,
    )


def only(acts: list[Act], kind: type[Any]) -> list[Any]:
    return [act for act in acts if isinstance(act, kind)]


def names(acts: list[Act], kind: type[Any]) -> list[str]:
    """Whom the acts of one kind are about."""
    return sorted(name for act in only(acts, kind) for name in (act.names if hasattr(act, "names") else (act.name,)))
