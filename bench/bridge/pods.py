"""The pods that are scheduled in every scenario: the same for the bridge, for the pipeline without logic, for kube-scheduler and for the bare limits.

Comes in: a name and what is special. Goes out: the document to post. What must stay true: the bridge's pods are as its own admission leaves them (so that no webhook is in the path);
the others' differ from them only in who schedules them and in that they carry no finalizer, which nobody would take off.
"""

import copy
from typing import Any

from slinky.bridge.admission import admit_pod
from slinky.bridge.keys import FINALIZER
from slinky.bridge.settings import Settings
from slinky.bridge.workload import COSCHEDULING_LABEL

__all__ = ["NAMESPACE", "admitted", "for_another", "pod", "pod_group"]

NAMESPACE = "bench"


def pod(name: str, *, group: str = "", annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """As a user writes it: 1 CPU, 100 MiB."""
    resources = {"cpu": "1", "memory": "100Mi"}
    labels = {COSCHEDULING_LABEL: group} if group else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "none", "resources": {"requests": resources, "limits": resources}}],
        },
    }


def admitted(sent: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """As admission leaves it."""
    verdict = admit_pod(sent, settings, managed=True)
    if verdict.refusal:
        raise ValueError(f"admission refuses the benchmark's pod: {verdict.refusal}")
    after = copy.deepcopy(sent)
    for patch in verdict.patches:
        _add(after, patch)
    return after


def for_another(sent: dict[str, Any], settings: Settings, scheduler: str) -> dict[str, Any]:
    """The same for another scheduler."""
    found = admitted(sent, settings)
    found["spec"]["schedulerName"] = scheduler
    found["metadata"]["finalizers"] = [name for name in found["metadata"]["finalizers"] if name != FINALIZER]
    return found


def pod_group(name: str, members: int) -> dict[str, Any]:
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": meta, "spec": {"minMember": members}}


def _add(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 6902, as far as admission uses it."""
    if patch["op"] != "add":
        raise ValueError(f"admission's patch is a {patch['op']!r}, and only 'add' is known here")
    *path, last = patch["path"].split("/")[1:]
    place: Any = document
    for part in path:
        place = place[int(part)] if isinstance(place, list) else place[part.replace("~1", "/")]
    if last == "-":
        place.append(patch["value"])
    else:
        place[last] = patch["value"]
