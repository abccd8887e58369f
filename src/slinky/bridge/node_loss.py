"""Pods on nodes that are gone: when they, and their share of a job, are let go.

Comes in: the caches of nodes and of our pods. Goes out: which pods count as over though nobody says that their containers are gone, and a look at their workloads when that becomes so. What must stay true: on the word of a clock alone
nothing is let go whose node may come back and whose pod nobody wants gone:

- the Node object is gone, or is said to be out of service (taint `node.kubernetes.io/out-of-service`, an administrator's word that it is off): a pod there that is being deleted is let go at once; Kubernetes' garbage collector deletes them all;
- the Node has not been Ready for `nodes.goneSeconds`: a pod there that is being deleted (the taint manager's doing, or anyone's) is let go;
- the Node object has been gone for `nodes.goneSeconds`: any pod there is let go.

To be let go is to lose the finalizer, and to hold the job no longer. Nothing is deleted by force here: a pod on a node that is merely silent stays as it is, and counts there, until its kubelet or an administrator says that it is gone.
"""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable

from slinky.bridge.clocks import RemoteClock
from slinky.bridge.keys import FINALIZER
from slinky.kube import Cache, Change, Node, Pod

__all__ = ["NodeLoss", "is_let_go", "silent_seconds", "silent_since"]

log = logging.getLogger(__name__)

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
LOOK_SECONDS = 2.0
BY_NODE = "node of a pod"


def silent_since(node: Node) -> dt.datetime | None:
    """Since when it has not been Ready, by the clock of Kubernetes; None where it is, or never said."""
    ready = node.condition("Ready")
    return ready.last_transition_time if ready is not None and ready.status != "True" else None


def silent_seconds(since: dt.datetime | None, now: float | None, watched: float) -> float:
    """For how long a node has not been Ready that says `since` when. `now` by the same clock, None where that is not known; `watched`: for how long it was seen to be so here."""
    if since is None:
        return 0.0
    return max(watched, now - since.timestamp() if now is not None else 0.0)


def is_let_go(*, deleting: bool, node: Node | None, missing: float, silent: float, limit: float) -> bool:
    """`missing`: for how long its Node object has been gone; `silent`: for how long the node has not been Ready."""
    if node is None:
        return deleting or missing >= limit
    return deleting and (silent >= limit or _is_out_of_service(node))


def _is_out_of_service(node: Node) -> bool:
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


class NodeLoss:
    """`look(pod)` asks for another look at the workload of a pod that is let go now."""

    def __init__(self, nodes: Cache[Node], pods: Cache[Pod], seconds: float, clock: RemoteClock | None = None) -> None:
        self._nodes = nodes
        self._clock = clock or RemoteClock()  # the API server's
        self._silent: dict[
            str, tuple[dt.datetime, float]
        ] = {}  # nodes that are not Ready: since when they say, and since when that was seen
        self._pods = pods
        self._seconds = seconds
        self._missing: dict[str, float] = {}  # Node objects that pods name and that are not there, and since when
        self._told: set[str] = set()  # UIDs
        self.look: Callable[[Pod], None] = lambda _: None
        pods.add_index(BY_NODE, lambda pod: [pod.spec.node_name] if pod.spec.node_name and FINALIZER in pod.metadata.finalizers else [])
        nodes.subscribe(self._changed, replay=False)

    def __call__(self, pod: Pod) -> bool:
        """Whether the pod is let go: it counts as over."""
        name = pod.spec.node_name
        if not name or pod.is_over:
            return False
        node = self._nodes.get(name)
        missing = time.monotonic() - self._missing.setdefault(name, time.monotonic()) if node is None else 0.0
        silent = self._silent_for(node) if node is not None else 0.0
        deleting = pod.metadata.deletion_timestamp is not None
        return is_let_go(deleting=deleting, node=node, missing=missing, silent=silent, limit=self._seconds)

    def _silent_for(self, node: Node) -> float:
        name, since, now = node.metadata.name, silent_since(node), time.monotonic()
        if since is None:
            self._silent.pop(name, None)
            return 0.0
        seen = self._silent.get(name)
        if seen is None or seen[0] != since:
            self._silent[name] = seen = (since, now)
        return silent_seconds(since, self._clock.time(now), now - seen[1])

    async def run(self) -> None:
        """For ever."""
        self._told.clear()
        while True:
            self._sweep()
            await asyncio.sleep(LOOK_SECONDS)

    def _sweep(self) -> None:
        """Only nodes that are gone, or say that they are not Ready, are looked at for pods."""
        named, told = set(self._pods.index_values(BY_NODE)), set()
        self._silent = {name: seen for name, seen in self._silent.items() if name in named and self._nodes.get(name) is not None}
        self._missing = {name: since for name, since in self._missing.items() if name in named and self._nodes.get(name) is None}
        for name in named:
            node = self._nodes.get(name)
            if node is not None and silent_since(node) is None and not _is_out_of_service(node):
                continue
            for pod in self._pods.by_index(BY_NODE, name):
                if self(pod):
                    uid = pod.metadata.uid
                    told.add(uid)
                    if uid not in self._told:
                        log.warning(
                            "pod %s is let go: its node %s is %s", pod.key, name, "not there" if node is None else "not there to say more"
                        )
                        self.look(pod)
        self._told = told

    def _changed(self, change: Change[Node]) -> None:
        if change.new is None and self._pods.by_index(BY_NODE, change.key.name):
            self._missing[change.key.name] = time.monotonic()
        elif change.new is not None:
            self._missing.pop(change.key.name, None)
