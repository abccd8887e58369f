"""The pods' claims judged by storage as it is now.

*Invariants:* until all storage is known, a pod with claims waits. A workload that waits for a claim is woken
by each change of it, of its volume, of its class, and of the pods that use it; by nothing else.
"""

import asyncio
from collections.abc import Callable, Iterable

from slinky.bridge.volumes.claims import Judgement
from slinky.bridge.volumes.stock import Listener, Stock, StorageCaches, claim_names
from slinky.bridge.workload import WorkloadKey
from slinky.kube import Cache, Change, Key, Node, PersistentVolume, PersistentVolumeClaim, Pod

__all__ = ["Volumes"]


class Volumes(Listener):
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
        self.wake = wake
        self._trouble = trouble
        self.changed: Callable[[], None] = lambda: None
        self.needed = asyncio.Event()
        self._known = False
        self._waiting: dict[WorkloadKey, frozenset[Key]] = {}
        self._waiters: dict[Key, set[WorkloadKey]] = {}
        self.stock = Stock(caches, pods)
        self.stock.released = self._claim_touched
        self.stock.listeners.append(self)
        pods[0].subscribe(self._pod_changed)
        caches.claims.subscribe(self._claim_changed)
        caches.volumes.subscribe(self._volume_changed)

    def learned(self) -> None:
        self._known = True
        for key in tuple(self._waiting):
            self.wake(key)
        self.changed()

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

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        refs = {found.spec.claim_ref for found in (change.old, change.new) if found is not None}
        for ref in refs:
            if ref is not None:
                self._claim_touched(Key(ref.namespace, ref.name))

    def on_class(self, class_name: str, /) -> None:
        for key, claims in tuple(self._waiting.items()):
            if any((claim := self.stock.claim(name)) is not None and claim.class_name == class_name for name in claims):
                self.wake(key)
        self.changed()

    def on_driver(self) -> None:
        self.changed()

    def on_node(self, _: str, /) -> None:
        self.changed()

    def on_claim(self, _: Key, /) -> None:
        self.changed()

    def on_shelf(self, _: str, /) -> None:
        self.changed()

    def on_room(self, _class: str, _low: int, _high: int, /) -> None:
        self.changed()

    def _claim_touched(self, claim: Key) -> None:
        for key in tuple(self._waiters.get(claim, ())):
            self.wake(key)
