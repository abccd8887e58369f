"""Which NodeSets are looked at when something changes: their pods, the Kubernetes nodes under them, their Slurm nodes, themselves.

In: changes from caches and clusters. Out: keys in the queue. What must stay true: no change that bears on a NodeSet is missed; a thousand changes within a moment make one turn.
"""

from collections.abc import Callable, Iterable

from slinky.kube import Change, Key, Node, Pod, WorkQueue
from slinky.operator.kinds import Written
from slinky.operator.nodesets.snapshot import slurm_name
from slinky.operator.relations import controller_of
from slinky.operator.site import Site

__all__ = ["Waking"]

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

    def _slurm(self, cluster: Key, names: frozenset[str]) -> None:
        pods = self._site.watches.pods
        homeless = False
        for name in names:
            found = pods.by_index(self.BY_NAME, f"{cluster.namespace}/{name}")
            homeless = homeless or not found
            for pod in found:
                self._soon(Key(cluster.namespace, _nodeset_of(pod)))
        if homeless:  # a record without a pod: of one that is deleted, or of a Kubernetes node that is gone
            self._cluster(cluster)


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
