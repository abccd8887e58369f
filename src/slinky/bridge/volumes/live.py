"""The pods' claims judged by storage as it is now.

Comes in: the caches of storage and of pods. Goes out: whether a pod must wait, what refuses it on a node, and a word to those who wait when something of theirs changes. What must stay true: until all is known, a pod with claims waits;
whoever waits for a claim hears of each change of it, of its volume, and of the pods that use it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from slinky.bridge.volumes.claims import Judgement
from slinky.bridge.volumes.stock import Stock, StorageCaches, claim_names
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Cache, Change, Key, Node, PersistentVolume, PersistentVolumeClaim, Pod

__all__ = ["Volumes"]


class Volumes:
    """`pods` are the caches that together hold all pods, our own first. `wake(workload)` is called when something changed that it waits for; `changed()` at each change that may make another node fit, or none. `needed` is set when a pod of ours
    has claims; `learned()` is to be called when the caches are filled, and until then `trouble()` may say what keeps them.
    """

    def __init__(
        self,
        caches: StorageCaches,
        pods: tuple[Cache[Pod], ...],
        wake: Callable[[WorkloadKey], None],
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self._wake = wake
        self._trouble = trouble
        self.changed: Callable[[], None] = lambda: None
        self.needed = asyncio.Event()
        self._known = False
        self._waiting: dict[WorkloadKey, frozenset[Key]] = {}
        self._waiters: dict[Key, set[WorkloadKey]] = {}
        self.stock = Stock(caches, pods)
        self.stock.released = self._claim_touched
        pods[0].subscribe(self._pod_changed)
        caches.claims.subscribe(self._claim_changed)
        caches.volumes.subscribe(self._volume_changed)
        for cache in (caches.classes, caches.csi_nodes, caches.drivers, caches.capacities):
            cache.subscribe(self._rest_changed)

    def learned(self) -> None:
        self._known = True
        self._wake_all()

    # Judging

    def waits(self, pods: Iterable[Pod]) -> str:
        """Why these cannot run anywhere yet, together: empty where they can. Costs nothing for pods without claims."""
        for pod in pods:
            if pod.spec.volumes and (why := self.judgement(pod).waits if self._known else self._unknown()):
                return why
        return ""

    def refusal(self, pod: Pod, node: Node) -> str:
        """Empty where the pod's volumes can be had on that node."""
        judge = self.judge(pod)
        return judge(node) if judge else ""

    def judge(self, pod: Pod) -> Callable[[Node], str] | None:
        """Who says of each node why the pod's volumes cannot be had there; nobody where it has no claims. A filter of `Surroundings`."""
        if not pod.spec.volumes:
            return None
        if not self._known:
            why = self._unknown()
            return lambda _: why
        return self.judgement(pod).refusal

    def judgement(self, pod: Pod) -> Judgement:
        return Judgement(pod, self.stock)

    @property
    def is_known(self) -> bool:
        return self._known

    def _unknown(self) -> str:
        trouble = self._trouble()
        return f"the cluster's volumes are being read{f' ({trouble})' if trouble else ''}"

    # Being told

    def await_changes(self, key: WorkloadKey, pods: Iterable[Pod]) -> None:
        """The workload is woken when something about its pods' claims changes, until it is told otherwise."""
        self.await_nothing(key)
        wanted = frozenset(Key(pod.metadata.namespace, name) for pod in pods for name in claim_names(pod))
        self._waiting[key] = wanted
        for claim in wanted:
            self._waiters.setdefault(claim, set()).add(key)

    def await_nothing(self, key: WorkloadKey) -> None:
        for claim in self._waiting.pop(key, ()):
            left = self._waiters[claim]
            left.discard(key)
            if not left:
                del self._waiters[claim]

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is not None and change.new.spec.volumes and not change.new.is_over:
            self.needed.set()

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        self._claim_touched(change.key)
        self.changed()

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        refs = {found.spec.claim_ref for found in (change.old, change.new) if found is not None}
        for ref in refs:
            if ref is not None:
                self._claim_touched(Key(ref.namespace, ref.name))
        self.changed()

    def _rest_changed(self, _: Change[Any]) -> None:
        self._wake_all()

    def _wake_all(self) -> None:
        for key in tuple(self._waiting):
            self._wake(key)
        self.changed()

    def _claim_touched(self, claim: Key) -> None:
        for key in tuple(self._waiters.get(claim, ())):
            self._wake(key)
