"""Mode DaemonSet: one worker on each Kubernetes node that fits; nodes that come and go bring and take their workers.

In: a snapshot with all Kubernetes nodes. Out: the same `Choice` as for mode StatefulSet.
What must stay true: at most one worker a node, and the oldest stays; a worker is not made while another of its node, or of its name in Slurm, is still there, nor where another NodeSet of the cluster has that name; a template that cannot be read moves no worker; no node is judged before the first list of them has come.
"""

from collections import defaultdict
from collections.abc import Iterable

from slinky.kube import Node, Pod
from slinky.operator.kinds import NodeSet
from slinky.operator.labels import CLUSTER
from slinky.operator.nodesets.acts import CreatePod
from slinky.operator.nodesets.choice import Cause, Choice, live, of_mode
from slinky.operator.nodesets.placing import placing_of
from slinky.operator.nodesets.snapshot import Snapshot, Worker, slurm_name, target_of
from slinky.operator.nodesets.updates import condemned
from slinky.operator.objects.worker_names import free_name, host_name

__all__ = ["by_node", "names_of_others"]


def by_node(snapshot: Snapshot) -> Choice:
    workers, others = of_mode(live(snapshot), snapshot)
    going = {worker.uid: Cause.MODE for worker in others}
    placing = placing_of(snapshot.nodeset)
    if placing is None:
        return Choice(staying=workers, going=going, total=len(workers))
    here = _by_target(workers)
    for target, found in here.items():
        node = snapshot.nodes.get(target)
        if node is None or not placing.keeps(node):
            going |= {worker.uid: Cause.PLACE for worker in found}
            continue
        going |= {worker.uid: Cause.PLACE for worker in found[1:]}
        if not _has_its_name(snapshot.nodeset, found[0], node):
            going[found[0].uid] = Cause.PLACE
    wanted = [node for node in snapshot.nodes.values() if placing.takes(node) or (node.metadata.name in here and placing.keeps(node))]
    staying = [worker for worker in workers if worker.uid not in going]
    old = condemned(snapshot, staying, len(wanted))
    going |= {worker.uid: Cause.UPDATE for worker in old}
    return Choice(
        staying=[worker for worker in staying if worker.uid not in going],
        going=going,
        missing=_missing(snapshot, wanted),
        taken=_taken(snapshot, wanted, staying),
        total=len(wanted),
    )


def _by_target(workers: list[Worker]) -> dict[str, list[Worker]]:
    """By the node they are on or for; those on it first, then the oldest."""
    found: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in workers:
        found[target_of(worker.pod)].append(worker)
    for each in found.values():
        each.sort(key=lambda worker: (not worker.is_assigned, str(worker.pod.metadata.creation_timestamp), worker.name))
    return found


def _missing(snapshot: Snapshot, wanted: list[Node]) -> list[CreatePod]:
    """By the nodes' names: of two whose workers would have one pod name, always the same one has it."""
    held = {name: target_of(pod) for name, pod in snapshot.pods.items()}
    taken = set(held.values())
    hostnames = {worker.hostname for worker in snapshot.workers}
    made: list[CreatePod] = []
    for node in sorted(wanted, key=lambda node: node.metadata.name):
        target, hostname = node.metadata.name, host_name(snapshot.nodeset, None, node)
        if target in taken or hostname in hostnames or hostname in snapshot.taken or hostname in snapshot.lent:
            continue
        name = free_name(snapshot.nodeset, node, held)
        if name not in snapshot.pods and name not in snapshot.created:
            hostnames.add(hostname)
            held[name] = target
            made.append(CreatePod(name, node=target))
    return made


def _taken(snapshot: Snapshot, wanted: list[Node], staying: list[Worker]) -> dict[str, str]:
    """Names that workers are wanted with and another NodeSet has."""
    here = {target_of(worker.pod) for worker in staying}
    names = {host_name(snapshot.nodeset, None, node) for node in wanted if node.metadata.name not in here}
    lent = names | {worker.hostname for worker in staying}
    return {name: holder for name, holder in snapshot.lent.items() if name in lent} | {
        name: snapshot.taken[name] for name in names if name in snapshot.taken
    }


def _has_its_name(nodeset: NodeSet, worker: Worker, node: Node) -> bool:
    return worker.pod.spec.host_network or worker.hostname == host_name(nodeset, None, node)


def names_of_others(nodeset: NodeSet, others: Iterable[NodeSet], nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, str]:
    """Names in Slurm that are not for this NodeSet: those of other NodeSets' pods in its cluster, and those that an older one in mode DaemonSet is to have. `others` and `pods` are all there are in the namespace."""
    mine, cluster = nodeset.metadata, nodeset.spec.controller_ref.name
    found: dict[str, str] = {}
    nodes = list(nodes)
    for other in others:
        meta = other.metadata
        is_older = (str(meta.creation_timestamp), meta.name) < (str(mine.creation_timestamp), mine.name)
        same = other.spec.controller_ref.name == cluster and meta.uid != mine.uid
        placing = placing_of(other) if same and is_older and other.spec.is_daemon_set and meta.deletion_timestamp is None else None
        if placing is not None:
            found |= {host_name(other, None, node): meta.name for node in nodes if placing.takes(node)}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is not None and owner.kind == "NodeSet" and owner.uid != mine.uid and pod.metadata.labels.get(CLUSTER) == cluster:
            found[slurm_name(pod)] = owner.name
    return found
