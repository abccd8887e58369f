"""What of the original's can be taken over, and how: pods and jobs that run run on, those that wait keep their job and its place in the queue. Pure.

Comes in: a look at both sides, with the workload that each pod is part of here. Goes out: acts, in steps, and what cannot be taken, with the reason. What must stay true:
- A job is taken only where both sides agree: its admin_comment names the pod, and the pod's label names the job. A comment that merely is JSON is nobody's.
- Nothing is written on a pod that runs.
- A job is one workload here: where the original had several for what is one, the object behind it is told to be no gang.
- A node is taken only where it is external, nobody's, and a Kubernetes node of its name asks to be registered.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slinky.bridge.keys import EXTERNAL_NODE, FINALIZER, MANAGED_NODE, SLURM_NODE_NAME, TOPOLOGY, job_id_of
from slinky.bridge.leaving.steps import Left
from slinky.bridge.marker import comment_for, told_that, with_told
from slinky.bridge.node_mark import mark_for, owner_of
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Node, Pod
from slinky.slurm import Job
from slinky.slurm import Node as SlurmNode

__all__ = ["Handover", "MarkNodes", "Move", "PreparePod", "Scene", "SingleOut", "TakeJob", "Unhook", "plan_migration", "pods_of_original"]

SETS = ("JobSet", "Job")  # which the original never took for a gang, and which may say so


class _Comment(msgspec.Struct):
    """What the original writes; `slinky` is what bridges like this one write, of whatever cluster."""

    pods: list[str]
    slinky: int = 0


def pods_of_original(job: Job) -> tuple[str, ...]:
    """As `namespace/name`; nothing where the job is none of the original's."""
    if not job.is_external:
        return ()
    try:
        said = msgspec.json.decode(job.admin_comment, type=_Comment)
    except msgspec.DecodeError:
        return ()
    return () if said.slinky else tuple(said.pods)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """`jobs` are those of the original, over or not; `taken` the ids of those that are ours already. `workloads` is by UID what each pod is part of here. `webhooks` are the original's configurations, as (plural, name); `never` are the namespaces that cannot be managed here."""

    scheduler: str
    cluster: str
    register: bool = True
    pods: Sequence[Pod] = ()
    workloads: Mapping[str, WorkloadKey] = {}
    jobs: Sequence[Job] = ()
    taken: frozenset[int] = frozenset()
    nodes: Sequence[Node] = ()
    slurm_nodes: Mapping[str, SlurmNode] = {}
    webhooks: Sequence[tuple[str, str]] = ()
    never: frozenset[str] = frozenset()


class Unhook(msgspec.Struct, frozen=True):
    """Remove a webhook configuration of the original: nobody answers there, and it refuses pods of all namespaces."""

    plural: str
    object_name: str

    @property
    def name(self) -> str:
        return f"{self.plural}/{self.object_name}"


class SingleOut(msgspec.Struct, frozen=True):
    """Tell a JobSet or Job that its pods are scheduled each by itself, as the original did."""

    kind: str
    namespace: str
    object_name: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.namespace}/{self.object_name}"


class PreparePod(msgspec.Struct, frozen=True, eq=False):
    """One that waits gets what admission would have given it and can still be given."""

    pod: Pod
    patch: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        return str(self.pod.key)


class TakeJob(msgspec.Struct, frozen=True):
    job_id: int
    comment: str

    @property
    def name(self) -> str:
        return str(self.job_id)


