"""Which NodeSets are looked at when something changes: their pods, the Kubernetes nodes under them, their Slurm nodes, themselves.

In: changes from caches and clusters. Out: keys in the queue. What must stay true: no change that bears on a NodeSet is missed; a thousand changes within a moment make one turn.
"""

from collections.abc import Callable, Iterable, Mapping

from slinky.kube import Change, Key, Node, Pod, WorkQueue
from slinky.operator.kinds import Written
from slinky.operator.nodesets.slurm_marks import pod_info
from slinky.operator.nodesets.snapshot import slurm_name
from slinky.operator.relations import controller_of
from slinky.operator.site import Site
from slinky.slurm import Node as SlurmNode

__all__ = ["Waking", "owners_of"]

TOGETHER_SECONDS = 0.2  # changes within so long are looked at together


class Waking:
    BY_NODESET = "nodeset"
    BY_NODE = "kubernetes-node"
    BY_NAME = "slurm-node"

    def __init__(self, site: Site, queue: WorkQueue[Key]) -> None:
        self._site, self._queue = site, queue
        self._ends: list[Callable[[], None]] = []

    def begin(self) -> None:
        watches, clusters = self._site.watches, self._site.clusters
        watches.pods.add_index(self.BY_NODESET, _owner_uids)
        watches.pods.add_index(self.BY_NODE, lambda pod: [pod.spec.node_name] if _nodeset_of(pod) and pod.spec.node_name else [])
        watches.pods.add_index(self.BY_NAME, lambda pod: [f"{pod.metadata.namespace}/{slurm_name(pod)}"] if _nodeset_of(pod) else [])
        self._site.look_at_nodeset = self._queue.add
        self._ends = [
            watches.kinds["NodeSet"].subscribe(self._written),
            watches.kinds["Controller"].subscribe(lambda change: self._cluster(change.key), replay=False),
            watches.kinds["RestApi"].subscribe(self._restapi, replay=False),
            watches.pods.subscribe(self._pod, replay=False),
            watches.nodes.subscribe(self._node, replay=False),
            clusters.on_change(self._slurm),
            clusters.on_standing(self._cluster),
        ]

    def end(self) -> None:
        self._site.look_at_nodeset = lambda _: None
        for end in self._ends:
            end()

    def _soon(self, key: Key) -> None:
        self._queue.add_after(key, TOGETHER_SECONDS)

    def _written(self, change: Change[Written]) -> None:
        old, new = change.old, change.new
        if new is not None and (old is None or _tells_more(old, new)):
            self._queue.add(change.key)

    def _restapi(self, change: Change[Written]) -> None:
        found = change.new or change.old
        if found is not None:
            self._cluster(Key(change.key.namespace, controller_of(found)))

    def _cluster(self, key: Key) -> None:
        for found in self._of_cluster(key):
            self._soon(found.key)

    def _of_cluster(self, key: Key) -> Iterable[Written]:
        return (found for found in self._site.watches.kinds["NodeSet"].list(key.namespace) if controller_of(found) == key.name)

    def _pod(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is not None and (name := _nodeset_of(pod)):
                self._soon(Key(pod.metadata.namespace, name))

    def _node(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _bears(old) == _bears(new):
            return
        for pod in self._site.watches.pods.by_index(self.BY_NODE, change.key.name):
            self._soon(Key(pod.metadata.namespace, _nodeset_of(pod)))
        for found in self._site.watches.kinds["NodeSet"].list():
            if found.spec.get("scalingMode") == "DaemonSet" or found.spec.get("pinToNode"):
                self._soon(found.key)

    def _slurm(self, cluster: Key, names: frozenset[str], before: Mapping[str, SlurmNode]) -> None:
        pods, held = self._site.watches.pods, self._site.clusters.get(*cluster)
        after: Mapping[str, SlurmNode] = held.nodes if held is not None else {}
        for name in names:
            found = pods.by_index(self.BY_NAME, f"{cluster.namespace}/{name}")
            for pod in found:
                self._soon(Key(cluster.namespace, _nodeset_of(pod)))
            if not found:
                for key in owners_of(before.get(name), after.get(name)):
                    self._soon(key)


def owners_of(*records: SlurmNode | None) -> Iterable[Key]:
    """NodeSets of which a record without a pod says that it is theirs: of one that is deleted, of a pod that is to come again, of a Kubernetes node that is gone. All other nodes of the cluster are none of ours."""
    infos = (pod_info(node.comment) for node in records if node is not None)
    return {Key(info.namespace, info.nodeset_name) for info in infos if info is not None}


def _tells_more(old: Written, new: Written) -> bool:
    """A status that we wrote is no news."""
    was, now = old.metadata, new.metadata
    return (was.uid, was.generation, was.deletion_timestamp, was.labels, was.annotations) != (
        now.uid,
        now.generation,
        now.deletion_timestamp,
        now.labels,
        now.annotations,
    )


def _bears(node: Node) -> object:
    """What of a Kubernetes node bears on workers: not its heartbeat."""
    meta, conditions = node.metadata, node.status.conditions
    return (meta.uid, meta.labels, meta.annotations, node.spec, tuple((one.type, one.status, one.message) for one in conditions))


def _nodeset_of(pod: Pod) -> str:
    owner = pod.metadata.controller
    return owner.name if owner is not None and owner.kind == "NodeSet" else ""


def _owner_uids(pod: Pod) -> list[str]:
    owner = pod.metadata.controller
    return [owner.uid] if owner is not None and owner.kind == "NodeSet" else []
