"""Workers that an earlier operator marked with a plain digest of sssd.conf: they get the keyed one in its place, and are not replaced for it.

In: a snapshot and its cluster's view. Out: the snapshot as it is after that, and a change for each such pod. What must stay true: a worker is only remarked where
what it is made of is the same.
"""

from dataclasses import replace

import msgspec

from slinky.kube import Pod
from slinky.operator import labels
from slinky.operator.nodesets.acts import ChangePod
from slinky.operator.nodesets.snapshot import Snapshot
from slinky.operator.objects.view import ClusterView
from slinky.operator.objects.worker_pod import revision_of

__all__ = ["remarked"]


def remarked(snapshot: Snapshot, view: ClusterView) -> tuple[Snapshot, list[ChangePod]]:
    sssd = snapshot.nodeset.spec.ssh.sssd_conf_ref
    if sssd is None or not (keyed := view.digest(sssd.name)):
        return snapshot, []
    former = revision_of(snapshot.nodeset, replace(view, digests={**view.digests, **view.plain_digests}))
    if former == snapshot.revision:
        return snapshot, []
    revision, note = {labels.REVISION: snapshot.revision}, {labels.SSSD_CONF_HASH: keyed}

    def is_former(pod: Pod) -> bool:
        return pod.metadata.labels.get(labels.REVISION) == former

    def changed(pod: Pod) -> Pod:
        meta = pod.metadata
        meta = msgspec.structs.replace(meta, labels={**meta.labels, **revision}, annotations={**meta.annotations, **note})
        return msgspec.structs.replace(pod, metadata=meta)

    acts = [
        ChangePod(pod.metadata.name, pod.metadata.uid, labels=revision, annotations=note)
        for pod in snapshot.pods.values()
        if is_former(pod)
    ]
    pods = {name: changed(pod) if is_former(pod) else pod for name, pod in snapshot.pods.items()}
    return replace(snapshot, pods=pods), acts
