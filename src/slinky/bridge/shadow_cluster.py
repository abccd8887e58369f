"""Kubernetes as it would be if the bridge placed the pods: what shadow mode sees and changes instead of the real one.

Comes in: all pods as they are, the namespaces, and what the bridge would have written. Goes out: two caches: the pods that the bridge would have taken in, as they would be (unbound until Slurm gives them a node, with the label and the node
that it would have written), and everybody else's, as they are. What must stay true: the real pods are only read; what was written here is by UID, and is forgotten with the pod; where a pod really runs has no say in where it would.
"""

from collections.abc import Callable, Mapping

import msgspec

from slinky.bridge.admission import Verdict, admit_pod, is_ours
from slinky.bridge.admitted import admitted
from slinky.bridge.keys import FINALIZER, JOB_ID
from slinky.bridge.policy import Policy
from slinky.bridge.settings import Settings
from slinky.kube import Cache, Change, Key, Namespace, Pod
from slinky.kube.objects import PodSpec

__all__ = ["ShadowCluster", "Watcher"]


class Watcher:
    """Is told what becomes of pods; the one that does nothing."""

    def saw(self, pod: Pod) -> None:
        """A pod that would be ours, as it really is."""

    def refused(self, pod: Pod, why: str) -> None:
        """Admission would have refused it."""

    def gone(self, uid: str) -> None:
        """It is no longer there."""


class _Written(msgspec.Struct):
    """What the bridge would have written on a pod."""

    job_id: int = 0
    node: str = ""
    annotations: Mapping[str, str] = {}


class _Judged(msgspec.Struct, frozen=True):
    """What admission makes of a pod: kept, as a kubelet says much and changes none of what it depends on."""

    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    asked: PodSpec
    ours: bool
    refusal: str = ""
    spec: PodSpec = PodSpec()


class ShadowCluster:
    """`pods` would be ours; `others` are everyone else's that are on a node, made smaller by `shrink`."""

    def __init__(self, real: Cache[Pod], namespaces: Cache[Namespace], settings: Settings, shrink: Callable[[Pod], Pod]) -> None:
        self.pods: Cache[Pod] = Cache()
        self.others: Cache[Pod] = Cache()
        self._real = real
        self._namespaces = namespaces
        self._settings = settings
        self._policy = Policy(settings)
        self._shrink = shrink
        self._watcher = Watcher()
        self._written: dict[str, _Written] = {}
        self._evicted: set[str] = set()
        self._judged: dict[str, _Judged] = {}
        namespaces.subscribe(self._namespace_changed, replay=False)
        real.subscribe(self._changed)

    def begin(self, watcher: Watcher, evicted: set[str]) -> None:
        """Of a leader's time: what an earlier one wrote here is not known any more, but that these pods would have been evicted."""
        self._watcher = watcher
        self._written, self._evicted = {}, set(evicted)
        for pod in self._real.list():
            self._keep(pod)

    # What the bridge would write

    def label(self, uid: str, key: Key, job_id: int) -> None:
        self._written.setdefault(uid, _Written()).job_id = job_id
        self._again(uid, key)

    def bind(self, uid: str, key: Key, node: str, annotations: Mapping[str, str], job_id: int) -> bool:
        """False where it is gone meanwhile, or would be."""
        if not self._again(uid, key):
            return False
        self._written[uid] = _Written(job_id, node, annotations)
        return self._again(uid, key)

    def evict(self, uid: str, key: Key) -> None:
        """It would be gone, whatever it does now; the one that its owner would make in its stead is not played."""
        self._evicted.add(uid)
        self._again(uid, key)

    def _again(self, uid: str, key: Key) -> bool:
        pod = self._real.by_key(key)
        if pod is None or pod.metadata.uid != uid:
            return False
        self._keep(pod)
        held = self.pods.by_key(key)
        return held is not None and held.metadata.uid == uid

    # What is

    def _changed(self, change: Change[Pod]) -> None:
        if change.old is not None and (change.new is None or change.new.metadata.uid != change.old.metadata.uid):
            uid = change.old.metadata.uid
            self._written.pop(uid, None)
            self._judged.pop(uid, None)
            self._evicted.discard(uid)
            self._watcher.gone(uid)
        if change.new is None:
            self.pods.remove(change.key)
            self.others.remove(change.key)
        else:
            self._keep(change.new)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        before, after = (dict(found.metadata.labels) if found else None for found in (change.old, change.new))
        if before != after:  # whether it is managed, and what it is granted
            for pod in self._real.list(change.key.name):
                self._judged.pop(pod.metadata.uid, None)
                self._keep(pod)

    def _keep(self, pod: Pod) -> None:
        judged = self._judgement(pod)
        if not judged.ours:
            self.pods.remove(pod.key)
            if pod.spec.node_name:
                self.others.put(self._shrink(pod))
            return
        self.others.remove(pod.key)
        if judged.refusal:
            self.pods.remove(pod.key)
            self._watcher.refused(pod, judged.refusal)
            return
        self._watcher.saw(pod)
        if pod.metadata.uid in self._evicted:
            self.pods.remove(pod.key)
        else:
            self.pods.put(self._as_it_would_be(pod, judged))

    def _judgement(self, pod: Pod) -> _Judged:
        meta, asked = pod.metadata, msgspec.structs.replace(pod.spec, node_name="")
        known = self._judged.get(meta.uid)
        if known is not None and (known.annotations, known.labels, known.asked) == (meta.annotations, meta.labels, asked):
            return known
        found = self._judge(pod, asked)
        self._judged[meta.uid] = found
        return found

    def _judge(self, pod: Pod, asked: PodSpec) -> _Judged:
        meta = pod.metadata
        namespace = self._namespaces.get(meta.namespace)
        labels = dict(namespace.metadata.labels) if namespace else {}
        managed = self._settings.manages(meta.namespace, labels)
        document = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(pod, spec=asked)))
        real = asked.scheduler_name == self._settings.scheduler_name  # a bridge places it, or nobody does
        if real or not is_ours(document, self._settings, managed=managed):
            return _Judged(meta.annotations, meta.labels, asked, ours=False)
        verdict: Verdict = admit_pod(document, self._settings, managed=managed, grant=self._policy.grant(meta.namespace, labels))
        spec = msgspec.convert(admitted(document, verdict), Pod).spec
        return _Judged(meta.annotations, meta.labels, asked, True, verdict.refusal, spec)

    def _as_it_would_be(self, pod: Pod, judged: _Judged) -> Pod:
        written = self._written.get(pod.metadata.uid, _Written())
        labels = {**pod.metadata.labels, JOB_ID: str(written.job_id)} if written.job_id else pod.metadata.labels
        meta = msgspec.structs.replace(
            pod.metadata,
            labels=labels,
            annotations={**pod.metadata.annotations, **written.annotations},
            finalizers=tuple(name for name in pod.metadata.finalizers if name != FINALIZER),
        )
        spec = msgspec.structs.replace(judged.spec, node_name=written.node) if written.node else judged.spec
        return msgspec.structs.replace(pod, metadata=meta, spec=spec)