class MarkNodes(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    mark: str

    @property
    def name(self) -> str:
        return ",".join(self.names)


Move = Unhook | SingleOut | PreparePod | TakeJob | MarkNodes


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """`moves` in order. `refused` is what cannot be taken; `notes` are for people."""

    moves: tuple[Move, ...]
    refused: tuple[Left, ...]
    notes: tuple[str, ...]
    already: int = 0


def plan_migration(now: Scene) -> Handover:
    refused: list[Left] = []
    tied = _tied(now, refused)
    single, taken = _jobs(now, tied, refused)
    moves: list[Move] = [Unhook(plural, name) for plural, name in now.webhooks]
    moves += sorted(single, key=lambda each: each.name)
    moves += [
        PreparePod(pod, patch)
        for pod in now.pods
        if pod.metadata.namespace not in now.never and (patch := _preparation(pod, now.scheduler))
    ]
    moves += taken
    nodes, notes = _nodes(now, refused)
    return Handover(moves=(*moves, *nodes), refused=tuple(refused), notes=tuple(notes), already=len(now.taken))


# Pods and jobs


def _tied(now: Scene, refused: list[Left]) -> dict[int, list[Pod]]:
    """Of each job its pods, where both sides agree."""
    named: dict[str, set[int]] = {}
    jobs = {job.job_id: job for job in now.jobs}
    for job in now.jobs:
        for name in pods_of_original(job):
            named.setdefault(name, set()).add(job.job_id)
    found: dict[int, list[Pod]] = {}
    for pod in now.pods:
        name, label = str(pod.key), job_id_of(pod)
        live = {job_id for job_id in named.get(name, ()) if not jobs[job_id].is_finished}
        if not label:
            if live:
                why = f"job {_ids(live)} names it, but it has no label that names a job: it gets a job of its own"
                refused.append(Left("pod", name, why))
        elif label in live:
            found.setdefault(label, []).append(pod)
        elif label not in now.taken and not pod.is_over:
            refused.append(Left("pod", name, _disagreement(jobs.get(label), label, name)))
    return found


def _disagreement(job: Job | None, label: int, name: str) -> str:
    if job is None:
        return f"its label names job {label}, which Slurm does not know as one of the original's: it is left as it is"
    if name not in pods_of_original(job):
        return f"its label names job {label}, which does not name it: it is left as it is"
    return f"its job {label} is over in Slurm ({job.state}): it is left as it is; delete it if it still runs"


def _jobs(now: Scene, tied: Mapping[int, Sequence[Pod]], refused: list[Left]) -> tuple[set[SingleOut], list[TakeJob]]:
    single: set[SingleOut] = set()
    taken: list[TakeJob] = []
    owners = _owners(now, tied)
    for job in now.jobs:
        if job.is_finished:
            continue
        pods = tied.get(job.job_id, ())
        key, why = _key(now, job, pods, owners)
        if key is None:
            refused.append(Left("job", str(job.job_id), why))
            continue
        if key.kind in SETS and (len(pods) == 1 or len(owners[key]) > 1):
            single.add(SingleOut(key.kind, key.namespace, key.object_name))
            key = WorkloadKey("Pod", key.namespace, pods[0].metadata.uid)
        names = [tuple(name.split("/", 1)) for name in pods_of_original(job) if "/" in name]
        comment = comment_for(now.cluster, str(key), names, [pod.metadata.uid for pod in pods])  # type: ignore[arg-type]
        told = told_that(job.features, job.excluded_nodes)  # by the original: it may be changed as if we had said it
        taken.append(TakeJob(job.job_id, with_told(comment, told)))
    return single, taken


def _owners(now: Scene, tied: Mapping[int, Sequence[Pod]]) -> dict[WorkloadKey, set[int]]:
    """The jobs that each workload's pods have."""
    found: dict[WorkloadKey, set[int]] = {}
    for job_id, pods in tied.items():
        for pod in pods:
            if key := now.workloads.get(pod.metadata.uid):
                found.setdefault(key, set()).add(job_id)
    return found


def _key(now: Scene, job: Job, pods: Sequence[Pod], owners: Mapping[WorkloadKey, set[int]]) -> tuple[WorkloadKey | None, str]:
    """The workload that the job is, or why it is none."""
    if not pods:
        listed = ", ".join(pods_of_original(job)[:3])
        return None, f"none of its pods ({listed}) is there and names it: scancel {job.job_id} if it is of no use any more"
    keys = {now.workloads.get(pod.metadata.uid) for pod in pods}
    if len(keys) > 1:
        return None, f"its pods are several workloads here: {', '.join(sorted(map(str, keys)))}"
    [key] = keys
    if key is None and pods[0].metadata.namespace in now.never:
        return None, f"pod {pods[0].key} is in a namespace that can never be managed here"
    if key is None:
        return None, f"the Job or group of pod {pods[0].key} is not there"
    if key.kind in SETS and len(pods) > 1:
        return None, f"it has several pods of {key}, which the original never does"
    if key.kind not in ("Pod", *SETS) and len(owners[key]) > 1:
        return None, f"{key} has several jobs ({_ids(owners[key])}), and one job is one workload here"
    return key, ""


def _ids(job_ids: set[int]) -> str:
    return ", ".join(map(str, sorted(job_ids)))


def _preparation(pod: Pod, scheduler: str) -> tuple[dict[str, Any], ...]:
    """A pod that waits tolerates the taint of the bridge's nodes, whatever its effect, and has the finalizer."""
    if pod.spec.node_name or pod.is_over or pod.metadata.deletion_timestamp is not None:
        return ()
    patch: list[dict[str, Any]] = []
    if not any(each.key == MANAGED_NODE and each.value == scheduler and not each.effect for each in pod.spec.tolerations):
        toleration = {"key": MANAGED_NODE, "operator": "Equal", "value": scheduler}
        patch.append(_add("/spec/tolerations", toleration, bool(pod.spec.tolerations)))
    if FINALIZER not in pod.metadata.finalizers:
        patch.append(_add("/metadata/finalizers", FINALIZER, bool(pod.metadata.finalizers)))
    return ({"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}, *patch) if patch else ()


def _add(path: str, value: object, some: bool) -> dict[str, Any]:
    return {"op": "add", "path": f"{path}/-", "value": value} if some else {"op": "add", "path": path, "value": [value]}


# Nodes


def _nodes(now: Scene, refused: list[Left]) -> tuple[list[MarkNodes], list[str]]:
    if not now.register:
        return [], []
    by_mark: dict[str, list[str]] = {}
    asked = {
        node.metadata.name: node
        for node in now.nodes
        if EXTERNAL_NODE in node.metadata.labels and SLURM_NODE_NAME not in node.metadata.labels
    }
    for name, node in asked.items():
        found = now.slurm_nodes.get(name)
        owner = owner_of(found, now.cluster) if found is not None and found.is_external else ""
        if found is not None and owner == "nobody":
            topology = node.metadata.annotations.get(TOPOLOGY, "").strip()
            names = {word.partition(":")[0] for word in re.sub(r"\([^)]*\)", "", found.gres).split(",") if word}
            by_mark.setdefault(mark_for(now.cluster, topology, names), []).append(name)
        elif found is not None and owner == "other":
            refused.append(Left("node", name, f"is another's in Slurm ({(found.extra or found.reason)[:100]})"))
    names_of_all = {node.metadata.name for node in now.nodes}
    ghosts = sorted(
        name
        for name, found in now.slurm_nodes.items()
        if found.is_external and name not in names_of_all and owner_of(found, now.cluster) == "nobody"
    )
    note = f"external nodes in Slurm that nobody has marked and that are no Kubernetes node: {', '.join(ghosts[:8])} ({len(ghosts)} in all); the original leaves such behind: scontrol delete nodename=… removes them"
    return [MarkNodes(tuple(names), mark) for mark, names in by_mark.items()], [note] if ghosts else []
