"""What stands on workers' nodes in Slurm: whose they are, their place in the topology, their Kubernetes features; and records that nobody is behind any more.

In: a snapshot. Out: acts that change Slurm's records, several nodes in one where they are to say the same.
What must stay true: only a record that carries this NodeSet's uid is ever deleted, and only where no pod is behind it and no job on it; features that are not ours (`k8s/…`) stay; what Slurm has lately refused is not asked of it again at once.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from slinky.operator.kinds.nodeset import Prune
from slinky.operator.nodesets import marks
from slinky.operator.nodesets.acts import Act, CreatePod, DeleteSlurmNode, SetComment, SetFeatures, SetTopology, in_order
from slinky.operator.nodesets.choice import live
from slinky.operator.nodesets.drains import is_drained
from slinky.operator.nodesets.snapshot import Snapshot, Worker
from slinky.operator.objects.worker_names import host_name
from slinky.slurm import Node as SlurmNode

__all__ = ["PodInfo", "is_nobodys", "own_records", "pod_info", "refusal_of", "renewals", "slurm_marks"]

OUR_FEATURES = "k8s/"


class PodInfo(msgspec.Struct, frozen=True, rename={"pod_name": "podName", "nodeset_name": "nodeSetName", "nodeset_uid": "nodeSetUID"}):
    """A Slurm node's comment: what is behind it. The original's words; other tools read them."""

    namespace: str = ""
    pod_name: str = ""
    node: str = ""
    nodeset_name: str = ""
    nodeset_uid: str = ""


def pod_info(comment: str) -> PodInfo | None:
    """None where it says something else."""
    try:
        return msgspec.json.decode(comment, type=PodInfo) if comment.startswith("{") else None
    except msgspec.DecodeError:
        return None


def slurm_marks(snapshot: Snapshot) -> Iterator[Act]:
    if not snapshot.slurm.is_current:
        return
    workers = [worker for worker in live(snapshot) if worker.slurm is not None and worker.is_assigned]
    yield from _comments(snapshot, workers)
    yield from _topologies(snapshot, workers)
    yield from _features(snapshot, workers)
    yield from _pruned(snapshot)


def refusal_of(act: Act) -> str:
    """How it is remembered that Slurm refused an act; empty for those that are tried again."""
    match act:
        case SetTopology(names, topology):
            return f"topology {topology} of {','.join(names)}"
        case SetFeatures(names, available, _):
            return f"features {','.join(available)} of {','.join(names)}"
        case DeleteSlurmNode(name, _):
            return f"deletion of {name}"
        case SetComment(name, _):
            return f"comment of {name}"
        case _:
            return ""


def _comments(snapshot: Snapshot, workers: list[Worker]) -> Iterator[Act]:
    meta = snapshot.nodeset.metadata
    for worker in workers:
        wanted = PodInfo(meta.namespace, worker.name, worker.pod.spec.node_name, meta.name, meta.uid)
        node = worker.slurm
        if node is None or pod_info(node.comment) == wanted or (node.comment and pod_info(node.comment) is None):
            continue  # a comment that somebody wrote stays
        yield from _unless_refused(snapshot, SetComment(worker.hostname, msgspec.json.encode(wanted).decode()))


def _topologies(snapshot: Snapshot, workers: list[Worker]) -> Iterator[Act]:
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for worker in workers:
        topology = worker.node.metadata.annotations.get(marks.TOPOLOGY, "") if worker.node is not None else ""
        if topology and worker.slurm is not None and not _is_at(worker.slurm, topology):
            wanted[topology].append(worker.hostname)
    for topology, names in sorted(wanted.items()):
        yield from _unless_refused(snapshot, SetTopology(in_order(names), topology))


def _is_at(node: SlurmNode, topology: str) -> bool:
    """Slurm tells the whole way down to a switch where we may have said the last step only."""
    told = dict(_places(node.topology))
    return all(told.get(name) == place for name, place in _places(topology))


def _places(topology: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, topology.split(",")):
        name, _, way = part.partition(":")
        yield name, way.rpartition(":")[2]


def _features(snapshot: Snapshot, workers: list[Worker]) -> Iterator[Act]:
    groups: defaultdict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for worker in workers:
        node = worker.slurm
        if worker.node is None or node is None:
            continue
        said = worker.node.metadata.annotations.get(marks.FEATURES, "")
        ours = sorted({f"{OUR_FEATURES}{word.strip()}" for word in said.split(",") if word.strip()})
        available, active = _with(node.features, ours), _with(node.active_features, ours)
        if set(available) != set(node.features) or set(active) != set(node.active_features):
            groups[available, active].append(worker.hostname)
    for (available, active), names in sorted(groups.items()):
        yield from _unless_refused(snapshot, SetFeatures(in_order(names), available, active))


def _with(features: list[str], ours: list[str]) -> tuple[str, ...]:
    return (*(word for word in features if not word.startswith(OUR_FEATURES)), *ours)


def own_records(snapshot: Snapshot) -> Iterator[tuple[SlurmNode, PodInfo]]:
    """Slurm's nodes that carry this NodeSet's uid and have no pod any more."""
    behind = {worker.hostname for worker in snapshot.workers}
    for node in snapshot.slurm.nodes.values():
        info = pod_info(node.comment)
        if info is not None and info.nodeset_uid == snapshot.nodeset.metadata.uid and node.name not in behind:
            yield node, info


def renewals(snapshot: Snapshot, missing: list[CreatePod]) -> Iterator[tuple[CreatePod, Act]]:
    """Records of pods that were, each with the pod that waits until it is gone, before their names come again: Slurm keeps what a record says (memory, features, weight …) whatever a new slurmd brings, and may refuse it for that."""
    if not snapshot.slurm.is_current:
        return
    for pod in missing:
        node = snapshot.slurm.nodes.get(host_name(snapshot.nodeset, pod.ordinal, snapshot.nodes.get(pod.node)))
        info = None if node is None else pod_info(node.comment)
        if node is None or info is None or info.nodeset_uid != snapshot.nodeset.metadata.uid:
            continue
        if not node.is_busy and is_nobodys(node):
            for act in _unless_refused(snapshot, DeleteSlurmNode(node.name, renewed=True)):
                yield pod, act


def is_nobodys(node: SlurmNode) -> bool:
    """No slurmd is behind it any more, and no administrator has said a word about it."""
    if marks.said_before(node.reason) and (is_drained(node) or node.is_down):
        return False
    if is_drained(node):
        return marks.is_ours(node.reason)
    return node.is_down or not node.is_responding


def _pruned(snapshot: Snapshot) -> Iterator[Act]:
    spec = snapshot.nodeset.spec
    if spec.prune_slurm_node_records is not Prune.NODE_NOT_FOUND or not spec.is_daemon_set:
        return
    for node, info in own_records(snapshot):
        there = snapshot.nodes.get(info.node)
        is_lost = there is None or host_name(snapshot.nodeset, None, there) != node.name
        if is_lost and node.is_down and not node.is_responding and not node.is_busy:
            yield from _unless_refused(snapshot, DeleteSlurmNode(node.name))


def _unless_refused(snapshot: Snapshot, act: Act) -> Iterator[Act]:
    if refusal_of(act) not in snapshot.refused:
        yield act
